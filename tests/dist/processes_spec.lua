-- processes_spec.lua: `--processes=R`: processes started, watched and ended by their parent.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell

local ENV = "export ASAN_OPTIONS=detect_leaks=0 OMPI_MCA_odls_base_sigkill_timeout=0\n"

--- Runs `meshlua WORDS`, as one does.
local function meshlua(words) return shell(ENV .. '"$MESHLUA" ' .. words) end

local script = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({ml.device_count()}, {"x"})
  local x = ml.device_put(ml.arange(12.0), ml.NamedSharding(mesh, ml.P "x"))
  local sum = ml.jit(function(v) return v:sum() end, {mesh = mesh})(x):item()
  if ml.process_index() == 0 then print(ml.process_count(), ml.device_count(), sum, ...) end
]]

-- A script that runs until it is ended, and does not end when it is asked to, once its folder has the process id of
-- each rank.
local endless = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({ml.device_count()}, {"x"})
  local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
  local x = step(ml.device_put(ml.ones {8}, ml.NamedSharding(mesh, ml.P "x")))
  local stat <close> = io.open "/proc/self/stat"
  local file <close> = io.open(("%s/%d"):format(arg[1], ml.process_index()), "w")
  file:write(stat:read "n")
  file:close()
  while true do pcall(step, x) end
]]

--- Starts it in two processes, runs `command` when both are there, with $RUN, $MPIRUN, $RANK0 and $RANK1, and
--- waits for the end. The code is that of their parent, 99 where a process is left.
local function while_running(command)
  local words = ([[
    folder=$(mktemp -d)
    setsid "$MESHLUA" --processes=2 %s $folder & RUN=$!
    until [ -s $folder/0 ] && [ -s $folder/1 ]; do sleep 0.05; done
    MPIRUN=$(pgrep -P $RUN); RANK0=$(cat $folder/0); RANK1=$(cat $folder/1); rm -r $folder
    %s
    wait $RUN; code=$?
    for i in 1 2 3 4 5 6; do
      [ -z "$(ps -o state= -p $MPIRUN,$RANK0,$RANK1 | grep -v Z)" ] && exit $code
      sleep 0.5
    done
    exit 99]]):format(helper.file(endless, ".lua"), command)
  return shell(ENV .. words)
end

describe("--processes", function()
  mpi.it("ends when its output has been read, however slowly", function()
    -- more than a pipe holds, and less than the two on the way: all have written before any of it is read
    local lines = helper.file('for i = 1, 18000 do print(i) end', ".lua")
    assert.equal("18000\n", (meshlua("--processes=2 " .. lines .. " | (sleep 2; tail -n 1)")))
  end)

  mpi.it("starts processes, with the other flags", function()
    local file = helper.file(script, ".lua")
    for _, words in ipairs {"--devices=2 --processes=3 %s a b", "--processes=3 --devices=2 -- %s a b"} do
      local out, err, code = meshlua(words:format(file))
      assert.same({"3\t6\t66.0\ta\tb\n", 0}, {out, code}, err)
    end
  end)

  mpi.it("hands on what is written to the standard error, byte by byte", function()
    local line = ("-"):rep(70) .. "\n"
    local code = [[io.stderr:write(("-"):rep(70), "\n", "a\0b", "\n", ("-"):rep(70), "\n")]]
    local _, err = meshlua(("--processes=1 %s"):format(helper.file(code, ".lua")))
    assert.truthy(err:find(line .. "a\0b\n" .. line, 1, true), err)
  end)

  mpi.it("gives the code of the process that failed, with its words and not those of mpirun", function()
    local file = helper.file("if require 'meshlua'.process_index() == 1 then error 'mine' end")
    local _, err, code = meshlua("--processes=2 " .. file)
    assert.equal(1, code)
    assert.truthy(err:find(":1: mine", 1, true), err)
    assert.falsy(err:find "MPI_ABORT", err)
    assert.falsy(err:find "mpirun", err)
  end)

  mpi.it("leaves no process where one is killed", function()
    local _, err, code = while_running "kill -KILL $RANK1"
    assert.equal(137, code, err)
    assert.truthy(err:find "meshlua: process rank 1 .- exited on signal 9", err)
    assert.falsy(err:find "%-%-%-%-", err)
  end)

  mpi.it("leaves no process where it is killed itself", function()
    assert.equal(137, (select(3, while_running "kill -KILL $RUN")))
    assert.equal(137, (select(3, while_running "kill -KILL $MPIRUN")))
  end)

  mpi.it("ends at a second signal, and says so where it was Ctrl-C", function()
    for number, name in pairs {[2] = "INT", [15] = "TERM"} do
      local _, err, code = while_running(("kill -%s $RUN; sleep 0.2; kill -%s $RUN"):format(name, name))
      assert.equal(128 + number, code, err)
      local said = err:find("meshlua: stopping after this step; once more ends at once\n", 1, true)
      assert.equal(name == "INT", said ~= nil, err)
    end
  end)

  mpi.it("is not for a process that mpirun has started", function()
    local _, err, code = mpi.run(1, 1, "--processes=2 -e ''")
    assert.equal(3, code)
    assert.truthy(err:find("meshlua: mpirun has started this process already", 1, true), err)
  end)

  mpi.it("says that there is no mpirun", function()
    local _, err, code = shell [[PATH=/nonexistent "$MESHLUA" --processes=2 -e ""]]
    assert.equal(3, code)
    assert.truthy(err:find("meshlua: mpirun cannot be started (Debian: openmpi-bin)", 1, true), err)
  end)

  it("wants a number, and a script that all can read", function()
    for flag, words in pairs {["--processes"] = "--processes=%s x.lua", ["-"] = "--processes=2 %s"} do
      for _, word in ipairs(flag == "-" and {"", "-", "-i -e 1", "doctor"} or {"", "0", "x", "2x"}) do
        local out, err, code = meshlua(words:format(word))
        assert.same({"", 2}, {out, code}, err)
        assert.truthy(err:find "^meshlua: %-%-processes=", err)
      end
    end
    local _, err, code = meshlua "--processes=2 --device=2 x.lua"
    assert.equal(2, code)
    assert.truthy(err:find("--device=2: unknown; did you mean --devices?", 1, true), err)
  end)

  it("is what `run -n R` was, which says so", function()
    for words, wanted in pairs {["run -n 3 --devices=2 x.lua -n 1"] = "--processes=3 --devices=2 x.lua -n 1",
      ["--devices=2 run -n3 x.lua"] = "--processes=3 x.lua", run = "--processes=R script.lua"} do
      local out, err, code = meshlua(words)
      assert.same({"", 2}, {out, code}, words)
      assert.truthy(err:find("the number of processes is a flag: meshlua " .. wanted .. "\n", 1, true), err)
    end
  end)

  mpi.it("is taken behind a verb, whose arguments lack it then", function()
    local recipe = helper.file("print(require('meshlua').process_count()) return 1", ".lua")
    local _, err, code = meshlua(("train %s --processes=2 --devices=1"):format(recipe))
    assert.equal(2, code)
    assert.truthy(err:find(recipe .. ": the file returns no recipe", 1, true), err)
  end)
end)
