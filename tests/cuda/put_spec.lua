-- put_spec.lua: whatever makes a tensor of the host's bytes puts them on GPUs, too, which the stand-ins play
-- (standin/).
local helper = require "spec.helper"
local standin = require "cuda.standin"

local source = [[
local ml = require "meshlua"
local core = ml.core
local mesh = ml.make_mesh({2}, {"x"})
local rows = ml.NamedSharding(mesh, ml.P "x")
local function show(name, x) print(name, x.dtype, table.concat(x.shape, ","), core.hash128(x:bytes())) end

show("a table", ml.tensor({{1, 2}, {3, 4}}))
show("a number", ml.tensor(2.5))
show("a table's rows", ml.device_put(ml.tensor({{1, 2}, {3, 4}}), rows))
local numbers = core.tokens("abcdefghijkl", 1)
show("windows", numbers:windows({0, 3}, {4}, "int32"))
show("bytes", numbers:windows({7, 1}, {2, 2}, "uint8"))
local x, y = numbers:windows({0, 3, 2, 5}, {4}, "int32", rows, true)
show("windows in rows", x)
show("and one later", y)
show("what a process has", ml.make_array_from_process_local_data(rows, ml.tensor({{5, 6}, {7, 8}})))
show("by a function", ml.make_array_from_callback({4, 2}, rows, function(index)
  local list = {}
  for i = index[1][1], index[1][2] do list[#list + 1] = {i, 10 * i} end
  return ml.tensor(list, "float32")
end))
local plan = core.catalog_layout("safetensors", {{name = "x", encoding = "F32", shape = {4, 2}}}, {})
local f <close> = io.open(FILE, "wb")
f:write(plan.header, string.pack("<ffffffff", 1, 2, 3, 4, 5, 6, 7, 8))
f:close()
local piece = {at = {0, 0}, size = {4, 2}, factors = {{1, 4, 2}, {2, 2, 1}}, entry = 1, offset = 0}
piece.catalog = assert(core.catalog(FILE))
show("a file", core.catalog_load("float32", {4, 2}, rows, {piece}))
]]

local function printed(environment, devices)
  local path = helper.file(("FILE = %q\n%s"):format(helper.file "", source))
  local out, err, code = helper.shell(('%s "$MESHLUA" --devices=%s %s'):format(environment, devices, path))
  assert.equal(0, code, err)
  return out
end

describe("what the host has", function()
  standin.it("comes to GPUs as it is", function()
    local want = printed("", "2")
    assert.equal(10, select(2, want:gsub("\n", "")), want)
    assert.equal(want, printed(("STANDIN_GPUS=2 MESHLUA_CACHE=%s LD_LIBRARY_PATH=%s"):format(standin.cache,
      standin.folder), "cuda:0,1"))
  end)
end)
