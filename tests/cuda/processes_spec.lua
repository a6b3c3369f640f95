-- processes_spec.lua: several GPUs, of one process or of several, over the CUDA and the NCCL that run on the CPU
-- (standin/): the numbers are those of one GPU, NCCL's calls pair up and are the same however the GPUs are spread
-- over processes, and who is killed or hangs ends all.
--
-- `build/meshlua -e ALL=1 tests/specs.lua tests/cuda/processes_spec.lua` runs more: some minutes.
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local standin = require "cuda.standin"
local shell = helper.shell

local ALL = rawget(_G, "ALL")
local GRACE = 5

local function check(name, fn)
  standin.it(name, function()
    if helper.watched then helper.pending "a sanitizer makes the GPU that runs on the CPU too slow" end
    fn()
  end, "libnccl.so.2", mpi.it)
end

--- Four GPUs.
local SETTINGS = mpi.SETTINGS .. ([[export LD_LIBRARY_PATH='%s' MESHLUA_CACHE='%s' STANDIN_GPUS=4
]]):format(standin.folder, standin.cache)

---@return string out, string err, integer code
local function run(processes, words, settings)
  return shell(SETTINGS .. (settings or "") ..
    ([[timeout -s KILL 120 mpirun -np %d "$MESHLUA" %s]]):format(processes, words))
end

local SUM = [[
  local ml = require "meshlua"
  local mesh = ml.make_mesh({ml.device_count()}, {"x"})
  local x = ml.device_put(ml.arange(8.0), ml.NamedSharding(mesh, ml.P "x"))
  local sum = x:sum():item()
  if ml.process_index() == 0 then print(sum) end
]]

--- What one process with these devices prints.
local function one(devices, words, settings)
  local out, err, code = shell(SETTINGS .. (settings or "") ..
    ([[timeout -s KILL 120 "$MESHLUA" '--devices=%s' %s]]):format(devices, words))
  assert.equal(0, code, err)
  return out
end

--- "cuda:0,1*2": so many GPUs, each so many virtual devices; the GPUs' numbers by a format.
local function gpus(n, times, number)
  local list = {}
  for i = 0, n - 1 do list[i + 1] = (number or "%d"):format(i) end
  return "cuda:" .. table.concat(list, ",") .. "*" .. (times or 1)
end

--- What processes print that have so many GPUs each, all different ones.
local function spread(processes, each, words, settings, times)
  local devices = gpus(each, times, ("$((%d * OMPI_COMM_WORLD_LOCAL_RANK + %%d))"):format(each))
  local script = helper.file(([[exec "$MESHLUA" "--devices=%s" "$@"]]):format(devices), ".sh")
  local out, err, code = shell(SETTINGS .. (settings or "") ..
    ("timeout -s KILL 120 mpirun -np %d sh %s %s"):format(processes, script, words))
  assert.equal(0, code, err)
  return out
end

