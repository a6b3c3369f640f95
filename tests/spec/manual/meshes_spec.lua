-- devices: 8
-- One call has one mesh. Whatever names another in a trace is an error at the user's line; a call that raises, and
-- is caught, leaves nothing of itself in the trace.
local helper = require "spec.helper"
local ml = require "meshlua"

local P, NamedSharding = ml.P, ml.NamedSharding

local function ids(n, reversed)
  local list = {}
  for i = 1, n do list[i] = reversed and n - i or i - 1 end
  return list
end

local own = ml.make_mesh({8}, {"x"}, ids(8))
local others = {ml.make_mesh({4, 2}, {"p", "q"}, ids(8)), ml.make_mesh({2, 4}, {"x", "y"}, ids(8)),
  ml.make_mesh({4}, {"x"}, ids(4)), ml.make_mesh({8}, {"x"}, ids(8, true)), ml.make_mesh({8}, {"z"}, ids(8)),
  ml.make_mesh({2, 2, 2}, {"p", "q", "r"}, ids(8)), ml.make_mesh({1}, {"x"}, ids(1)),
  ml.make_mesh({2}, {"w"}, {6, 7})}
if helper.watched then others = {others[1], others[4], others[8]} end
local whole = ml.arange(64.0):reshape {8, 8} / 64
local ones = ml.device_put(ml.ones {8, 8}, NamedSharding(own, P(nil, "x")))
local laid = ml.device_put(whole, NamedSharding(own, P("x")))

local function first(mesh) return P(mesh.axis_names[1]) end

--- fn in shard_map, split along the first axis; its results under `out`.
local function mapped(fn, mesh, out)
  return ml.shard_map(fn, {mesh = mesh, in_specs = first(mesh), out_specs = out or first(mesh)})
end

-- What names another mesh. Each doubles its tensor where the mesh is the right one.
local uses = {
  shard_map = function(v, mesh) return mapped(function(u) return u * 2 end, mesh)(v) end,
  ["a shard_map that nobody reads"] = function(v, mesh)
    mapped(function(u) return u end, mesh)(v)
    return v * 2
  end,
  ["a shard_map that takes the mesh in context"] = function(v, mesh)
    return mesh:with(function()
      local specs = {in_specs = first(mesh), out_specs = first(mesh)}
      return ml.shard_map(function(u) return u * 2 end, specs)(v) * 1
    end)
  end,
  ["a jitted function"] = function(v, mesh)
    local y = ml.jit(function(u) return mapped(function(b) return b * 2 end, mesh)(u) end)(v)
    return y
  end,
  ["a tensor that is met"] = function(v, mesh)
    return v * ml.device_put(ml.full({8, 8}, 2.0), NamedSharding(mesh, P()))
  end,
  constrain = function(v, mesh) return v:constrain(NamedSharding(mesh, first(mesh))) * 2 end,
  reshard = function(v, mesh) return ml.reshard(v, NamedSharding(mesh, first(mesh))) * 2 end,
  device_put = function(v, mesh) return ml.device_put(v, NamedSharding(mesh, first(mesh))) * 2 end,
  ["mesh:with"] = function(v, mesh)
    return mesh:with(function() return v:constrain(first(mesh)) * 2 end)
  end,
  out_sharding = function(v, mesh)
    return v:matmul(ml.eye(8), {out_sharding = NamedSharding(mesh, first(mesh))}) * 2
  end,
  auto_axes = function(v, mesh)
    local y = ml.auto_axes(function(u) return u * 2 end, {out_sharding = NamedSharding(mesh, first(mesh))})(v)
    return y
  end,
  explicit_axes = function(v, mesh)
    local inside = {in_sharding = NamedSharding(mesh, first(mesh))}
    return ml.explicit_axes(function(u) return u * 2 end, inside)(v) * 1
  end,
}

-- Where it is named: f of a tensor, and what f(laid) is.
local places = {
  jit = function(f) return ml.jit(f)(laid) end,
  ["jit with a mesh"] = function(f) return ml.jit(f, {mesh = own})(whole) end,
  vmap = function(f) return ml.jit(function(a) return ml.vmap(f)(ml.stack {a, a}):slice(2) end)(laid) end,
  ["vmap, of what it meets"] = function(f)
    return ml.vmap(function(i) return f(laid) * i end)(ml.ones {2}):slice(1)
  end,
  scan = function(f)
    return ml.jit(function(a) return ml.fori_loop(0, 1, function(_, c) return f(c) end, a) end)(laid)
  end,
  while_loop = function(f)
    return ml.jit(function(a)
      local function body(c) return {i = c.i + 1, v = f(c.v)} end
      return ml.while_loop(function(c) return c.i:lt(1) end, body, {i = ml.tensor(0), v = a}).v
    end)(laid)
  end,
  cond = function(f)
    return ml.jit(function(a) return ml.cond(a:sum():gt(-1), f, function(z) return z end, a) end)(laid)
  end,
  remat = function(f) return ml.jit(ml.remat(f))(laid) end,
  grad = function(f) return ml.jit(ml.grad(function(a) return f(a):sum() end))(laid) end,
  ["grad of remat"] = function(f) return ml.grad(function(a) return ml.remat(f)(a):sum() end)(laid) end,
  ["another shard_map"] = function(f)
    return ml.jit(ml.shard_map(f, {mesh = own, in_specs = P(), out_specs = P()}))(laid)
  end,
}

