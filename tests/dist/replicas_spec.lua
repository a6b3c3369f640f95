-- replicas_spec.lua: what several processes hold of an argument must be the same; where it is not, the first step
-- that needs it says so.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

-- Rank 1 is the odd one. Each of the ways to bring a number in has its own in it there.
local SCRIPT = [[
local ml = require "meshlua"
local function pick(how) return arg[1] == how and ml.process_index() or 2 end
local mesh = ml.make_mesh({ml.device_count()}, {"x"})
local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
local held = ml.tensor {pick "captured", 1.0}
local param = ml.core.box_new(ml.tensor {1.0, pick "param"}, {kind = "param"})
local layer = {w = ml.random.normal(ml.random.key(pick "seed"), {2})}
local step = ml.jit(function(a, scale, p, n, key, l)
  local y = (a * scale:slice(2)):sum()
  y = y + n
  y = y + (held * p):sum()
  return y + (ml.random.normal(key, {2}) * l.w):sum()
end)
for _ = 1, 3 do
  step(x, ml.tensor({1, pick "tensor"}, "float32"), param, pick "number", ml.random.key(pick "key"), layer)
end
print(ml.all_gather_to_host(x):sum():item())
]]

-- A mesh of two axes: rows 0 and 1 of a weight are each in two processes. Rank 3 has other numbers in its row.
local ROWS = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({2, 2}, {"data", "model"})
local r = ml.process_index()
local rows = ml.NamedSharding(mesh, ml.P("model"))
local own = ml.tensor {{1.0 * (r % 2), r == 3 and arg[1] == "odd" and 7.0 or 0.0, 1.0}}
local w = ml.make_array_from_process_local_data(rows, own)
print(ml.jit(function(v) return v:sum() end)(w):item())
]]

-- Much data and little work on it: a sample of it is looked at, in which the ends are.
local LARGE = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({ml.device_count()}, {"x"})
local r = ml.process_index()
local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
local big = ml.random.uniform(ml.random.key(arg[1] == "seed" and r or 0), {1500, 1000})
local last = ml.tensor {arg[1] == "last" and r + 1.0 or 1.0}
big = ml.concat({big:reshape {1500000}, last}, 1)
print(ml.jit(function(a, b) return a:sum() * b:max() end)(x, big):item() > 0)
]]

-- Padding may hold anything; ranks 0 and 1, and 2 and 3, hold the same parts.
local PADDED = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({2, 2}, {"data", "model"})
local padded = ml.NamedSharding(mesh, ml.P {"data", uneven = "pad"})
local x = ml.device_put(ml.arange(7.0), padded)
local y = ml.jit(function(v) return ml.exp(v) - 1 end)(x)
print(ml.jit(function(v, w) return (v * w):sum() end)(x, y):item() > 0)
]]

-- Arguments that are split along each set of a mesh's axes: more kinds than there are sums.
local KINDS = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({2, 2, 2, 2}, {"a", "b", "c", "d"})
local odd = arg[1] == "odd" and ml.process_index() or 0
local list = {}
for kind = 0, 15 do
  local p = {}
  for k, axis in ipairs {"a", "b", "c", "d"} do p[k] = kind >> (k - 1) & 1 == 1 and axis or false end
  local value = ml.full({2, 2, 2, 2}, 1.0 + (kind == 0 and odd or 0))
  list[kind + 1] = ml.device_put(value, ml.NamedSharding(mesh, ml.P(table.unpack(p, 1, 4))))
end
print(ml.jit(function(l)
  local sum = 0
  for i = 1, #l do sum = sum + (l[i] * l[i]):sum() end
  return sum
end)(list):item())
]]

-- Two of three processes; the one that is not among them goes by their step.
local SOME = [[
local ml = require "meshlua"
local mesh = ml.Mesh({1, 2}, {"x"})
local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
ml.jit(function(a, b) return (a * b):sum() end)(x, ml.tensor {ml.process_index() == 2 and 5.0 or 6.0})
]]

-- What a rank does for itself is no business of the others.
local ALONE = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({ml.device_count()}, {"x"})
local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
local own = ml.tensor {ml.process_index() + 1.0}
local step = ml.jit(function(a, b) return (a * b):sum() end)
for i = 1, 4 do
  local mean = step(x, ml.tensor {2.0 * i})
  if ml.process_index() == 0 then assert((mean * 2 + own):item() > 0) end
  for k = 1, ml.process_index() do assert((own * own):sum():item() > 0) end
