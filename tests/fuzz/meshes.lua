-- meshes.lua: random programs on two meshes: the second takes what the first gives, moved by device_put. Where it is
-- not moved, the call is right or E_MESH, never anything else.
--   meshlua --devices=8 tests/fuzz/meshes.lua [count] [first seed]
local folder = arg and arg[0] and arg[0]:match "^(.*)fuzz/meshes%.lua$" -- run as a script
if folder then package.path = folder .. "?.lua;" .. package.path end
local ml = require "meshlua"
local programs = require "fuzz.programs"

local M = {}

--- Two programs in a row.
function M.make(seed)
  local first = programs.make(seed, "nested")
  local second = programs.make(-seed, "nested", first.results)
  for dtype in pairs(first.dtypes) do second.dtypes[dtype] = true end
  return {seed = seed, first = first, second = second}
end

local function supported(fn, ...)
  local results = table.pack(pcall(fn, ...))
  if results[1] then return {table.unpack(results, 2, results.n)} end
  if not tostring(results[2]):find("[E_UNSUPPORTED]", 1, true) then error(results[2], 0) end
end

--- Inputs that were not moved, or not all: right, or E_MESH.
local function check_unmoved(pair, there, want)
  local ok, message = pcall(function()
    local got = {ml.jit((programs.functions(pair.second)))(table.unpack(there))}
    return programs.compare_results(pair.second, got, want)
  end)
  if ok then return message end
  if not tostring(message):find("%[E_MESH%]") then error(message, 0) end
end

local function check_once(pair)
  local first, second = pair.first, pair.second
  local there, here, moved, mixed = {}, {}, {}, {}
  for i, input in ipairs(first.inputs) do
    there[i], here[i] = ml.device_put(input.data, ml.NamedSharding(first.mesh, input.spec)), input.data
  end
  local sharded, plain = programs.functions(first)
  here = supported(ml.jit(plain), table.unpack(here))
  if not here then return end
  there = {ml.jit(sharded)(table.unpack(there))}
  for i, input in ipairs(second.inputs) do
    moved[i] = ml.device_put(there[i], ml.NamedSharding(second.mesh, input.spec))
    mixed[i] = i == 1 and there[i] or moved[i]
  end
  sharded, plain = programs.functions(second)
  local want = supported(ml.jit(plain), table.unpack(here, 1, #moved))
  if not want then return end
  local bad, exact = programs.compare_results(second, {ml.jit(sharded)(table.unpack(moved))}, want)
  if bad then return bad, exact end
  bad, exact = check_unmoved(pair, table.move(there, 1, #moved, 1, {}), want)
  if bad then return "not moved: " .. bad, exact end
  bad, exact = check_unmoved(pair, mixed, want)
  return bad and "moved in part: " .. bad, exact
end

---@return string? error
function M.check(pair) return programs.confirmed(pair.first, function() return check_once(pair) end) end

function M.describe(pair) return programs.describe(pair.first) .. "\n\n" .. programs.describe(pair.second) end

if folder then programs.run(M, arg) end

return M
