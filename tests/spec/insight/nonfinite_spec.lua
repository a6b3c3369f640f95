-- devices: 8
-- nonfinite_spec.lua: a NaN or an infinity planted in each family of ops is found: op, line, elements, device, step of
-- the loop, and that one device alone gives it, too; what is not finite on purpose is passed over.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, optim, P = ml.nn, ml.optim, ml.P

local mesh = ml.make_mesh({8}, {"data"})
local split = ml.NamedSharding(mesh, P("data"))
local ROWS, WIDTH, ROW = 16, 8, 6 -- it is planted in this row, counted from 1: on device 2
local HUGE = 3e38

--- Rows of 1.0, 1.1, ..., and one of another value.
local function planted(value)
  local row, rows = ml.arange(ROWS):reshape(ROWS, 1):eq(ROW - 1), ml.arange(WIDTH) * 0.1 + 1.0
  return ml.device_put(ml.where(row, value, ml.ones {ROWS, 1} * rows), split)
end

local norm = nn.LayerNorm(WIDTH, {epsilon = 0, rngs = nn.Rngs(0)})

-- Name -> {value to plant, op that is to be found, what it gives, fn}; the op stands in the line behind `fn`'s first.
local families = {
  unary = {-1.0, "log", "NaN", function(x)
    return ml.log(x)
  end},
  ["unary, too large"] = {1e4, "exp", "infinity", function(x)
    return ml.exp(x)
  end},
  binary = {0.0, "div", "NaN", function(x)
    return x / x
  end},
  power = {-8.0, "pow", "NaN", function(x)
    return x ^ 0.5
  end},
  reduce = {HUGE, "sum", "infinity", function(x)
    return x:sum(2, true)
  end},
  contract = {HUGE, "matmul", "infinity", function(x)
    return x:matmul(ml.ones {WIDTH, WIDTH})
  end},
  create = {1.0, "full", "NaN", function(x)
    return x + ml.full({WIDTH}, 0 / 0)
  end, everywhere = true},
  cumulative = {HUGE, "cumsum", "infinity", function(x)
    return x:cumsum(2)
  end},
  rowwise = {math.log(0.5), "softmax", "NaN", function(x)
    return ml.softmax(ml.where(x:lt(0), -math.huge, x), 2)
  end},
  norm = {1.0, "layer_norm", "NaN", function(x)
    return norm(x)
  end},
  conv = {HUGE, "conv", "infinity", function(x)
    return ml.conv(x:reshape(ROWS, WIDTH, 1), ml.ones {3, 1, 1})
  end},
  window = {HUGE, "reduce_window_sum", "infinity", function(x)
    return nn.avg_pool(x:reshape(ROWS, WIDTH, 1), 2)
  end},
  dropout = {HUGE, "dropout", "infinity", function(x)
    return nn.dropout(x, 0.5, ml.random.key(2))
  end},
  linalg = {-1.0, "cholesky", "NaN", function(x)
    return ml.linalg.cholesky(x:reshape(ROWS, WIDTH, 1) * ml.eye(WIDTH))
  end},
  attention = {HUGE, "attention", "NaN", function(x)
    return nn.attention(x:reshape(ROWS, 2, 1, 4), x:reshape(ROWS, 2, 1, 4), x:reshape(ROWS, 2, 1, 4) * 1)
  end},
  ["cross entropy"] = {HUGE, "softmax_cross_entropy", "infinity", function(x)
    return nn.softmax_cross_entropy_with_integer_labels(x * ml.where(ml.arange(WIDTH):eq(0), -1.0, 1.0),
      ml.zeros({ROWS}, "int32"))
  end},
  rope = {HUGE, "rope", "infinity", function(x)
    return nn.rope(x:reshape(1, ROWS, 1, WIDTH))
  end, dim = 2},
  collective = {HUGE, "all_reduce", "infinity", function(x)
    return ml.shard_map(function(v) return ml.psum(v:max() * 0 + HUGE, "data") end,
      {mesh = mesh, in_specs = {P("data")}, out_specs = P()})(x)
  end, everywhere = true, alone = false}, -- of one device the sum is finite
  branch = {-1.0, "log", "NaN", function(x)
    return ml.cond(x:min():lt(0), function(v) return ml.log(v) end, function(v) return v end, x)
  end},
  shard_map = {-1.0, "log", "NaN", function(x)
    return ml.shard_map(ml.log, {mesh = mesh, in_specs = {P("data")}, out_specs = P("data")})(x)
  end, block = true},
}
--- What the search says of a step on one such row, with what else the case says checked.
local function check(case, step)
  local report = ml.find_nonfinite(step, planted(case[1]))
  local text = tostring(report)
  assert.same({case[2], case[3], case.alone ~= false}, {report.op, report.what, report.alone}, text)
  local line = debug.getinfo(case[4], "S").linedefined + 1
  assert.truthy(report.where:find("nonfinite_spec.lua:" .. line, 1, true), text)
  assert.equal(case.everywhere and "all" or "data=2", report.device, text)
  if not case.everywhere then assert.equal(case.block and 2 or ROW, report.index[case.dim or 1], text) end
  return report, text