end
print(step(x, ml.tensor {1.0}):item())
]]

describe("what several processes hold of an argument", function()
  local function run(processes, script, words)
    return mpi.run(processes, 1, helper.file(script, ".lua") .. " " .. (words or ""))
  end

  --- The first call of the step (line 15) names the argument and where it is used.
  local function refused(how, what, line)
    mpi.it("must be the same: " .. how, function()
      local out, err, code = run(2, SCRIPT, how)
      assert.same({"", 1}, {out, code}, err)
      local said = ".lua:15: [E_DIVERGED] rank 0 and rank 1 have different values of " .. what
      assert.truthy(err:find(said, 1, true), err)
      assert.truthy(err:find("%.lua:" .. line .. "%), which both hold and which must be the same; "), err)
    end)
  end

  refused("tensor", "`scale` (float32[2], used at ", 9)
  refused("number", "`n` (int32[], used at ", 10)
  refused("param", "`p` (float32[2], used at ", 11)
  refused("captured", "input 7 (float32[2], used at ", 11)
  refused("key", "`key` (uint32[2], used at ", 12)
  refused("seed", "`l.w` (float32[2], used at ", 12)

  mpi.it("is no error where it is, nor where nobody asks", function()
    for _, set in ipairs {"on none", "off tensor", "off seed"} do
      local check, how = set:match "(%S+) (%S+)"
      local out, err, code = helper.shell(mpi.SETTINGS .. ([[export MESHLUA_CHECK_REPLICATED=%s
        mpirun -np 2 "$MESHLUA" --devices=2 %s %s]]):format(check, helper.file(SCRIPT, ".lua"), how))
      assert.same({"28.0\n", 0}, {out, code}, err)
    end
    local words = 'MESHLUA_CHECK_REPLICATED=maybe "$MESHLUA" '
    local _, err, code = helper.shell("export WORLD_SIZE=2 RANK=0 LOCAL_RANK=0\n" .. words .. "-e ''")
    assert.equal(2, code)
    assert.truthy(err:find("MESHLUA_CHECK_REPLICATED=maybe: expected one of on | off", 1, true), err)
  end)

  mpi.it("is compared where it is sharded over another axis", function()
    local out, err, code = run(4, ROWS)
    assert.same({"3.0\n", 0}, {out, code}, err)
    out, err, code = run(4, ROWS, "odd")
    assert.same({"", 1}, {out, code}, err)
    local said = "[E_DIVERGED] rank 1 and rank 3 have different values of `v` (float32[1,3], used at "
    assert.truthy(err:find(said, 1, true), err)
  end)

  mpi.it("is compared in whatever ways it is split, and by those that hold it", function()
    local words = helper.file(KINDS, ".lua")
    local out, err, code = mpi.run(2, 8, words)
    assert.same({"256.0\n", 0}, {out, code}, err)
    out, err, code = mpi.run(2, 8, words .. " odd")
    assert.same({"", 1}, {out, code}, err)
    assert.truthy(err:find("rank 0 and rank 1 have different values of `l.1` (float32[2,2", 1, true), err)
    out, err, code = run(3, SOME)
    assert.same({"", 1}, {out, code}, err)
    assert.truthy(err:find("rank 1 and rank 2 have different values of `b` (float32[1]", 1, true), err)
  end)

  mpi.it("is compared in part where it is large", function()
    local out, err, code = run(2, LARGE)
    assert.same({"true\n", 0}, {out, code}, err)
    for _, how in ipairs {"seed", "last"} do
      out, err, code = run(2, LARGE, how)
      assert.same({"", 1}, {out, code}, err)
      assert.truthy(err:find("different values of `b` (float32[1500001], used at ", 1, true), err)
    end
  end)

  mpi.it("may have any padding, and what is one process's own may be anything", function()
    local out, err, code = run(4, PADDED)
    assert.same({"true\n", 0}, {out, code}, err)
    out, err, code = run(3, ALONE:gsub("8%.0", "6.0"))
    assert.same({"15.0\n", 0}, {out, code}, err)
  end)
end)
