-- rows.lua: runs rows of checks or measurements, each within a time of its own, and keeps their table in the file
-- TABLE, so that it is there whenever the run is cut off. With GPU_DRY=1 the GPU is one that runs nothing
-- (tests/cuda/standin): rows are run for what they compile, and what they give counts for nothing.
local core = require "meshlua.core"

local M = {}

local is_dry = os.getenv "GPU_DRY" ~= nil

---@class GpuRow
---@field name string
---@field limit integer seconds
---@field needed boolean? nothing behind it is run where it fails
---@field run fun(sh: fun(command: string): string, integer): string? what stands in the table; raises where it
--- fails; a text that begins with "not run" is no failure

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs a shell command within so many seconds; its output, both streams, and its exit code.
local function shell(command, seconds)
  local pipe <close> = assert(io.popen(("timeout -k 5 %d sh -c %s 2>&1"):format(math.max(1, seconds // 1),
    quote(command))))
  local text = pipe:read "a"
  local _, how, code = pipe:close()
  return text, how == "signal" and 128 + code or code
end

local function tail(text, lines)
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
  return table.concat(list, "\n", math.max(1, #list - lines + 1))
end

--- Raises unless the command ends well.
local function must(command, seconds)
  local text, code = shell(command, seconds)
  if code == 124 then error(("no end within %d s\n%s"):format(seconds, tail(text, 10)), 0) end
  if code ~= 0 then error(("exit code %s\n%s"):format(code, tail(text, 30)), 0) end
  return text
end

--- `over`: when the time for all is; `late`: the state of what would begin later.
local function run_row(row, over, late)
  local before = core.clock()
  if before > over then
    return {name = row.name, state = late, text = "not run: the time is over", seconds = 0}
  end
  local function left()
    return is_dry and 1800 or math.min(row.limit - (core.clock() - before), over - core.clock() + 20)
  end
  local ok, text = pcall(row.run, function(command) return shell(command, left()) end,
    function(command) return must(command, left()) end)
  text = tostring(text or "")
  local state = not ok and "FAILED" or text:find "^not run" and "" or "ok"
  return {name = row.name, state = state, text = text, seconds = core.clock() - before}
end

--- Ends the process where there is no GPU, with the line that says why.
---@param program string
function M.need_gpu(program)
  local text, code = shell(program .. " --devices=cuda -e ''", 60)
  if code == 0 then return end
  io.stderr:write(text)
  os.exit(code, true)
end

local function write_table(done)
  local lines = {""}
  for _, r in ipairs(done) do
    lines[#lines + 1] = ("%-44s %-7s %5.0f s  %s"):format(r.name, r.state, r.seconds, r.text:match "^[^\n]*")
  end
  local file <close> = assert(io.open(assert(os.getenv "TABLE", "script/test-gpu runs this"), "w"))
  assert(file:write(table.concat(lines, "\n"), "\n"))
end

--- Runs those whose names match; prints each when it is over. Ends the process: 1 where one has failed.
---@param rows GpuRow[]
---@param filter string plain text; "" matches all
---@param seconds integer for all; what has not begun by then is not run
---@param late string? "FAILED" where that is a failure
function M.run(rows, filter, seconds, late)
  local done, failed, broken = {}, false, nil
  local over = is_dry and math.huge or core.clock() + seconds
  for _, row in ipairs(rows) do
    if row.name:find(filter, 1, true) then
      local result = broken and {name = row.name, state = "", text = "not run: see " .. broken, seconds = 0}
        or run_row(row, over, late or "")
      done[#done + 1] = result
      failed = failed or result.state == "FAILED"
      if row.needed and result.state == "FAILED" and not is_dry then broken = row.name end
      print(("%-7s %s (%.0f s)%s"):format(result.state, result.name, result.seconds,
        result.state == "FAILED" and "\n" .. result.text or ""))
      io.flush()
      write_table(done)
    end
  end
  if #done == 0 then error(("no name has '%s' in it"):format(filter), 0) end
  os.exit(failed and 1 or 0, true)
end

return M
