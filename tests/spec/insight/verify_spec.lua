-- devices: 8
-- verify_spec.lua: a step is the same on its mesh as on one device; where an op of any family is made wrong on
-- purpose (core.plant), verify names the op and its line, and by what factor.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, nn, P, NamedSharding = ml.core, ml.nn, ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function normal(seed, shape, ...)
  return ml.device_put(ml.random.normal(ml.random.key(seed), shape), NamedSharding(mesh, P(...)))
end

local function ids(shape, below, ...)
  return ml.device_put(ml.random.randint(ml.random.key(7), shape, 0, below), NamedSharding(mesh, P(...)))
end

local function this_line() return debug.getinfo(2, "l").currentline end

-- One op of each family: {op, function, arguments, line of the op}. Each splits what it does.
local rows = {}
local function row(family, op, line, fn, ...) rows[#rows + 1] = {family, op, line, fn, table.pack(...)} end

row("create", "iota", this_line(), function(x) return x + ml.iota({8, 16}, 1, "float32"):tanh() end,
  normal(1, {8, 16}, "data"))
row("create", "random_bits", this_line(), function(x) return x + ml.random.uniform(ml.random.key(3), {8,
  16}) end,
  normal(1, {8, 16}, "data"))
row("unary", "tanh", this_line(), function(x) return (x * 2):tanh() end, normal(1, {8, 16}, "data"))
row("binary", "sub", this_line(), function(x, y) return x:exp() - y end, normal(1, {8, 16}, "data"),
  normal(2, {8, 16}))
row("binary", "lt", this_line(), function(x, y) return x:lt(y) end, normal(1, {8, 16}, "data"),
  normal(2, {8, 16}, "data"))
row("movement", "transpose", this_line(), function(x) return (x * 2):transpose() end, normal(1, {8, 16},
  "data"))
row("pad_concat", "concat", this_line(), function(x) return ml.concat({x, x * 2}, 2) end,
  normal(1, {8, 16}, "data"))
row("reduce", "sum", this_line(), function(x) return (x * 2):sum(1) end, normal(1, {8, 16}, "data"))
row("reduce", "argmax", this_line(), function(x) return x:argmax(2) end, normal(1, {8, 16}, "data"))
row("contract", "matmul", this_line(), function(x, w) return x:tanh():matmul(w) end,
  normal(1, {8, 16}, nil, "model"), normal(2, {16, 4}, "model"))
row("conv", "conv", this_line(), function(x, w) return ml.conv(x, w) end,
  normal(1, {8, 6, 6, 4}, "data"), normal(2, {3, 3, 4, 8}))
row("window", "reduce_window_sum", this_line(), function(x) return ml.reduce_window(x, "sum", {1, 2, 2,
  1}) end,
  normal(1, {8, 6, 6, 4}, "data"))
row("index", "gather", this_line(), function(t, i) return t:take(i) end, normal(1, {16, 8}, "model"),
  ids({8}, 16))
row("index", "sort", this_line(), function(x) return x:sort(2) end, normal(1, {8, 16}, "data"))
row("dynamic", "dynamic_slice", this_line(), function(x) return x:dynamic_slice({0, 3}, {8, 4}) end,
  normal(1, {8, 16}, "data"))
row("cumulative", "cumsum", this_line(), function(x) return x:cumsum(2) end, normal(1, {8, 16}, "data"))
row("rowwise", "softmax", this_line(), function(x) return ml.softmax(x * 2) end, normal(1, {8, 16}, "data"))
row("norm", "layer_norm", this_line(), function(x, s) return core.op.layer_norm(x, s, s * 0.5,
  {eps = 1e-5}) end,
  normal(1, {8, 16}, "data"), normal(2, {16}))
row("attention", "attention", this_line(), function(q) return core.op.attention(q, q, q, {scale = 0.5}) end,
  normal(1, {4, 2, 8, 16}, "data", "model"))
row("rope", "rope", this_line(), function(x, p) return core.op.rope(x, p, {base = 100.0, sign = 1.0}) end,
  normal(1, {4, 8, 2, 4}, "data"), ml.arange(8))
row("linalg", "cholesky", this_line(), function(x) return ml.linalg.cholesky(x) end,
  ml.device_put(ml.matmul(ml.ones {8, 1, 1}, ml.ones {1, 4}) + ml.eye(4) * 2, NamedSharding(mesh, P "data")))
row("train", "dropout", this_line(), function(x) return nn.dropout(x, 0.5, ml.random.key(1)) end,
  normal(1, {8, 16}, "data"))

describe("verify", function()
  after_each(function() core.plant() end)

  for _, r in ipairs(rows) do
    local family, op, line, fn, args = table.unpack(r)
    it(("names an op of the family %s that is wrong, and its line: %s"):format(family, op), function()
      local step = ml.jit(fn)
      local right = ml.verify(step, table.unpack(args, 1, args.n))
      assert.is_true(right.ok, tostring(right))
      core.plant(op)
      local wrong = ml.verify(step, table.unpack(args, 1, args.n))
      core.plant()
      assert.is_false(wrong.ok)
      assert.equal(op, wrong.op, tostring(wrong))
      assert.equal("tests/spec/insight/verify_spec.lua:" .. line, wrong.where:match "^[^ ]+")
      assert.truthy(tostring(wrong):find("the first op that differs is " .. op .. " at tests/spec", 1, true))
    end)
  end

  it("covers every family that has a form for one device", function()
    -- Not those that only steer, or only move (what runs in loops and branches is of the other families), nor
    -- what stands in traces alone.
    local missing = {}
    local covered = {marker = true, manual = true, collective = true, loop = true, branch = true,
      examples = true}
    for _, r in ipairs(rows) do covered[r[1]] = true end
    for line in io.lines "host/op/oplist.h" do
      local family = line:match "^OP%([%w_]+, ([%w_]+)%)"
      if family and not covered[family] then missing[#missing + 1] = family end
    end
    assert.same({}, missing)
  end)

  it("names the factor and the axis where a sum stands for a mean", function()
    core.plant "sum"
    local report = ml.verify(ml.jit(function(x) return x:exp():mean() end), normal(1, {8, 16}, "data"))
    assert.equal("sum", report.op)
    helper.close(4.0, report.factor, 1e-5)
    assert.same({"data"}, report.axes)
    assert.truthy(tostring(report):find("it is 4 times what it should be, the size of mesh axis data: as if "
      .. "a sum over it stood where a mean was meant", 1, true), tostring(report))
  end)

  it("001 L978: psum for pmean in shard_map makes the gradient 8 times too large", function()
    local all = ml.make_mesh({8}, {"data"})
    local function step_with(reduce)
      return ml.jit(function(w, x)
        return ml.shard_map(function(v, block)
          local own = ml.pcast(v, "data") -- else the gradient is summed by itself
          return reduce(ml.grad(function(u) return (block:matmul(u)):mean() end)(own), "data")
        end, {mesh = all, in_specs = {P(), P("data")}, out_specs = P()})(w, x)
      end)
    end
    local w = ml.random.normal(ml.random.key(0), {16})
    local x = ml.device_put(ml.random.normal(ml.random.key(1), {32, 16}), NamedSharding(all, P "data"))
    local sharded = ml.device_put(w, NamedSharding(all, P()))
    assert.is_true(ml.verify(step_with(ml.pmean), sharded, x).ok)
    local report = ml.verify(step_with(ml.psum), sharded, x)
    assert.is_false(report.ok)
    helper.close(8.0, report.factor, 1e-4)
    assert.same({"data"}, report.axes)
  end)

  it("tells a sum made twice and a wrong factor in shard_map from a function that means to differ", function()
    local x = normal(1, {32, 16}, "data")
    local function told(body, out)
      return ml.verify(ml.jit(function(all)
        return ml.shard_map(body, {mesh = mesh, in_specs = {P("data")}, out_specs = out})(all)
      end), x)
    end
    local line = this_line() + 3
    local twice = told(function(block)
      local sum = ml.psum(block:sum(), "data")
      return ml.psum(sum, "data")
    end, P())
    assert.equal("repeated", twice.kind)
    assert.same({{line = "tests/spec/insight/verify_spec.lua:" .. line, axes = {"data"}, times = 4}},
      twice.repeated)
    assert.truthy(tostring(twice):find("wrong: the sum over data at tests/spec/insight/verify_spec.lua:"
      .. line
      .. " is of what is already the same", 1, true), tostring(twice))
    line = this_line() + 2
    local factor = told(function(block)
      return ml.psum(block:mean(), "data")
    end, P())
    assert.equal("factor", factor.kind)
    assert.same({"tests/spec/insight/verify_spec.lua:" .. line}, factor.sums)
    local own = told(function(block) return block - block:mean(1) end, P("data"))
    assert.equal("blocks", own.kind)
    assert.truthy(tostring(own):find("which may be meant", 1, true))
    assert.equal("blocks", told(function(block)
      return block + ml.axis_index("data"):astype "float32"
    end,
      P("data")).kind)
    local masked = told(function(block)
      local mask = block:gt(0):astype "float32"
      return ml.pmean((block * mask):sum() / mask:sum(), "data")
    end, P())
    assert.equal("blocks", masked.kind)
    helper.raises("[E_STATE] verify: on one device the step cannot be traced", told, function(block)
      return ml.ppermute(block, "data", {{0, 1}, {1, 2}, {2, 3}, {3, 0}})
    end, P("data"))
  end)

  it("leaves Params and the step as they were", function()
    local box = core.box_new(normal(1, {8, 16}, "data"), {kind = "param"})
    local before = box:get()
    local step = ml.jit(function(w) w:set(w * 2) return w:sum() end)
    assert.is_true(ml.verify(step, box).ok)
    assert.is_true(core.put_across(before):bytes() == core.put_across(box:get()):bytes())
    assert.equal(0, select(2, step:stats()))
  end)

  it("a whole train step of a GPT is the same, gradients and optimizer included", function()
    local recipe = require "models.gpt"
    local cfg = {}
    for key, value in pairs(recipe.config) do cfg[key] = value end
    cfg.layers, cfg.width, cfg.seq, cfg.batch = 1, 32, 8, 8
    local rules = recipe.rules.tp
    local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {mesh = mesh, rules = rules})
    local opt = recipe.optimizer(model, cfg)
    local step = ml.jit(function(m, o, x, y)
      local loss, grads = ml.value_and_grad(function(v) return recipe.loss(v, x, y) end)(m)
      o:update(m, grads)
      return loss
    end, {mesh = mesh, rules = rules})
    local x, y = ids({8, 8}, 200, "data"), ids({8, 8}, 100, "data")
    local report = ml.verify(step, model, opt, x, y)
    assert.is_true(report.ok, tostring(report))
    core.plant "layer_norm_grad"
    report = ml.verify(step, model, opt, x, y)
    assert.equal("layer_norm_grad", report.op, tostring(report))
    assert.truthy(report.where:find "models/gpt%.lua:%d+ %(ln_f%)", report.where)
  end)

  it("refuses what is no step, what lies on no mesh, and devices that run nothing", function()
    helper.raises("[E_VALUE] verify: expected a function made by ml.jit, got a table", ml.verify, {})
    helper.raises("[E_MESH] verify: no argument lies on a mesh", ml.verify, ml.jit(function(x) return x end),
      ml.ones {2})
    local _, err, status = helper.run {"--devices=fake:8", helper.file([[
      local ml = require "meshlua"
      ml.verify(ml.jit(function(x) return x end), ml.ones {2})
    ]], ".lua")}
    assert.equal(1, status)
    assert.truthy(err:find("[E_STATE] verify: these devices are only planned for; run with --devices=N", 1,
      true),
      err)
  end)

  it("refuses a step that is another program on one device", function()
    local step = ml.jit(function(x) return mesh.size > 1 and x * 2 or x end)
    helper.raises("[E_STATE] verify: on one device the step is another program", ml.verify, step,
      normal(1, {8, 16}, "data"))
  end)
end)
