-- agree_spec.lua: a rank that does something else than the others is an error on all, and no wait without end.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

local SCRIPT = [[
local ml = require "meshlua"
local odd = ml.process_index() == 1 and arg[1]
local mesh = ml.make_mesh({ml.device_count()}, {"x"})
local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
local sum = ml.jit(function(a) return (a * 2):sum() end)
local step = ml.jit(function(a)
  local b = a * 2
  if odd == "extra" then b = b - b:max() end
  return b:sum()
end)
sum(x)
if odd ~= "skip" then sum(x) end
local shape = ml.ShapeDtypeStruct({8}, "float32", x.sharding) -- no values: a call that cannot begin
if odd == "failure" or arg[1] == "failures" then assert(not pcall(sum, shape)) end
step(x)
if odd ~= "end" then sum(x) end
if odd == "more" then sum(x) end
]]

-- The step of rank 1 ends in its middle; another error behind it does not put that right.
local TORN = [[
local ml = require "meshlua"
local mesh = ml.make_mesh({ml.device_count()}, {"x"})
local row = ml.arange(4.0)
local step = ml.jit(function(ids) return ml.take(row, ids):sum() end, {mesh = mesh})
local last = ml.process_index() == 1 and 99 or 1
local own = ml.tensor({0, last}, "int32")
local ids = ml.make_array_from_process_local_data(ml.NamedSharding(mesh, ml.P "x"), own)
pcall(step, ids)
pcall(function() return ml.take(row, ml.tensor({77}, "int32")):item() end)
step(ids)
]]

describe("ranks that do not do the same", function()
  --- Rank 1 is the odd one: the run ends with 1, and the message has all of `parts`.
  local function refused(how, parts)
    mpi.it("are an error: " .. how, function()
      local _, err, code = mpi.run(2, 2, helper.file(SCRIPT, ".lua") .. " " .. how)
      assert.equal(1, code, err)
      for _, part in ipairs(parts) do assert.truthy(err:find(part, 1, true), err) end
    end)
  end

  mpi.it("no error: none of them is odd, or all", function()
    for _, how in ipairs {" none", " failures"} do
      local _, err, code = mpi.run(2, 2, helper.file(SCRIPT, ".lua") .. how)
      assert.equal(0, code, err)
    end
  end)

  mpi.it("stay apart once a step has failed in its middle", function()
    local _, err, code = mpi.run(2, 1, helper.file(TORN, ".lua"))
    assert.equal(1, code, err)
    local said = ".lua:10: [E_DIVERGED] an error ended a plan of several processes in its middle"
    assert.truthy(err:find(said, 1, true), err)
  end)

  refused("extra", {"[E_DIVERGED] rank 0 launches a plan with collectives (first all_reduce over x, ",
    ".lua:9), and rank 1 launches a plan with collectives (first all_reduce over x, ",
    ".lua:8), but not the same one: rank 1 has an extra step, ",
    "'max float32[1] at ",
    ".lua:8'; every rank must run the same steps"})
  refused("skip", {"[E_DIVERGED] rank 0 launches a plan with collectives (first all_reduce over x, ",
    ".lua:9), but not the same one: where rank 0 has 'full mul ",
    ".lua:5', rank 1 has 'full mul "})
  refused("more", {
    "rank 0 is at the end of its script, and rank 1 launches a plan with collectives (first all_reduce over ",
    ".lua:5); every rank must run the same steps"})
  refused("end", {", and rank 1 is at the end of its script; every rank must run the same steps"})
  refused("failure", {"[E_DIVERGED] rank 0 launches a plan with collectives (first all_reduce over x, ",
    ".lua:9), and rank 1 cannot begin a plan with collectives, as an error of its own says (first "})
end)
