-- gate.lua: what the gates share. A gate is a script over the whole tree, run from its root by
-- `build/meshlua tests/gate/NAME_gate.lua BUILD_FOLDER`; it prints what it found and how to mend it.
local M = {}

--- Exit code of a gate that has nothing to look at yet; ctest counts it as skipped.
local SKIPPED = 77

local findings, notes = {}, {}

local function lines_of(command)
  local list = {}
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  local ok = pipe:close()
  return ok and list or {}
end

--- The files of the tree, sorted: what git tracks or would track; without git, what is there. Binary
--- files, links and folders that begin with "build" are not among them.
---@param pattern string? of paths to keep
---@return string[]
function M.files(pattern)
  local all = lines_of "git ls-files --cached --others --exclude-standard 2>/dev/null"
  if #all == 0 then
    all = lines_of "find . -type f -not -path './.git/*' -not -path './build*' | sed 's|^./||'"
  end
  local kept = {}
  for _, file in ipairs(all) do
    local handle = (not pattern or file:find(pattern)) and io.open(file, "rb")
    if handle then
      kept[#kept + 1] = file
      handle:close()
    end
  end
  table.sort(kept)
  return kept
end

--- The whole content of a file.
function M.read(file)
  local handle <close> = assert(io.open(file, "rb"))
  return handle:read "a"
end

--- The lines that a command prints; none where it fails.
M.output = lines_of

--- Notes something that is wrong.
function M.fail(place, fmt, ...)
  findings[#findings + 1] = place .. ": " .. fmt:format(...)
end

--- Notes something worth knowing that fails nothing.
function M.note(place, fmt, ...)
  notes[#notes + 1] = place .. ": " .. fmt:format(...)
end

--- Ends a gate that has nothing to look at yet.
function M.skip(why)
  print("skipped: " .. why)
  os.exit(SKIPPED)
end

--- Ends the gate: 1 where something is wrong. A gate that looked at nothing is wrong, too.
---@param looked integer how many things it looked at
---@param mend string what to do about findings
function M.finish(looked, mend)
  for _, line in ipairs(notes) do print("note: " .. line) end
  if looked == 0 then M.fail("gate", "it found nothing to look at") end
  for _, line in ipairs(findings) do print(line) end
  if #findings > 0 then
    print("\nTo mend: " .. mend)
    os.exit(1)
  end
  print(("ok: %d looked at"):format(looked))
end

return M
