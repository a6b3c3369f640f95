-- device.lua: the generated kernels of train steps on a GPU. Run as a script it writes the golden files anew
-- (read the difference before committing it):
--   build/meshlua --devices=fake:h200:1 tests/golden/device.lua write
local ml = require "meshlua"
package.path = "models/?.lua;tests/?.lua;" .. package.path

local nn = ml.nn
local M = {folder = "tests/golden/device/"}

local function step(loss)
  return function(model, optimizer, rngs, ...)
    local inputs = {...}
    local value, grads = ml.value_and_grad(function(m)
      return loss(m, inputs[1], inputs[2], rngs)
    end)(model)
    return value, optimizer:update(model, grads).grad_norm
  end
end

--- The plan's step of a recipe with these changes of its config.
local function recipe(name, changes, inputs)
  local its, cfg = require(name), {}
  for key, value in pairs(its.config) do cfg[key] = changes[key] or value end
  local rules = its.rules.dp
  local model = ml.init(function(rngs) return its.build(cfg, rngs) end, {rules = rules}):train()
  return ml.jit(step(its.loss), {rules = rules}), model, its.optimizer(model, cfg), nn.Rngs(0), inputs(cfg)
end

local function texts(cfg)
  return ml.zeros({cfg.batch, cfg.seq}, "int32"), ml.zeros({cfg.batch, cfg.seq}, "int32")
end

local function images(cfg)
  return ml.zeros({cfg.batch, 28, 28}, "uint8"), ml.zeros({cfg.batch}, "uint8")
end

local small = {layers = 2, width = 32, heads = 4, seq = 16, batch = 4, dropout = 0.1}
local small_bf16 = setmetatable({precision = "bf16"}, {__index = small})

--- Operands that are transposed, parts of larger ones, broadcast along rows; indices; more than 2^32 elements.
local function layouts(x, y, row, huge, line)
  local mixed = x:T() * 2 + y:slice({1, 6}, {3, 18}) + row:expand_dims(-1)
  local places = ml.arange(24):reshape(6, 4):astype("float32") + ml.random.normal(ml.random.key(1), {6, 4})
  return mixed, places, huge + line
end

--- By name: a jitted function and what it takes; that of a step its model and optimizer first.
M.programs = {
  layouts = function()
    local n = 1 << 18
    return ml.jit(layouts), ml.zeros {16, 6}, ml.zeros {6, 20}, ml.zeros {6}, ml.zeros({n, n}, "uint8"),
      ml.zeros({n}, "uint8")
  end,
  gpt = function() return recipe("gpt", small, texts) end,
  gpt_bf16 = function() return recipe("gpt", small_bf16, texts) end,
  llama = function()
    return recipe("llama", {layers = 2, width = 32, heads = 4, kv_heads = 2, hidden = 48, seq = 16, batch = 4,
      rope_factor = 8.0}, texts)
  end,
  mlp = function() return recipe("mlp", {width = 32, batch = 8}, images) end,
  convnet = function() return recipe("convnet", {channels = 8, width = 32, batch = 8}, images) end,
  vae = function()
    local VAE = require "spec.seeds.vae"
    local model = VAE({input_dim = 12, hidden_dim = 16, latent_dim = 4}, nn.Rngs(0))
    local loss = function(m, data, noise) return m {data = data, noise = noise}.loss end
    return ml.jit(step(loss)), model, ml.optim.adamw(model, {lr = 1e-3}), nn.Rngs(0), ml.zeros {6, 12},
      ml.zeros {6, 4}
  end,
}

--- What --dump=source prints of a program's step.
local function source(name)
  local file = os.tmpname()
  local taken = {M.programs[name]()}
  ml.core.dump("source:" .. file)
  taken[1]:plan(table.unpack(taken, 2))
  ml.core.dump()
  local handle <close> = assert(io.open(file))
  os.remove(file)
  return handle:read "a"
end

local INCLUDE = '#include "fused.cuh"\n\n'

--- The generated kernels of a program's step that `known` (by text) has not; they are added to it.
---@return {entry: string, text: string}[]
function M.kernels(name, known)
  local list, at = {}, 1
  local printed = source(name) .. "\n//// launch "
  while true do
    local _, head, entry = printed:find("\n//// launch ([%w_]+)<<<[^\n]*\n", at)
    if not head then return list end
    local text = printed:sub(head + 1, printed:find("\n//", head, true))
    if text:sub(1, #INCLUDE) == INCLUDE and not known[text] then
      known[text] = true
      list[#list + 1] = {entry = entry, text = text:sub(#INCLUDE + 1)}
    end
    at = head
  end
end

--- They one after the other, as a golden file has them.
function M.text(kernels)
  local out = {}
  for i, kernel in ipairs(kernels) do out[i] = kernel.text end
  return table.concat(out, "\n")
end

--- All of them as one program, which takes a compiler less time than one for each: the first is an entry.
function M.joined(kernels)
  local out = {("//// launch %s<<<>>>\n%s"):format(kernels[1].entry, INCLUDE)}
  for i, kernel in ipairs(kernels) do
    local text = i == 1 and kernel.text or kernel.text:gsub('extern "C" ', "")
    out[#out + 1] = ("namespace k%d {\n%s}\n"):format(i, text)
  end
  return table.concat(out)
end

--- Names of the programs in the order in which golden files have what is new in each.
M.order = {"gpt_bf16", "gpt", "mlp", "vae", "convnet", "layouts", "llama"}

function M.golden(name)
  return M.folder .. name .. ".txt"
end

if arg and arg[1] == "write" then
  local known = {}
  for _, name in ipairs(M.order) do
    local handle <close> = assert(io.open(M.golden(name), "w"))
    handle:write(M.text(M.kernels(name, known)))
  end
end

return M
