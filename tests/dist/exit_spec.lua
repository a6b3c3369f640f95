-- exit_spec.lua: os.exit in one of several processes.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

-- Two ranks; the second runs the code, the first goes on with steps.
local SCRIPT = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({2}, {"x"})
  local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
  local x = step(ml.device_put(ml.ones {8}, ml.NamedSharding(mesh, ml.P "x")))
  if ml.process_index() == 1 then %s end
  for i = 1, 1e5 do x = step(x) end
]]

local function run(words) return helper.shell(mpi.PROMPT .. 'mpirun -np 2 "$MESHLUA" ' .. words) end

local function exit(code)
  local out, err, status = run(helper.file(SCRIPT:format(code), ".lua"))
  assert.equal("", out)
  return err, status
end

describe("os.exit in one of several processes", function()
  mpi.it("ends all with its code, and says who and why", function()
    local err, code = exit "os.exit(6)"
    assert.equal(6, code)
    assert.truthy(err:find "rank 1: %S+lua:5: os.exit%(6%)\n", err)
    err, code = exit "io.stderr:write 'no room left\\n' os.exit(false, true)"
    assert.equal(1, code)
    assert.truthy(err:find("rank 1: no room left\n", 1, true), err)
  end)

  mpi.it("is the end of a script, where it is not the others', an error", function()
    local err, code = exit "os.exit(0)"
    assert.equal(1, code)
    assert.truthy(err:find("rank 1 is at the end of its script", 1, true), err)
  end)

  mpi.it("in all of them is what it is in one", function()
    local script = helper.file("print 'end' io.stderr:write 'why\\n' os.exit(tonumber(arg[1]))", ".lua")
    local out, _, code = run(script .. " 0")
    assert.same({"end\n", 0}, {out, code})
    local err
    out, err, code = run(script .. " 4")
    assert.same({"end\n", 4}, {out, code})
    assert.equal(1, select(2, err:gsub("why", "")), err)
  end)
end)
