-- scenarios.lua: uses of every function that Lua can reach, for the fault specs. See faults.lua for what a
-- scenario holds.
local files = require "fault.file_scenarios"
local helper = require "spec.helper"
local ml = require "meshlua"
local ops = require "fault.ops_scenarios"
local transforms = require "fault.transform_scenarios"

local core, nn, P, NamedSharding = ml.core, ml.nn, ml.P, ml.NamedSharding
local random = ml.random

local M = {}

local function add(name, scenario)
  scenario.name = name
  M[#M + 1] = scenario
end

--- A scenario that is a function of the tensors of a state.
local function simple(name, run) add(name, {run = run}) end

local function param(t) return core.box_new(t, {kind = "param"}) end
local function same(a, b) helper.close(a, b) end

local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local line = ml.make_mesh({8}, {"all"})

-- ---- tensors ----------------------------------------------------------------------------------------

add("tensors from Lua values, and back", {
  run = function()
    local x = ml.tensor {{1, 2, 3}, {4, 5, 6}}
    local h = ml.tensor({1, 2.5}, "bfloat16")
    local b = core.from_string(x:bytes(), "int32", {3, 2})
    return {x:totable(), h:totable(), b:totable(), ml.tensor(true):item(), tostring(x), ml.typeof {x, 1, {h}},
      #x, x == b, tostring(ml.zeros {100}), ml.show {ml.zeros {2000}, x.shape}}
  end,
  check = function(_, r)
    assert(r[1][2][3] == 6 and r[2][2] == 2.5 and r[3][3][2] == 6 and r[4] == true and r[7] == 2)
    assert(r[6][3][1] == "bfloat16[2]")
  end,
})

add("what a tensor says of itself", {
  make = function() return {x = ml.device_put(ml.arange(16.0), NamedSharding(mesh, P {"data", "model"}))} end,
  run = function(s)
    local x = s.x
    local shards = x:addressable_shards()
    return {x.shape[1], x.ndim, x.size, x.dtype, tostring(x.sharding), x:is_deleted(), x:is_traced(),
      x:address(1),
      shards[8].data:totable()[2], core.is_tensor(x), core.is_traced(x), core.type_name(x),
      core.ask(shards[8].data:sum()) or core.answer(shards[8].data:sum(), 0) or "here"}
  end,
  check = function(_, r) assert(r[9] == 15.0 and r[13] == "here") end,
})

add("a tensor released", {
  run = function()
    local x <close> = ml.ones {2}
    local y = x + 1
    y:release()
    return y:is_deleted() and tostring(y)
  end,
})

simple("making tensors", function()
  return {ml.full({2}, 3, "int64"), ml.zeros {2}, ml.ones {2}, ml.iota({2, 3}, 2), ml.arange(1, 9, 2),
    ml.linspace(0, 1, 5),
    ml.eye(3), ml.full_like(ml.ones {2}, 2), ml.zeros_like(ml.ones {2}), ml.ones_like(ml.ones {2})}
end)

add("shapes and parts", {
  make = function() return {x = ml.arange(24.0):reshape {2, 3, 4}, ids = ml.tensor {1, 0}} end,
  run = function(s)
    local x = s.x
    return {x:reshape(6, -1), x:transpose(), x:T(), x:swapaxes(1, 3), x:broadcast(2, 2, 3, 4),
      x:expand_dims(1):squeeze(),
      x:slice({1, 2}, {2, -1}, 1), x:at(1), x:flip(2), x:pad({{1, 0}, {0, 1}, false}, 1), ml.concat {x, x},
        ml.stack {x, x},
      ml.T(x:at(1)), x:split(3, 2), x:take(s.ids), ml.scatter_add(s.ids, x, 3), ml.one_hot(s.ids, 3),
      x:cumsum(1), x:dynamic_slice({0, 1, 0}, {1, 1, 1}), x:dynamic_update_slice(x:at(1):expand_dims(1),
        {1, 0, 0}),
      x:cumprod(2), x:cummax(3), x:cummin(1, true), ml.scatter_set(x, s.ids, x),
      x:at(s.ids, false, s.ids):add(1, "drop"), x:at(s.ids, s.ids):max(2), x:at(s.ids):get("fill"),
      ml.dynamic_slice(x, {0, s.ids:at(1), 0}, {1, 1, 1}), x:top_k(2), x:argsort(),
      x:sort(-1, true), x:astype "int32", x:bitcast "int32", x:clip(1, 2), x:stop_gradient(),
      ml.linalg.svd(x), ml.linalg.eigh(x:slice(false, false, {1, 3})), (ml.linalg.qr(x)),
      ml.random.multivariate_normal(ml.random.key(0), ml.zeros(2), ml.linalg.inv(ml.eye(2)))}
  end,
})

add("switches of passes", {
  run = function()
    ml.config {passes = {bucket = false, overlap = true}}
    local known = core.passes()
    ml.config {passes = {bucket = "default", overlap = "default"}}
    return known
  end,
  check = function(_, known) assert(#known >= 4) end,
})

add("operators", {
  make = function() return {x = ml.tensor {1.0, 2.0}, n = ml.tensor {5, 6}} end,
  run = function(s)
    local x, n = s.x, s.n
    return {x + 1, 2 - x, x * x, x / 2, x % 2, x ^ 2, -x, n & 3, n | 1, n ~ 1, ~n, n << 1, n >> 1,
      param(x) + x}
  end,
})

add("convolutions and their gradients", {
  make = function() return {x = ml.ones {2, 4, 4, 2}, w = ml.ones {3, 3, 1, 4}} end,
  run = function(s)
    local function loss(x, w) return ml.conv(x, w, {groups = 2, padding = "same", strides = {1, 2}}):sum() end
    return ml.grad(loss, {argnums = {1, 2}})(s.x, s.w)
  end,
  check = function(_, r) assert(r[2]:at(2, 1, 1, 1):item() == 16) end,
})

add("windows and their gradients", {
  make = function() return {x = ml.arange(32.0):reshape {2, 4, 2, 2}} end,
  run = function(s)
    local options = {strides = {1, 2, 2, 1}}
    return ml.grad(function(x)
      local most = ml.reduce_window(x, "max", {1, 2, 2, 1}, options)
      local sum = ml.reduce_window(x, "sum", {1, 2, 2, 1})
      return (most * most):sum() + sum:sum()
    end)(s.x)
  end,
})

add("a convolutional layer, its norm and pools, and experts behind them", {
  make = function()
    local rngs = nn.Rngs(0)
    return {conv = nn.Conv(1, 4, {3, 3}, {rngs = rngs}), norm = nn.BatchNorm(4, {rngs = rngs}),
      moe = nn.MoE(4, 4, 2, {rngs = rngs}), x = ml.ones {2, 4, 4, 1}}
  end,
  run = function(s)
    local y = nn.max_pool(s.norm(s.conv(s.x)), 2, {strides = 2})
    local z = nn.avg_pool(y, 2, {padding = "same", count_include_pad = false})
    return {(s.moe(z:reshape(2, 4, 4))), s.moe:capacity(4)}
  end,
})

simple("promotion and the table of ops", function() return {core.promote("int32", "bfloat16"),
  #core.ops()} end)

-- ---- random numbers ---------------------------------------------------------------------------------

add("random numbers", {
  make = function() return {key = random.key(3)} end,
  run = function(s)
    local key = s.key
    local keys = random.keys(random.split(key, 3):at(1))
    return {random.key(1), random.fold_in(key, 2), keys, random.bits(key, {3}), random.uniform(key, {3}),
      random.normal(key, {3}), random.truncated_normal(key, -1, 1, {3}), random.bernoulli(key, 0.5, {3}),
      random.randint(key, {3}, 0, 9), random.gumbel(key, {3}), random.categorical(key, ml.zeros {2, 3}),
      random.permutation(key, 5), random.debug_key_reuse(false), random.exponential(key, {3}),
      random.laplace(key, {3}), random.choice(key, 3, {2}, true, ml.ones(3)),
      random.choice(key, ml.ones {3, 2}, {2}, false)}
  end,
})

simple("random numbers by rejection", function()
  local key = random.key(3)
  return {random.gamma(key, 2.0), random.loggamma(key, 0.5), random.beta(key, 1.0, 2.0),
    random.dirichlet(key, ml.ones {2}), random.poisson(key, 3.0)}
end)

-- ---- trees ------------------------------------------------------------------------------------------

add("trees", {
  make = function() return {t = {a = ml.ones {2}, b = {ml.zeros {2}, 3, "x"}}} end,
  run = function(s)
    local t, n, tree = s.t, 0, ml.tree
    tree.visit(t, function() n = n + 1 end)
    local copy = tree.map_with_path(function(path, leaf) return {path, leaf} end, t)
    return {n, tree.leaves(t), copy, tree.map(function(x, y) return x + y end, t, t), tree.replace(t,
      {[t.a] = t.b[1]}),
      tree.only(t, {[t.a] = 1}), tree.is_leaf(t.a), core.tree_keys(t)}
  end,
})

-- ---- processes --------------------------------------------------------------------------------------

add("devices and processes", {
  run = function()
    local here = core.ranks()
    ml.all_gather_to_host {ml.device_put(ml.ones {8}, NamedSharding(mesh, P "data"))}
    assert(core.hosts()[1] == 0 and #core.axes_between_hosts(mesh) == 0)
    assert(#core.axes_between_hosts(mesh, "data") == 0)
    return {ml.process_index(), ml.process_count(), ml.device_count(), ml.local_device_count(), ml.devices(),
      ml.local_devices(), here.local_rank, ml.distributed {tensor_parallel_size = 2, mesh_shape = {2, 4},
        mesh_axis_names = {"data", "model"}}}
  end,
  check = function(_, r) assert(r[2] == 1 and r[7] == 0 and #r[6] == r[4]) end,
})

add("the handler of a stop", {
  run = function()
    local before = ml.on_stop(print)
    core.check_stop " after step 3"
    return {core.on_stop(before)}
  end,
  check = function(_, r) assert(r[1] == print) end,
})

-- ---- layouts ----------------------------------------------------------------------------------------

add("meshes, specs and shardings", {
  run = function()
    local m = ml.Mesh({{0, 1}, {2, 3}}, {"x", "y"})
    local spec = P({"x", "y"}, nil)
    local s = NamedSharding(m, spec)
    local nested = m.devices
    return {tostring(m), tostring(spec), tostring(s), m.shape.x, m.axis_sizes, m.axis_names, m.device_ids,
      nested[2][1], #spec,
      spec[1], spec == P({"x", "y"}, nil), m == mesh, s == NamedSharding(m, spec), s.mesh, s.spec,
        s:shard_shape {8, 2},
      s:check({8, 1}, "x"), core.is_mesh(m), core.is_spec(spec), core.is_sharding(s), core.device_count(),
        core.devices(),
      core.device_kind(), core.host_devices(), core.thread_count(), core.idle(), core.bind_spec(s)}
  end,
  check = function(_, r) assert(r[8] == 2 and r[16][1] == 2) end,
})

add("tensors put from one layout into others", {
  make = function() return {x = ml.arange(64.0):reshape {8, 8}} end,
  run = function(s)
    local x = ml.device_put(s.x, NamedSharding(mesh, P("data", "model")))
    local y = ml.device_put(x, NamedSharding(mesh, P("model", "data")))
    local z = ml.device_put(y, NamedSharding(line, P("all")))
    local t = ml.device_put({a = z, b = {s.x}}, {a = s.x.sharding, b = {NamedSharding(line, P())}})
    return {x, y, z, t.a, t.b[1], core.put_across(x)}
  end,
  check = function(s, r)
    for i = 1, 6 do same(s.x, r[i]) end
  end,
})

add("arrays from parts, and parts of arrays", {
  make = function()
    return {x = ml.device_put(ml.arange(64.0):reshape {8, 8}, NamedSharding(mesh, P "data"))}
  end,
  run = function(s)
    local x, sharding, parts = s.x, s.x.sharding, {}
    for i, shard in ipairs(x:addressable_shards()) do parts[i] = ml.device_put(shard.data, shard.device) end
    local moved = ml.device_put(x + 1, NamedSharding(mesh, P "model"), {donate = true})
    return {ml.make_array_from_callback({8, 8}, sharding, function(i) return x:slice(i[1], i[2]) end),
      ml.make_array_from_process_local_data(sharding, x),
      ml.make_array_from_single_device_arrays({8, 8}, sharding, parts), moved - 1,
      x:addressable_data(2), x:on_device_size_in_bytes(), #x:global_shards(), #x:addressable_shards(),
      sharding:devices_indices_map {8, 8}, sharding:addressable_devices_indices_map {8, 8},
      sharding:is_equivalent_to(NamedSharding(line, P "all"), 2), sharding.replicated_axes,
      core.typeof(ml.ShapeDtypeStruct({8, 8}, "int32", sharding)), tostring(ml.AbstractMesh({2}, {"x"})),
      mesh.abstract_mesh.is_abstract, mesh.local_devices, x.committed, core.fields "meshlua.Mesh"}
  end,
  check = function(s, r)
    for i = 1, 4 do same(s.x, r[i]) end
    assert(r[6] == 512 and r[11] == false and r[15] == true)
  end,
})

add("rows that lie split", {
  make = function()
    local x = ml.random.normal(ml.random.key(1), {4, 32})
    return {x = x, split = ml.device_put(x, NamedSharding(line, P(P.none, "all")))}
  end,
  run = function(s) return ml.jit(function(x) return x:softmax():log_softmax() end)(s.split) end,
  check = function(s, r)
    assert(r.sharding == NamedSharding(line, P(P.none, "all")))
    helper.close(s.x:softmax():log_softmax(), r, 1e-6)
  end,
})

add("stages of a jitted function", {
  make = function() return {x = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P("data", "model")))} end,
  run = function(s)
    local step = ml.jit(function(x, n) return {x:matmul(x) * n} end)
    local traced, types = step:trace(s.x, 2), core.shape_dtype_struct({8}, "float32")
    local compiled = step:lower(s.x, 2):compile()
    return {compiled(s.x, 3), traced:as_text(), traced:lower():as_text(), compiled:cost_analysis().flops,
      compiled:memory_analysis().peak_memory_in_bytes, compiled.output_shardings[1][1],
      tostring(traced.in_avals[1]), pcall(compiled, types) and error "it ran",
      ml.block_until_ready(s.x) == s.x:block_until_ready()}
  end,
  check = function(_, r) assert(r[1][1]:sum():item() == 64 * 8 * 3) end,
})

add("a stack of layers", {
  run = function()
    local stack = ml.init(function(rngs)
      return nn.stack(2, function() return nn.Linear(4, 4, {rngs = rngs, axes = {"a", "b"}}) end)
    end, {mesh = mesh, rules = {{"layers", "model"}, {"a", false}, {"b", false}}})
    return {nn.layer(stack, 2)(ml.ones {2, 4}), stack.kernel.sharding, nn.scan(stack, ml.ones {2, 4})}
  end,
  check = function(_, r) assert(r[2] == NamedSharding(mesh, P "model")) end,
})

add("microbatches", {
  make = function() return {x = ml.arange(8.0)} end,
  run = function(s)
    local count = ml.nn.Param(ml.ones {})
    local looped = ml.jit(function(box, x)
      return ml.accumulate(2, function(part)
        box[1]:set(box[1] + 1)
        return part:sum()
      end, x)
    end)({count}, s.x)
    return {ml.accumulate(2, function(part) return part:sum() end, s.x), ml.microbatches(s.x, 4)[2], looped,
      count:get()}
  end,
  check = function(_, r) assert(r[1]:item() == 14.0 and r[2]:totable()[2] == 5.0) end,
})

add("leaves", {
  make = function()
    local whole = NamedSharding(mesh, P())
    return {x = ml.device_put(ml.arange(8.0), NamedSharding(mesh, P "data")),
      rngs = ml.device_put(nn.Rngs(0), whole), w = ml.device_put(ml.ones {}, whole)}
  end,
  run = function(s)
    return {ml.jit(function(rngs, w, x)
      return ml.accumulate(8, function(part)
        local key = rngs.default()
        return ml.grad(function(v) return (part * v + 0 * ml.random.uniform(key, {1})):sum() end)(w)
      end, x, {bits = "mesh"})
    end)(s.rngs, s.w, s.x)}
  end,
  check = function(_, r) assert(r[1]:item() == 3.5) end,
})

add("a mesh that is set", {
  run = function()
    local _ <close> = ml.set_mesh(mesh)
    return {ml.get_mesh(), ml.device_put(ml.ones {8}, P "data")}
  end,
  check = function() assert(ml.get_mesh() == nil) end,
})

add("contexts and constraints", {
  make = function() return {x = ml.ones {8, 4}, rules = {{"batch", "data"}, {"embed", false}}} end,
  run = function(s)
    return mesh:with(s.rules, function()
      local before = core.mesh_current()
      assert(core.rules_current() == s.rules)
      local alike, other = ml.shard_alike(s.x, ml.propagation_barrier(s.x * 1))
      return {s.x:constrain {"batch", "embed"}, ml.constrain(s.x, P(nil, "model")), ml.device_put(s.x,
        P({"data", priority = 1}, P.unconstrained)), alike, other, before}
    end)
  end,
  check = function(_, r) assert(r[1].sharding == NamedSharding(mesh, P "data")) end,
})

local printed
add("pictures", {
  make = function() return {x = ml.device_put(ml.ones {8, 4}, NamedSharding(mesh, P("data", "model")))} end,
  run = function(s)
    local lines, real = {}, print
    local restore <close> = setmetatable({}, {__close = function() print = real end}) -- luacheck: ignore
    print = function(text) lines[#lines + 1] = text end -- luacheck: ignore
    ml.visualize_sharding(s.x)
    ml.visualize_mesh(mesh)
    return table.concat(lines, "\n")
  end,
  check = function(_, text)
    printed = printed or text
    assert(text == printed and text:find "CPU 7")
  end,
})

-- ---- Params, jit and gradients ------------------------------------------------------------------------

add("Params", {
  make = function() return {x = ml.ones {2}} end,
  run = function(s)
    local p = core.box_new(s.x, {kind = "param", axes = {"embed"}})
    p:set(p:get() * 2)
    core.box_swap(p, p:get())
    return {tostring(p), #p, p.shape, p.kind, core.box_meta(p), core.is_box(p), p:sum():item()}
  end,
  check = function(_, r) assert(r[7] == 4) end,
})

--- A state of two Params, one of them tied, a plain tensor and numbers; what a step makes of it.
local function stateful()
  local w = param(ml.tensor {1.0, 2.0})
  return {model = {w = w, tied = {w}, n = param(ml.tensor(0)), x = ml.tensor {3.0, 4.0}, k = 2}}
end
local function advance(m, rate)
  local function loss_of(model) return ((model.w * model.tied[1] + m.x) ^ 2):sum() end
  local loss, grads = ml.value_and_grad(loss_of)({w = m.w, tied = m.tied})
  m.w:set(m.w - rate * grads.w)
  m.n:set(m.n + 1)
  return loss, {m.n:get() * m.k}
end
local function advanced(s)
  local w, n = s.model.w:get():totable(), s.model.n:get():item()
  return n, math.abs(w[1] - 0.84) < 1e-5 and math.abs(w[2] - 1.36) < 1e-5 and 1 or w[1] == 1 and w[2] == 2
    and 0
end

simple("a function traced into regions", function()
  return ml.jit(function(a)
    local _, outer, results = core.trace_region(function(x)
      local _, inner = core.trace_region(function(y) return y * a end, {x})
      return x + inner[1]
    end, {a})
    return results and outer[1] * 2
  end)(ml.ones {3})
end)

add("a step that is traced", {
  make = function()
    local s = stateful()
    s.step = ml.jit(advance)
    return s
  end,
  run = function(s)
    local loss = s.step(s.model, 0.01)
    return loss
  end,
  intact = function(s)
    local n, moved = advanced(s)
    assert(n == moved, "the state is half old, half new")
    assert(rawequal(s.model.tied[1], s.model.w) and core.is_tensor(s.model.x) and not s.model.x:is_traced())
    s.step(s.model, 0.01) -- and the function can still be called
  end,
  check = function(s, loss)
    local n, moved = advanced(s)
    assert(n == 1 and moved == 1 and loss:item() == 80)
  end,
})

add("a step that is known", {
  make = function()
    local s = stateful()
    s.step = ml.jit(advance)
    s.step(stateful().model, 0.01)
    return s
  end,
  run = function(s) return s.step(s.model, 0.01) end,
  intact = function(s)
    local n, moved = advanced(s)
    assert(n == moved, "the state is half old, half new")
    s.step(s.model, 0.01)
  end,
  check = function(s)
    local n, moved = advanced(s)
    assert(n == 1 and moved == 1)
  end,
})

add("a bound step", {
  make = stateful,
  run = function(s)
    local bound = ml.jit(advance):bind(s.model, 0.01)
    return {tostring(bound), bound()}
  end,
  intact = function(s)
    local n, moved = advanced(s)
    assert(n == moved, "the state is half old, half new")
  end,
  check = function(s)
    local n, moved = advanced(s)
    assert(n == 1 and moved == 1)
  end,
})

add("a step without jit", {
  make = stateful,
  run = function(s) return advance(s.model, 0.01) end,
  intact = function(s)
    assert(not s.model.w:get():is_traced() and not s.model.n:get():is_traced())
    advance(s.model, 0.01)
  end,
})

add("what a jitted function tells", {
  make = function()
    return {x = ml.device_put(ml.ones {8, 4}, NamedSharding(mesh, P("data")))}
  end,
  run = function(s)
    local step = ml.jit(function(t, scale, mode) return t.x * scale, {mode} end,
      {mesh = mesh, rules = {{"a", "data"}}, in_shardings = {{x = P("data")}}, out_shardings = {P("data")},
        donate = "t"})
    local plan = step:plan({x = s.x}, 2, "mode")
    step({x = s.x + 1}, 2, "mode")
    return {tostring(plan), plan:steps(), plan:collectives(), plan:memory(), plan:flops(), plan:copies(),
      plan:device_flops(), step:why_miss(), step:stats(), plan:buffers(), plan:mesh(), plan:fits(),
      core.unwrap(core.wrap(print))}
  end,
})

add("a step as a program", {
  make = function()
    return {x = ml.device_put(ml.arange(32.0):reshape {8, 4}, NamedSharding(mesh, P("data"))),
      step = ml.jit(function(x, s)
        return (ml.scan(function(c, v) return c + v * s, v end, x:at(1) * 0, x)) end),
      other = ml.make_mesh({1, 1}, {"data", "model"}, {0})}
  end,
  run = function(s)
    local program <close> = s.step:program(s.x, 2)
    local elsewhere = core.instead_of(mesh, s.other, function() return s.step:program(s.x, 2) end)
    local inputs = {}
    for i, p in ipairs(program:params()) do inputs[i] = p.object end
    local told = {program:nodes(), program:plan():steps(), elsewhere:params(),
      ml.why_sharding(s.step, s.x, 2), program:why({program:results()[1]}),
      core.run_traced(function() return assert(core.why_traced(s.x * 2)) and s.x + 1 end),
      core.laid_as({NamedSharding(mesh, P())}, function() return s.step:program(s.x, 2):plan():steps() end)}
    elsewhere:close()
    local sum, i = program:results()[1], 0
    repeat i = i + 1 until told[1][i].bodies
    program:body(i, 1)
    return program:run({sum, program:flag(sum), program:sum(sum)}, inputs)[1], told
  end,
  check = function(_, y) same({224.0, 240.0, 256.0, 272.0}, y) end,
})

add("a profile of a step", {
  make = function()
    local step = ml.jit(function(x) return ml.tanh(x:matmul(x)):sum() end)
    return {step = step, x = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P("data")))}
  end,
  run = function(s)
    assert(ml.profile.start "/dev/null")
    local y = s.step(s.x):item()
    local busy = ml.profile.meter()()
    return {y, #busy.devices, tostring(ml.profile.stop())}
  end,
  -- What a failure has left open: it would record what other scenarios do.
  intact = function() if core.profile_busy() then core.profile_stop() end end,
  check = function(_, r)
    assert(r[1] > 63.9 and r[2] == 8 and r[3]:find "matmul")
  end,
})

add("a step explained, and held to a budget", {
  make = function()
    return {x = ml.device_put(ml.arange(32.0):reshape {8, 4}, NamedSharding(mesh, P("data"))),
      w = param(ml.device_put(ml.ones {4, 8}, NamedSharding(mesh, P(nil, "data")))),
      step = ml.jit(function(x, w) return (x:matmul(w)):sum() end)}
  end,
  run = function(s)
    local told = ml.explain(s.step, s.x, s.w)
    ml.expect(told, {all_gather = 1, bytes = "<=1 KB"})
    ml.forbid(told, {"all_to_all", axes = "model"})
    return told, tostring(told), tostring(ml.explain_rules({{"w$", P("data")}}, {w = s.w}, mesh))
  end,
  check = function(_, told) assert(told.fsdp[1].gathers == 1) end,
})

add("a step verified", {
  make = function()
    return {x = ml.device_put(ml.arange(32.0):reshape {8, 4}, NamedSharding(mesh, P("data"))),
      step = ml.jit(function(x) return (x * 2):sum(1) end)}
  end,
  run = function(s) return ml.verify(s.step, s.x) end,
  check = function(_, report) assert(report.ok, tostring(report)) end,
})

add("gradients", {
  make = function() return {x = ml.tensor {1.0, 2.0}, f = function(x) return (x * x):sum() end} end,
  run = function(s)
    local y, pull = ml.vjp(function(x) return x * x end, s.x)
    local first = ml.grad(s.f)(s.x)
    local function both(a, b) return s.f(a * b), b end
    local loss, grads, aux = ml.value_and_grad(both, {argnums = {1, 2}, has_aux = true})(s.x, s.x)
    local inside = ml.jit(function(x)
      local z, back = ml.vjp(function(t) return t * t end, x)
      return z, back(x), ml.grad(function(t) return ml.grad(s.f)(t):sum() end)(x)
    end)
    return {pull(s.x), loss, first, grads[2], aux, y, inside(s.x)}
  end,
  check = function(_, r) same({2.0, 8.0}, r[1]) end,
})

add("a trace run at once", {
  make = function() return {x = ml.ones {2}, p = nn.Param(ml.ones {2})} end,
  run = function(s)
    return {core.run_traced(function()
      local v = core.variable(s.x)
      s.p:set(v * 3)
      assert(core.is_tracing() and core.written()[1] == s.p)
      return core.gradient({v * v}, {s.x}, {v})[1]
    end)}
  end,
  check = function(_, r) same({2.0, 2.0}, r[1]) end,
})

-- ---- modules ----------------------------------------------------------------------------------------

local Mlp = nn.module "Mlp"
function Mlp:init(rngs)
  self.up = nn.Linear(4, 8, {axes = {"embed", "hidden"}, rngs = rngs})
  self.down = nn.Linear(8, 4, {axes = {"hidden", "embed"}, rngs = rngs})
end
function Mlp:__call(x) return self.down(nn.gelu(self.up(x))) end

local rules = {{"batch", "data"}, {"hidden", "model"}, {"embed", false}}

add("a model made on a mesh and trained there", {
  make = function() return {x = ml.ones {8, 4}} end,
  run = function(s)
    local model = ml.init(function(rngs) return Mlp(rngs) end, {mesh = mesh, rules = rules})
    local step = ml.jit(function(m, x)
      local loss, grads = ml.value_and_grad(function(net) return (net(x) ^ 2):mean() end)(m)
      for _, layer in ipairs {"up", "down"} do
        m[layer].kernel:set(m[layer].kernel - 0.1 * grads[layer].kernel)
      end
      return loss
    end, {mesh = mesh, rules = rules})
    local first = step(model, s.x)
    return {first, step(model, s.x)}
  end,
  check = function(_, r) assert(r[2]:item() < r[1]:item()) end,
})

-- ---- data, counters and switches ----------------------------------------------------------------------

add("what has been done and held", {
  run = function()
    return {core.counters(1), core.memory(), core.data_bytes(), core.clock(),
      core.bytes_text(1e6), core.env(), core.doctor(), core.gpus() or false,
      core.stamp() or false, core.seconds_between(0, 1) or false, core.device_peak "bfloat16" or false,
      core.gpu_count(), core.stages(), core.attributes("reshape", {dims = {2, 3}})}
  end,
})

add("files of tensors", {
  make = function() return {file = helper.file("", ".npz")} end,
  run = function(s)
    local read = {}
    for i, name in ipairs {"mixed.safetensors", "fortran.npy", "deflated.npz", "metadata.gguf"} do
      local c <close> = assert(core.catalog("tests/oracle/disk/" .. name))
      read[i] = {c.format, c.path, c.size, c:entries(), c:metadata(), c:bytes(1)}
    end
    local entries = {{name = "arr_0", encoding = "F32", shape = {2, 3}}}
    for _, format in ipairs {"safetensors", "npy", "gguf"} do
      read[#read + 1] = assert(core.catalog_layout(format, entries, format ~= "npy" and {k = "v"} or nil))
    end
    assert(core.npz(s.file, {{"a", ml.ones {2, 3}}}))
    return {read, core.json '{"a": [1, 2.5, null]}'}
  end,
  check = function(s, r)
    assert(#r[1] == 7 and #r[1][1][4] == 16 and r[1][2][4][1].column_major and r[2].a[2] == 2.5)
    assert(core.catalog(s.file):bytes(1) == string.pack("<ffffff", 1, 1, 1, 1, 1, 1))
  end,
})

add("tensors into files, and out of them", {
  make = function() return {file = helper.file("", ".npy"), x = ml.arange(24.0):reshape {4, 6}} end,
  run = function(s)
    local shape, sharding = {4, 6}, NamedSharding(mesh, P("data", "model"))
    local function piece(from)
      from.at, from.size, from.factors = {0, 0}, shape, {{1, 4, 6}, {2, 6, 1}}
      return from
    end
    local plan = assert(core.catalog_layout("npy", {{name = "x", encoding = "F32", shape = shape}}))
    local w <close> = core.writer {memory = 1 << 20}
    local file = assert(w:file(s.file, {header = plan.header, size = plan.size, create = true}))
    w:add(ml.device_put(s.x, sharding), 0, {piece {file = file, begin = plan.begin[1], dtype = "float32"}})
    if not w:start() then w:run() end
    local written = assert(w:wait())
    local c <close> = assert(core.catalog(s.file))
    local y = assert(core.catalog_load("float16", shape, sharding, {piece {catalog = c, entry = 1}},
      {cast = true}))
    return {y, written, core.catalog_bytes(), core.units("float32", shape, sharding, 0),
      core.hash_unit(c, 1, {0, 0}, {1, 3}), w:poll(), w:bytes(), w:held()}
  end,
  check = function(s, r)
    assert(r[1]:astype("float32"):bytes() == s.x:bytes() and r[2].bytes == 96 and r[7] == 96 and r[8] == 96)
    assert(#r[2].units == 8 and #r[4] == 8 and r[2].units[1].hash == r[5])
  end,
})

add("files of tensors, held against each other and written anew", {
  make = function() return {file = helper.file("", ".npy")} end,
  run = function(s)
    local a <close> = assert(core.catalog "tests/oracle/disk/fortran.npy")
    local layout = assert(core.catalog_layout("npy", {{name = "x", encoding = "F64",
      shape = a:entries()[1].shape}}))
    assert(core.catalog_write(s.file, layout.header, layout.size, {{a, 1, layout.begin[1], "F64"}}))
    local b <close> = assert(core.catalog(s.file))
    return core.catalog_compare(a, 1, b, 1)
  end,
  check = function(_, r) assert(r.count == 0 and r.first == -1 and r.largest == 0) end,
})

add("errors", {
  run = function()
    local caught = {}
    for i, bad in ipairs {function() ml.ones({2}):matmul(ml.ones {3}) end, function() core.raise("E_VALUE",
      "text") end,
      function() ml.jit(function(x) return x:item() end)(ml.ones {1}) end,
      function() ml.jit(print, {dontate = 1}) end,
      function() ml.make_mesh({3}, {"x"}) end, function() NamedSharding(mesh, P("x")) end,
      function() NamedSharding(mesh, P("data")):check({7}, "x") end} do
      local _, message = pcall(bad)
      if not tostring(message):find "%[E_[^N]" then error(message, 0) end -- ran out of memory on its way
      caught[i] = message
    end
    return caught
  end,
})

add("switches", {
  run = function()
    core.expand(core.expand(true))
    local file = helper.file ""
    core.dump("all:" .. file)
    local y = ml.jit(function(x) return x:softmax():sum() end)(ml.ones {3})
    core.dump()
    return y
  end,
  intact = function()
    core.expand(false)
    core.dump()
  end,
})

local function gathered(x, model)
  local i, y = ml.axis_index "data", ml.ppermute(x, "data", {{0, 1}, {1, 0}}) * model.w
  y = ml.all_to_all(ml.all_gather(y, "model", {tiled = true}), {"model"}, 2, 1, {tiled = true})
  local part = ml.psum_scatter(ml.pcast(ml.ones {4}, "data"), "data", {tiled = true})
  local mean, most = ml.pmean(y, "data"), ml.pmax(ml.stop_gradient(y), "data")
  return ml.psum({y, i, x:gt(0)}, {"data", "model"}), mean + most, part
end

add("a function of blocks", {
  make = function() return {x = ml.arange(32.0):reshape {8, 4}, w = param(ml.ones {4})} end,
  run = function(s)
    local f = ml.shard_map(gathered, {mesh = mesh, in_specs = {P("data", "model"), {w = P "model"}},
      out_specs = {P(), P("model"), P "data"}})
    local a, b, c = f(s.x, {w = s.w})
    return {a[1], a[2], a[3], b, c, ml.grad(function(x) return (select(2, f(x, {w = s.w})):sum()) end)(s.x)}
  end,
})

add("a function mapped over devices", {
  run = function()
    local x = ml.device_put_replicated(ml.ones {2}, {0, 1})
    return ml.pmap(function(a) return ml.psum(a, "i") end, {axis_name = "i"})(x)
  end,
})

add("modules that are called and named", {
  make = function() return {module = setmetatable({}, {__name = "Named"})} end,
  run = function(s)
    core.set_path(s.module, "path")
    return core.wrap(function(self) return ml.zeros {1}, self end, true)(s.module)
  end,
})

add("functions that are asked how they are called", {
  run = function()
    local counted = core.checked("local_devices", core.local_devices)
    local text = core.plain(function(x) return tostring(x) end)(0.5)
    local reads = core.check(false)
    core.check(reads)
    local as_before = #counted() == #core.local_devices()
    return {as_before, core.accepts(ml.sin), text, core.is_regular_file("README.md")}
  end,
})

-- ---- explicit mode ----------------------------------------------------------------------------------

add("explicit types", {
  make = function()
    local m = ml.make_mesh({2, 4}, {"x", "y"}, {axis_types = {x = "explicit"}})
    local a = ml.device_put(ml.arange(32.0):reshape(4, 8), NamedSharding(m, P("x", "y")))
    return {mesh = m, a = a, w = ml.device_put(ml.ones {8, 4}, NamedSharding(m, P("x")))}
  end,
  run = function(s)
    local z = ml.zeros({4}, {out_sharding = NamedSharding(s.mesh, P("x"))})
    local y = s.mesh:with(function()
      return ml.jit(function(a, w)
        local b = ml.reshard(a, P(nil, "x"))
        return ml.grad(function(v)
          local both = ml.matmul(b, ml.reshard(v, P("x")), {out_sharding = P({unreduced = {"x"}})})
          return ml.reshard(both + both, P("x")):sum()
        end)(w)
      end)(s.a, s.w)
    end)
    core.with_option("option", ml.zeros, function(shape) return ml.ones(shape) end)({2}, {option = true})
    local auto = ml.auto_axes(function(v) return v * 2 end, {out_sharding = P(nil, "x")})(s.a)
    local inside = ml.explicit_axes(function(v) return v + 1 end, {in_sharding = P("y")})(s.a)
    local ok, message = pcall(ml.matmul, inside:T(), ml.reshard(s.a, P("x")))
    if not ok and not tostring(message):find "%[E_SPEC" then error(message, 0) end
    return {z, y, auto, inside}
  end,
})

for _, more in ipairs {transforms, files, ops, require "fault.text_scenarios"} do
  table.move(more, 1, #more, #M + 1, M)
end
return M
