-- watch_spec.lua: what a run does behind its steps: evaluations, the best, an early end, samples; and that a run that
-- goes on does as one that never stopped.
local core = require "meshlua.core"
local helper = require "spec.helper"
local manifest = require "meshlua.checkpoint.manifest"
local ml = require "meshlua"
package.path = "models/?.lua;" .. package.path
local gpt = require "gpt"
local mlp = require "mlp"
local shell = helper.shell
local read, within = helper.read, helper.within

local words = {}
for i = 1, 600 do words[i] = ("line %d of many "):format(i * i % 97) end
local TEXT = os.tmpname()
setup(function()
  local file <close> = assert(io.open(TEXT, "wb"))
  file:write(table.concat(words))
end)
teardown(function() os.remove(TEXT) end)

local SMALL = "--layers=1 --width=16 --heads=2 --seq=8 --batch=8 --warmup=1 --mesh=none --sample=8"

local function train(options)
  local out, err, code = shell(('"$MESHLUA" train gpt %s --data=%s %s'):format(SMALL, TEXT, options))
  assert.equal(0, code, err)
  return out
end

local function refuses(wanted, options)
  local _, err, code = shell(('"$MESHLUA" train gpt %s --data=%s %s'):format(SMALL, TEXT, options))
  assert.equal(2, code, err)
  assert.truthy(err:find(wanted, 1, true), err)
end

--- The values of a key by step, of a file of rows.
local function by_step(path, key)
  local list = {}
  for line in io.lines(path) do
    list[tonumber(line:match '"step":(%d+)')] = tonumber(line:match(('"%s":([^,}]+)'):format(key)))
  end
  return list
end

