-- pipe.lua: rows as lines of JSON to a command of the shell. A step never waits for it: what the command has not read
-- yet is kept, and said where that lasts. A command that ends is an error with its name.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local lib = require "meshlua.lib"

local M = {}

M.PATIENCE = 10.0 -- seconds without a byte taken until a line says so; at the end, three times as long
M.MOST = 1 << 26 -- bytes that wait

---@class Pipe
---@field command string
---@field order string[]
---@field waiting table<integer, string> lines that were not taken, from `first` on, that one perhaps in part
---@field first integer
---@field bytes integer of these
---@field moved number when the command last took something
---@field rows integer
local Pipe = {}
local Pipe_meta = {__index = Pipe}

--- How many lines were not taken, or not whole.
function Pipe:lines() return self.rows - self.first + 1 end

--- The words for how the command has ended; nil: it runs.
local function end_text(self)
  local how, code = self.to:ended()
  return how and (how == "exit" and "it has ended with code %d" or "signal %d has ended it"):format(code)
end

local function fault(self, text)
  return nil, ("--metrics='|%s': %s after %s; %s of JSON did not get there"):format(self.command, text,
    lib.count(self.rows, "row"), lib.count(self:lines(), "line"))
end

--- Tells people.
---@param text string
function M.say(text) io.stderr:write("train: warning: ", text, "\n") end

local function say(self, text) M.say(("--metrics='|%s': %s"):format(self.command, text)) end

--- Gives the command what it takes now. nil, message: it has ended.
local function push(self)
  while self:lines() > 0 do
    local line = self.waiting[self.first]
    local taken, message = self.to:write(line)
    if not taken then
      for _ = 1, 100 do -- it has closed its input: it is about to end
        if end_text(self) then break end
        core.sleep(0.01)
      end
      return fault(self, end_text(self) or message)
    end
    if taken == 0 then return true end
    self.bytes, self.moved, self.is_said = self.bytes - taken, core.clock(), false
    self.waiting[self.first] = taken < #line and line:sub(taken + 1) or nil
    if taken == #line then self.first = self.first + 1 end
  end
  return true
end

--- Adds a row.
---@param row table<string, any>
---@return true?, string? message
function Pipe:add(row)
  local line = files.json_line(row, self.order)
  if self:lines() == 0 then self.moved = core.clock() end
  self.rows, self.bytes = self.rows + 1, self.bytes + #line
  self.waiting[self.rows] = line
  local ok, message = push(self)
  if not ok then return nil, message end
  if self.bytes > M.MOST then
    return fault(self, ("it does not read, and %s wait"):format(core.bytes_text(self.bytes)))
  end
  if self:lines() > 0 and not self.is_said and core.clock() - self.moved > M.PATIENCE then
    self.is_said = true
    say(self, ("it has read nothing for %.0f s; %s wait"):format(core.clock() - self.moved,
      lib.count(self:lines(), "line")))
  end
  return true
end

--- Tells the command that the steps behind this one are no more.
---@param step integer
---@return true?, string? message
function Pipe:rewind(step) return self:add {step = step, event = "rewind"} end

--- Waits until `over` gives something, at most so long without a word or a byte that moves; says after a second that
--- it waits.
local function await(self, what, over)
  self.moved = core.clock()
  local said = false
  while not over() do
    local idle = core.clock() - self.moved
    if idle > 3 * M.PATIENCE then return false end
    if idle > 1 and not said then
      say(self, ("waiting until %s"):format(what))
      said = true
    end
    core.sleep(0.01)
  end
  return true
end

--- What waits is written, and the command comes to its end. nil, message where that is not so.
---@return true?, string? message
function Pipe:close()
  if not self.to then return true end
  local to, ok, message = self.to, true, nil
  local read = await(self, "it has read the rest", function()
    ok, message = push(self)
    return not ok or self:lines() == 0
  end)
  to:finish()
  if ok and not read then ok, message = fault(self, "it does not read") end
  if ok then
    local ended = await(self, "it has ended", function() return end_text(self) end)
    local how, code = to:ended()
    if not ended then
      ok, message = fault(self, "it does not end, and is left to itself")
    elseif how ~= "exit" or code ~= 0 then
      ok, message = fault(self, end_text(self))
    end
  end
  self.to = nil
  return ok, message
end

--- Starts the command. nil, message, code where it cannot be.
---@param command string
---@param order string[] the keys of a row that come first
---@return Pipe?, string? message, string? code
function M.open(command, order)
  if not command:find "%S" then return nil, "--metrics='|': expected a command behind the |", "E_VALUE" end
  local to, message = core.pipe(command)
  if not to then return nil, ("--metrics='|%s': %s"):format(command, message), "E_IO" end
  return setmetatable({command = command, order = order, to = to, waiting = {}, first = 1, bytes = 0,
    rows = 0,
    moved = core.clock()}, Pipe_meta)
end

return M
