-- hosts_spec.lua: two hosts, as network namespaces on this machine.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell

local HOSTS = "tests/dist/scripts/hosts.sh "

--- Why there can be no second host here, or nil.
local function missing()
  local _, _, code = shell(HOSTS .. "up mltry && " .. HOSTS .. "down mltry")
  if code ~= 0 then return "namespaces need root and ip (Debian: iproute2)" end
end

local why = missing()

--- A spec with two hosts under that name.
local function check(name, host, fn)
  mpi.it(name, function()
    if why then
      pending(why)
      return
    end
    local _, err, code = shell(HOSTS .. "up " .. host)
    assert.equal(0, code, err)
    finally(function() shell(HOSTS .. "down " .. host) end)
    fn()
  end)
end

describe("two hosts", function()
  check("train as one does, over TCP", "mlone", function()
    local words = "tests/dist/scripts/train.lua fsdp_tp 4 2"
    local expected = shell('"$MESHLUA" --devices=8 ' .. words)
    local out, err, code = shell(mpi.SETTINGS .. "unset OMPI_MCA_btl OMPI_MCA_pml; " .. HOSTS ..
      'run mlone -np 4 "$MESHLUA" --devices=2 ' .. words)
    assert.equal(0, code, err)
    assert.truthy(#expected > 0)
    assert.equal(expected, out)
  end)
end)
