-- train.lua: the verb `train`: the training program on the recipe of a file.
local M = {}

local EXIT_USAGE = 2

--- Trains; the recipe's file may require what lies beside it.
---@param name string a path, or the name of an installed recipe, or of a file that package.path finds
---@param args string[] of the training program
---@return integer? code where there is no such recipe
function M.run(name, args)
  local recipes = require "meshlua.train.recipe"
  recipes.look_beside(name)
  local recipe, message = recipes.load(name)
  if not recipe then
    io.stderr:write("meshlua train: ", name, ": ", message, "\n")
    return EXIT_USAGE
  end
  args[0] = "train " .. name
  require("meshlua").train.main(recipe, args)
end

return M
