-- shell.lua: files and commands, for script/mutate.
local M = {}

--- A word of a shell's command line.
---@param text string
---@return string
function M.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs a command. Its output goes where ours goes. A signal that ends it ends us, too: no verdict comes of it.
---@param command string
---@return boolean ok
function M.run(command)
  local ok, how, code = os.execute(command)
  if how == "signal" then os.exit(128 + code) end
  return ok == true
end

--- The lines that a command prints.
---@param command string
---@return string[]
function M.lines(command)
  local list = {}
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

--- A file's content; nil where there is none.
---@param path string
---@return string?
function M.read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

--- Writes a file, whole or not at all.
---@param path string
---@param text string
function M.write(path, text)
  local file = assert(io.open(path .. ".new", "wb"))
  assert(file:write(text))
  assert(file:close())
  assert(os.rename(path .. ".new", path))
end

--- Adds a line to a file that several processes write.
---@param path string
---@param line string
function M.append(path, line)
  local file = assert(io.open(path, "ab"))
  file:setvbuf "full"
  assert(file:write(line, "\n"))
  assert(file:close())
end

--- Takes a piece of work that several processes look at: true for one of them.
---@param path string that nothing has made before
---@return boolean
function M.claim(path) return M.run("mkdir " .. M.quote(path) .. " 2>/dev/null") end

return M