end

describe("what is not finite is found", function()
  for name, case in pairs(families) do
    it("in " .. name .. ", outside of a scan and inside", function()
      check(case, ml.jit(function(x) return case[4](x):sum() end))
      local good = planted(1.5) + ml.arange(WIDTH) * 0.01
      local report, text = check(case, ml.jit(function(x)
        return (ml.scan(function(c, k) return c + case[4](ml.where(k:eq(2), x, good)):sum(), k end,
          ml.tensor(0.0), ml.arange(5)))
      end))
      assert.equal("scan", report.inside[1].op)
      assert.equal(case.everywhere and 1 or 3, report.inside[1].k)
      assert.truthy(text:find "in step %d of the scan at ", text)
    end)
  end

  it("in a loop that goes backwards, in one in another, and in its gradient", function()
    local x = planted(-1.0)
    local function inner(c, v)
      return c + ml.scan(function(d, k) return d + ml.where(k:eq(1), v, 2.0):log():sum(), k end,
        ml.tensor(0.0), ml.arange(3)), v
    end
    local report = ml.find_nonfinite(ml.jit(function(v)
      return (ml.scan(inner, ml.tensor(0.0), ml.stack({v, v * 0 + 1}, 1), {reverse = true}))
    end), x)
    assert.same({"log", 2}, {report.op, #report.inside})
    assert.same({1, 2}, {report.inside[1].k, report.inside[2].k})
    -- The root's slope at 0 is infinite.
    report = ml.find_nonfinite(ml.jit(function(v)
      return ml.grad(function(u)
        return (ml.scan(function(c, k) return c + ml.where(k:eq(1), u, 2.0):sqrt():sum(), k end,
          ml.tensor(0.0), ml.arange(3)))
      end)(v)
    end), planted(0.0))
    assert.same({"backward", 2, "data=2"}, {report.role, report.inside[1].k, report.device})
  end)

  it("in the gradient and in the optimizer, by the module's path", function()
    local Net = nn.module "Net"
    function Net:init(rngs)
      self.up, self.down = nn.Linear(WIDTH, 4, {rngs = rngs}), nn.Linear(4, 1, {rngs = rngs})
    end
    local model = ml.init(function(rngs) return Net(rngs) end, {mesh = mesh, rules = {}})
    local opt = optim.adamw(model, {lr = 0.1})
    local step = ml.jit(function(m, o, v, factor)
      local loss, grads = ml.value_and_grad(function(n)
        return (n.down(n.up(v)):square() * factor):mean()
      end)(m)
      return loss, o:update(m, grads, {apply = loss:isfinite()}).grad_norm
    end, {mesh = mesh})
    local report = ml.find_nonfinite(step, model, opt, planted(1.0), ml.tensor(1e20))
    assert.truthy(({square = true, adamw = true, sum = true})[report.op], tostring(report))
    model.up.kernel:set(model.up.kernel * HUGE)
    local forward = ml.jit(function(m, v) return m.up(v * 1e3) end, {mesh = mesh})
    report = ml.find_nonfinite(forward, model, planted(2.0))
    assert.truthy(tostring(report):find(", in up: ", 1, true), tostring(report))
    model.up.bias:set(model.up.bias / 0)
    report = ml.find_nonfinite(forward, model, planted(2.0))
    assert.truthy(report.argument:find "bias", tostring(report))
  end)

  it("and whether it is the mesh's doing", function()
    local step = ml.jit(function(x)
      return ml.shard_map(function(v) return ml.log(3.5 - ml.axis_index("data")) + v end,
        {mesh = mesh, in_specs = {P("data")}, out_specs = P("data")})(x)
    end)
    local report = ml.find_nonfinite(step, planted(1.0))
    assert.same({"log", false, "data=4"}, {report.op, report.alone, report.device})
  end)

  it("where there is one", function()
    local masked = ml.jit(function(x)
      local seen = ml.where(x:gt(2), -math.huge, x)
      return ml.softmax(seen, 2):sum() + ml.where(x:gt(0), ml.log(x), 0.0):sum()
    end)
    assert.equal("all results are finite", tostring(ml.find_nonfinite(masked, planted(0.0))))
    local one = ml.find_nonfinite(ml.jit(function(x) return x:log() end), ml.tensor {1.0, -1.0})
    assert.same({"NaN", nil, nil}, {one.what, one.device, one.alone})
    local ended = ml.find_nonfinite(ml.jit(function(x)
      return ml.while_loop(function(v) return v:max():lt(math.huge) end, function(v) return v * v end, x)
    end), ml.tensor {2.0})
    assert.equal("while", ended.op)
    helper.raises("made by ml.jit", ml.find_nonfinite, print)
  end)
end)
