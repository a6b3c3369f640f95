-- trace.lua: what transforms of functions share: a trace to work in, and Params that hold something else for a
-- while.
local core = require "meshlua.core"
local tree = require "meshlua.tree"

local M = {}

--- Calls body in a trace: the one under way, or one of its own that runs at once. body returns a tree.
function M.in_trace(body)
  if core.is_tracing() then return body() end
  local result, leaves
  local values = table.pack(core.run_traced(function()
    result, leaves = body(), {}
    tree.visit(result, function(_, leaf)
      if core.is_tensor(leaf) then leaves[#leaves + 1] = leaf end
    end)
    return table.unpack(leaves)
  end))
  local concrete = {}
  for i, leaf in ipairs(leaves) do concrete[leaf] = values[i] end
  return tree.is_leaf(result) and concrete[result] or tree.replace(result, concrete)
end

-- Boxes that hold other tensors for a while: {boxes, values, before}. Closing it puts the tensors back, but not
-- into boxes that have been written since.
local Swapped = {}
Swapped.__index = Swapped

function Swapped.__close(swapped)
  for i, box in ipairs(swapped.boxes) do
    if swapped.before[i] then
      local now = core.box_swap(box, swapped.before[i])
      if not rawequal(now, swapped.values[i]) then core.box_swap(box, now) end
    end
  end
end

--- Puts a traced tensor into the next of the boxes.
function Swapped:put(value)
  local i = #self.values + 1
  self.values[i], self.before[i] = value, false
  self.before[i] = core.box_swap(self.boxes[i], value)
end

function M.swapped(boxes) return setmetatable({boxes = boxes, values = {}, before = {}}, Swapped) end

-- While it is open, no Param can be written: what is traced in it is of one example, or not of the program.
local Inside = {__close = function() core.transform_leave() end}

function M.inside()
  core.transform_enter()
  return setmetatable({}, Inside)
end

return M
