-- files.lua: what a run writes. Each function gives true, or nil and a message that names the file.
local core = require "meshlua.core"
local json = require "meshlua.train.json"

local M = {}

--- A new file with this text.
---@param path string
---@param text string
---@return true?, string? message
function M.write(path, text)
  local file <close>, message = io.open(path, "wb")
  if not file then return nil, message end
  local ok
  ok, message = file:write(text)
  if ok then ok, message = file:close() end
  if not ok then return nil, path .. ": " .. message end
  return true
end

--- A folder, and those above it, where they are missing.
---@param path string
---@return true?, string? message
function M.make_folder(path) return core.make_folder(path) end

---@class Lines
---@field path string
---@field file file*
---@field order string[]
local Lines = {}
local Lines_meta = {__index = Lines, __close = function(self) self.file:close() end}

--- A file of JSON objects, one a line, with keys in this order. It is whole at any time: a line is written at
--- once or not at all.
---@param path string
---@param order string[]
---@return Lines?, string? message
function M.lines(path, order)
  local file, message = io.open(path, "wb")
  if not file then return nil, message end
  return setmetatable({path = path, file = file, order = order}, Lines_meta)
end

--- Adds a line.
---@param row table<string, any>
---@return true?, string? message
function Lines:add(row)
  local ok, message = self.file:write(json.encode(row, self.order), "\n")
  if ok then ok, message = self.file:flush() end
  if not ok then return nil, self.path .. ": " .. message end
  return true
end

return M
