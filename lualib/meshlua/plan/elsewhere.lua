-- elsewhere.lua: a layout in the words of other systems: flags of torchtitan and MaxText, PartitionSpecs of
-- JAX.
local account = require "meshlua.insight.account"
local core = require "meshlua.core"

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
  local words, data = {}, sizes.data * sizes.expert
  local function add(name, value) words[#words + 1] = ("--parallelism.%s=%s"):format(name, value) end
  add("data_parallel_replicate_degree", fsdp and 1 or data)
  add("data_parallel_shard_degree", fsdp and data or 1)
  add("tensor_parallel_degree", sizes.model)
  if sizes.expert > 1 then add("expert_parallel_degree", sizes.expert) end
  words[#words + 1] = ("--training.local_batch_size=%d"):format(planned.config.batch // data
    // planned.layout.microbatches)
  words[#words + 1] = ("--training.global_batch_size=%d"):format(planned.config.batch)
  words[#words + 1] = "--activation_checkpoint.mode=" .. (REMAT[planned.config.remat] or "none")
  return "torchtitan: " .. table.concat(words, " ")
end

--- The sizes of a layout inside a host, and of its hosts: the last axes are nearest.
local function by_links(layout)
  local inside, hosts, room = {}, {}, core.host_devices()
  for i = #layout.axes, 1, -1 do
    local size = layout.sizes[i]
    local fits, rest = size, room
    while rest > 0 do fits, rest = rest, fits % rest end -- what divides both
    inside[layout.axes[i]], hosts[layout.axes[i]], room = fits, size // fits, room // fits
  end
  return inside, hosts
end

local MAXTEXT = {{"data", "data"}, {"fsdp", "data"}, {"tensor", "model"}, {"expert", "expert"}}

local function maxtext(planned, sizes, fsdp)
  local words = {}
  local inside, hosts = by_links(planned.layout)
  for k, link in ipairs {"ici", "dcn"} do
    for _, row in ipairs(MAXTEXT) do
      local size = (k == 1 and inside or hosts)[row[2]] or 1
      if row[2] == "data" and (row[1] == "fsdp") ~= fsdp then size = 1 end
      if size > 1 or k == 1 and row[1] ~= "expert" then
        words[#words + 1] = ("%s_%s_parallelism=%d"):format(link, row[1], size)
      end
    end
  end
  local parts = planned.layout.microbatches
  return ("MaxText: %s per_device_batch_size=%g gradient_accumulation_steps=%d"):format(
    table.concat(words, " "), planned.config.batch / sizes.data / sizes.model / sizes.expert / parts, parts)
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
