-- elsewhere.lua: a layout in the words of other systems: flags of torchtitan and MaxText, PartitionSpecs of
-- JAX.
local account = require "meshlua.insight.account"

local M = {}

local MOST = 16 -- kinds of Params that are shown
local REMAT = {full = "full", dots = "selective"}

--- The sizes of a layout by what its axes are for.
local function sizes_of(layout)
  local sizes = {data = 1, model = 1, expert = 1}
  for i, axis in ipairs(layout.axes) do
    if not sizes[axis] then return nil end
    sizes[axis] = layout.sizes[i]
  end
  return sizes
end

local function torchtitan(planned, sizes, fsdp)
  local words = {}
  local function add(name, value) words[#words + 1] = ("--parallelism.%s=%s"):format(name, value) end
  add("data_parallel_replicate_degree", fsdp and 1 or sizes.data)
  add("data_parallel_shard_degree", fsdp and sizes.data or 1)
  add("tensor_parallel_degree", sizes.model)
  words[#words + 1] = ("--training.local_batch_size=%d"):format(planned.config.batch // sizes.data
    // planned.layout.microbatches)
  words[#words + 1] = ("--training.global_batch_size=%d"):format(planned.config.batch)
  words[#words + 1] = "--activation_checkpoint.mode=" .. (REMAT[planned.config.remat] or "none")
  return "torchtitan: " .. table.concat(words, " ")
end

local function maxtext(planned, sizes, fsdp)
  return ("MaxText: ici_data_parallelism=%d ici_fsdp_parallelism=%d ici_tensor_parallelism=%d "
    .. "per_device_batch_size=%g gradient_accumulation_steps=%d"):format(fsdp and 1 or sizes.data,
    fsdp and sizes.data or 1, sizes.model, planned.config.batch / sizes.data / sizes.model,
    planned.layout.microbatches)
end

local entry_text
function entry_text(entry)
  if entry == nil or type(entry) == "userdata" then return "None" end
  if type(entry) ~= "table" then return ("'%s'"):format(entry) end
  if #entry == 1 then return entry_text(entry[1]) end
  local words = {}
  for i, axis in ipairs(entry) do words[i] = ("'%s'"):format(axis) end
  return "(" .. table.concat(words, ", ") .. ")"
end

--- "P('data', None, 'model')".
local function spec_text(spec, rank)
  local words = {}
  for d = 1, rank do words[d] = entry_text(spec and spec[d]) end
  while words[#words] == "None" do words[#words] = nil end
  return "P(" .. table.concat(words, ", ") .. ")"
end

--- A line for each kind of Param: layers alike are one.
local function specs(planned)
  local lines, seen = {}, {}
  for _, p in ipairs(planned.params) do
    local name = p.state and p.object and p.name:match "^model%.(.*)$"
    if name then
      local line = ("%s: %s"):format(account.alike(name), spec_text(p.sharding and p.sharding.spec,
        #p.object.shape))
      if not seen[line] then lines[#lines + 1], seen[line] = line, true end
    end
  end
  if #lines > MOST then
    lines[MOST] = ("and %d more"):format(#lines - MOST + 1)
    for i = #lines, MOST + 1, -1 do lines[i] = nil end
  end
  return lines
end

--- The lines; none where the mesh has axes that the others do not know.
---@param planned Planned
---@return string[]
function M.lines(planned)
  local sizes = sizes_of(planned.layout)
  if not sizes then return {} end
  local fsdp = planned.layout.rules:find "fsdp" ~= nil
  local lines = {torchtitan(planned, sizes, fsdp), maxtext(planned, sizes, fsdp), "JAX PartitionSpecs:"}
  for _, line in ipairs(specs(planned)) do lines[#lines + 1] = "  " .. line end
  return lines
end

return M
