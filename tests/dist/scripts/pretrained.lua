-- pretrained.lua FOLDER: a model of transformers out of its folder and into files of others, with 8 devices. Rank 0
-- prints checksums of what is written and of the logits: the same text however the devices are spread over processes.
package.path = "models/?.lua;" .. package.path
local ml = require "meshlua"
local llama = require "llama"
local out = require "out"

local folder = arg[1]
local where = {mesh = ml.make_mesh({4, 2}, {"data", "model"}), rules = llama.rules.tp}

local function logits(model)
  local ids = ml.iota({4, 16}, 2) + ml.iota({4, 16}, 1) * 3
  local y = ml.jit(function(m, x) return m(x) end, where)(model, ids)
  return out.hash(ml.all_gather_to_host(y):bytes())
end

local model, cfg, said = assert(llama.from_pretrained("tests/oracle/models/llama", where))
out.print("logits %d", logits(model))
assert(llama.save_pretrained(folder .. "/hf", model, cfg, {metadata = said}))
assert(llama.save_pretrained(folder .. "/a.gguf", model, cfg))
for _, name in ipairs {"hf/model.safetensors", "hf/config.json", "a.gguf"} do
  local file <close> = assert(io.open(folder .. "/" .. name, "rb"))
  out.print("%s %d", name, out.hash(file:read "a"))
end
for _, name in ipairs {"hf", "a.gguf"} do
  out.print("%s %d", name, logits(assert(llama.from_pretrained(folder .. "/" .. name, where))))
end

-- What one process cannot read, none goes on with.
local own = ml.process_index() == 0 and folder .. "/hf" or folder .. "/none"
local nothing, message, code = llama.from_pretrained(own, where)
local is_said = nothing == nil and code == "E_IO" and message:find("config.json", 1, true)
assert(ml.process_count() == 1 or is_said, message)
