-- debug.lua: Lua code that sees the values of traced programs, when they have run.
local core = require "meshlua.core"
local effects = require "meshlua.transform.effects"
local lib = require "meshlua.lib"

local raise = lib.raise

local M = {}

--- What string.format can take: the number or boolean of a scalar; other tensors as text.
local function plain(x)
  if not core.is_tensor(x) then return x end
  if x.ndim == 0 then return x:item() end
  return tostring(x)
end

local function formatted(format, args, n)
  local values = {}
  for i = 1, n do
    values[i] = plain(args[i])
    if type(values[i]) == "boolean" then values[i] = tostring(values[i]) end
  end
  local ok, text = pcall(lib.format, format, table.unpack(values, 1, n))
  if not ok then raise("E_VALUE", "debug_print: %s", (text:gsub("^.-bad argument", "bad argument"))) end
  return text
end

--- Calls fn(...) with the values of its tensors: at once, or inside a traced function after each run of it, in the
--- order of the program, on the main thread: in a loop for each iteration (of a while_loop the first 64), in a branch
--- where it is taken. Under sharding the tensors are whole; inside shard_map fn is called
--- for each device with its blocks. Nothing that fn returns is used.
---@param fn function
function M.debug_callback(fn, ...)
  lib.check_function("debug_callback", fn)
  effects.note(function(args) fn(table.unpack(args, 1, args.n)) end, table.pack(...))
end

-- ---- debug_print ------------------------------------------------------------------------------------

--- The shards of the arguments by device: a list of {device, args}.
local function shards_of(args)
  local devices, by_device = {}, {}
  for i = 1, args.n do
    for _, shard in ipairs(core.is_tensor(args[i]) and args[i]:addressable_shards() or {}) do
      local id = shard.device
      if not by_device[id] then
        by_device[id] = table.move(args, 1, args.n, 1, {n = args.n})
        devices[#devices + 1] = id
      end
      by_device[id][i] = shard.data
    end
  end
  table.sort(devices)
  for k, id in ipairs(devices) do devices[k] = {id, by_device[id]} end
  return devices
end

--- Writes a line as string.format would (scalar tensors count as numbers, others are text for %s): at once, or
--- inside a traced function after each run of it. A table {per_device = true} behind the values writes a line for
--- each device with its shards; inside shard_map that is so anyway.
---@param format string
function M.debug_print(format, ...)
  if type(format) ~= "string" then
    raise("E_VALUE", "debug_print: the format must be a string, not %s", lib.kind(format))
  end
  local args, options = table.pack(...), {}
  local last = args[args.n]
  if type(last) == "table" and not getmetatable(last) then
    options, args.n = lib.options("debug_print", last), args.n - 1
    args[args.n + 1] = nil
  end
  local wanted = select(2, format:gsub("%%%%", ""):gsub("%%", ""))
  if wanted ~= args.n then
    raise("E_VALUE", "debug_print: '%s' takes %s, %d given", format, lib.count(wanted, "value"), args.n)
  end
  effects.note(function(values, label)
    local devices = options.per_device and not label and shards_of(values) or {}
    for _, device in ipairs(devices) do
      print(("[device %s] %s"):format(device[1], formatted(format, device[2], values.n)))
    end
    if #devices == 0 then
      print((label and "[" .. label .. "] " or "") .. formatted(format, values, values.n))
    end
  end, args)
end

return lib.export(M)
