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
  -- A host is a name and a start of the system: another name is another host.
  mpi.it("are known to all, and what goes between them is said", function()
    if not os.execute "unshare --uts true 2>/dev/null" then
      pending "names of hosts are root's to give"
      return
    end
    local out, err, code = shell(mpi.SETTINGS .. [[mpirun -np 4 unshare --uts sh -c '
      hostname host$((OMPI_COMM_WORLD_RANK / 2)); exec "$MESHLUA" --devices=2 tests/dist/scripts/hosts.lua']])
    assert.equal(0, code, err)
    assert.equal("mesh axis model goes from one host to another, and its 4 devices would fit into one: put "
      .. "it last in the mesh, and 4 B are sent between hosts in place of 12.00 KiB\n", out)
  end)

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
