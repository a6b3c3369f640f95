-- devices: 8
-- checks_spec.lua: ml.checks finds what only data shows, and nothing where there is nothing.
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding, nn = ml.P, ml.NamedSharding, ml.nn

local mesh = ml.make_mesh({8}, {"data"})
local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
local function normal(seed, shape) return ml.random.normal(ml.random.key(seed), shape) end

local function this_line() return debug.getinfo(2, "l").currentline end

--- What is found: one finding of that check, at that line; nothing where no check is said.
local function check(found, name, line, says)
  assert.equal(name and 1 or 0, #found.findings, tostring(found))
  if not name then return end
  local f = found.findings[1]
  assert.equal(name, f.check)
  assert.truthy(not line or f.where == "tests/spec/insight/checks_spec.lua:" .. line, f.where)
  assert.truthy(f.cause:find(says, 1, true), f.cause)
end

describe("checks", function()
  it("finds shards of a batch that hold the same rows", function()
    local step = ml.jit(function(x) return x:sum() end)
    local rows = normal(1, {4, 16})
    check(ml.checks(step, put(ml.concat({rows, rows, normal(2, {24, 16})}, 1), "data")), "equal_shards", nil,
      "argument x: devices 0, 1 hold the same rows as parts of one batch")
    check(ml.checks(step, put(normal(1, {32, 16}), "data")))
    check(ml.checks(step, put(ml.zeros {32, 16}, "data")))
    check(ml.checks(step, put(rows)))
  end)

  it("finds random bits that are the same in two places, in every step, in every block", function()
    local x, key = put(normal(1, {32, 16}), "data"), ml.random.key(3)
    local line = this_line() + 3
    local twice = ml.jit(function(v, k)
      local h = nn.dropout(v, 0.5, k)
      return nn.dropout(h * 2, 0.5, k)
    end)
    check(ml.checks(twice, x, key), "equal_bits", line, "their key is used twice")
    line = this_line() + 2
    local captured = ml.jit(function(v)
      return nn.dropout(v, 0.5, key)
    end)
    check(ml.checks(captured, x), "equal_bits", line, "the random bits are the same in every step")
    local function blocks(of)
      return ml.jit(function(v, k)
        return ml.shard_map(function(b, own) return nn.dropout(b, 0.5, of(own)) end, {mesh = mesh,
          in_specs = {P("data"), P()}, out_specs = P("data")})(v, k)
      end)
    end
    check(ml.checks(blocks(function(k) return k end), x, key), "equal_bits", this_line() - 4,
      "each block of the shard_map gets the same random bits")
    check(ml.checks(blocks(function(k) return ml.random.fold_in(k, ml.axis_index "data") end), x, key))
    check(ml.checks(ml.jit(function(v, k)
      local keys = ml.random.split(k, 2)
      return ml.grad(function(u)
        return nn.dropout(nn.dropout(u, 0.5, keys:at(1)), 0.5, keys:at(2)):sum()
      end)(v)
    end), x, key))
  end)

  it("finds means of means where the counts differ", function()
    local line = this_line() + 4
    local step = ml.jit(function(x, mask)
      return ml.shard_map(function(b, m)
        local sum, count = (b * m):sum(), m:sum()
        return ml.pmean(sum / count, "data")
      end, {mesh = mesh, in_specs = {P("data"), P("data")}, out_specs = P()})(x, mask)
    end)
    local x = put(normal(1, {32, 16}), "data")
    check(ml.checks(step, x, put(normal(2, {32, 16}):gt(0):astype "float32", "data")), "means_of_means", line,
      "each device divides by its own count, and the counts differ")
    check(ml.checks(step, x, put(ml.ones {32, 16}, "data")))
  end)

  it("finds tokens that no expert has room for", function()
    local function step_of(factor)
      local layer = ml.init(function(rngs)
        return nn.MoE(8, 16, 8, {rngs = rngs, capacity_factor = factor, top_k = 1})
      end)
      return ml.jit(function(m, x) return (m(x)) end), layer
    end
    local step, layer = step_of(0.5)
    check(ml.checks(step, layer, normal(1, {4, 32, 8})), "lost_tokens",
      nil, " tokens find no expert with room")
    step, layer = step_of(8.0)
    check(ml.checks(step, layer, normal(1, {4, 32, 8})))
  end)

  it("refuses what is no step, and devices that run nothing", function()
    helper.raises("[E_VALUE] checks: expected a function made by ml.jit, got a table", ml.checks, {})
    local _, err, status = helper.run {"--devices=fake:8", "-e", "local ml = require 'meshlua' "
      .. "ml.checks(ml.jit(function(x) return x end), ml.ones {2})"}
    assert.equal(1, status)
    assert.truthy(err:find("[E_STATE] checks: these devices are only planned for; run with --devices=N", 1,
      true),
      err)
  end)
end)
