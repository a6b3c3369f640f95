-- replay_spec.lua: steps of runs, made again from what their folders have: the same losses and records, whatever the run
-- went through; what is missing is said, and nothing in the folder changes.
local core = require "meshlua.core"
local helper = require "spec.helper"
local shell = helper.shell
local read = helper.read

local folder, text = os.tmpname(), os.tmpname()

local function write(path, bytes)
  local file <close> = assert(io.open(path, "wb"))
  file:write(bytes)
end

setup(function()
  os.remove(folder)
  local lines = {}
  for i = 1, 400 do lines[i] = ("line %d of many "):format(i % 97) end
  local bytes = table.concat(lines)
  write(text, bytes:sub(1, 999) .. "\255" .. bytes:sub(1001, 2499) .. "\254" .. bytes:sub(2501))
  local _, err, code = shell(('"$MESHLUA" train tests/spec/train/poison.lua --data=%s --steps=60 '
    .. "--mesh=data:2 --microbatches=2 --ema=0.9 --out=%s --on-nan=rollback --on-spike=skip "
    .. "--spike-window=16 --save-every=20"):format(text, folder))
  assert.equal(0, code, err)
end)
teardown(function()
  core.disk_task {{"remove", folder}}:wait()
  os.remove(text)
end)

local function replay(options, where)
  return shell(('"$MESHLUA" replay %s %s'):format(where or folder, options))
end

local function listing()
  local names = core.list_folder(folder)
  table.sort(names)
  return table.concat(names, " ") .. read(folder .. "/guard.jsonl") .. read(folder .. "/metrics.jsonl")
end

describe("replay", function()
  it("makes steps again: before and behind a rollback, at a checkpoint and far from one", function()
    local before = listing()
    assert.truthy(before:find '"word":"rollback".*"word":"skip"', before)
    for _, step in ipairs {1, 20, 21, 43, 60} do
      local out, err, code = replay("--step=" .. step)
      assert.same({"", 0}, {err, code})
      assert.truthy(out:find(("step %d: from "):format(step), 1, true), out)
      assert.truthy(out:find(": as in metrics.jsonl", 1, true), out)
    end
    assert.equal(before, listing())
  end)

  it("says its records, whether it is right, and where a NaN came from", function()
    local out = replay "--step=39 --records --verify"
    assert.truthy(out:find "\nrecord %d+: \"[^\n]+\"\n", out)
    assert.truthy(out:find("the same on Mesh(data=2) as on one device", 1, true), out)
    out = replay "--rollback=1 --records --nonfinite"
    local said = "step 37: from the checkpoint of step 20, 16 steps forward; batch 37"
    assert.truthy(out:find(said, 1, true), out)
    assert.truthy(out:find("\\255", 1, true), out)
    assert.truthy(out:find("the first infinity: log1p at tests/spec/train/poison.lua:19", 1, true), out)
    assert.truthy(out:find("loss nan", 1, true), out)
  end)

  it("says what is missing, and what is not the same", function()
    local function refuses(code, wanted, options, where)
      local out, err, actual = replay(options, where)
      assert.equal(code, actual, out .. err)
      assert.truthy((out .. err):find(wanted, 1, true), out .. err)
      assert.falsy(err:find("traceback", 1, true), err)
    end
    refuses(2, "which step? --step=N", "")
    refuses(2, "--step=61: the run has 60", "--step=61")
    refuses(2, "--rollback=9: guard.jsonl has 2 lines", "--rollback=9")
    refuses(3, "config.json: No such file", "--step=1", os.getenv "TMPDIR" or "/tmp")
    core.disk_task {{"remove", folder .. "/checkpoints/step-00000040"}}:wait()
    local out = replay "--step=43"
    assert.truthy(out:find("from the checkpoint of step 20, 22 steps forward", 1, true), out)
    assert.truthy(out:find(": as in metrics.jsonl", 1, true), out)
    local config, rows = read(folder .. "/config.json"), read(folder .. "/metrics.jsonl")
    write(folder .. "/metrics.jsonl", (rows:gsub('("step":21,"loss":)[^,]+', "%11.25")))
    refuses(1, "metrics.jsonl has the loss 1.25", "--step=21")
    write(folder .. "/config.json", (config:gsub("%-%-steps=60", "--steps=70")))
    refuses(2, "the recipe is another: config.steps: 60 in the run, 70 now", "--step=21")
    write(folder .. "/config.json", (config:gsub("tests/spec/train/poison", "tests/spec/train/none")))
    refuses(3, "the recipe tests/spec/train/none.lua: No such file", "--step=21")
    write(folder .. "/config.json", config:sub(1, -20))
    refuses(3, "config.json: ", "--step=21")
  end)
end)
