-- traced.lua: what runs in a trace wherever it is called: in the one under way, or in one of its own.
local core = require "meshlua.core"
local tree = require "meshlua.tree"

local M = {}

--- Calls body in a trace: the one under way, which is as it was before if body raises, or one of its own that
--- runs at once, on `mesh` if that is given.
--- body returns a tree; its tensors are concrete where there was no trace.
---@param body fun(): any
---@param mesh Mesh?
function M.run(body, mesh)
  if core.is_tracing() then return core.attempt(body) end
  local result, leaves, effects
  local values = table.pack(core.run_traced(function()
    result, leaves, effects = body(), {}, core.effects()
    effects = table.move(effects, 1, #effects, 1, {})
    core.effects(0) -- they are seen to here
    tree.visit({result, effects}, function(_, leaf)
      if core.is_tensor(leaf) then leaves[#leaves + 1] = leaf end
    end)
    return table.unpack(leaves)
  end, mesh))
  local concrete = {}
  for i, leaf in ipairs(leaves) do concrete[leaf] = values[i] end
  for _, effect in ipairs(effects) do effect.run(tree.replace(effect.args, concrete)) end
  return tree.is_leaf(result) and concrete[result] or tree.replace(result, concrete)
end

return M
