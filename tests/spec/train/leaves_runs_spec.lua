-- leaves_runs_spec.lua: fifty steps of the recipes by --bits=mesh: the same losses, norms, parameters, moments, statistics
-- and random streams on any number of devices along data, and in microbatches of one.
local helper = require "spec.helper"

local RUNS = {
  gpt = "--layers=2 --width=32 --heads=2 --seq=16 --batch=16 --dropout=0.1 --sample=0",
  mlp = "--width=64 --batch=32",
  convnet = "--channels=4 --width=16 --batch=16",
}

describe("runs by --bits=mesh", function()
  for _, recipe in ipairs {"gpt", "mlp", "convnet"} do
    it("have the same bits on every mesh: " .. recipe, function()
      local losses, first
      for i, on in ipairs {"none", "data:1", "data:2", "data:4", "data:8", "none --microbatches=8"} do
        local out = helper.folder()
        local text, err, code = helper.shell(('"$MESHLUA" train %s %s --steps=50 --rules=dp --bits=mesh '
          .. '--log-every=50 --eval-batches=0 --out=%s --mesh=%s'):format(recipe, RUNS[recipe], out, on))
        assert.equal(0, code, err)
        assert.truthy(text:find("the same bits on 1 to 8 devices", 1, true), text)
        local held = {}
        for line in io.lines(out .. "/metrics.jsonl") do
          held[#held + 1] = line:match '"loss":[^,]+' .. line:match '"grad_norm":[^,]+'
        end
        assert.equal(50, #held)
        assert.not_equal(held[1], held[50])
        losses, first = losses or held, first or out
        assert.same(losses, held, on)
        if i > 1 then
          local same, _, differ = helper.shell(('"$MESHLUA" diff %s/checkpoints/step-00000050 '
            .. '%s/checkpoints/step-00000050'):format(first, out))
          assert.equal(0, differ, same)
          assert.truthy(same:find "%d+ tensors: equal", same)
        end
      end
    end)
  end
end)
