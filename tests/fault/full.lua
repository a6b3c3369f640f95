-- full.lua: the fault specs without their time limit, so that every single allocation fails once:
-- `build/meshlua --devices=8 tests/fault/full.lua [SPEC...]`. Minutes.
package.path = "tests/?.lua;" .. package.path
FAULT_BUDGET = math.huge -- luacheck: ignore
if #arg == 0 then table.move({"tests/fault/core_spec.lua", "tests/fault/ops_spec.lua"}, 1, 2, 1, arg) end
dofile "tests/specs.lua"
