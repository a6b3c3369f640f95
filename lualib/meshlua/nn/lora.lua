-- lora.lua: low-rank additions to Linear layers (Hu et al. 2021): y = x (kernel + scale * lora_a lora_b) + bias. They
-- stand in the layers themselves, so that the paths of all other Params stay as they are: what is saved fits with them
-- and without.
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local initializers = require "meshlua.nn.initializers"
local linear = require "meshlua.nn.linear"
local masks = require "meshlua.nn.masks"
local module = require "meshlua.nn.module"
local param = require "meshlua.nn.param"
local args = require "meshlua.ops.args"
local rngs_of = require "meshlua.nn.rngs"

local op, raise, as = core.op, lib.raise, args.as

local M = {}

--- The Linear layers of a model, as entries {path, box}: what masks choose from.
local function layers_of(who, model)
  local found = {}
  module.each(model, function(layer, path)
    if getmetatable(layer) == linear.meta then found[#found + 1] = {path = path, box = layer} end
  end)
  if #found == 0 then raise("E_VALUE", "%s: the model has no Linear", who) end
  return found
end

--- A Param that takes these dims of the kernel, one of size `rank` where false stands, and lies as they do.
local function factor(layer, dims, rank, key, init, dtype)
  local kernel, shape = layer.kernel, {}
  for i, d in ipairs(dims) do shape[i] = d and kernel.shape[d] or rank end
  local axes, sharding = param.pick_axes(core.box_meta(kernel).axes, dims), param.sharding(kernel)
  if sharding then sharding = core.NamedSharding(sharding.mesh, param.pick_axes(sharding.spec, dims)) end
  local n_in = dims[1] and layer.inputs or 1
  local ins, outs = {}, {}
  for d = 1, #dims do table.insert(d <= n_in and ins or outs, d) end
  local function make()
    local x = init(key, shape, dtype, {in_axis = ins, out_axis = outs})
    return sharding and op.constrain(x, {layout = sharding}) or x
  end
  local value = core.is_tracing() and make() or core.run_traced(make, sharding and sharding.mesh)
  return param.Param(value, {axes = axes})
end

--- Gives Linear layers of a model low-rank additions, Params lora_a and lora_b, which begin as nothing. Trained alone:
--- adamw(model, {lr = 1e-4, only = "lora_"}).
---@param model table it is changed
---@param options {rank: integer, rngs: Rngs, alpha: number?, only: Mask?, a_init: Initializer?, b_init: Initializer?, param_dtype: string?}
--- alpha: the addition is times alpha / rank; default rank. only: which layers, by their paths; default all. a_init:
--- default he_uniform. b_init: default zeros. param_dtype: default float32
---@return table model
function M.lora(model, options)
  options = lib.options("lora", options)
  local rank = lib.check_integer("lora", "the rank", options.rank)
  if rank < 1 then raise("E_VALUE", "lora: the rank is %d; it is at least 1", rank) end
  local scale = lib.check_number("lora", "alpha", options.alpha or rank) / rank
  local stream, dtype = rngs_of.stream("lora", options.rngs, "params"), options.param_dtype or "float32"
  local layers = layers_of("lora", model)
  local on = masks.mask("lora", options.only, "Linear")(layers)
  for i, entry in ipairs(layers) do
    local layer, first, last = entry.box, {}, {false}
    for d = 1, layer.kernel.ndim do table.insert(d <= layer.inputs and first or last, d) end
    first[#first + 1] = false
    if on[i] then
      layer.lora_a = factor(layer, first, rank, stream(), options.a_init or initializers.he_uniform(), dtype)
      layer.lora_b = factor(layer, last, rank, stream(), options.b_init or initializers.zeros, dtype)
      layer.lora_scale = scale
    end
  end
  return model
end

--- Adds to the kernels what lora has given their layers, and takes that away.
---@param model table it is changed
---@return table model
function M.merge_lora(model)
  for _, entry in ipairs(layers_of("merge_lora", model)) do
    local layer = entry.box
    if layer.lora_a then
      local kernel, a, sharding = layer.kernel, layer.lora_a, param.sharding(layer.kernel)
      local more = op.matmul(a, as(layer.lora_b, a.dtype), {x_contract = {a.ndim}, w_contract = {1}})
      local sum = as(op.add(as(kernel, more.dtype), op.mul(more, layer.lora_scale)), kernel.dtype)
      kernel:set(sharding and op.constrain(sum, {layout = sharding}) or sum)
      layer.lora_a, layer.lora_b, layer.lora_scale = nil, nil, nil
    end
  end
  return model
end

return M
