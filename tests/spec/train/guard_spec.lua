-- guard_spec.lua: runs that meet a NaN and a spike: they stop, skip, or go back; which of them is in the checkpoint,
-- and the same run again, on other meshes, or gone on with, takes the same decisions.
local core = require "meshlua.core"
local guards = require "meshlua.train.guard"
local helper = require "spec.helper"
local mpi = require "dist.mpi"
local shell = helper.shell
local read = helper.read

local folder, text = os.tmpname(), os.tmpname()

local function write(path, bytes)
  local file <close> = assert(io.open(path, "wb"))
  file:write(bytes)
end

setup(function()
  os.remove(folder)
  core.make_folder(folder)
  local lines = {}
  for i = 1, 400 do lines[i] = ("line %d of many "):format(i % 97) end
  local bytes = table.concat(lines)
  bytes = bytes:sub(1, 999) .. "\255" .. bytes:sub(1001, 2499) .. "\254" .. bytes:sub(2501)
  write(text, bytes)
end)
teardown(function()
  core.disk_task {{"remove", folder}}:wait()
  os.remove(text)
end)

local ROLLBACK = "--on-nan=rollback --on-spike=rollback --spike-window=16 --spike-factor=20 --save-every=10"

--- Trains the recipe; what it said, and its exit code.
local function train(options, program)
  return shell(("%s train tests/spec/train/poison.lua --data=%s --steps=60 %s"):format(
    program or '"$MESHLUA"', text, options))
end

--- The rows of a run's metrics without what its clock says.
local function metrics(name)
  return (read(folder .. "/" .. name .. "/metrics.jsonl"):gsub('"ms".-\n', "\n"))
end

local function state(name, step)
  local own, all = ("%s/%s/checkpoints/step-%08d/"):format(folder, name, step), {}
  for i, file in ipairs {"model", "optimizer", "rngs"} do
    all[i] = core.hash128(read(own .. file .. ".safetensors"))
  end
  return table.concat(all, " ")
end

local function run(name, options, program)
  local out, err, code = train(("--out=%s/%s %s"):format(folder, name, options), program)
  assert.equal(0, code, err)
  return out, err
end

describe("a run that meets what is not finite", function()
  it("stops, skips, or goes on as it did", function()
    local _, err, code = train "--on-nan=stop"
    assert.equal(4, code, err)
    local said = "step 37: the loss is nan, the gradient norm is nan; the run is stopped"
    assert.truthy(err:find(said, 1, true), err)
    assert.truthy(err:find("the first infinity: log1p at tests/spec/train/poison.lua:19", 1, true), err)
    _, err = train "--on-nan=stop --mesh=data:8"
    assert.truthy(err:find("on the devices at data=", 1, true), err)
    assert.truthy(err:find("one device alone gives it, too", 1, true), err)
    _, err = run("skip", "--on-nan=skip")
    assert.truthy(err:find("the update is left out", 1, true), err)
    assert.truthy(metrics("skip"):find '"step":37,"loss":null')
    assert.truthy(metrics("skip"):find '"step":60,"loss":[%d.]+')
    _, err, code = train ""
    assert.equal(4, code)
    assert.truthy(err:find("step 37: the loss is nan; the run is stopped", 1, true), err)
  end)

  it("goes back, passes over the batches, and repeats bit for bit", function()
    local _, err = run("first", ROLLBACK)
    assert.truthy(err:find("back to step 30, past the batches 31 to 37", 1, true), err)
    assert.truthy(err:find("back to step 40, past the batches 48 to 50", 1, true), err)
    run("second", ROLLBACK)
    local function same()
      assert.equal(read(folder .. "/first/guard.jsonl"), read(folder .. "/second/guard.jsonl"))
      assert.equal(metrics "first", metrics "second")
      assert.equal(state("first", 60), state("second", 60))
    end
    same()
    -- The same run, ended behind both decisions, and between them.
    for _, gone in ipairs {{60}, {60, 50}} do
      for _, step in ipairs(gone) do
        core.disk_task {{"remove", ("%s/second/checkpoints/step-%08d"):format(folder, step)}}:wait()
      end
      run("second", ROLLBACK .. " --resume")
      same()
    end
    local _, message, code = train(("--out=%s/second --resume --on-nan=skip"):format(folder))
    assert.equal(2, code)
    assert.truthy(message:find("guard.on_nan", 1, true), message)
  end)

  mpi.it("goes back to the beginning where there is nothing else, on a mesh, in two processes", function()
    local options = "--on-nan=rollback --on-spike=skip --spike-window=8 --mesh=data:4"
    local _, err = run("alone", options)
    assert.truthy(err:find("back to step 0, past the batches 1 to 37", 1, true), err)

    run("two", options, mpi.program(2, 2))
    assert.equal(read(folder .. "/alone/guard.jsonl"), read(folder .. "/two/guard.jsonl"))
    assert.equal(metrics "alone", metrics "two")
  end)

  it("needs a place to go back to", function()
    local _, err, code = train "--on-spike=rollback"
    assert.equal(2, code)
    assert.truthy(err:find("--on-spike=rollback needs a folder: --out=...", 1, true), err)
  end)
end)

