-- files.lua: what a run writes. Each function gives true, or nil and a message that names the file.
local core = require "meshlua.core"
local json = require "meshlua.train.json"

local M = {}

--- What file:write, :flush or :close gave, as a result that names the file.
local function said(path, ok, message)
  if ok then return true end
  return nil, path .. ": " .. message
end

--- A file with this text, in the place of what was there. It is whole, or it is not there.
---@param path string
---@param text string
---@return true?, string? message
function M.write(path, text)
  local part = path .. ".part"
  local file, message = io.open(part, "wb")
  if not file then return nil, message end
  local written, why = said(path, file:write(text))
  local closed, late = said(path, file:close())
  if written and closed and os.rename(part, path) then return true end
  os.remove(part)
  return nil, why or late or path .. ": it cannot be replaced"
end

--- A folder, and those above it, where they are missing.
---@param path string
---@return true?, string? message
function M.make_folder(path) return core.make_folder(path) end

---@class Lines
---@field path string
---@field file file*
---@field size integer bytes of the lines that are there
---@field order string[]
local Lines = {}
local Lines_meta = {__index = Lines, __close = function(self) self.file:close() end}

--- A file of JSON objects, one a line, with keys in this order. It is whole at any time: a line is written at
--- once, and what there was room for of one that failed is taken off again.
---@param path string
---@param order string[]
---@return Lines?, string? message
function M.lines(path, order)
  local file, message = io.open(path, "wb")
  if not file then return nil, message end
  file:setvbuf "no" -- nothing waits to be written when the file is closed
  return setmetatable({path = path, file = file, size = 0, order = order}, Lines_meta)
end

--- Adds a line.
---@param row table<string, any>
---@return true?, string? message
function Lines:add(row)
  local line = json.encode(row, self.order) .. "\n"
  local ok, message = said(self.path, self.file:write(line))
  if ok then
    self.size = self.size + #line
  else
    core.truncate(self.path, self.size)
  end
  return ok, message
end

return M
