-- work.lua: a copy of the tree, built, in which one file at a time is changed and its objects and programs are made
-- anew, and put back afterwards. FOLDER/source and FOLDER/build; FOLDER/saved has what must be put back, also
-- after the process was killed.
local shell = require "shell"

local M = {}
M.__index = M

local quote = shell.quote
local COMPILE_SECONDS = 300
local MOST_OBJECTS = 12 -- of a header; those of more would compile for minutes

--- Opens a copy; puts back what a killed run left changed.
---@param folder string
---@return table
function M.open(folder)
  local work = setmetatable({folder = folder, build = folder .. "/build", source = folder .. "/source",
    compile = {}, link = {}, of_source = {}, saved = {}}, M)
  for _, command in ipairs(shell.lines("ninja -C " .. quote(work.build) .. " -t commands 2>/dev/null")) do
    local object, source = command:match " %-o (%S+) %-c (%S+)$"
    if object then
      work.compile[object] = command
      local name = work:name_of(source)
      if name then work:add(name, object) end
    elseif command:find "^: && .* && :$" then
      local program = command:match " %-o (%S+) "
      if program then work.link[program] = command end
    end
  end
  work:read_headers()
  work:put_back()
  return work
end

function M:add(source, object)
  self.of_source[source] = self.of_source[source] or {}
  table.insert(self.of_source[source], object)
end

-- The name of one of our sources; a cache of the compiler's makes paths relative.
function M:name_of(path)
  for _, folder in ipairs {self.source .. "/", "../source/"} do
    if path:sub(1, #folder) == folder then return path:sub(#folder + 1) end
  end
end

function M:read_headers()
  local object
  for _, line in ipairs(shell.lines("ninja -C " .. quote(self.build) .. " -t deps 2>/dev/null")) do
    object = line:match "^(%S+): #deps" or object
    local header = line:match "^%s+(%S+%.h)$"
    local name = header and self.compile[object] and self:name_of(header)
    if name then self:add(name, object) end
  end
end

--- May the file be changed here: is it compiled, and a header by few?
function M:takes(file)
  local objects = self.of_source[file]
  return objects ~= nil and (file:find "%.c$" ~= nil or #objects <= MOST_OBJECTS)
end

--- Moves a file of the copy out of the way.
function M:save(path)
  local at = self.folder .. "/saved/" .. path
  local from = self.folder .. "/" .. path
  shell.run(("mkdir -p %s && mv %s %s"):format(quote(at:match "^(.*)/"), quote(from), quote(at)))
  self.saved[#self.saved + 1] = path
end

--- Puts everything back that was moved.
function M:put_back()
  local saved = self.folder .. "/saved"
  shell.run(([[mkdir -p %s && cd %s && find . -type f | while read -r f; do mv "$f" "../$f" || exit 1; done]])
    :format(quote(saved), quote(saved)))
  self.saved = {}
end

local function is_same(a, b) return shell.run(("cmp -s %s %s"):format(quote(a), quote(b))) end

-- Runs a command of the build.
function M:builds(command)
  return shell.run(("cd %s && CCACHE_DISABLE=1 %s >/dev/null 2>&1"):format(quote(self.build), command))
end

--- Changes a file and compiles its objects.
---@param file string
---@param text string
---@return "changed"|"equal"|"invalid"
function M:change(file, text)
  self:save("source/" .. file)
  shell.write(self.source .. "/" .. file, text)
  self.objects = {}
  local equal = true
  for _, object in ipairs(self.of_source[file]) do
    self:save("build/" .. object)
    local command = ("timeout %d sh -c %s"):format(COMPILE_SECONDS, quote(self.compile[object]))
    if not self:builds(command) then return "invalid" end
    if not is_same(self.folder .. "/saved/build/" .. object, self.build .. "/" .. object) then
      self.objects[#self.objects + 1] = object
      equal = false
    end
  end
  self.linked = {}
  return equal and "equal" or "changed"
end

--- Links a program, and the libraries that any program may open, where they have a changed object.
---@return boolean ok
function M:ready(program)
  for name, command in pairs(self.link) do
    if not self.linked[name] and (name == program or name:find "%.so$") then
      self.linked[name] = true
      local has = false
      for _, object in ipairs(self.objects) do has = has or command:find(object, 1, true) ~= nil end
      if has then
        self:save("build/" .. name)
        if not self:builds("sh -c " .. quote(command)) then return false end
      end
    end
  end
  return true
end

return M
