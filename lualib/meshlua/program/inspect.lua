-- inspect.lua: the verb `inspect`: what a file, folder or checkpoint of tensors holds, by its headers; what training
-- runs have left, and what they write while they go on.
local core = require "meshlua.core"
local files = require "meshlua.train.files"
local json = require "meshlua.train.json"
local lib = require "meshlua.lib"
local program = require "meshlua.program"
local report = require "meshlua.program.run_report"
local runs = require "meshlua.program.runs"
local weights_of = require "meshlua.program.weights"

local M = {}

local SHOWN = 60 -- of a text of the metadata
local MOST_STEPS = 8 -- that are named one by one

local function print_table(rows, right)
  require("meshlua.program.cli").write_table(rows, right)
end

--- A value of the metadata, on one line.
local function value_text(value)
  if type(value) == "table" then
    return ("%d values"):format(#value)
  end
  local text = lib.text(value):gsub("%c", " ")
  return #text > SHOWN and text:sub(1, SHOWN - 3) .. "..." or text
end

local function print_metadata(metadata)
  local rows = {}
  for i, key in ipairs(lib.names(metadata)) do rows[i] = {"  " .. key, value_text(metadata[key])} end
  if #rows > 0 then
    print "metadata:"
    print_table(rows)
  end
end

--- The tensors of the i-th file; layouts by the numbers in `numbers`, where it has some.
local function print_tensors(weights, i, numbers)
  local rows = {{"  bytes", "dtype", numbers and "layout" or "shape", "tensor"}}
  if numbers then table.insert(rows[1], 4, "shape") end
  for _, t in ipairs(weights.tensors) do
    if t.file == i then
      local row = {"  " .. core.bytes_text(t.bytes), weights_of.dtype_text(t), lib.shape_text(t.shape),
        t.name}
      if numbers then table.insert(row, 3, t.layout and tostring(numbers[t.layout]) or "-") end
      rows[#rows + 1] = row
    end
  end
  if #rows > 1 then print_table(rows, {true}) end
end

--- "loss 5.455, grad_norm 0.93", in the order of their names.
local function metrics_text(metrics)
  local words = {}
  for i, key in ipairs(lib.names(metrics or {})) do
    local value = metrics[key]
    words[i] = key .. " " .. (math.type(value) == "float" and lib.format("%.5g", value) or value_text(value))
  end
  return table.concat(words, ", ")
end

--- The layouts, printed; text -> its number.
local function print_layouts(layouts)
  local numbers = {}
  if #layouts > 0 then print "layouts it was saved with:" end
  for i, text in ipairs(layouts) do
    print(("  %d  %s"):format(i, text))
    numbers[text] = i
  end
  return numbers
end

local function print_steps(steps)
  local n = #steps
  print(n > MOST_STEPS and ("%d checkpoints, of steps %d to %d; the newest:"):format(n, steps[1], steps[n])
    or ("checkpoints of steps %s; the newest:"):format(table.concat(steps, ", ")))
end

local function print_checkpoint(weights)
  local m = weights.manifest
  if weights.steps then print_steps(weights.steps) end
  print(weights.path)
  print(("step %d, saved by %s; %s"):format(m.step, lib.count(m.processes, "process", "processes"),
    weights_of.count_text(#weights.tensors, weights_of.bytes(weights))))
  local metrics = metrics_text(m.metrics)
  if metrics ~= "" then print(metrics) end
  return print_layouts(m.layouts)
end

local function print_all(weights)
  local numbers
  if weights.manifest then
    numbers = print_checkpoint(weights)
  else
    local words = weights.kind == "folder" and lib.count(#weights.files, "file") or weights.kind
    print(("%s: %s, %s"):format(weights.path, words, weights_of.count_text(#weights.tensors,
      weights_of.bytes(weights))))
    print_metadata(weights.files[1].metadata)
  end
  for i, file in ipairs(weights.files) do
    if #weights.files > 1 or numbers then print(("%s: %s"):format(file.name, core.bytes_text(file.bytes))) end
    print_tensors(weights, i, numbers)
  end
end

--- The same as data.
local function object_of(weights)
  local m, listed, tensors = weights.manifest, {}, {}
  for i, file in ipairs(weights.files) do listed[i] = {name = file.name, bytes = file.bytes} end
  for i, t in ipairs(weights.tensors) do
    tensors[i] = {name = t.name, tree = t.tree, file = weights.files[t.file].name, dtype = t.dtype,
      encoding = t.encoding, shape = json.list(t.shape), bytes = t.bytes, layout = t.layout}
  end
  return {path = weights.path, kind = weights.kind, step = m and m.step, steps = weights.steps,
    processes = m and m.processes, metrics = m and m.metrics, bytes = weights_of.bytes(weights),
    files = listed, metadata = not m and weights.files[1].metadata or nil, tensors = json.list(tensors)}
end

-- ---- runs ---------------------------------------------------------------------------------------------

local POLL = 0.5 -- seconds

--- Shows a run until no process writes to it: on a terminal again and again in the same place, elsewhere a line for
--- what came.
local function follow(run)
  local shown, is_drawn = 0, program.columns "stdout" ~= nil
  local function show()
    local text = report.text(run)
    if shown > 0 then io.write(("\27[%dA\27[J"):format(shown)) end
    print(text)
    shown = select(2, text:gsub("\n", "")) + 1
  end
  show()
  io.flush()
  while run.is_running or not run.is_folder do
    core.sleep(POLL)
    core.check_stop ""
    run:look()
    if run:update() > 0 then
      if is_drawn then show() else print(report.row_text(run)) end
      io.flush()
    end
  end
  if is_drawn then show() else print(report.state_text(run)) end
end

local function write_page(list, path)
  local ok, message = files.write(path, require("meshlua.program.run_page").text(list))
  return ok, message, "E_IO"
end

--- All paths are runs.
local function inspect_runs(paths, flags)
  local list = {}
  for i, path in ipairs(paths) do
    local run, message, code = runs.open(path)
    if not run then return nil, message, code end
    list[i] = run
  end
  if flags.html ~= "" then
    local ok, message, code = write_page(list, flags.html)
    if not ok then return nil, message, code end
  end
  if flags.follow then
    if list[2] then return nil, "--follow: of one run", "E_VALUE" end
    follow(list[1])
  elseif flags.json then
    for _, run in ipairs(list) do print(json.encode(report.object(run))) end
  else
    print(list[2] and require("meshlua.program.run_several").text(list) or report.text(list[1]))
  end
end

--- inspect(path, ..., flags).
---@return nil, string? message, string? code
function M.run(...)
  local paths, n = {...}, select("#", ...)
  local flags = table.remove(paths, n)
  local path, is_run = paths[1], runs.is_run(paths[1])
  if is_run or n > 2 then return inspect_runs(paths, flags) end
  if flags.follow or flags.html ~= "" then
    return nil, ("%s: no run: --%s is of such"):format(path, flags.follow and "follow" or "html"), "E_VALUE"
  end
  local weights, message, code = weights_of.open(path)
  if not weights then return nil, message, code end
  if flags.json then print(json.encode(object_of(weights))) else print_all(weights) end
  weights_of.close(weights)
end

return M