describe("an audit", function()
  it("names a broken device within so many steps, and nothing where none is", function()
    local _, err, code = train "--audit=4 --mesh=data:8 --steps=6 --broken=5"
    assert.equal(3, code, err)
    local said = "step 4: not the same bits on another device: matmul at tests/spec/train/poison.lua"
    assert.truthy(err:find(said, 1, true), err)
    assert.truthy(err:find("it is the device at data=5; the step is not made", 1, true), err)
    _, err, code = train "--audit=2 --mesh=data:4 --microbatches=2 --steps=6"
    assert.same({"", 0}, {err, code})
    _, err, code = train "--audit=2"
    assert.equal(2, code)
    assert.truthy(err:find("--audit=2: a mesh of several devices is needed", 1, true), err)
  end)

  mpi.it("finds it in another process", function()
    local _, err, code = train("--audit=4 --mesh=data:4 --steps=6 --broken=3",
      mpi.program(2, 2))
    assert.equal(3, code, err)
    assert.truthy(err:find("it is the device at data=3", 1, true), err)
  end)
end)

describe("the guard", function()
  local function new(on_nan, on_spike)
    return guards.new {on_nan = on_nan, on_spike = on_spike, spike_window = 8, spike_factor = 6.0}
  end

  it("expects what the window has, from half of it on", function()
    local guard = new("", "skip")
    for i = 1, 3 do
      assert.equal("go", guard:look {step = i, loss = 2.0 + i % 2, grad_norm = 1.0})
      assert.same({math.huge, math.huge}, {guard:limits()})
    end
    guard:look {step = 4, loss = 2.0, grad_norm = 1.0}
    local loss, norm = guard:limits()
    helper.close(2.5 + 6 * 0.5, loss, 1e-6)
    helper.close(1.06, norm, 1e-6)
    assert.equal("skip", guard:look {step = 5, loss = 5.6, grad_norm = 1.0})
    assert.equal("skip", guard:look {step = 6, loss = 2.0, grad_norm = 1.1})
    assert.equal("go", guard:look {step = 7, loss = 0 / 0, grad_norm = 1.0})
    assert.equal(4, #guard.seen.loss)
    for i = 1, 10 do guard:look {step = 7 + i, loss = 2.0, grad_norm = 1.0} end
    assert.equal(8, #guard.seen.loss)
  end)

  it("is not asked for what nobody asked", function()
    assert.is_nil(new("", ""))
    local guard = new("stop", "")
    for i = 1, 20 do guard:look {step = i, loss = 1.0, grad_norm = 1.0} end
    assert.equal("go", guard:look {step = 21, loss = 1e9, grad_norm = 1e9})
    assert.equal("stop", guard:look {step = 22, loss = 1.0, grad_norm = math.huge})
    guard.scaled = true
    assert.equal("go", guard:look {step = 23, loss = 1.0, grad_norm = math.huge})
  end)
end)
