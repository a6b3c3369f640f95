-- runs.lua: what a training run has left in its folder, read as it is: config.json, metrics.jsonl, result.json and
-- the checkpoints of a run that is over, was killed, or goes on writing. Nothing is changed there. A line that cannot
-- be read is counted and said; it ends nothing.
local core = require "meshlua.core"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local manifest = require "meshlua.checkpoint.manifest"

local M = {}

local MOST_CONFIG = 1 << 20 -- bytes of config.json and result.json
local MOST_LINE = 1 << 16 -- bytes of a row
local MOST_SAMPLES = 1 << 24 -- bytes of samples.jsonl
local MOST_FIELDS = 200

--- Numbers of a row that tell of the machine, and not of what is learnt.
M.of_machine = lib.set {"ms", "tokens_per_s", "gpu_ms", "wait_ms", "busy", "memory_peak", "process_peak",
  "mfu"}

---@class RunRecord
---@field path string
---@field config table? of config.json
---@field result table? of result.json
---@field steps integer[] of the rows, rising
---@field fields table<string, table<integer, number>> by name, by row
---@field names string[] of the fields, as they came
---@field notes {step: integer, text: string}[] what rows say in words
---@field log {step: integer, text: string}[] what guard.jsonl says: skips, rollbacks
---@field samples {step: integer, text: string}[]
---@field faults string[] what cannot be read
---@field cut integer bytes at the end of metrics.jsonl that are no whole line yet
---@field checkpoints integer[]
---@field is_running boolean a process writes into the folder
local Run = {}
Run.__index = Run

local function regular(path) return core.is_regular_file(path) end