local function steps(out)
  local list = {}
  for _, name in ipairs(core.list_folder(out .. "/checkpoints") or {}) do
    list[#list + 1] = manifest.step(name)
  end
  return list
end

describe("an evaluation", function()
  it("is made each so many steps and at the last, over as many batches, in loss and bits", function()
    within(function(out)
      local said = train("--steps=10 --eval-every=4 --sample-every=5 --out=" .. out)
      local rows = out .. "/metrics.jsonl"
      local losses, bits = by_step(rows, "validation_loss"), by_step(rows, "bits_per_byte")
      for step = 1, 10 do
        assert.equal(step % 4 == 0 or step == 10, losses[step] ~= nil, step)
        if losses[step] then assert.near(losses[step] / math.log(2), bits[step], 1e-6) end
      end
      assert.truthy(said:find("step 4: validation loss %d%.%d+ nats per byte, %d%.%d+ bits per byte "
        .. "%(4 of 15 batches%)"), said)
      assert.truthy(said:find("\nvalidation loss [^\n]+ on 10 of 15 batches of the last tenth", 1), said)
      assert.falsy(said:find("count table", 1, true))
      assert.same({"5", "10"},
        {read(out .. "/samples.jsonl"):match '^{"step":(%d+),"sample":"[^\n]+\n{"step":(%d+)'})
    end)
  end)

  it("ends the run where a sample cannot be written", function()
    if not io.open("/dev/full", "w") then return end
    within(function(out)
      assert(core.make_folder(out))
      os.execute(("ln -s /dev/full '%s/samples.jsonl'"):format(out))
      local _, err, code = shell(('"$MESHLUA" train gpt %s --data=%s --steps=2 --sample-every=1 --out=%s')
        :format(SMALL, TEXT, out))
      assert.equal(3, code, err)
      assert.truthy(err:find("step 1: " .. out .. "/samples.jsonl: No space left on device", 1, true), err)
    end)
  end)

  it("is over all batches, none, or so many", function()
    local said = train "--steps=2 --eval-batches=all"
    assert.truthy(said:find("on the last tenth of the data\nbest count table", 1, true), said)
    assert.falsy(train("--steps=2 --eval-batches=0"):find("validation", 1, true))
    assert.truthy(train("--steps=2 --eval-batches=5"):find("on 5 of 15 batches", 1, true))
    refuses("--eval-batches=some: expected a number of batches, or all", "--eval-batches=some")
    refuses("--eval-batches=0 is no evaluation; leave --eval-every away", "--eval-batches=0 --eval-every=2")
    refuses("--patience needs evaluations: --eval-every=...", "--patience=2")
    local _, err, code = shell '"$MESHLUA" train mlp --sample-every=3'
    assert.same({"train: --sample-every: the recipe mlp has no `sample`\n", 2}, {err, code})
  end)

  it("changes no bit of the training, and traces nothing anew", function()
    local cfg = setmetatable({layers = 1, width = 16, heads = 2, seq = 8, batch = 8, steps = 6,
      dropout = 0.5}, {__index = gpt.config})
    local data = assert(gpt.data(cfg, TEXT))
    local function losses(every)
      local list, run = {}, ml.train.run(gpt, {config = cfg, seed = 1, data = data, rules = gpt.rules.dp})
      function run.watch(row)
        if row.step % every ~= 0 then return 0 end
        local counted = 0
        function run.evaluating() counted = counted + 1 end
        run.most_batches = 3
        assert.equal(run:validation_loss(), (run:validation_loss()))
        assert.equal(3, counted) -- the second is the first remembered
        assert.truthy(run.model.training)
        return 0
      end
      assert(run:train(function(row) list[row.step] = row.loss end))
      assert.equal(6, #list)
      assert.equal(1, (helper.traces(run.train_step)))
      return list
    end
    assert.same(losses(100), losses(2))
  end)

  it("of a recipe without a score is the loss of whole batches", function()
    local cfg = setmetatable({batch = 16, width = 8}, {__index = mlp.config})
    local images = {n = 40, fields = {inputs = {}, labels = {}}}
    local seen = 0
    function images:each(size)
      return function()
        if seen >= self.n then return nil end
        local count = math.min(size, self.n - seen)
        seen = seen + size
        return {inputs = ml.ones({16, 28, 28}, "uint8"), labels = ml.zeros({16}, "uint8")}, count
      end
    end
    local run = ml.train.run(mlp, {config = cfg, seed = 1, data = {train = images, valid = images}})
    local loss, batches, all = run:validation_loss()
    assert.truthy(loss > 0)
    assert.same({3, 3}, {batches, all})
  end)
end)

describe("the best", function()
  it("stays, and a run ends that has no better", function()
    within(function(out)
      -- A rate that grows without end: the loss falls at first, then rises.
      local options = "--steps=60 --lr=0.3 --clip=100 --eval-every=2 --patience=3 --out=" .. out
      local said = train(options .. " --save-every=5 --keep=2")
      local losses, best = by_step(out .. "/metrics.jsonl", "validation_loss"), nil
      for step, loss in pairs(losses) do
        if not best or loss < losses[best] then best = step end
      end
      local last = #by_step(out .. "/metrics.jsonl", "step")
      assert.equal(best + 6, last)
      assert.truthy(last < 60)
      assert.truthy(said:find(("stopped: 3 evaluations without a better validation loss than %.4f at step %d")
        :format(losses[best], best), 1, true), said)
      assert.truthy(said:find(("best at step %d: "):format(best), 1, true), said)
      local kept = steps(out)
      assert.equal(best, kept[1])
      assert.equal(last, kept[#kept])
      assert.truthy(#kept <= 3)
      -- The run that goes on knows that it is over.
      said = train(options .. " --resume")
      assert.truthy(said:find("stopped: 3 evaluations", 1, true), said)
      assert.equal(last, #by_step(out .. "/metrics.jsonl", "step"))
    end)
  end)

  it("is known to a run that goes on", function()
    within(function(out)
      local options = "--steps=8 --eval-every=2 --sample-every=2 --patience=9 --save-every=4 --keep=9 --out="
        .. out
      train(options .. "/a")
      train(options .. "/b")
      train(options .. "/b --resume=4")
      for _, name in ipairs {"samples.jsonl", "checkpoints/step-00000008/state.json",
          "checkpoints/step-00000008/model.safetensors"} do
        assert.equal(read(out .. "/a/" .. name), read(out .. "/b/" .. name), name)
      end
      local a, b = out .. "/a/metrics.jsonl", out .. "/b/metrics.jsonl"
      assert.same(by_step(a, "validation_loss"), by_step(b, "validation_loss"))
    end)
  end)
end)
