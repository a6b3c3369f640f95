-- refuse.lua: how readers of vocabularies end where a file is not as it should be: at once, from within. Who called
-- them gets nil, message, code.
local lib = require "meshlua.lib"

local M = {}

---@class Refusal
---@field message string
---@field code string

local function refuse(code, fmt, ...)
  error({message = lib.format(fmt, ...), code = code}, 0)
end

--- The file breaks a rule of its format.
function M.broken(fmt, ...) refuse("E_PARSE", fmt, ...) end

--- It asks for what is not done here.
function M.unsupported(fmt, ...) refuse("E_UNSUPPORTED", fmt, ...) end

--- It cannot be read.
function M.unread(fmt, ...) refuse("E_IO", fmt, ...) end

--- fn(path, ...); or nil, message with the path in front, code.
---@param fn function
---@param path string
function M.caught(fn, path, ...)
  local ok, result = lib.unless_stopped(pcall(fn, path, ...))
  if ok then return result end
  if type(result) ~= "table" or not result.message then error(result, 0) end
  return nil, path .. ": " .. result.message, result.code
end

return M
