-- data/kept.lua: indices that are built once, and kept in a file where the user says so: of a filter, of packed rows.
-- A file begins with a line that says of which data it is, and has a hash of what follows.
local core = require "meshlua.core"
local files = require "meshlua.data.files"
local lib = require "meshlua.lib"
local records_of = require "meshlua.data.records"
local together = require "meshlua.sharding.together"

local raise = lib.raise

local M = {}

--- What an index file of this data begins with.
local function title(kind, source, how)
  return ("meshlua %s 1 %s %d%s\n"):format(kind, records_of.mark_text(source), source.n, how)
end

--- The list in the file; nil where it is not there, or of other data. false, message, code: it is no such file.
local function read(path, kind, wanted)
  if not core.path_kind(path) then return nil end
  local source, message, code = files.open(path)
  if not source then return false, message, code end
  if source.head:sub(1, #kind + 8) ~= "meshlua " .. kind then
    return false, ("%s: it is not the index of a %s, and is left as it is"):format(path, kind), "E_IO"
  end
  local line = source.head:match "^([^\n]*\n)"
  if not line or line:sub(1, #wanted) ~= wanted then return nil end
  local bytes, mark = line:sub(#wanted + 1):match "^(%d+) (%x+)\n$"
  if not bytes or source.size ~= #line + tonumber(bytes) then return nil end
  local list = files.list(source, "int64", #line)
  return core.tokens_fingerprint(list) == mark and list or nil
end

--- An int64 list that `build` makes as bytes; with a path it is kept there. All processes call it.
---@param path string?
---@param kind string
---@param source Source what it is an index of
---@param how string what else decides it
---@param build fun(): string
---@return Tokens?, string? message, string? code
function M.list(path, kind, source, how, build)
  if not path then return core.tokens(build(), "int64") end
  if path == "" then raise("E_VALUE", "%s: option 'file' is empty", kind) end
  local wanted = title(kind, source, how):sub(1, -2) .. " "
  local list, message, code = read(path, kind, wanted)
  if together.largest(list == nil and 1 or 0) == 0 then return list or nil, message, code end
  if list == false then return nil, message, code end
  local bytes, ok = build(), true
  local built = core.tokens(bytes, "int64")
  if together.is_first() then
    local part = path .. ".part"
    local line = ("%s%d %s\n"):format(wanted, #bytes, core.tokens_fingerprint(built))
    ok, message = core.disk_task {{"write", part, line .. bytes}, {"move", part, path}}:wait()
    if not ok then core.disk_task {{"remove", part}}:wait() end
  end
  ok, message, code = together.agree(ok, message, "E_IO")
  if not ok then return nil, message, code end
  return built
end

return M
