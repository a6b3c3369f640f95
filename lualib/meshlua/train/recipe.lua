-- recipe.lua: a recipe out of its file.
local M = {}

--- From here on `require` finds what lies beside a file.
---@param path string
function M.look_beside(path)
  local folder = path:match "^(.*/)"
  if folder then package.path = ("%s?.lua;%s?/init.lua;%s"):format(folder, folder, package.path) end
end

--- The recipe of a path, or of a name: a file that package.path finds, beside the script. Raises what the file
--- raises.
---@param name string
---@return table? recipe
---@return string? message
function M.load(name)
  local path = name
  if not name:find "[/.]" then
    path = package.searchpath(name, package.path)
    if not path then return nil, "there is no such recipe" end
  end
  local file <close>, missing = io.open(path)
  if not file then return nil, (missing:gsub("^.*: ", "")) end
  local chunk, message = loadfile(path)
  if not chunk then error(message, 0) end
  local recipe = chunk(name)
  if type(recipe) ~= "table" then return nil, "the file returns no recipe" end
  return recipe
end

return M
