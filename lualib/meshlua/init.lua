-- init.lua: the module `meshlua`, put together from its parts.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local ops = require "meshlua.ops"
local mesh = require "meshlua.sharding.mesh"
local jit = require "meshlua.transform.jit"
local grad = require "meshlua.transform.grad"
local arrays = require "meshlua.ops.arrays"
local explicit = require "meshlua.sharding.explicit"
require "meshlua.sharding.shardings" -- methods and fields of meshes and shardings
require "meshlua.transform.stages" -- methods of jitted functions

local ml = {core = core}

for name, fn in pairs(ops) do ml[name] = fn end

ml.P = core.P
ml.Auto, ml.Explicit, ml.Manual = "auto", "explicit", "manual"
ml.Mesh, ml.make_mesh, ml.AbstractMesh = mesh.Mesh, mesh.make_mesh, mesh.AbstractMesh
ml.set_mesh, ml.get_mesh = mesh.set_mesh, mesh.get_mesh
ml.device_put, ml.constrain = mesh.device_put, mesh.constrain
ml.shard_alike, ml.propagation_barrier = mesh.shard_alike, mesh.propagation_barrier
for _, name in ipairs {"devices", "device_count", "local_devices", "local_device_count", "process_index",
  "process_count", "on_stop", "typeof", "NamedSharding"} do
  ml[name] = core.checked(name, core[name])
end
for name, fn in pairs(arrays) do ml[name] = fn end
for _, name in ipairs {"reshard", "auto_axes", "explicit_axes"} do
  ml[name] = core.wrap(explicit[name], false, name)
end
ml.jit = jit.jit
ml.grad, ml.value_and_grad, ml.vjp = grad.grad, grad.value_and_grad, grad.vjp
ml.random = require "meshlua.random"
ml.tree = require "meshlua.tree"

-- The rest is loaded when it is first used: a script that needs no layers should not wait for them.
local modules = {nn = true, optim = true, schedule = true, data = true, metrics = true, train = true,
  profile = true, checkpoint = true, linalg = "ops.linalg"} -- name -> true, or the file
local functions = {} -- name -> the module that has it
for module, names in pairs {
  ["chat.template"] = {"chat_template"},
  ["checkpoint.load"] = {"load"},
  ["checkpoint.save"] = {"save"},
  config = {"config"},
  generate = {"generate"},
  ["generate.cache"] = {"cache"},
  ["insight.audit"] = {"audit"},
  ["insight.budget"] = {"expect", "forbid"},
  ["insight.checks"] = {"checks"},
  ["insight.explain"] = {"explain"},
  ["insight.nonfinite"] = {"find_nonfinite"},
  ["insight.picture"] = {"visualize_sharding", "visualize_mesh"},
  ["insight.rules"] = {"explain_rules"},
  ["insight.sharding"] = {"why_sharding"},
  ["insight.verify"] = {"verify"},
  printing = {"set_print_options", "show"},
  ["nn.create"] = {"init", "abstract"},
  ["nn.state"] = {"split", "merge", "update", "state", "get_partition_spec", "get_named_sharding",
    "tabulate"},
  ["sharding.collectives"] = {"psum", "pmean", "pmax", "pmin", "all_gather", "psum_scatter", "ppermute",
    "all_to_all", "axis_index", "axis_size", "pcast"},
  ["sharding.distributed"] = {"distributed"},
  ["sharding.pmap"] = {"pmap", "device_put_replicated"},
  ["sharding.rules"] = {"shard_largest"},
  ["sharding.shard_map"] = {"shard_map"},
  tokenizer = {"tokenizer", "learn_tokenizer"},
  ["transform.control"] = {"scan", "while_loop", "fori_loop", "cond", "static_cond", "switch"},
  ["transform.custom_vjp"] = {"custom_vjp", "custom_jvp"},
  ["transform.debug"] = {"debug_print", "debug_callback"},
  ["transform.forward"] = {"jvp", "linearize", "jacfwd", "jacrev", "hessian", "hvp"},
  ["transform.mapping"] = {"associative_scan", "map", "vectorize"},
  ["transform.microbatch"] = {"microbatches", "accumulate"},
  ["transform.remat"] = {"remat", "checkpoint_name", "remat_policies"},
  ["transform.scope"] = {"named_scope"},
  ["transform.vmap"] = {"vmap"},
} do
  for _, name in ipairs(names) do functions[name] = module end
end
ml.split = nil -- of tensors and of modules: see nn/state.lua
-- A name that is not there is an error, not nil.
setmetatable(ml, {__index = function(_, name)
  local from = modules[name] == true and name or modules[name] or functions[name]
  if not from then return lib.missing("ml", "", name) end
  local module = require("meshlua." .. from)
  ml[name] = modules[name] and module or module[name]
  return ml[name]
end, lazy = {modules, functions}})

-- Methods: what takes a tensor first is a method, too.
local methods, box_methods = core.methods "meshlua.Tensor", core.methods "meshlua.Param"
local not_methods = {tensor = true, concat = true, stack = true, where = true, full = true,
  zeros = true, ones = true, iota = true, arange = true, linspace = true, eye = true, scatter_add = true,
  einsum = true, meshgrid = true, logspace = true, lexsort = true, polygamma = true}
for name, fn in pairs(ops) do
  if not not_methods[name] then methods[name] = fn end
end
methods.constrain, methods.where = mesh.constrain, nil
for name, fn in pairs(methods) do
  if not rawget(box_methods, name) then box_methods[name] = fn end
end

if core.verifies then require("meshlua.exports.held").start(ml) end

return ml
