-- kill_spec.lua: a run that saves at each step is killed at any moment, again and again, and goes on: no checkpoint
-- that was committed is lost or broken, and at its end it is, bit for bit, the run that nobody killed. 20 kills;
-- where a sanitizer watches one of a run of one process and one of two. KILLS=n: so many in all.
local core = require "meshlua.core"
local helper = require "spec.helper"
local manifest = require "meshlua.checkpoint.manifest"
local mpi = require "dist.mpi"
local saver = require "meshlua.train.saver"
local shell = helper.shell
local is_whole = require("meshlua.checkpoint.check").checkpoint
local read = helper.read

local STEPS = 12
local words = {}
for i = 1, 3000 do words[i] = ("line %d of many "):format(i % 97) end
local TEXT = table.concat(words)

-- {what is started, its options}: the layouts, 16 bits with a loss scale, dropout, several processes.
local GPT = "--layers=1 --width=16 --heads=2 --seq=8 --batch=8 --sample=0 --dropout=0.1 --steps=" .. STEPS
local runs = {
  {"one process, dp", '"$MESHLUA"', GPT .. " --rules=dp"},
  {"one process, tp, float16 with a loss scale", '"$MESHLUA"', GPT .. " --rules=tp --precision=f16"},
  {"one process, fsdp_tp, bfloat16", '"$MESHLUA"', GPT .. " --rules=fsdp_tp --precision=bf16"},
  {"one device", '"$MESHLUA"', GPT .. " --mesh=none --rules=dp"},
  {"two processes, tp", mpi.program(2, 4), GPT .. " --rules=tp", mpi = true},
  {"two processes, fsdp_tp", mpi.program(2, 4), GPT .. " --rules=fsdp_tp", mpi = true},
}
if helper.watched then runs = {runs[2], runs[6]} end
local KILLS = tonumber(rawget(_G, "KILLS")) or helper.watched and #runs or 20

local function temporary()
  local name = os.tmpname()
  os.remove(name)
  return name
end

local function remove(path) core.disk_task {{"remove", path}}:wait() end

local random = (function()
  local x = os.time()
  return function()
    x = x * 6364136223846793005 + 1442695040888963407
    return (x >> 33) / 2.0 ^ 31
  end
end)()

--- The newest step in a folder of checkpoints, all of which must be whole.
local function newest(folder)
  local last = 0
  for _, name in ipairs(core.list_folder(folder) or {}) do
    local step = manifest.step(name)
    if step then
      local ok, faults = is_whole(folder .. "/" .. name)
      assert.truthy(ok, not ok and faults[1])
      last = step
    end
  end
  return last
end

--- Starts a run and kills all its processes after so many seconds, if it is not over before; its exit code.
local function run_and_kill(command, seconds)
  local _, err, code = shell(([[setsid sh -c 'exec %s' >/dev/null &
    pid=$!
    ( sleep %.3f; kill -KILL $(ps -o pid= -s $pid) ) >/dev/null 2>&1 &
    killer=$!
    wait $pid; code=$?
    kill $killer 2>/dev/null
    while left=$(ps -o pid= -s $pid); do
      if [ $code != 0 ]; then kill -KILL $left 2>/dev/null; fi
      sleep 0.02
    done
    exit $code]]):format(command:gsub('"%$MESHLUA"', "$MESHLUA"), seconds))
  return code, err
end

--- The rows of metrics.jsonl without what is time.
local function rows(out)
  return (read(out .. "/metrics.jsonl"):gsub(',"ms":[^\n]*', ""))
end

for i, run in ipairs(runs) do
  local test = run.mpi and mpi.it or it
  local name, program, options = run[1], run[2], run[3]
  test(name .. " goes on as if nothing had happened", function()
    local text = helper.file(TEXT)
    local start = ("%s models/train.lua %s --data=%s --save-every=1 --keep=2"):format(program, options, text)
    local whole, killed = temporary(), temporary()
    local before = core.clock()
    local _, err, code = shell(("%s --out=%s"):format(start, whole))
    assert.equal(0, code, err)
    local seconds, kills, last = core.clock() - before, 0, 0
    local wanted = KILLS // #runs + (i <= KILLS % #runs and 1 or 0)
    local again = ("%s --out=%s --resume=auto"):format(start, killed)
    while true do
      if kills == wanted then
        _, err, code = shell(again)
      else
        code, err = run_and_kill(again, (0.1 + 0.8 * random()) * seconds)
      end
      local now = newest(saver.folder(killed))
      assert.truthy(now >= last, ("step %d was committed, and is lost"):format(last))
      last = now
      if code == 0 and kills >= wanted then break end
      if code == 0 then -- it was over before: from the beginning
        remove(killed)
        last = 0
      else
        assert.truthy(code >= 128 or code == 1, err)
      end
      kills = kills + 1
    end
    for _, name_of in ipairs(core.list_folder(saver.folder(killed))) do
      assert.falsy(name_of:find "^%.step" or name_of:find "^%.gone", name_of)
    end
    assert.equal(rows(whole), rows(killed))
    for _, tree in ipairs {"model", "optimizer", "rngs", "loss_scale"} do
      local path = ("/%s/%s.safetensors"):format(manifest.folder(STEPS), tree)
      if core.path_kind(saver.folder(whole) .. path) then
        assert.truthy(read(saver.folder(whole) .. path) == read(saver.folder(killed) .. path), tree)
      end
    end
    assert.equal(STEPS, newest(saver.folder(killed)))
    remove(whole)
    remove(killed)
  end)
end