local function each(list, fn)
  local names = {}
  for name in pairs(list) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do fn(name, list[name]) end
end

describe("another mesh", function()
  each(uses, function(use, act)
    it(("of %s is an error in a trace"):format(use), function()
      each(places, function(name, place)
        if use == "device_put" and name == "vmap, of what it meets" then return end -- moved before it is traced
        for _, mesh in ipairs(others) do
          helper.raises("[E_MESH]", place, function(v)
            local y = act(v, mesh)
            return y
          end)
        end
      end)
    end)
  end)

  it("of shard_map is named with the line, both meshes and the way out", function()
    local function f(v)
      local y = uses.shard_map(v, others[1])
      return y
    end
    local ok, message = pcall(ml.jit(f), laid)
    assert.is_false(ok)
    for _, word in ipairs {"meshes_spec.lua:%d+: %[E_MESH%] shard_map", "Mesh%(p=4, q=2%)", "Mesh%(x=8%)",
      "device_put"} do
      assert.truthy(message:find(word), message)
    end
  end)

  it("is fine where the trace has none yet", function()
    for _, mesh in ipairs(others) do
      helper.close(ml.jit(function(v) return uses.shard_map(v, mesh) + 1 end)(whole), whole * 2 + 1, 0)
    end
  end)
end)

-- What raises inside shard_map, at several places of its course, and is caught.
local failures = {
  ["in the function"] = function(v, mesh, kept)
    mapped(function(u)
      kept[1] = ml.psum(u, mesh.axis_names[1]) * ml.device_put(ml.ones {8}, NamedSharding(mesh, P()))
      error "no"
    end, mesh)(v)
  end,
  ["behind a loop in the function"] = function(v, mesh)
    mapped(function(u)
      return ml.fori_loop(0, 2, function(_, c) return c * v:sum() end, u), error "no"
    end, mesh)(v)
  end,
  ["in a loop of the function"] = function(v, mesh)
    mapped(function(u) return ml.fori_loop(0, 2, function() error "no" end, u) end, mesh)(v)
  end,
  ["in the out_specs"] = function(v, mesh) mapped(function(u) return u end, mesh, P("nope"))(v) end,
  ["in the number of results"] = function(v, mesh) mapped(function(u) return u end, mesh, {P(), P()})(v) end,
  ["in a constraint of what is outside"] = function(v, mesh)
    mapped(function(u)
      v:constrain(NamedSharding(mesh, first(mesh)))
      return u, error "no"
    end, mesh)(v)
  end,
}

-- Where it is caught: f of v, and what f(v) is; the gradient of a sum of it.
local catchers = {
  jit = function(f, v) return ml.jit(f)(v) end,
  scan = function(f, v)
    return ml.jit(function(a) return ml.fori_loop(0, 1, function(_, c) return f(c) end, a) end)(v)
  end,
  cond = function(f, v)
    return ml.jit(function(a) return ml.cond(a:sum():gt(-1), f, function(z) return z end, a) end)(v)
  end,
  vmap = function(f, v) return ml.jit(function(a) return ml.vmap(f)(ml.stack {a, a}):slice(2) end)(v) end,
  remat = function(f, v) return ml.jit(ml.remat(f))(v) end,
  ["another shard_map"] = function(f, v)
    return ml.shard_map(f, {mesh = own, in_specs = P(), out_specs = P()})(v)
  end,
}

describe("what shard_map raises and the script catches leaves nothing behind:", function()
  each(failures, function(name, fail)
    it(name, function()
      each(catchers, function(_, place)
        for _, mesh in ipairs(others) do
          local function f(a)
            local caught = not pcall(fail, a, mesh, {})
            local y = a * 2 + ones
            return caught and y or error "it did not raise"
          end
          for _, v in ipairs {whole, laid} do
            helper.close(place(f, v), whole * 2 + 1, 0)
            helper.close(ml.grad(function(a) return place(f, a):sum() end)(v), ml.full({8, 8}, 2.0), 0)
          end
        end
      end)
    end)
  end)

  it("a tensor kept from it is refused", function()
    local wanted = "[E_TRACED] a tensor made in a call that raised an error"
    helper.raises(wanted, ml.jit(function(v)
      local kept = {}
      pcall(failures["in the function"], v, own, kept)
      return kept[1] + 1
    end), whole)
    helper.raises(wanted, ml.jit(function(v)
      local kept
      pcall(ml.fori_loop, 0, 2, function(_, c)
        kept = c * 2
        error "no"
      end, v)
      return kept + 1
    end), whole)
  end)

  it("nor does it print", function()
    local text = helper.shell([[$MESHLUA --devices=8 -e '
      local ml = require "meshlua"
      local f = ml.shard_map(function(u) ml.debug_print("never", u) error "no" end,
        {mesh = ml.make_mesh({8}, {"x"}), in_specs = ml.P("x"), out_specs = ml.P("x")})
      print(ml.jit(function(v) pcall(f, v) return v:sum() end)(ml.ones {8}):item())']])
    assert.equal("8.0\n", text)
  end)
end)
