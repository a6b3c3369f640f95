-- files.lua FOLDER: tensors in files, with 8 devices: each process writes and reads its part. Rank 0 prints checksums
-- of the files and of what is read: the same text however the devices are spread over processes.
local ml = require "meshlua"
local out = require "out"

local P, NamedSharding, nn = ml.P, ml.NamedSharding, ml.nn
local folder, is_first = arg[1], ml.process_index() == 0
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function put(x, spec) return ml.device_put(x, NamedSharding(mesh, spec)) end

local function file_sum(name)
  local file <close> = assert(io.open(folder .. "/" .. name, "rb"))
  return out.hash(file:read "a")
end

local function tensor_sum(x) return out.hash(ml.all_gather_to_host(x):bytes()) end

local big = ml.arange(8.0 * 96 * 1024):reshape(8, 96 * 1024) -- parts above 1 MiB are cut among their holders
local tree = {
  big = put(big, P("y", nil)), rows = put(ml.arange(64.0):reshape(8, 8), P "x"),
  ids = put(ml.arange(16), P {"x", "y"}),
  columns = put(ml.arange(64):reshape(8, 8):astype "bfloat16", P(nil, "x")), whole = put(ml.arange(5), P()),
  alone = ml.arange(7.0),
}
for _, name in ipairs {"a.safetensors", "a.gguf"} do
  assert(ml.save(folder .. "/" .. name, tree))
  out.print("%s %d", name, file_sum(name))
end
tree.columns = nil
assert(ml.save(folder .. "/a.npz", tree))
out.print("npz %d", file_sum "a.npz")
assert(ml.save(folder .. "/hf/", tree, {shard_bytes = 1000, map = {{"t.{*}", "{*}"}}}))
out.print("index %d", file_sum "hf/model.safetensors.index.json")

local specs = {big = P(nil, {"y", "x"}), rows = P("y", "x"), columns = P("x", nil), ids = P "y"}
for _, name in ipairs {"a.safetensors", "a.gguf", "a.npz"} do
  local t = assert(ml.load(folder .. "/" .. name, {mesh = mesh, sharding = specs}))
  for _, key in ipairs(ml.core.tree_keys(t)) do out.print("%s %s %d", name, key, tensor_sum(t[key])) end
end

local into = {}
for key, x in pairs(tree) do
  into[key] = nn.Param(put(ml.zeros(x.shape, x.dtype), specs[key] or P()))
end
assert(ml.load(folder .. "/hf", {into = into, map = {{"t.{*}", "{*}"}}}))
for _, key in ipairs(ml.core.tree_keys(into)) do out.print("into %s %d", key, tensor_sum(into[key]:get())) end

-- Of what is cut among processes each reads its part, as it was cut in writing or not.
local bytes = big.size * 4
for name, spec in pairs {["a.safetensors"] = P({"y", "x"}, nil), ["hf/"] = P(nil, {"x", "y"})} do
  local before = ml.core.catalog_bytes()
  local sharding = {["t.big"] = spec, big = spec}
  assert(ml.load(folder .. "/" .. name, {mesh = mesh, sharding = sharding, partial = "big$"}))
  local share = (ml.core.catalog_bytes() - before) * ml.process_count() / bytes
  assert(share > 0.95 and share < 1.25, share)
end

-- A file that one process cannot read changes nothing anywhere; a disk that one cannot write leaves what was there.
local one = into.rows:get()
local own = is_first and folder .. "/hf" or folder .. "/none"
local nothing, message, code = ml.load(own, {into = into, map = {{"t.{*}", "{*}"}}})
assert(ml.process_count() == 1 or nothing == nil and code == "E_IO" and message:find "none", message)
assert(ml.process_count() == 1 or into.rows:get() == one)
nothing, message, code = ml.save(folder .. "/no/a.safetensors", tree)
assert(nothing == nil and code == "E_IO" and message:find "no/a", message)
local wide = {w = put(ml.arange(8.0) * 1e10, P {"x", "y"})} -- only the last devices' part does not fit
nothing, message, code = ml.save(folder .. "/a.safetensors", wide, {cast = "float16"})
assert(nothing == nil and code == "E_VALUE", message)
out.print("still %d", file_sum "a.safetensors")

-- A folder that one process sees and another does not.
nothing, message, code = ml.save(folder .. (is_first and "/hf" or "") .. "/b.safetensors", wide)
if ml.process_count() > 1 then
  assert(nothing == nil and code == "E_IO" and message:find "a folder that all of them see", message)
end
