-- files.lua: what a run writes. Each function gives true, or nil and a message that names the file.
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"

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

--- What a run leaves in its folder.
local RUN = {"config.json", "config.lua", "tokenizer.json", "metrics.jsonl", "result.json", "sample.txt",
  "samples.jsonl", "guard.jsonl", "adapters.safetensors"}
M.CHECKPOINTS, M.SAMPLES, M.ADAPTERS = "checkpoints", "samples.jsonl", "adapters.safetensors" -- in it

--- The file, where it is one that can be read: not a folder, nor a device, whose end may never come.
local function open_regular(path)
  local file = core.is_regular_file(path) and io.open(path, "rb")
  return file or nil
end

--- How many lines a file has; 0 where there is none.
---@param path string
---@return integer
function M.count_lines(path)
  local file <close> = open_regular(path)
  local n = 0
  for _ in file and file:lines() or function() end do n = n + 1 end
  return n
end

--- What of a run lies in a folder: "config.json, metrics.jsonl of 3000 steps"; nil: nothing.
---@param folder string
---@return string?
function M.run_in(folder)
  local found = {}
  for _, name in ipairs(RUN) do
    if core.is_regular_file(folder .. "/" .. name) then
      local steps = name == "metrics.jsonl" and M.count_lines(folder .. "/" .. name)
      found[#found + 1] = steps and ("%s of %d steps"):format(name, steps) or name
    end
  end
  local steps = #manifest.steps(folder .. "/" .. M.CHECKPOINTS)
  if steps > 0 then found[#found + 1] = lib.count(steps, "checkpoint") end
  return found[1] and table.concat(found, ", ")
end

--- Takes what a run left out of its folder.
---@param folder string
---@return true?, string? message
function M.remove_run(folder)
  for _, name in ipairs(RUN) do
    local path = folder .. "/" .. name
    local ok, message = os.remove(path)
    if not ok and core.is_regular_file(path) then return nil, message end
  end
  return true
end

---@class Appended
---@field path string
---@field file file*
---@field size integer bytes that are there
local Appended = {}
local Appended_meta = {__index = Appended, __close = function(self) self:close() end}

--- A file that grows, and is whole at any time: what is put into it is written at once, and what there was room for of
--- that which failed is taken off again.
---@param path string
---@param size integer? so many bytes that are there stay; default 0
---@return Appended?, string? message
function M.append(path, size)
  local file, message = io.open(path, size and "ab" or "wb")
  if not file then return nil, message end
  file:setvbuf "no" -- nothing waits to be written when the file is closed
  return setmetatable({path = path, file = file, size = size or 0}, Appended_meta)
end

---@param bytes string
---@return true?, string? message
function Appended:put(bytes)
  local ok, message = said(self.path, self.file:write(bytes))
  if ok then
    self.size = self.size + #bytes
  else
    core.truncate(self.path, self.size)
  end
  return ok, message
end

function Appended:close()
  if io.type(self.file) == "file" then self.file:close() end
end

--- Cuts a file of rows behind the last whole line of a step up to this one: what was done after it is done again.
--- Returns the bytes that stay.
local function cut_lines(path, step)
  local size, at, file = 0, 0, open_regular(path)
  if not file then return 0 end
  for line in file:lines "L" do
    if line:sub(-1) ~= "\n" then break end
    at = at + #line
    local own = line:match '"step":(%d+)' or line:match "^(%d+),"
    if not own and size + #line == at or own and tonumber(own) <= step then size = at end
  end
  file:close()
  core.truncate(path, size)
  return size
end

---@class Lines
---@field file Appended
---@field order string[]
---@field text fun(row: table, order: string[]): string
local Lines = {}
local Lines_meta = {__index = Lines, __close = function(self) self.file:close() end}

local sets = setmetatable({}, {__mode = "k"}) -- order -> the same as a set

--- The keys of a row: those of `order` first, then others.
local function keys_of(row, order)
  local known, others = sets[order] or lib.set(order), {}
  sets[order] = known
  for key in pairs(row) do
    if not known[key] then others[#others + 1] = key end
  end
  if not others[1] then return order end
  table.sort(others)
  return table.move(others, 1, #others, #order + 1, table.move(order, 1, #order, 1, {}))
end

--- A row as a line of JSON.
---@param row table<string, any>
---@param order string[] what comes first
---@return string
function M.json_line(row, order) return json.encode(row, keys_of(row, order)) .. "\n" end

--- A row as a line of a table: numbers of these columns alone.
local function csv_line(row, order)
  local words = {}
  for i, key in ipairs(order) do
    local x = row[key]
    words[i] = type(x) ~= "number" and "" or x ~= x and "nan" or lib.format("%.9g", x)
  end
  return table.concat(words, ",") .. "\n"
end

--- A file of rows: a JSON object on each line, keys in this order; where its name ends in .csv, columns of these keys
--- alone, behind a line with their names.
---@param path string
---@param order string[]
---@param done integer? rows that are there stay up to this step, and it goes on behind them; default: none
---@return Lines?, string? message
function M.lines(path, order, done)
  local csv = path:find "%.csv$" ~= nil
  local file, message = M.append(path, done and cut_lines(path, done) or nil)
  if not file then return nil, message end
  local self = setmetatable({file = file, order = order, text = csv and csv_line or M.json_line}, Lines_meta)
  if not csv or file.size > 0 then return self end
  local ok, why = file:put(table.concat(order, ",") .. "\n")
  return ok and self, why
end

--- Goes back: rows of later steps are no more.
---@param step integer
---@return true?, string? message
function Lines:rewind(step)
  self.file:close()
  local path = self.file.path
  local file, message = M.append(path, cut_lines(path, step))
  if not file then return nil, message end
  self.file = file
  return true
end

--- Adds a line.
---@param row table<string, any>
---@return true?, string? message
function Lines:add(row) return self.file:put(self.text(row, self.order)) end

function Lines:close() self.file:close() end

return M
