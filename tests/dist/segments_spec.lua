-- segments_spec.lua: memory that processes share goes with them, or with the next start.
local helper = require "spec.helper"
local mpi = require "dist.mpi"

local PLACE = "/dev/shm/"
local shell = helper.shell

--- The folders of processes of ours, by name.
local function folders()
  local set = {}
  for name in shell("ls " .. PLACE):gmatch "meshlua%.%S+" do set[name] = true end
  return set
end

local function read(path)
  local file <close> = io.open(path)
  return file and file:read "a" or ""
end

--- The name of the folder of a process: its user, namespace, number and start.
local function name_of(pid, user)
  local start = read("/proc/" .. pid .. "/stat"):match "^.*%) (.*)"
  local n = 0
  for field in (start or ""):gmatch "%S+" do
    n = n + 1
    if n == 20 then start = field end
  end
  local space = shell("stat -L -c %i /proc/self/ns/pid"):match "%d+"
  return ("meshlua.%s.%s.%s.%s"):format(user or shell "id -u":match "%d+", space, pid, start or 5)
end

describe("shared memory", function()
  mpi.it("is gone with the processes", function()
    local out, err, code = mpi.run(2, 1,
      [[-e "os.execute 'for d in /dev/shm/meshlua.*.\$PPID.*/; do echo \$d:; ls \$d; done; env'"]])
    assert.equal(0, code, err)
    assert.truthy(out:find "vader_segment", out)
    assert.falsy(out:find("backing_directory=/dev/shm/meshlua", 1, true), "what it starts has its own")
    for name in out:gmatch "(meshlua%.[%d.]+)/:" do
      if not read("/proc/" .. name:match "^meshlua%.%d+%.%d+%.(%d+)" .. "/stat"):find "meshlua" then
        assert.falsy(folders()[name], name)
      end
    end
  end)

  mpi.it("that killed processes left is removed at the next start, and no other", function()
    local names_file = helper.file ""
    shell(mpi.PROMPT .. 'mpirun -np 2 "$MESHLUA" '
      .. helper.file(("os.execute 'echo /dev/shm/meshlua.*.$PPID.* >>%s; kill -9 $PPID'"):format(names_file)))
    local left = read(names_file):match "/dev/shm/(%S+)"
    assert.truthy(left and folders()[left], left)
    -- Of a living process, of another user, of another namespace, of a number that is in use again; and what
    -- is only called so.
    local pid = read "/proc/self/stat":match "^%d+"
    local living, reused = name_of(pid), name_of(pid):gsub("%d+$", "5")
    local other, space = name_of(4194303, 12345), name_of(4194303):gsub("^(meshlua%.%d+%.)%d+", "%11")
    local names = {living, reused, other, space, "meshlua.x", "meshlua.0.1.2", living .. "x"}
    local make = "mkdir %s; : > %s/segment"
    for _, name in ipairs(names) do shell(make:format(PLACE .. name, PLACE .. name)) end
    assert.equal(0, select(3, mpi.run(2, 1, "-e ''")))
    local now = folders()
    for _, name in ipairs(names) do shell(("rm -rf %s%s"):format(PLACE, name)) end
    assert.falsy(now[left])
    assert.falsy(now[reused])
    for _, name in ipairs {living, other, space, "meshlua.x", "meshlua.0.1.2", living .. "x"} do
      assert.truthy(now[name], name)
    end
  end)
end)