--- The object of a small file; nil: it is not there, or a fault is noted.
local function read_object(self, name)
  local path = self.path .. "/" .. name
  if not regular(path) then return nil end
  local text, message = core.read_file(path, MOST_CONFIG)
  local object = text
  if text then object, message = core.json(text) end
  if type(object) == "table" and object[1] == nil then return object end
  self.faults[#self.faults + 1] = text and ("%s: %s"):format(name, message or "it is no object") or message
end

-- ---- rows ---------------------------------------------------------------------------------------------

--- A number of JSON: null stands for one that is not finite.
local function number(x)
  if x == core.null then return 0 / 0 end
  return type(x) == "number" and x + 0.0 or nil
end

--- Forgets the rows from a step on: they were taken again.
local function drop_from(self, step)
  local n = #self.steps
  while n > 0 and self.steps[n] >= step do
    for _, name in ipairs(self.names) do self.fields[name][n] = nil end
    self.steps[n], n = nil, n - 1
  end
end

--- What of a row is no number, as a text: "skip", "rollback to=120".
local function words_of(row)
  local words = {}
  for _, key in ipairs(lib.names(row)) do
    local value = row[key]
    if type(value) == "string" then
      table.insert(words, key == "event" and 1 or #words + 1, key == "event" and value or key .. "=" .. value)
    end
  end
  return #words > 0 and table.concat(words, " ") or nil
end

local function add_row(self, row)
  local step, words = row.step, words_of(row)
  if words then self.notes[#self.notes + 1] = {step = step, text = words} end
  local n = #self.steps
  if row.loss == nil and words then return end -- it tells, and is no step
  if row.loss == nil and self.steps[n] == step then n = n - 1 else drop_from(self, step) end
  n = math.min(n, #self.steps) + 1
  self.steps[n] = step
  for _, key in ipairs(lib.names(row)) do
    local x = key ~= "step" and number(row[key])
    if x and not self.fields[key] and #self.names < MOST_FIELDS then
      self.names[#self.names + 1], self.fields[key] = key, {}
    end
    if x and self.fields[key] then self.fields[key][n] = x end
  end
end

local function note_bad(self, why)
  self.bad = self.bad + 1
  if self.bad == 1 then self.first_bad = ("line %d: %s"):format(self.lines, why) end
end

local function add_line(self, line)
  self.lines = self.lines + 1
  if #line > MOST_LINE then return note_bad(self, ("%d bytes are more than a row has"):format(#line)) end
  local row, message = core.json(line)
  if type(row) ~= "table" then return note_bad(self, message or "it is no object") end
  if math.type(row.step) ~= "integer" or row.step < 0 then return note_bad(self, "it has no step") end
  add_row(self, row)
end

--- Reads what metrics.jsonl has more than the last time; from the beginning where it has less. Returns how many lines
--- came.
---@return integer
function Run:update()
  local file <close> = regular(self.metrics) and io.open(self.metrics, "rb") or nil
  if not file then return 0 end
  local size, before = file:seek "end", self.lines
  if size < self.at then self:forget() end
  file:seek("set", self.at)
  local rest
  for line in file:lines "L" do
    if line:sub(-1) ~= "\n" then
      rest = line
      break
    end
    self.at = self.at + #line
    add_line(self, line:sub(1, -2))
  end
  self.cut = rest and #rest or 0
  return self.lines - before
end

function Run:forget()
  self.steps, self.fields, self.names, self.notes = {}, {}, {}, {}
  self.at, self.lines, self.bad, self.cut, self.first_bad = 0, 0, 0, 0, nil
end

local LOG = {"what", "word", "to", "batch", "loss", "grad_norm"}

--- The lines of a run's log of steps that went wrong, as notes.
local function read_log(self)
  local path, notes = self.path .. "/guard.jsonl", {}
  local text = regular(path) and core.read_file(path, MOST_CONFIG) or ""
  for d in json.each(text) do
    if d and math.type(d.step) == "integer" then
      local words = {}
      for _, key in ipairs(LOG) do
        local value = d[key]
        if type(value) == "string" or type(value) == "number" then
          local is_word = key == "what" or key == "word"
          words[#words + 1] = (is_word and "" or key .. " ") .. lib.text(value)
        end
      end
      notes[#notes + 1] = {step = d.step, text = table.concat(words, ", ")}
    end
  end
  return notes
end

--- The samples of a run: {step, text}.
local function read_samples(self)
  local path, list = self.path .. "/samples.jsonl", {}
  local text = regular(path) and core.read_file(path, MOST_SAMPLES) or ""
  for row in json.each(text) do
    if row and math.type(row.step) == "integer" and type(row.sample) == "string" then
      list[#list + 1] = {step = row.step, text = row.sample}
    end
  end
  return list
end

--- Reads what else changes while a run goes on.
function Run:look()
  self.faults = {}
  if self.is_folder then
    self.config, self.result = read_object(self, "config.json"), read_object(self, "result.json")
    self.log, self.samples = read_log(self), read_samples(self)
    self.checkpoints = manifest.steps(self.path .. "/checkpoints")
    self.is_running = core.is_locked(self.path .. "/checkpoints/.lock")
  end
end

-- ---- what is asked of it ------------------------------------------------------------------------------

--- A value of config.json: of the recipe's config, or beside it; nil where it has none.
function Run:option(name)
  return self:options()[name]
end

--- How many steps it is to have; nil: that is not known.
---@return integer?
function Run:wanted()
  local steps = self:option "steps"
  return math.type(steps) == "integer" and steps or nil
end

---@return string "done", "running", "stopped", "empty"
function Run:state()
  if self.is_running then return "running" end
  if self.result then return "done" end
  return #self.steps == 0 and "empty" or "stopped"
end

--- The values of a field that are there, with their steps.
---@param name string
---@return number[] values, integer[] steps
function Run:values(name)
  local values, steps, field = {}, {}, self.fields[name] or {}
  for i, step in ipairs(self.steps) do
    if field[i] then values[#values + 1], steps[#steps + 1] = field[i], step end
  end
  return values, steps
end

--- What is told of a field: first, last, least and the step of that, how many there are.
---@param name string
---@return {count: integer, first: number, last: number, least: number?, at: integer?, step: integer}?
function Run:summary(name)
  local values, steps = self:values(name)
  if #values == 0 then return nil end
  local found = {count = #values, first = values[1], last = values[#values], step = steps[#steps]}
  for i, x in ipairs(values) do
    if x == x and (not found.least or x < found.least) then found.least, found.at = x, steps[i] end
  end
  return found
end

--- What was noted, in the order of the steps.
---@return {step: integer, text: string}[]
function Run:noted()
  local list, at = {}, {}
  for _, part in ipairs {self.notes, self.log} do
    for _, note in ipairs(part) do list[#list + 1], at[note] = note, #list end
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then return a.step < b.step end
    return at[a] < at[b]
  end)
  return list
end

--- Is a field one of a few steps, as evaluations are?
function Run:is_rare(name)
  local n = 0
  for _ in pairs(self.fields[name]) do n = n + 1 end
  return 2 * n < #self.steps or name:find "^validation" ~= nil or name:find "^eval" ~= nil
end

--- Everything of its configuration by name: "config.lr" is "lr".
---@return table<string, any>
function Run:options()
  local list, config = {}, self.config or {}
  for _, part in ipairs {config, type(config.config) == "table" and config.config or {}} do
    for key, value in pairs(part) do
      if type(key) == "string" and type(value) ~= "table" and value ~= core.null then list[key] = value end
    end
  end
  return list
end

-- ---- open ---------------------------------------------------------------------------------------------

--- Is it a run: a folder with rows of one, or with the configuration of one; or a file of rows?
---@param path string
---@return boolean
function M.is_run(path)
  if path:find "%.jsonl$" and regular(path) then return true end
  if regular(path .. "/metrics.jsonl") then return true end
  local self = {path = path, faults = {}}
  local config = read_object(self, "config.json")
  return config ~= nil and config.recipe ~= nil and type(config.config) == "table"
end

---@param path string
---@return RunRecord?, string? message, string? code
function M.open(path)
  path = path:gsub("(.)/+$", "%1")
  if not M.is_run(path) then return nil, path .. ": there is no run", "E_IO" end
  local is_folder = not regular(path)
  local self = setmetatable({path = path, is_folder = is_folder, checkpoints = {}, log = {},
    samples = {}, is_running = false, metrics = is_folder and path .. "/metrics.jsonl" or path}, Run)
  self:forget()
  self:look()
  self:update()
  return self
end

--- Lines about what could not be read.
---@return string[]
function Run:faults_text()
  local lines = table.move(self.faults, 1, #self.faults, 1, {})
  if self.bad > 0 then
    lines[#lines + 1] = ("%s: %s cannot be read; %s"):format(self.metrics, lib.count(self.bad, "line"),
      self.first_bad)
  end
  if self.cut > 0 and not self.is_running then
    lines[#lines + 1] = ("%s: the last line is cut behind %s"):format(self.metrics,
      lib.count(self.cut, "byte"))
  end
  return lines
end

return M
