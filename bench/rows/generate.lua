-- generate.lua: see generate.py.
local ml = require "meshlua"
local llama = require "llama"

return function(p)
  local cfg = {}
  for key, value in pairs(llama.config) do cfg[key] = value end
  for key, value in pairs(llama.sizes[p.size] or p) do cfg[key] = value end
  local model = ml.init(function(rngs) return llama.build(cfg, rngs) end, {rules = llama.rules.dp})
  local prompt, inputs, bytes = {}, {}, 0
  for i = 1, p.prompt do prompt[i] = i * 7919 % cfg.vocab end
  inputs.prompt = ml.tensor(prompt, "int32")
  ml.tree.visit(model, function(path, leaf)
    inputs[path] = leaf:get()
    bytes = bytes + 4 * leaf.size
  end)
  local function run() return (ml.generate(model, prompt, {max_tokens = p.tokens})) end
  return {
    inputs = inputs,
    results = function() return {ml.tensor(run(), "float32")} end,
    run = run,
    info = function() return {weights = bytes} end,
  }
end
