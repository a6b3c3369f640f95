-- sinks.lua: where the rows of a run go: a file of lines, TensorBoard's files, a command. A sink has add(row), which
-- gives true, or nil and a message; close(); and, where it takes texts, note(tag, text, step).
local core = require "meshlua.core"
local events = require "meshlua.train.events"
local files = require "meshlua.train.files"
local lib = require "meshlua.lib"
local pipe = require "meshlua.train.pipe"

local M = {}

--- The columns of a row that come first.
M.COLUMNS = {"step", "loss", "grad_norm", "lr", "ms", "tokens_per_s", "gpu_ms", "wait_ms", "busy",
  "memory_peak", "process_peak", "mfu", "validation_loss", "bits_per_byte", "ema_validation_loss"}

--- The command of --metrics='|command'; nil: it is a file, or nothing.
---@param values table the program's options
---@return string?
local function command_of(values) return values.metrics:match "^|(.*)$" end

--- The folder of --tensorboard; nil: none.
local function folder_of(values)
  local folder = values.tensorboard or ""
  if folder == "" then return nil end
  return folder == "true" and values.out .. "/tensorboard" or folder
end

--- What is wrong with the options; or nil.
---@param values table
---@return string?
function M.fault(values)
  if values.tensorboard == "true" and values.out == "" then
    return "--tensorboard needs a folder: --tensorboard=... or --out=..."
  end
  local folder = folder_of(values)
  local there = folder and events.there(folder) or {}
  if there[1] and not values.overwrite and values.resume == "" then
    return ("--tensorboard=%s: the folder holds %s; take another folder, or --overwrite to replace them")
      :format(folder, lib.count(#there, "file of an earlier run", "files of an earlier run"))
  end
end

--- A command as a sink. Where a file has all rows, too, a command that fails is a warning, and gets no more.
local function command_sink(inner, is_kept)
  local sink, failed = {}, false
  local function said(ok, message)
    if ok then return true end
    failed = true
    if not is_kept then return nil, message end
    io.stderr:write("train: warning: ", message, "; the run goes on, and metrics.jsonl has all\n")
    return true
  end
  function sink.add(_, row)
    if failed then return true end
    return said(inner:add(row))
  end
  function sink.rewind(_, step)
    if failed then return true end
    return said(inner:rewind(step))
  end
  function sink.close(_)
    if failed then return end
    local ok, message = inner:close()
    if not ok then io.stderr:write("train: warning: ", message, "\n") end
  end
  return sink
end

--- The columns of the run's configuration, for TensorBoard's page of texts.
local function config_text(run, values)
  local lines = {"| option | value |", "|---|---|"}
  local escapes = {["|"] = "\\|", ["\n"] = " "}
  local function add(key, value)
    lines[#lines + 1] = ("| %s | %s |"):format(key, (lib.text(value):gsub("[|\n]", escapes)))
  end
  add("recipe", run.recipe.name)
  for _, key in ipairs {"mesh", "rules", "seed", "data"} do add(key, values[key]) end
  for _, key in ipairs(lib.names(run.config)) do add("config." .. key, run.config[key]) end
  return table.concat(lines, "\n")
end

--- Opens what the options ask for; `done` steps are behind the run where it goes on, else nil.
---@param run Run
---@param values table the program's options
---@param done integer?
---@return table[]? sinks, string? message, string? code
function M.open(run, values, done)
  local list, command, path = {}, command_of(values), values.metrics
  if values.out ~= "" and (path == "" or command) then path = values.out .. "/metrics.jsonl" end
  if path ~= "" and path:sub(1, 1) ~= "|" then
    local lines, message = files.lines(path, M.COLUMNS, done)
    if not lines then return nil, message, "E_IO" end
    list[1] = lines
  end
  local folder = folder_of(values)
  if folder then
    for _, old in ipairs(values.overwrite and events.there(folder) or {}) do os.remove(old) end
    local file, message, code = events.open(folder, done)
    if not file then return nil, message, code end
    list[#list + 1] = file
    local ok, why = file:note("config", config_text(run, values))
    if not ok then return nil, why, "E_IO" end
  end
  if command then
    local to, message, code = pipe.open(command, M.COLUMNS)
    if not to then return nil, message, code end
    list[#list + 1] = command_sink(to, values.out ~= "")
  end
  return list
end

--- Gives a text or number to the sinks that take such.
---@param list table[]
---@param tag string
---@param value string|number
---@param step integer? default: the latest
---@return true?, string? message
function M.note(list, tag, value, step)
  for _, sink in ipairs(list) do
    if sink.note then
      local ok, message = sink:note(tag, value, step)
      if not ok then return nil, message end
    end
  end
  return true
end

M.open = core.plain(M.open)

return M
