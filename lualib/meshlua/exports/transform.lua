-- transform.lua: jit, gradients, loops and branches, vmap, modules as data, trees.
return [[
abstract(fn: function, ...: any) -> any
  What fn(...) returns (a function, class or module), with types in the place of tensors; nothing runs.
accumulate(n: integer, fn: function, batch: any, {bits: string}) -> any, ...
  Calls fn on each of n microbatches, and gives the means of what it returns; bits = "mesh": the same bits on
  every mesh.
associative_scan(fn: function, elems: tree, {axis: integer, reverse: boolean}) -> any
  All partial results of an associative function of two.
checkpoint_name(x: Tensor, name: string) -> Tensor
  x, under a name that policies of `remat` can ask for.
cond(pred: Tensor|boolean, true_fn: function, false_fn: function, ...: any) -> any, ...
  true_fn(...) or false_fn(...), as the predicate says.
custom_jvp(fn: function, {jvp: *function, nondiff: integer[]}) -> function
  fn, with a derivative of its own, for forward and reverse mode.
custom_vjp(fn: function, {fwd: *function, bwd: *function, nondiff: integer[]}) -> function
  fn, with a gradient of its own.
debug_callback(fn: function, ...: any)
  Calls fn(...) with the values of its tensors, also from a traced function.
debug_print(format: string, ...: any, {per_device: boolean})
  Writes a line as string.format would, also from a traced function; {per_device = true} at the end: one
  for each device.
fori_loop(lower: integer|Tensor, upper: integer|Tensor, body: function, init: any) -> any
  carry = body(i, carry) for i = lower, ..., upper - 1; returns the last carry.
grad(fn: function, {argnums: *integer|integer[], has_aux: boolean}) -> function
  A function that returns the gradients of fn's loss.
hessian(fn: function, {argnums: *integer|integer[], has_aux: boolean}) -> function
  A function that returns the second derivatives of fn's scalar result.
hvp(fn: function, primals: table, tangents: table) -> any, ...
  The Hessian of fn at the primals times the tangents, without the Hessian.
init(fn: function, {mesh: Mesh, rules: table, seed: integer}) -> table
  The module that fn(rngs) makes (a function, or a class), every Param born in its sharding.
jacfwd(fn: function, {argnums: *integer|integer[], has_aux: boolean}) -> function
  A function that returns the Jacobian of fn, by forward mode: for results larger than the argument.
jacrev(fn: function, {argnums: *integer|integer[], has_aux: boolean}) -> function
  A function that returns the Jacobian of fn, by reverse mode: for arguments larger than the result.
jit(fn: function, {mesh: Mesh, rules: table, static: integer|string|table,
    donate: integer|string|table|false, in_shardings: *P|NamedSharding|table,
    out_shardings: *P|NamedSharding|table}) -> JittedFunction
  fn, traced once per kind of arguments and then run as a plan.
jvp(fn: function, primals: table, tangents: table, {has_aux: boolean}) -> any, any, ...
  fn at the primals, and its derivative there along the tangents.
linearize(fn: function, ...: any) -> any, function
  fn at the arguments, and the linear function of tangents that is its derivative there.
map(f: function, xs: tree, {batch_size: integer}) -> any
  f of each slice of xs along dim 1, one after another, stacked.
merge(structure: table, ...: table) -> table
  The module that split took apart, with these tensors.
microbatches(batch: any, n: integer) -> any[]
  The batch in n parts of the same size.
named_scope(name: string, fn: function, ...: any) -> any, ...
  Calls fn(...); what it computes carries the name.
remat(fn: function, {policy: *table}) -> function
  fn, of whose inside gradients keep only what the policy says.
remat_policies.save_any_names_but_these(...: string) -> table
  Named values that have none of the names.
remat_policies.save_anything_except_these_names(...: string) -> table
  Values, named or not, that have none of the names.
remat_policies.save_from_both_policies(a: table, b: table) -> table
  What either policy keeps.
remat_policies.save_only_these_names(...: string) -> table
  Values that have one of the names.
scan(f: function, init: any, xs: any, {length: integer, reverse: boolean, unroll: integer}) -> any, any
  carry, y = f(carry, x) for each slice of xs along dim 1; returns the last carry, and the ys stacked.
split(model: table|Tensor, ...: any) -> any, ...
  Takes a module apart: its structure, and its state, or one for each filter. A tensor: cuts it into n
  parts.
state(model: table, filter: string|function|table|boolean?) -> table
  The tensors of a module as a tree of plain tables: of all its leaves, or of some.
static_cond(pred: Tensor|boolean, true_fn: function, false_fn: function, ...: any) -> any, ...
  cond, of which each device of a shard_map knows before the program runs when it takes which branch.
switch(index: integer|Tensor, branches: table, ...: any) -> any, ...
  branches[index + 1](...): the index counts from 0 and is clamped.
tabulate(model: table) -> string
  The leaves of a model: path, type, kind, bytes, bytes on each device.
update(model: table, state: table) -> table
  Writes the tensors of a state into a module.
value_and_grad(fn: function, {argnums: *integer|integer[], has_aux: boolean}) -> function
  A function that returns fn's loss and its gradients.
vectorize(fn: function, {signature: string, excluded: integer[]}) -> function
  fn over all dims in front of those that it takes, as the functions on tensors broadcast.
vjp(fn: function, ...: any) -> any, function
  fn's result at the arguments, and its pullback.
vmap(fn: function, {in_axes: integer|table|false, out_axes: integer|table|false, axis_size: integer,
    axis_name: string, spmd_axis: string|string[]}) -> function
  The function of one example, for many at once.
while_loop(cond_fn: function, body_fn: function, init: any) -> any
  Runs body_fn on the carry as long as cond_fn of it is true.
tree.is_leaf(x: any) -> boolean
  Is x a tensor, a Param, or a type of ml.abstract?
tree.leaves(tree: any) -> table, string[]
  The distinct leaves and their paths.
tree.map(fn: function, tree: any, ...: any) -> any
  A tree with fn(leaf) in the place of each leaf; further trees give fn more arguments.
tree.map_with_path(fn: function, tree: any) -> any
  The same with fn(path, leaf).
tree.only(tree: any, of: table) -> any
  A tree of plain tables with only the leaves in `of`, replaced by what it maps them to.
tree.replace(tree: any, with: table) -> any
  A tree of the same structure with the leaves in `with` replaced, metatables kept.
tree.visit(tree: any, visit: function)
  Calls visit(path, leaf) for every distinct leaf, in order.
jit:bind(step: JittedFunction, ...: any) -> function
  The step with its first arguments given, to be called with the rest.
jit:lower(step: JittedFunction, ...: any) -> Lowered
  The program of one device, with its collectives.
jit:plan(step: JittedFunction, ...: any) -> Plan
  The plan for these arguments.
jit:program(step: JittedFunction, ...: any) -> Program
  The program, for the library's own reports.
jit:stats(step: JittedFunction) -> integer, integer
  Calls that found a plan, calls that were traced.
jit:trace(step: JittedFunction, ...: any) -> Traced
  The ops as written.
jit:why_miss(step: JittedFunction) -> string
  Why the last call was traced.
Traced:as_text(self: Traced) -> string
  The program as written.
Traced:lower(self: Traced) -> Lowered
  The program of one device.
Traced.in_avals: table
  The types of what goes in.
Traced.out_avals: table
  The types of what comes out.
Lowered:as_text(self: Lowered, stage: string?) -> string
  The program of one device, or as it is after another stage.
Lowered:compile(self: Lowered) -> Compiled
  What runs.
Lowered.in_avals: table
  The types of what goes in.
Lowered.out_avals: table
  The types of what comes out.
Compiled:as_text(self: Compiled, stage: string?) -> string
  The plan, or the program after another stage.
Compiled:cost_analysis(self: Compiled) -> table
  What a call costs each device.
Compiled:memory_analysis(self: Compiled) -> table
  What a call holds on each device, in bytes.
Compiled:__call(self: Compiled, ...: any) -> any, ...
  Runs it.
Compiled.in_avals: table
  The types of what goes in.
Compiled.out_avals: table
  The types of what comes out.
Compiled.input_shardings: table
  How arguments lie.
Compiled.output_shardings: table
  How results lie.
]]
