-- devices: 8
-- factors_spec.lua: the sharding rule of every op, as `--dump=factors` prints it: which dims of operands and
-- results run together. Upper bounds of what can be split without sending anything.
local ml = require "meshlua"
local core = ml.core
local mesh = ml.make_mesh({4, 2}, {"x", "y"})

local function rules_of(fn, inputs)
  local args, file, lines = {}, os.tmpname(), {}
  for i, x in ipairs(inputs) do
    args[i] = ml.device_put(type(x) == "table" and ml.zeros(x) or x, ml.NamedSharding(mesh, ml.P()))
  end
  core.clear_plans()
  core.dump("factors:" .. file)
  local ok, message = pcall(ml.jit(fn, {mesh = mesh}), table.unpack(args))
  core.dump()
  for line in io.lines(file) do
    if not line:find "^%-%-" then lines[#lines + 1] = line:gsub("^%%%d+ = ", "") end
  end
  os.remove(file)
  if not ok then error(message) end
  return lines
end

local ids = ml.tensor {0, 1, 2}
local heads = {2, 4, 8, 16}

local rows = {
  {"elementwise: all dims pass", function(a, b) return ml.maximum(a, b) end, {{4, 6}, {4, 6}},
    "maximum ([i,j],[i,j])->([i,j]) {i=4, j=6}"},
  {"select", function(a, b) return ml.where(a:lt(b), a, b) end, {{4, 6}, {4, 6}},
    "lt ([i,j],[i,j])->([i,j]) {i=4, j=6}", "where ([i,j],[i,j],[i,j])->([i,j]) {i=4, j=6}"},
  {"convert", function(a) return a:astype "bfloat16" end, {{4, 6}}, "astype ([i,j])->([i,j]) {i=4, j=6}"},
  {"matmul: batch, rows, columns pass; the inner dim is a sum", function(a, b) return a:matmul(b) end,
    {{2, 4, 6}, {2, 6, 8}}, "matmul ([i,j,l],[i,l,k])->([i,j,k]) {i=2, j=4, k=8, l=6, sum=l}"},
  {"sum", function(a) return a:sum(1, true) end, {{4, 6}}, "sum ([i,j])->([1,j]) {i=4, j=6, sum=i}"},
  {"max", function(a) return a:max(2, true) end, {{4, 6}}, "max ([i,j])->([i,1]) {i=4, j=6, max=j}"},
  {"min", function(a) return a:min(2, true) end, {{4, 6}}, "min ([i,j])->([i,1]) {i=4, j=6, min=j}"},
  {"argmax: its dim is needed whole", function(a) return a:argmax(2) end, {{4, 6}},
    "argmax ([i,j])->([i,1]) {i=4, j=6, replicate=j}", "reshape ([i,1])->([i]) {i=4}"},
  {"reshape: merged", function(a) return a:reshape(24) end, {{4, 6}}, "reshape ([i,j])->([ij]) {i=4, j=6}"},
  {"reshape: split", function(a) return a:reshape(4, 6) end, {{24}}, "reshape ([ij])->([i,j]) {i=4, j=6}"},
  {"reshape: regrouped by common factors", function(a) return a:reshape(2, 12) end, {{4, 6}},
    "reshape ([ij,k])->([i,jk]) {i=2, j=2, k=6}"},
  {"reshape: nothing in common", function(a) return a:reshape(6, 4) end, {{4, 6}},
    "reshape ([i,j])->([k,l]) {i=4, j=6, k=6, l=4, replicate=i, replicate=j, replicate=k, replicate=l}"},
  {"reshape: dims of size 1 are apart", function(a) return a:reshape(1, 4, 6) end, {{4, 6}},
    "reshape ([i,j])->([1,i,j]) {i=4, j=6}"},
  {"transpose", function(a) return a:T() end, {{4, 6}}, "transpose ([j,i])->([i,j]) {i=6, j=4}"},
  {"broadcast: new dims are the result's own, stretched ones are in no factor",
    function(a) return a + ml.zeros {3, 4, 6} end, {{1, 6}}, "full ()->([i,j,k]) {i=3, j=4, k=6}",
    "broadcast ([1,k])->([i,j,k]) {i=3, j=4, k=6}", "add ([i,j,k],[i,j,k])->([i,j,k]) {i=3, j=4, k=6}"},
  {"take: rows of the table are a sum, ids and columns pass", function(t) return ml.take(t, ids, 1) end,
    {{16, 6}},
    "gather ([k,j],[i])->([i,j]) {i=3, j=6, k=16, sum=k}"},
  {"scatter_add: ids are a sum, rows of the result its own", function(v) return ml.scatter_add(ids, v, 16,
    1) end,
    {{3, 6}}, "scatter_add ([i],[i,j])->([k,j]) {i=3, j=6, k=16, sum=i}"},
  {"scatter_set: ids are needed whole", function(t, v) return ml.scatter_set(t, ids, v, 1) end, {{16, 6},
    {3, 6}},
    "scatter ([k,j],[i],[i,j])->([k,j]) {i=3, j=6, k=16, replicate=i}"},
  {"concat: its dim stays whole", function(a, b) return ml.concat({a, b}, 1) end, {{4, 6}, {2, 6}},
    "concat ([1,i],[1,i])->([1,i]) {i=6}"},
  {"slice: a dim that is cut is needed whole", function(a) return a:slice({1, 2}, {1, 6}) end, {{4, 6}},
    "slice ([i,j])->([1,j]) {i=4, j=6, replicate=i}"},
  {"pad", function(a) return ml.pad(a, {{1, 1}, {0, 0}}) end, {{4, 6}}, "full ()->([]) {}",
    "pad ([i,j],[])->([1,j]) {i=4, j=6, replicate=i}"},
  {"flip", function(a) return ml.flip(a, 1) end, {{4, 6}}, "flip ([i,j])->([i,j]) {i=4, j=6, replicate=i}"},
  {"sort", function(a) return a:sort(2) end, {{4, 6}}, "sort ([i,j])->([i,j]) {i=4, j=6, replicate=j}"},
  {"argsort", function(a) return ml.argsort(a, 2) end, {{4, 6}}, "iota ()->([i,j]) {i=4, j=6}",
    "sort ([i,j],[i,j])->([i,j],[i,j]) {i=4, j=6, replicate=j}"},
  {"iota", function() return ml.arange(8) end, {}, "iota ()->([i]) {i=8}"},
  {"attention: rows of queries pass", function(q, k, v) return ml.nn.attention(q, k, v, {}) end,
    {heads, heads, heads}, "attention ([i,l,j,n],[i,m,j,n],[i,m,j,n])->([i,l,j,n],[i,j,l]) "
    .. "{i=2, j=8, k=1, l=4, m=4, n=16, replicate=m, replicate=n}"},
  {"causal attention: rows know their place",
    function(q, k, v) return ml.nn.attention(q, k, v, {causal = true}) end, {heads, heads, heads},
    "attention ([i,l,j,n],[i,m,j,n],[i,m,j,n])->([i,l,j,n],[i,j,l]) "
    .. "{i=2, j=8, k=1, l=4, m=4, n=16, replicate=m, replicate=n}"},
  {"shard_alike", function(a, b) return (ml.shard_alike(a, b)) end, {{4, 6}, {4, 6}},
    "shard_alike ([i,j],[i,j])->([i,j]) {i=4, j=6}"},
  {"propagation_barrier has none", function(a) return ml.propagation_barrier(a) end, {{4, 6}}},
}

describe("the sharding rule of", function()
  for _, row in ipairs(rows) do
    it(row[1], function()
      assert.same(table.move(row, 4, #row, 1, {}), rules_of(row[2], row[3]))
    end)
  end
end)
