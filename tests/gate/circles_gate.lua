-- Who calls whom makes no circle: not between folders, not between more than three files of one, and not
-- at all in host/run. Read from the objects, so that a declaration alone is no call.
local gate = require "gate"
local build = assert(arg[1], "usage: circles_gate.lua BUILD_FOLDER")

local MOST = 3 -- files that may be written as one

local function is_there(file)
  local handle = io.open(file .. ".c")
  return handle and handle:close()
end

--- File -> the symbols it defines or wants; each object is read once, however many levels it is built for.
local defines, wants = {}, {}
for _, line in ipairs(gate.output(("find %s/CMakeFiles -name '*.c.o' -exec nm -A {} +"):format(build))) do
  local object, kind, symbol = line:match "^(.-):%x*%s+(%a) (%S+)$"
  local file = object and object:match "%.dir/(.*)%.c%.o$"
  if file and (file:find "^host/" or file:find "^kernels/") and is_there(file) then
    wants[file] = wants[file] or {}
    if kind == "U" then wants[file][symbol] = true
    elseif kind:find "[TDBRVWCS]" then defines[symbol] = file end
  end
end

local function folder_of(file) return file:match "^(.*)/" end

--- node -> the nodes that it calls, each with a symbol to show
local files, folders = {}, {}
for file, symbols in pairs(wants) do
  files[file] = files[file] or {}
  folders[folder_of(file)] = folders[folder_of(file)] or {}
  for symbol in pairs(symbols) do
    local to = defines[symbol]
    if to and to ~= file then
      files[file][to] = symbol
      local from, into = folder_of(file), folder_of(to)
      if from ~= into then folders[from][into] = file .. " calls " .. symbol end
    end
  end
end

local function sorted_keys(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = key end
  table.sort(list)
  return list
end

--- The circles of a graph, each a sorted list (R. Tarjan, "Depth-first search and linear graph algorithms",
--- 1972).
local function circles(graph)
  local index, low, on, stack, found, n = {}, {}, {}, {}, {}, 0
  local function visit(v)
    n = n + 1
    index[v], low[v], on[v] = n, n, true
    stack[#stack + 1] = v
    for _, w in ipairs(sorted_keys(graph[v])) do
      if not index[w] then
        visit(w)
        low[v] = math.min(low[v], low[w])
      elseif on[w] then
        low[v] = math.min(low[v], index[w])
      end
    end
    if low[v] == index[v] then
      local circle = {}
      repeat
        local w = table.remove(stack)
        on[w] = false
        circle[#circle + 1] = w
      until w == v
      table.sort(circle)
      if #circle > 1 then found[#found + 1] = circle end
    end
  end
  for _, v in ipairs(sorted_keys(graph)) do
    if not index[v] then visit(v) end
  end
  return found
end

for _, circle in ipairs(circles(folders)) do
  local calls = {}
  for _, from in ipairs(circle) do
    for _, to in ipairs(circle) do calls[#calls + 1] = folders[from][to] end
  end
  gate.fail(table.concat(circle, ", "), "folders call each other: %s", table.concat(calls, "; "))
end
for _, circle in ipairs(circles(files)) do
  if #circle > MOST or circle[1]:find "^host/run/" then
    gate.fail(table.concat(circle, ", "), "%d files call each other", #circle)
  end
end
gate.finish(#sorted_keys(files), [[move what both need down, or hand it in as a function pointer
(ARCHITECTURE.md has the order of the folders).]])
