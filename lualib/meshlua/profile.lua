-- profile.lua: where the time goes. Between start and stop every piece of every plan is recorded: its op and
-- line, thread and device, bytes and operations.
local core = require "meshlua.core"
local lib = require "meshlua.lib"

local M = {}

local EXIT_ENVIRONMENT = 3
local MARKS = 4 -- shares that are listed each; more are said as a range

---@class Profile
---@field file string
---@field seconds number from start to stop
---@field threads number[] the share of the time in which each thread ran pieces
---@field devices number[] the share of all threads' time that went into each device's work
---@field rows ProfileRow[] what took longest first
local Profile = {__name = "Profile"}

---@class ProfileRow
---@field op string
---@field where string the line and the scope; of a fused op the first one
---@field calls integer how often a plan ran it
---@field seconds number of all threads
---@field share number of what all rows took
---@field limit number the share of its time that it would take at the rates of `--devices`' kind

-- ---- what was recorded ---------------------------------------------------------------------------------

--- "fused add mul", at most so many characters.
local function op_name(step)
  local name = step.op
  if #step.ops > 0 then name = name .. " " .. table.concat(step.ops, " ") end
  return #name <= 40 and name or name:sub(1, 37) .. "..."
end

--- "gpt.lua:53 (h.*.mlp.up)": the first line it was written at; layers that are alike are one row.
local function place(step)
  local line, scope = (step.where[1] or "?"):match "^(.-)( ?%b())$"
  if not line then return step.where[1] or "?" end
  return line .. scope:gsub("%f[%d]%d+%f[.)]", "*")
end

--- One row for each op and line.
local function rows_of(steps)
  local rows, at, all = {}, {}, 0
  for _, step in ipairs(steps) do
    local op, where = op_name(step), place(step)
    local key = op .. "\0" .. where
    local row = at[key]
    if not row then
      row = {op = op, where = where, calls = 0, seconds = 0, limit = 0}
      rows[#rows + 1], at[key] = row, row
    end
    row.calls = row.calls + math.floor(step.calls + 0.5)
    row.seconds, row.limit = row.seconds + step.seconds, row.limit + step.limit
    all = all + step.seconds
  end
  for _, row in ipairs(rows) do
    row.share, row.limit = row.seconds / all, row.limit / row.seconds
  end
  table.sort(rows, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return a.op .. a.where < b.op .. b.where
  end)
  return rows
end

local function shares(now, before, time)
  local list = {}
  for i, seconds in ipairs(now) do list[i] = (seconds - (before[i] or 0)) / time end
  return list
end

--- Asks again and again how busy threads and devices were since the last time; nil while nothing is recorded.
---@return fun(): {threads: number[], devices: number[]}?
function M.meter()
  local last = {time = 0, threads = {}, devices = {}}
  local function read()
    local time, threads, devices = core.profile_busy()
    if not time then return nil end
    local passed = time - last.time
    local busy = {threads = shares(threads, last.threads, passed),
      devices = shares(devices, last.devices, passed * math.max(#threads, 1))}
    last = {time = time, threads = threads, devices = devices}
    return busy
  end
  read()
  return read
end

-- ---- texts ---------------------------------------------------------------------------------------------

local function percent(x) return ("%.0f%%"):format(100 * x) end

--- "96% 93%", or the range of many: "11% to 13%".
---@param list number[]
function M.shares_text(list)
  local words = {}
  for i, x in ipairs(list) do words[i] = percent(x) end
  if #words <= MARKS then return table.concat(words, " ") end
  local least, most = percent(math.min(table.unpack(list))), percent(math.max(table.unpack(list)))
  return least == most and ("%d times %s"):format(#words, least) or least .. " to " .. most
end

--- The table, its first `count` rows.
---@param count integer? default 20
function Profile:text(count)
  count = math.min(count or 20, #self.rows)
  local lines = {("%.3g s; %s busy %s, of that for each device %s; events in %s"):format(self.seconds,
    core.gpu_count() > 0 and "GPUs" or "threads", M.shares_text(self.threads), M.shares_text(self.devices),
    self.file)}
  local op, where = 2, 4
  for i = 1, count do
    op, where = math.max(op, #self.rows[i].op), math.max(where, #self.rows[i].where)
  end
  local format = "%-" .. op .. "s  %-" .. where .. "s  %7s  %10s  %5s  %8s"
  lines[2] = format:format("op", "line", "calls", "total ms", "share", "of limit")
  for i = 1, count do
    local row = self.rows[i]
    lines[#lines + 1] = format:format(row.op, row.where, ("%d"):format(row.calls),
      ("%.3f"):format(row.seconds * 1e3), percent(row.share), percent(row.limit))
  end
  if count < #self.rows then lines[#lines + 1] = ("and %d more"):format(#self.rows - count) end
  return table.concat(lines, "\n")
end

Profile.__index = Profile
Profile.text = core.plain(Profile.text)
Profile.__tostring = Profile.text

-- ---- start and stop ------------------------------------------------------------------------------------

--- Records from now on what runs; stop writes it to the file, in the Chrome trace format (for ui.perfetto.dev
--- or chrome://tracing). The file has the latest events of each thread, as many as it can hold; the table
--- that stop gives counts all. Costs less than a hundredth of the time.
---@param file string
---@return true?, string? message, string? code where the file cannot be written
function M.start(file) return core.profile_start(file) end

--- Ends the recording, writes the file, and gives what took how long; print it for the table.
---@return Profile?, string? message, string? code where the file cannot be written
function M.stop()
  local seconds, threads, devices = core.profile_busy()
  local steps, file, code = core.profile_stop()
  if not steps then return nil, file, code end
  return setmetatable({file = file, seconds = seconds, threads = shares(threads, {}, seconds),
    devices = shares(devices, {}, seconds * math.max(#threads, 1)), rows = rows_of(steps)}, Profile)
end

--- The end of a program that was started with --profile=FILE: the table, on the standard error.
function M.finish()
  if not core.profile_busy() then return end -- the script has stopped it itself
  local profile, message = M.stop()
  io.stderr:write(profile and profile:text() or "meshlua: " .. message, "\n")
  if not profile then os.exit(EXIT_ENVIRONMENT, true) end
end

return lib.strict(lib.export_checked(M, "profile.", true), "profile", "profile.")
