-- hosts_spec.lua: two hosts, as network namespaces on this machine.
local helper = require "spec.helper"
local hosts = require "dist.hosts"
local mpi = require "dist.mpi"
local shell = helper.shell

local HOSTS, NAME = hosts.SCRIPT, hosts.NAME

--- A spec with two hosts of its own.
local function check(name, fn)
  mpi.it(name, function()
    if hosts.why then helper.pending(hosts.why) end
    hosts.up()
    finally(hosts.down)
    fn()
  end)
end

describe("two hosts", function()
  -- A host is a name and a start of the system: another name is another host.
  mpi.it("are known to all, and what goes between them is said", function()
    if not os.execute "unshare --uts true 2>/dev/null" then
      helper.pending "names of hosts are root's to give"
    end
    local out, err, code = shell(mpi.SETTINGS .. [[mpirun -np 4 unshare --uts sh -c '
      hostname host$((OMPI_COMM_WORLD_RANK / 2)); exec "$MESHLUA" --devices=2 tests/dist/scripts/hosts.lua']])
    assert.equal(0, code, err)
    assert.equal("mesh axis model goes from one host to another, and its 4 devices would fit into one: "
      .. "4.00 KiB are sent between hosts in place of 4 B, at hosts.lua:33: put it last: make_mesh({2, 4}, "
      .. "{\"data\", \"model\"})\n", out)
  end)

  check("train as one does, over TCP", function()
    local words = "tests/dist/scripts/train.lua fsdp_tp 4 2"
    local expected = shell('"$MESHLUA" --devices=8 ' .. words)
    local out, err, code = shell(mpi.SETTINGS .. "unset OMPI_MCA_btl OMPI_MCA_pml; " .. HOSTS ..
      "run " .. NAME .. ' -np 4 "$MESHLUA" --devices=2 ' .. words)
    assert.equal(0, code, err)
    assert.truthy(#expected > 0)
    assert.equal(expected, out)
  end)

  check("a cable that is cut: who cannot be reached is named, and both ends end", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({ml.device_count()}, {"x"})
      local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
      local step = ml.jit(function(a) return a:sum() end)
      while true do
        step(x):item()
        io.open(arg[1] .. ml.process_index(), "w"):close()
      end
    ]], ".lua")
    local ready = os.tmpname()
    -- mpirun waits for its daemon behind the cut for minutes: that is not ours to end.
    local out, err = shell(mpi.SETTINGS .. "unset OMPI_MCA_btl OMPI_MCA_pml; " .. ([[
hosts=%s name=%s ready=%s
$hosts run $name -np 4 "$MESHLUA" --timeout=2 --devices=2 %s $ready 2>&1 &
for i in $(seq 300); do [ -e ${ready}3 ] && break; sleep 0.1; done
$hosts cut $name
for i in $(seq 70); do
  sleep 0.1
  left=$(for n in 1 2; do ip netns pids $name$n; done | while read -r p; do readlink /proc/$p/exe; done |
    grep -c '/meshlua$')
  [ "$left" = 0 ] && break
done
echo "left: $left"
$hosts down $name
wait]]):format(HOSTS, NAME, ready, script))
    for i = 0, 3 do os.remove(ready .. i) end
    os.remove(ready)
    local named = out:find("meshlua: ranks 2, 3 do not answer %(stopped, or their hosts are lost%); "
      .. "rank [01] waits since %d s in %l[^\n]*%.lua:4 ")
    assert.truthy(named, out .. err)
    assert.truthy(out:find("left: 0\n", 1, true), out)
  end)
end)
