-- recorded.lua: what tests/fault/recorder.c has noted of a run, and the states of a disk that a power cut may leave.
--
-- A file's bytes are on the disk once it is synced; a name, once its folder is. What is not may be there or not, each
-- by itself: a write whole, in part (sectors of 512 bytes) or not at all, in any order; a new name, a rename, a
-- removal, as far as what it needs is there.
local M = {}

local SECTOR = 512

--- The calls of a log: {kind, path, other or offset, bytes}.
function M.read(log)
  local file <close> = assert(io.open(log, "rb"))
  local calls = {}
  for line in file:lines() do
    local kind, n, text = line:match "^(%w+) (%d+) (.*)$"
    local bytes = tonumber(n) > 0 and file:read(tonumber(n)) or ""
    local path, other = text:match "^(%S+) ?(%S*)$"
    calls[#calls + 1] = {kind = kind, path = path, other = other, bytes = bytes}
  end
  return calls
end

local function folder_of(path) return (path:gsub("/[^/]*$", "")) end

local function node(kind, above) return {kind = kind, names = {}, bytes = "", above = above} end

--- Runs through names as they are at last: which node a path is.
local function find(root, path, base)
  local at = root
  for name in path:sub(#base + 2):gmatch "[^/]+" do
    at = at and at.names[name]
  end
  return at
end

--- Puts bytes into a file's content.
local function put(content, offset, bytes)
  if #content < offset then content = content .. ("\0"):rep(offset - #content) end
  return content:sub(1, offset) .. bytes .. content:sub(offset + #bytes + 1)
end

--- What the calls do to nodes, as a list of changes, each with the folder or file that must be synced for it, and the
--- number of the call that has done so (math.huge: none).
function M.changes(calls, base)
  local root, list, open = node("folder"), {}, {}
  local function add(change)
    change.durable = math.huge
    list[#list + 1] = change
    open[#open + 1] = change
  end
  for i, call in ipairs(calls) do
    local above = find(root, folder_of(call.path), base)
    local name = call.path:match "[^/]+$"
    if call.kind == "create" or call.kind == "mkdir" then
      local new = node(call.kind == "mkdir" and "folder" or "file")
      above.names[name] = new
      add {at = i, kind = "link", folder = above, name = name, node = new}
    elseif call.kind == "write" then
      local file = find(root, call.path, base)
      add {at = i, kind = "write", node = file, offset = tonumber(call.other), bytes = call.bytes}
    elseif call.kind == "size" then
      add {at = i, kind = "size", node = find(root, call.path, base), size = tonumber(call.other)}
    elseif call.kind == "rename" then
      local to = find(root, folder_of(call.other), base)
      local moved, as = above.names[name], call.other:match "[^/]+$"
      above.names[name], to.names[as] = nil, moved
      add {at = i, kind = "rename", folder = above, name = name, to = to, as = as, node = moved}
    elseif call.kind == "unlink" then
      add {at = i, kind = "unlink", folder = above, name = name, node = above.names[name]}
      above.names[name] = nil
    elseif call.kind == "sync" then
      local synced, left = find(root, call.path, base), {}
      for _, change in ipairs(open) do
        local of = (change.kind == "write" or change.kind == "size") and change.node or change.folder
        if of == synced or change.to == synced and change.folder == synced then
          change.durable = i
        else
          left[#left + 1] = change
        end
      end
      open = left
    end
  end
  return list, root
end

--- A write of which some sectors are lost.
local function torn(content, change, random)
  for from = 0, #change.bytes - 1, SECTOR do
    if random(2) == 1 then
      content = put(content, change.offset + from, change.bytes:sub(from + 1, from + SECTOR))
    end
  end
  return content
end

--- The tree of names and contents where the power went behind call `at`: {path = content, or false of a folder}.
---@param random fun(n: integer): integer 1 .. n
function M.state(list, root, at, random)
  local names, content = {}, {}
  local function of(n)
    names[n] = names[n] or {}
    return names[n]
  end
  for _, change in ipairs(list) do
    if change.at > at then break end
    local fate = change.durable <= at and 1 or random(3)
    local kind, file = change.kind, change.node
    if kind == "write" and fate ~= 2 then
      content[file] = fate == 1 and put(content[file] or "", change.offset, change.bytes)
        or torn(content[file] or "", change, random)
    elseif kind == "size" and fate ~= 2 then
      local old = content[file] or ""
      content[file] = #old > change.size and old:sub(1, change.size) or put(old, change.size, "")
    elseif kind == "link" and fate ~= 2 then
      of(change.folder)[change.name] = file
    elseif kind == "unlink" and fate ~= 2 then
      if of(change.folder)[change.name] == file then of(change.folder)[change.name] = nil end
    elseif kind == "rename" and fate ~= 2 then
      -- Its name may have been lost before: then only the new one may be there.
      if of(change.folder)[change.name] == file or fate == 1 then
        of(change.folder)[change.name] = nil
        of(change.to)[change.as] = file
      end
    end
  end
  local state = {}
  local function walk(folder, path)
    for name, n in pairs(of(folder)) do
      local at_path = path .. "/" .. name
      state[at_path] = n.kind == "file" and (content[n] or "")
      if n.kind == "folder" then walk(n, at_path) end
    end
  end
  walk(root, "")
  return state
end

--- Makes it so below a folder, which is empty.
function M.build(state, folder)
  local core = require "meshlua.core"
  local paths = {}
  for path in pairs(state) do paths[#paths + 1] = path end
  table.sort(paths)
  for _, path in ipairs(paths) do
    if state[path] == false then
      assert(core.make_folder(folder .. path))
    else
      local file <close> = assert(io.open(folder .. path, "wb"))
      file:write(state[path])
    end
  end
end

return M
