-- bits.lua: --bits=mesh of a training run: into how many leaves a step's batch is cut so that every mesh gives the same
-- bits (see ml.accumulate), what a run cannot have then, and what it costs.
local core = require "meshlua.core"
local leaves = require "meshlua.transform.leaves"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"

local M = {}

local MANY = 8 -- leaves, where nobody says how many

--- The mesh axes, of more than one device, over which a batch lies; and how many devices these are.
---@param sharding NamedSharding?
---@return string[] axes, integer devices
local function axes_of(sharding)
  local axes, devices = {}, 1
  for _, name in ipairs(lib.axes_of(sharding and sharding.spec[1])) do
    local size = sharding.mesh.shape[name]
    if size > 1 then axes[#axes + 1], devices = name, devices * size end
  end
  return axes, devices
end

--- How many leaves a run's batch has: 0 without --bits. nil, message, code where that does not fit.
---@param values table the program's options
---@param size integer of the batch
---@param sharding NamedSharding? of the batch
---@return integer?, string? message, string? code
function M.leaves(values, size, sharding)
  if values.bits == "" then return 0 end
  local axes, devices = axes_of(sharding)
  local n = math.tointeger(tonumber(values.bits:match ":(%d+)$")) or leaves.largest(size, MANY)
  local message = leaves.fault("the batch", size, n, sharding and sharding.mesh, axes)
  if message then
    return nil, ("--bits=%s, --batch=%d: %s"):format(values.bits, size, message), "E_VALUE"
  end
  local parts = values.microbatches * devices
  if parts > n then
    return nil, ("--bits=%s: %s on each of %s are more than its %s; take --bits=mesh:%d, or fewer "
      .. "microbatches"):format(values.bits, lib.count(values.microbatches, "microbatch", "microbatches"),
      lib.count(devices, "device"), lib.count(n, "leaf", "leaves"), parts), "E_VALUE"
  end
  return n
end

--- Why a run cannot have leaves: a pipeline's sums are those of its microbatches, and sums over what is split over the
--- devices that share the leaves (the norm of all gradients) are cut as the mesh is. A message, or nil.
---@param run Run
---@return string?
function M.fault(run)
  if run.schedule then
    return "--bits: a pipeline adds up microbatches in their order; take a mesh without stage"
  end
  local axes = axes_of(run.shardings and run.shardings.inputs)
  local is_leaf_axis = lib.set(axes)
  local all, paths = tree.leaves {model = run.model, optimizer = run.optimizer}
  for i, leaf in ipairs(all) do
    local sharding = leaf.sharding
    for d = 1, sharding.mesh and #sharding.spec or 0 do
      for _, name in ipairs(lib.axes_of(sharding.spec[d])) do
        if is_leaf_axis[name] then
          return ("--bits: %s is split over %s, as the batch is, and sums over it would be cut as the mesh "
            .. "is; take a rule set that leaves parameters whole there, as dp"):format(paths[i], name)
        end
      end
    end
  end
end

--- What the leaves of a run are, and cost.
---@param run Run
---@return string
function M.text(run)
  local n, size = run.leaves, run.config.batch
  local axes, devices = axes_of(run.shardings and run.shardings.inputs)
  local own, bytes = n // devices, 0
  for _, leaf in ipairs((tree.leaves(run.model))) do
    if core.is_box(leaf) and leaf.kind == "param" then bytes = bytes + 4 * leaf.size end
  end
  local kept = leaves.kept(own)
  local where = devices == 1 and "" or (" on each of %d devices along %s"):format(devices,
    table.concat(axes, " and "))
  return ("bits: the batch is %s of %s, %d%s%s, added as a tree: the same bits on 1 to %d devices; batch "
    .. "statistics are each leaf's own%s"):format(lib.count(n, "leaf", "leaves"), lib.count(size // n, "row"),
    own, where, own > 1 and " one after the other" or "", n, own > 1
    and ("; gradients of %d at a time are kept until they are added (%s)"):format(kept,
    core.bytes_text(kept * bytes)) or "")
end

return M