--- Asserts that so many GPUs print what one does, in one process and in a process each; 4 in two processes, too.
local function same(n, words, times)
  local first = one("cuda:0*" .. n * (times or 1), words)
  assert.truthy(#first > 0)
  assert.equal(first, one(gpus(n, times), words), n .. " GPUs")
  assert.equal(first, spread(n, 1, words, nil, times), n .. " processes")
  if n == 4 then assert.equal(first, spread(2, 2, words, nil, times), "2 processes with 2 GPUs") end
end

local function lines_of(file)
  local lines = {}
  for line in io.lines(file) do lines[#lines + 1] = line end
  os.remove(file)
  return lines
end

--- The record of a rank as groups: of each the sizes that go to a peer and come from it, in order.
local function groups_of(lines, rank)
  local groups = {}
  for _, line in ipairs(lines) do
    local what, peer, bytes = line:match "(%a+) ?(%d*) ?(%d*)"
    if what == "group" then
      groups[#groups + 1] = {send = {}, recv = {}}
    else
      peer = tonumber(peer)
      assert(peer ~= rank)
      local list = groups[#groups][what]
      list[peer] = (list[peer] or "") .. bytes .. " "
    end
  end
  return groups
end

describe("several GPUs", function()
  if ALL then check("have every collective as one has", function()
    same(2, "tests/dist/scripts/collectives.lua 2 few")
    same(4, "tests/dist/scripts/collectives.lua 2,2")
    same(4, "tests/dist/scripts/collectives.lua 4 large")
    same(3, "tests/dist/scripts/collectives.lua 3 large")
    same(4, "tests/dist/scripts/collectives.lua 2,2 mixed")
    same(2, "tests/dist/scripts/collectives.lua 2,2", 2)
    same(2, "tests/dist/scripts/loops.lua", 4)
  end) end

  check("train a GPT as one does", function()
    same(2, "tests/dist/scripts/train.lua fsdp_tp 2 1 tiny")
    if not ALL then return end
    for _, case in ipairs {"dp 4 1", "tp 2 2", "fsdp_tp 2 2", "tp_sp 1 4"} do
      same(4, "tests/dist/scripts/train.lua " .. case .. " tiny")
    end
  end)

  check("exchange over iterations of a loop", function() same(2, "tests/dist/scripts/layers.lua 2") end)

  if ALL then check("send through the host's memory where that is asked for", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local config = ml.distributed {backend = arg[1]}
      arg = {[0] = arg[0], "2", "few"}
      package.path = "tests/dist/scripts/?.lua;" .. package.path
      if ml.process_index() == 0 then io.stderr:write("by " .. config.backend .. "\n") end
      dofile "tests/dist/scripts/collectives.lua"
    ]], ".lua")
    local first = one("cuda:0*2", "tests/dist/scripts/collectives.lua 2 few")
    local out, err, code = run(2, "--devices=cuda " .. script .. " mpi")
    assert.same({first, 0}, {out, code}, err)
    assert.truthy(err:find("through the host's memory and MPI, which is slow", 1, true), err)
    assert.truthy(err:find("by mpi", 1, true), err)
    out, err, code = run(2, "--devices=cuda " .. script .. " auto")
    assert.same({first, 0}, {out, code}, err)
    assert.truthy(err:find("by nccl", 1, true), err)
  end) end

  check("call NCCL in the order of the plan, and each send has its receipt", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local n = ml.device_count()
      local mesh = ml.make_mesh({n}, {"x"})
      local rows = ml.P("x", nil)
      -- 40, 4 and 8 bytes of each device, in this order
      local step = ml.jit(ml.shard_map(function(a, b, c)
        local all = ml.all_gather(a, "x", {axis = 2, tiled = true}):sum()
        local sum = ml.psum(b * all, "x"):sum()
        return ml.ppermute(c * sum, "x", {{0, n - 1}})
      end, {mesh = mesh, in_specs = {rows, rows, rows}, out_specs = rows}))
      local function make(columns)
        return ml.device_put(ml.ones {n, columns}, ml.NamedSharding(mesh, rows))
      end
      local a, b, c = make(10), make(1), make(2)
      for _ = 1, 2 do step(a, b, c) end
    ]], ".lua")
    local function record(n, start)
      local log, all = helper.file "", {}
      start(("export STANDIN_GPUS=%d STANDIN_NCCL_LOG='%s'\n"):format(n, log))
      for rank = 0, n - 1 do all[rank] = lines_of(log .. "." .. rank) end
      return all
    end
    for n = ALL and 2 or 4, 4 do
      local all = record(n, function(settings) one("cuda", script, settings) end)
      for each = 1, n - 1 do
        if n % each == 0 then
          assert.same(all, record(n, function(settings) spread(n // each, each, script, settings) end))
        end
      end
      for rank = 0, n - 1 do all[rank] = groups_of(all[rank], rank) end
      for rank, groups in pairs(all) do
        for peer, others in pairs(all) do
          local sent, came = {}, {}
          for _, g in ipairs(groups) do sent[#sent + 1] = g.send[peer] end
          for _, g in ipairs(others) do came[#came + 1] = g.recv[rank] end
          assert.same(sent, came, ("from %d to %d of %d"):format(rank, peer, n))
        end
      end
      local from_first = {}
      for _, g in ipairs(all[0]) do from_first[#from_first + 1] = g.send[n - 1] end
      assert.same({"40 ", "4 ", "8 ", "40 ", "4 ", "8 "}, from_first)
    end
  end)

  if ALL then check("end together when one is killed or stops", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({ml.device_count()}, {"data"})
      local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
      local x = ml.device_put(ml.ones {12}, ml.NamedSharding(mesh, ml.P "data"))
      for i = 1, 1e6 do
        if i == 5 and ml.process_index() == 1 then os.execute(arg[1]) end
        x = step(x)
      end
    ]], ".lua")
    local function ends(code, signal, text)
      local start = os.time()
      local _, err, status = run(2, ("--timeout=1 --devices=cuda %s 'kill -%s $PPID'"):format(script, signal))
      assert.equal(code, status, err)
      assert.truthy(err:find(text, 1, true), err)
      assert.truthy(err:find "rank 0 waits since [%d.]+ s in [%w_ ]+.-lua:3 %(exchange %d+%)", err)
      assert.truthy(os.time() - start <= 2 + GRACE, err)
    end
    ends(137, "KILL", "meshlua: rank 1 is gone without a word")
    ends(5, "STOP", "meshlua: rank 1 does not answer")
  end) end

  check("end together when NCCL comes to nothing", function()
    local script = helper.file([[
      local ml = require "meshlua"
      local mesh = ml.make_mesh({ml.device_count()}, {"data"})
      local step = ml.jit(function(v) return v + v:sum() * 0 end, {mesh = mesh})
      local x = ml.device_put(ml.ones {12}, ml.NamedSharding(mesh, ml.P "data"))
      for i = 1, 1e6 do x = step(x) end
    ]], ".lua")
    local _, err, code = run(2, "--timeout=1 --devices=cuda " .. script, "export STANDIN_NCCL_STALL=1:7\n")
    assert.equal(5, code, err)
    assert.truthy(err:find "rank 1 waits since %d+ s in all_reduce over data, %S+lua:3 %(exchange %d+%)", err)
  end)

  check("do not share a GPU unasked", function()
    local words = [[-e 'require("meshlua")']]
    local _, err, code = run(2, "--devices=cuda " .. words, "export CUDA_VISIBLE_DEVICES=0\n")
    assert.equal(3, code, err)
    assert.truthy(err:find "%[E_RANKS%] ranks 0 and 1 would use the same GPU, %x+:01:00.0 of ", err)
    _, err, code = run(2, "--devices=cuda " .. words, "export STANDIN_GPUS=1\n")
    assert.equal(3, code, err)
    assert.truthy(err:find("rank 1 is process 2 of its host, which has 1 GPU; start as many", 1, true), err)
    local script = helper.file(SUM, ".lua")
    local out
    out, err, code = run(2, "--devices=cuda:0 " .. script)
    assert.same({"28.0\n", 0}, {out, code}, err)
    assert.equal(1, select(2, err:gsub("processes share a GPU: NCCL is told", "")), err)
  end)

  check("say what is missing", function()
    local folder, script = shell("mktemp -d"):match "[^\n]+", helper.file(SUM, ".lua")
    shell(([[ln -s "$(realpath '%s')"/* '%s'; cd '%s'; rm libnccl.so.2; echo > libnccl.so.2]]):format(
      standin.folder, folder, folder))
    local broken = ("export LD_LIBRARY_PATH='%s'\n"):format(folder)
    local _, alone, failed = shell(SETTINGS .. broken .. '"$MESHLUA" --devices=cuda:0,1 ' .. script)
    local _, err, code = run(2, "--devices=cuda " .. script, broken)
    shell(("rm -r '%s'"):format(folder))
    assert.same({3, 3}, {failed, code}, alone .. err)
    local one_process = "[E_RANKS] 2 GPUs, and nothing to carry data between them: NCCL is missing: "
    assert.truthy(alone:find(one_process, 1, true), alone)
    local text = "2 processes with GPUs, and nothing to carry data between them: rank 0: NCCL is missing"
    assert.truthy(err:find("[E_RANKS] " .. text, 1, true), err)
    assert.truthy(err:find('ml.distributed{backend = "mpi"}', 1, true), err)
  end)
end)

