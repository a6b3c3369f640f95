-- checkpoint_v1.lua: how tests/spec/checkpoint_v1 was made, and what it holds: a folder of the first version, which
-- every later one reads. It is never made anew:
--   meshlua --processes=2 --devices=2 tests/spec/checkpoint_v1.lua FOLDER
local ml = require "meshlua"

local M = {
  DTYPES = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32", "uint8", "bool"},
  METRICS = {loss = 1.5}, STATE = {config = {lr = 0.001, name = "a \"b\"\n"}, on = true}}

--- The values of a dtype.
function M.values(dtype)
  local x = ml.arange(24):reshape(4, 6)
  return dtype == "bool" and x:gt(9) or x:astype(dtype)
end

--- Trees of Params; `put` lays each out.
function M.trees(put, values)
  local function param(name, x) return ml.core.box_new(put(name, x), {kind = "param"}) end
  local model = {}
  for _, dtype in ipairs(M.DTYPES) do model[dtype] = param(dtype, values(dtype)) end
  return {model = model, other = {scalar = param("scalar", values("float32"):at(1):at(2)),
    none = param("none", ml.zeros {0, 6})}}
end

if arg and arg[0] and arg[0]:find "checkpoint_v1%.lua$" then
  local mesh = ml.make_mesh({2, 2}, {"data", "model"})
  local specs = {float32 = ml.P("data", "model"), float64 = ml.P(nil, "model"), bfloat16 = ml.P("data"),
    int32 = ml.P "model"}
  local manager = assert(ml.checkpoint.Manager(arg[1], {async = false}))
  assert(manager:save(3, M.trees(function(name, x)
    return ml.device_put(x, ml.NamedSharding(mesh, specs[name] or ml.P()))
  end, M.values), {metrics = M.METRICS, state = M.STATE}))
  assert(manager:close())
end

return M
