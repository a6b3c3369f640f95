-- exchange_spec.lua: what processes exchange, in small: a split of four devices for each way through host/run/bind's
-- exchange_*.c. mpi_spec.lua has all of it.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

local COLLECTIVES = "tests/dist/scripts/collectives.lua "

--- Two processes of two devices and three threads print what one process prints.
local function same(words)
  local first = mpi.one(4, words)
  local out, err, code = helper.shell(mpi.SETTINGS .. "export MESHLUA_THREADS=3\n"
    .. [[mpirun -np 2 "$MESHLUA" --devices=2 ]] .. words)
  assert.equal(0, code, err)
  assert.equal(first, out)
end

describe("two processes", function()
  mpi.it("have every collective, within one of them and across", function()
    same(COLLECTIVES .. "2,2 few")
  end)

  mpi.it("share the work of a reduction, and each the work of its threads", function()
    same(COLLECTIVES .. "4 large few")
    same(COLLECTIVES .. "2,2 huge")
  end)

  mpi.it("run branches that the other skips", function() same("tests/dist/scripts/branches.lua 4") end)

  mpi.it("have several on their way at once", function()
    same([[-e 'require("meshlua").config {passes = {overlap = true, bucket = false}}' ]]
      .. "tests/dist/scripts/train.lua fsdp_tp 2 2 tiny")
  end)
end)
