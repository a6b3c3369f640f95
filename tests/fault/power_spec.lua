-- devices: 4
-- power_spec.lua: the power goes at any moment of a run that saves: every checkpoint that was committed reads, and
-- nothing that has the name of a step is broken. STATES=n: so many states of the disk.
local core = require "meshlua.core"
local helper = require "spec.helper"
local manifest = require "meshlua.checkpoint.manifest"
local recorded = require "fault.recorded"
local saving = require "fault.saving"
local is_whole = require("meshlua.checkpoint.check").checkpoint

local STATES = tonumber(rawget(_G, "STATES")) or helper.watched and 60 or 300
local RECORDER = helper.program():match "^(.*)/[^/]*$" .. "/fault_recorder.so"

local function temporary()
  local name = os.tmpname()
  os.remove(name)
  assert(core.make_folder(name))
  return name
end

local function remove(path) core.disk_task {{"remove", path}}:wait() end

--- A number from 1 to n, each time another, the same in each run.
local function generator(seed)
  local x = seed
  return function(n)
    x = (x * 6364136223846793005 + 1442695040888963407)
    return (x >> 33) % n + 1
  end
end

--- Runs saving.lua with the recorder; RECORD_... as in `with`. What it says.
local function record(folder, with)
  local words = '%s RECORD_ROOT=%s LD_PRELOAD=%s "$MESHLUA" --devices=4 tests/fault/saving.lua %s'
  return helper.shell(words:format(with, folder, RECORDER, folder))
end

--- The steps that are committed behind call `at`: their rename is on the disk, and they are not gone again.
local function committed(calls, at)
  local named, steps = {}, {}
  for i = 1, at do
    local call = calls[i]
    if call.kind == "rename" then
      local from = manifest.step(call.path:match "[^/]+$")
      local to = manifest.step(call.other:match "[^/]+$")
      if to then named[to] = "named" end
      if from then named[from] = nil end
    elseif call.kind == "sync" and not call.path:find "step%-" then
      for step in pairs(named) do named[step] = "committed" end
    end
  end
  for step, word in pairs(named) do
    if word == "committed" then steps[#steps + 1] = step end
  end
  return steps
end

--- What a run that saves has called.
local function recording()
  if rawget(_G, "SANITIZE") then helper.pending "a sanitizer must be loaded first" end
  local folder, log = temporary(), os.tmpname()
  local out, err, code = record(folder, "RECORD_LOG=" .. log)
  assert.same({"", "", 0}, {out, err, code})
  local calls = recorded.read(log)
  os.remove(log)
  remove(folder)
  assert.truthy(#calls > 100)
  return calls, folder
end

--- What is wrong in one of so many states of the disk, or nil and the last step that was committed in one.
local function search(calls, folder, states)
  local list, root = recorded.changes(calls, folder)
  local random, most, fault = generator(7), 0, nil
  for n = 1, states do
    local at = random(#calls)
    local there, whole = temporary(), {}
    recorded.build(recorded.state(list, root, at, random), there)
    for _, name in ipairs(core.list_folder(there)) do
      local step = manifest.step(name)
      if step then
        local ok, faults = is_whole(there .. "/" .. name)
        fault = fault or not ok and ("state %d, behind call %d: %s"):format(n, at, faults[1]) or nil
        whole[step] = true
      end
    end
    for _, step in ipairs(committed(calls, at)) do
      if not whole[step] then fault = ("state %d, behind call %d: step %d is lost"):format(n, at, step) end
      most = math.max(most, step)
    end
    remove(there)
    if fault then return fault end
  end
  return nil, most
end

describe("a power cut", function()
  it("leaves every checkpoint that was committed", function()
    local calls, folder = recording()
    assert.same({nil, saving.STEPS}, {search(calls, folder, STATES)})
  end)

  it("would not, were a file, a part or the folder not synced in time", function()
    local calls, folder = recording()
    for _, pattern in ipairs {"model%.safetensors$", "part%-0000%.json%.part$", "manifest%.json%.part$",
        "%.step%-%d+%.%x+$"} do
      local fewer = {}
      for _, call in ipairs(calls) do
        if call.kind ~= "sync" or not call.path:find(pattern) then fewer[#fewer + 1] = call end
      end
      assert.truthy(#fewer < #calls)
      assert.truthy(search(fewer, folder, 300), pattern)
    end
  end)
end)

describe("a folder that cannot be synced", function()
  it("is told of once, and the checkpoints are made", function()
    if rawget(_G, "SANITIZE") then helper.pending "a sanitizer must be loaded first" end
    local folder, told = temporary(), 0
    for n = 30, 70 do -- one of the calls of the first save
      local out, err, code = record(folder, ("RECORD_FAIL=%d RECORD_ERRNO=22"):format(n))
      if err:find "a folder there cannot be synced" then
        told = told + 1
        assert.same({"", 0}, {out, code})
        assert.equal(1, select(2, err:gsub("\n", "")), err)
        assert.truthy(is_whole(folder .. "/step-00000003"))
      end
      remove(folder)
      assert(core.make_folder(folder))
    end
    assert.truthy(told >= 2)
    remove(folder)
  end)
end)

describe("a call that fails", function()
  local EIO, ENOSPC = 5, 28

  --- What there is afterwards is whole, and what failed has said so.
  local function check(folder, out, err, code, n)
    assert.equal(0, code, err)
    local steps = {}
    for _, name in ipairs(core.list_folder(folder)) do
      local step = manifest.step(name)
      if step then
        local ok, faults = is_whole(folder .. "/" .. name)
        assert.truthy(ok, ("call %d: %s"):format(n, not ok and faults[1]))
        steps[#steps + 1] = step
      end
    end
    assert.truthy(#steps >= 1 or out ~= "", ("call %d"):format(n))
    if out ~= "" then assert.truthy(out:find(folder, 1, true), out) end
    return steps
  end

  local kinds = {["cannot be made"] = EIO, ["finds the disk full"] = ENOSPC, ["writes half"] = 0}
  for name, number in pairs(kinds) do
    it(name .. " leaves the checkpoints that there are, and is told of", function()
      if rawget(_G, "SANITIZE") then helper.pending "a sanitizer must be loaded first" end
      local n, every, silent = 1, rawget(_G, "EVERY") and 1 or 7, 0
      while silent < 1 do
        local folder = temporary()
        local log = os.tmpname()
        local out, err, code = record(folder, ("RECORD_LOG=%s RECORD_FAIL=%d RECORD_ERRNO=%d"):format(log, n,
          number))
        local calls = #recorded.read(log)
        check(folder, out, err, code, n)
        os.remove(log)
        remove(folder)
        if n > calls then silent = silent + 1 end
        n = n + every
      end
    end)
  end
end)
