-- Includes go down only: base <- ir <- op <- pass, base <- ir <- run, base <- text, lua sees all; and within run to rooms that stand
-- above in the table of ARCHITECTURE.md.
local gate = require "gate"

local below = {
  base = {"base"},
  ir = {"base", "ir"},
  text = {"base", "text"},
  op = {"base", "ir", "op"},
  pass = {"base", "ir", "op", "pass"},
  run = {"base", "ir", "run"},
  lua = {"base", "ir", "text", "op", "pass", "run", "lua"},
}

--- By room of run ("run/", "run/memory/"): its place in the table.
local place, places = {}, 0
for room in gate.read("ARCHITECTURE.md"):gmatch "\n| `host/(run/[%w/]*)` |" do
  place[room], places = places, places + 1
end
if places == 0 then gate.fail("ARCHITECTURE.md", "it has no rows of the rooms of host/run") end

--- Is the file in a room of run that comes before the one it includes?
local function goes_up(file, name)
  local from, to = place[file:match "^host/(run/.-)[^/]*$" or ""], place[name:match "^(run/.-)[^/]*$" or ""]
  return from and to and from < to
end

--- May `file` include "name"?
local function allowed(file, name)
  if goes_up(file, name) then return false end
  if file:find "^tests/unit/mpi/" and name == "test.h" then return true end
  if file:find "^host/mpi/" or file:find "^tests/unit/mpi/" then
    return name:find "^mpi/" or name == "run/comm/comm.h"
  end
  if file:find "^host/cuda/" then
    return name:find "^cuda/" or name == "run/gpu/device.h" or name == "run/comm/comm.h" or name == "kernel.h"
  end
  if file:find "^kernels/" then return name == "kernel.h" or not name:find "/" end
  if name == "kernel.h" then return not file:find "^host/base/" end
  local layer = file:match "^host/(%w+)/" or file:match "^tests/unit/(%w+)/"
  if layer == "kernels" or not name:find "/" then
    return file == "host/main.c" or file:find "^host/lua/" or file:find "^tests/unit/"
  end
  for _, folder in ipairs(below[layer or "lua"] or {}) do
    if name:find("^" .. folder .. "/") then return true end
  end
  return false
end

--- Lua's own headers belong to the binding.
local function may_see_lua(file)
  return file:find "^host/lua/" or file == "host/main.c" or file == "host/meshlua.h"
end

--- What a layer may not see through other headers either.
local unseen = {run = "ir/graph.h"}

local includes = {} -- of a file of host, the headers of ours that it includes

--- The way from `file` to `header`, as text; nil: there is none.
local function way_to(file, header, been)
  if been[file] then return nil end
  been[file] = true
  for _, name in ipairs(includes[file] or {}) do
    local rest = name == header and name or way_to("host/" .. name, header, been)
    if rest then return name == header and name or name .. " -> " .. rest end
  end
end

local looked = 0
for _, file in ipairs(gate.files "%.c?u?[ch]$") do
  if file:find "^host/" or file:find "^kernels/" or file:find "^tests/unit/" then
    local at = 0
    for line in gate.read(file):gmatch "[^\n]*" do
      at = at + 1
      local own = line:match '^%s*#%s*include%s*"([^"]+)"'
      local system = line:match "^%s*#%s*include%s*<([^>]+)>"
      looked = looked + ((own or system) and 1 or 0)
      includes[file] = includes[file] or {}
      table.insert(includes[file], own)
      if own and not allowed(file, own) then gate.fail(file .. ":" .. at, "may not include \"%s\"", own) end
      local lua = system and (system:find "^lua" or system == "lauxlib.h")
      if lua and not may_see_lua(file) then gate.fail(file .. ":" .. at, "may not include <%s>", system) end
    end
  end
end
for file in pairs(includes) do
  local header = unseen[file:match "^host/(%w+)/"]
  local way = header and way_to(file, header, {})
  if way then gate.fail(file, "sees %s: %s", header, way) end
end
gate.finish(looked, [[a layer knows only those below it (ARCHITECTURE.md). Move what both need down,
or pass it in as an argument or a function pointer. Kernels see kernel.h and their own folder; Lua's headers
are for host/lua and main.c.]])
