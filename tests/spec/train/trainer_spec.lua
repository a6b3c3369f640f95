-- trainer_spec.lua: the trainer of a script: three configurations, and the records to train on.
local helper = require "spec.helper"
local shell, file = helper.shell, helper.file

local TEXT = ("a text to learn "):rep(300)
local HEAD = [[
local ml = require "meshlua"
local SMALL = {recipe = "gpt", layers = 1, width = 16, heads = 2, seq = 8}
]]

--- What a script prints.
local function run(script, ...)
  local words = table.concat({...}, " ")
  local out, err, code = shell(('"$MESHLUA" --devices=4 %s %s'):format(file(HEAD .. script, ".lua"), words))
  assert.same({"", 0}, {err, code})
  return out
end

describe("a trainer", function()
  it("takes the program's options, and does as the program", function()
    local data = file(TEXT)
    local out = run([[
      local training = {batch = 8, steps = 4, seed = 3, rules = "dp", sample = 0, eval_every = 2, ema = 0.5,
        data = arg[1]}
      local trainer = ml.train.Trainer(SMALL, training, {mesh_shape = {4}, mesh_axis_names = {"data"}})
      local result = trainer:train()
      print(("%.4f %.4f"):format(result.validation_loss, result.best_loss), trainer.model.wpe.shape[1])
    ]], data)
    assert.truthy(out:find("^gpt: 7536 parameters; mesh data:4, rules dp; seed 3\n"), out)
    local loss, best = out:match "\n([%d.]+) ([%d.]+)\t8\n$"
    local said = shell(('"$MESHLUA" train gpt --layers=1 --width=16 --heads=2 --seq=8 --batch=8 --steps=4 '
      .. "--seed=3 --rules=dp --sample=0 --eval-every=2 --ema=0.5 --mesh=data:4 --data=%s"):format(data))
    assert.truthy(said:find(("\nvalidation loss %s nats"):format(loss), 1, true), said)
    assert.truthy(said:find(("\nbest at step 4: validation loss %s"):format(best), 1, true), said)
  end)

  it("trains on records that it is given, on the mesh in context", function()
    local out = run([[
      local data = assert(ml.train.text.data({seq = 8, vocab = 256}, arg[1]))
      ml.make_mesh({2, 2}, {"data", "model"}):with(function()
        local trainer = ml.train.Trainer(SMALL, {batch = 8, steps = 2, sample = 0})
        print(trainer:train(data.train, data.valid).validation_loss > 0)
        print(trainer:train(data.train).validation_loss)
      end)
    ]], file(TEXT))
    assert.truthy(out:find("mesh data:2,model:2, rules tp", 1, true), out)
    assert.truthy(out:find("\ntrue\n", 1, true) and out:find("\nnil\n$"), out)
  end)

  it("raises what is wrong, at the line that calls it", function()
    local out = run([[
      local function wrong(...)
        local ok, message = pcall(...)
        print(ok, (message:gsub("^.*/", "")))
      end
      wrong(function() ml.train.Trainer("gtp") end)
      wrong(function() ml.train.Trainer {name = "x", build = print} end)
      wrong(function() ml.train.Trainer("gpt", {stpes = 3}) end)
      wrong(function() ml.train.Trainer("gpt", {steps = 0}) end)
      wrong(function() ml.train.Trainer("gpt", {lr = {}}) end)
      wrong(function() ml.train.Trainer(SMALL, {patience = 2}):train() end)
      local high = {lr = 1e38, warmup = 0, data = arg[1], mesh = "none"}
      wrong(function() ml.train.Trainer(SMALL, high):train() end)
      wrong(function() ml.train.Trainer(SMALL, {}):train({}) end)
    ]], file(TEXT))
    local lines = {}
    for text in ("\n" .. out):gmatch "\nfalse\t([^\n]*)" do lines[#lines + 1] = text end
    for i, wanted in ipairs {"Trainer: the recipe 'gtp': there is no such recipe; did you mean gpt?",
        "Trainer: model_config: the recipe lacks config, a table; write: M.config = {",
        "Trainer: unknown option stpes; did you mean steps?", "Trainer: steps = 0: the least is 1",
        "Trainer: lr is a table; expected a number, a text, true or false",
        "Trainer: --patience needs evaluations: --eval-every=...",
        "Trainer: step 2: the loss is nan; the run is stopped",
        "Trainer:train: train must be a Records, not a table"} do
      assert.truthy(lines[i]:find("%.lua:%d+: %[E_VALUE%] ") and lines[i]:find(wanted, 1, true), lines[i])
    end
  end)
end)
