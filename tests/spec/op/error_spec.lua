-- devices: 8
-- error_spec.lua: bad calls of every op raise at the caller's line, with the op's name, the fact and the
-- types,
-- eager and in a trace, and leave nothing broken.
local ml = require "meshlua"
local rows = require "spec.op.rows"
local op = ml.core.op

local f, b, i = ml.zeros {2, 3}, ml.full({2, 3}, true), ml.zeros({2, 3}, "int32")
local vector, scalar, words = ml.zeros {4}, ml.zeros {}, ml.zeros({2, 3}, "uint32")
local qkv = ml.zeros {2, 4, 4, 8}
local lse = ml.zeros {2, 4, 4}
local mesh = ml.make_mesh({4, 2}, {"x", "y"})
local other = ml.make_mesh({8}, {"x"})
local key = ml.random.key(0)

local cases = {} -- op -> list of {code, fact, fn}

local function bad(name, code, fact, fn)
  cases[name] = cases[name] or {}
  table.insert(cases[name], {code, fact, fn})
end

-- ---- families with one rule -------------------------------------------------------------------------

for _, name in ipairs {"neg", "abs", "sign"} do
  bad(name, "E_DTYPE", "takes numbers, not bool (x bool[2,3])", function() return op[name](b) end)
end
for name, def in pairs(rows.ops) do
  if def.elementwise and op[name] and #def.attributes == 0 and def.operands:match "^x" then
    bad(name, "E_VALUE", "expected a tensor or a number, got string", function()
      if def.operands == "x" then return op[name]("four") end
      return op[name]("four", f)
    end)
    bad(name, "E_VALUE", "0 operands given, ", function() return op[name]() end)
  end
  if def.elementwise and def.operands == "x,y" then
    bad(name, "E_SHAPE", "shapes do not broadcast (x int32[2,3], y int32[4])", function()
      return op[name](i, ml.zeros({4}, "int32"))
    end)
  end
end
bad("sub", "E_DTYPE", "takes numbers, not bool; convert with astype (x bool[2,3], y bool[2,3])", function()
  return op.sub(b, b)
end)
for _, name in ipairs {"add", "maximum", "eq", "bitand", "shl"} do
  bad(name, "E_VALUE", "the number 1099511627776 is out of range for int32", function()
    return op[name](i, 1 << 40)
  end)
  bad(name, "E_VALUE", "the number -1 is out of range for uint32", function() return op[name](words, -1) end)
end
for _, name in ipairs {"bitand", "bitor", "bitxor", "shl", "shr", "bitnot"} do
  bad(name, "E_DTYPE", "float32 operands; it takes integers and bool", function()
    if name == "bitnot" then return op[name](f) end
    return op[name](f, f)
  end)
end
for _, name in ipairs {"shl", "shr"} do
  bad(name, "E_DTYPE", "takes integers (x bool[2,3]", function() return op[name](b, b) end)
end
bad("where", "E_SHAPE", "shapes do not broadcast", function() return ml.where(b, f, vector) end)
bad("where", "E_VALUE", "expected a tensor or a number, got nil", function() return ml.where(b, f, nil) end)

-- ---- control, source, casts -------------------------------------------------------------------------

for _, name in ipairs {"identity", "opt_barrier", "copy", "stop_gradient"} do
  bad(name, "E_VALUE", "expected a tensor or a number, got boolean", function() return op[name](true) end)
end
bad("propagation_barrier", "E_VALUE", "expected a tensor, got a boolean", function()
  return ml.propagation_barrier(true)
end)
bad("shard_alike", "E_VALUE", "expected a tensor as y, got a number",
  function() return ml.shard_alike(f, 1) end)
bad("shard_alike", "E_SHAPE", "the shapes differ", function() return ml.shard_alike(f, vector) end)
bad("constrain", "E_SPEC", "3", function()
  return f:constrain(ml.NamedSharding(mesh, ml.P(nil, nil, "x")))
end)
bad("constrain", "E_INDIVISIBLE", "dim 1", function()
  return f:constrain(ml.NamedSharding(mesh, ml.P "x"))
end)
bad("constrain", "E_MESH", "the layout is on Mesh(x=8)", function()
  return ml.zeros({8}):constrain(ml.NamedSharding(mesh, ml.P "x")):constrain(ml.NamedSharding(other,
    ml.P "x"))
end)
bad("full", "E_SHAPE", "has size -2", function() return ml.full({-2, 4}, 0) end)
bad("full", "E_SHAPE", "elements", function() return ml.zeros {1 << 40, 1 << 40} end)
bad("full", "E_VALUE", "dim 2 of the shape is 1.5, not a whole number", function()
  return ml.zeros {2, 1.5}
end)
bad("full", "E_VALUE", "out of range for uint8", function() return ml.full({2}, 256, "uint8") end)
bad("full", "E_VALUE", "whole", function() return ml.full({2}, 0.5, "int32") end)
bad("full", "E_DTYPE", "float33", function() return ml.zeros({2}, "float33") end)
bad("iota", "E_DTYPE", "cannot count in bool", function() return ml.iota({2}, 1, "bool") end)
bad("iota", "E_SHAPE", "dim 3 of a shape of rank 2", function() return ml.iota({2, 2}, 3) end)
bad("iota", "E_VALUE", "256 does not fit in uint8", function() return ml.iota({257}, 1, "uint8") end)
bad("random_bits", "E_DTYPE", "takes uint32 words", function()
  return op.random_bits(i, i, {bits = 32, strides = {3, 1}})
end)
bad("random_bits", "E_VALUE", "bits is 32 or 64", function()
  return op.random_bits(words, words, {bits = 16, strides = {3, 1}})
end)
bad("random_bits", "E_SHAPE", "one stride per dim", function()
  return op.random_bits(words, words, {bits = 32, strides = {1}})
end)
bad("threefry", "E_DTYPE", "takes uint32 words", function() return op.threefry(words, words, words, f) end)
bad("int_pow", "E_VALUE", "exponent -1 is negative", function() return op.int_pow(f, {exponent = -1}) end)
bad("int_pow", "E_DTYPE", "takes numbers, not bool", function() return op.int_pow(b, {exponent = 2}) end)
bad("astype", "E_DTYPE", "float31", function() return f:astype "float31" end)
bad("bitcast", "E_DTYPE", "float32 and int64 are not of one width", function() return f:bitcast "int64" end)
bad("bitcast", "E_DTYPE", "not of one width of 32 or 64 bits", function()
  return f:astype "float16":bitcast "bfloat16"
end)

-- ---- movement ---------------------------------------------------------------------------------------

bad("reshape", "E_SHAPE", "6 elements for a shape of 8 (x float32[2,3])", function()
  return f:reshape(2, 4)
end)
bad("reshape", "E_SHAPE", "4 does not divide 6 elements", function() return f:reshape(4, -1) end)
bad("reshape", "E_SHAPE", "only one dim can be -1", function() return f:reshape(-1, -1) end)
bad("reshape", "E_SHAPE", "dim 2 is -3", function() return f:reshape(-1, -3) end)
bad("transpose", "E_SHAPE", "the axes are not a permutation of 1..2", function() return f:transpose(1, 1) end)
bad("transpose", "E_SHAPE", "3 axes given for a tensor of rank 2", function() return f:transpose(1, 2, 1) end)
bad("transpose", "E_SHAPE", "axis 3 of a tensor of rank 2; axes count from 1", function()
  return f:transpose(3, 1)
end)
bad("transpose", "E_SHAPE", "axis 0 of a tensor of rank 2", function() return f:transpose(0, 1) end)
bad("broadcast", "E_SHAPE", "dim 2 of size 3 does not broadcast to 4", function()
  return f:broadcast {2, 4}
end)
bad("broadcast", "E_SHAPE", "rank 2 to rank 1", function() return f:broadcast {3} end)
bad("slice", "E_SHAPE", "position 3 of dim 1, which has 2; positions count from 1", function()
  return f:slice {1, 3}
end)
bad("slice", "E_SHAPE", "position 0 of dim 1", function() return f:at(0) end)
bad("slice", "E_SHAPE", "3 ranges for rank 2", function() return f:slice(1, 1, 1) end)
bad("slice", "E_VALUE", "the range of dim 1 has ranges in it; each dim's is an argument", function()
  return f:slice {false, {1, 2}}
end)
bad("slice", "E_SHAPE", "the range 3..1 of dim 2 is backwards; use flip", function()
  return f:slice(false, {3, 1})
end)
bad("slice", "E_VALUE", "the step of dim 1 is 0", function() return f:slice {1, 2, 0} end)
bad("flip", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return f:flip(3) end)
bad("flip", "E_SHAPE", "axis -2 is given twice", function() return f:flip {1, -2} end)
bad("pad", "E_SHAPE", "padding leaves dim 1 with size -1", function() return f:pad {{-1, -2}, false} end)
bad("pad", "E_SHAPE", "1 pad for a tensor of rank 2; false leaves a dim alone", function()
  return f:pad {{1, 1}}
end)
bad("pad", "E_DTYPE", "the value must be a scalar of the tensor's dtype", function()
  return op.pad(f, i, {low = {0, 0}, high = {0, 0}, interior = {0, 0}})
end)
bad("concat", "E_SHAPE", "shapes differ beside axis 1", function() return ml.concat {f, ml.zeros {2, 4}} end)
bad("concat", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return ml.concat({f, f}, 3) end)
bad("concat", "E_VALUE", "no tensors", function() return ml.concat {} end)

-- ---- reductions, products, indices ------------------------------------------------------------------

for _, name in ipairs {"sum", "max", "min", "argmax", "argmin"} do
  bad(name, "E_SHAPE", "axis 3 of a tensor of rank 2; axes count from 1", function()
    return ml[name](f, 3)
  end)
  bad(name, "E_SHAPE", "axis 0 of a tensor of rank 2", function() return ml[name](f, 0) end)
end
for _, name in ipairs {"max", "min", "argmax", "argmin"} do
  bad(name, "E_SHAPE", "dim 2 is empty and has no extremum", function()
    return ml[name](ml.zeros {2, 0}, 2)
  end)
end
bad("sum", "E_SHAPE", "axis -1 is given twice", function() return f:sum {2, -1} end)
bad("sum_squares", "E_DTYPE", "takes floats", function() return op.sum_squares(i, {axes = {1}}) end)
bad("sum", "E_VALUE", "an axis is a whole number, not 1.5", function() return f:sum(1.5) end)
for _, name in ipairs {"all", "any"} do
  bad(name, "E_DTYPE", "takes bool (x float32[2,3])", function() return ml[name](f) end)
end
bad("matmul", "E_SHAPE", "inner dims 3 and 2 differ (x float32[2,3], w float32[2,3])", function()
  return ml.matmul(f, f)
end)
bad("matmul", "E_SHAPE", "a scalar operand; use *", function() return ml.matmul(f, scalar) end)
bad("matmul", "E_SHAPE", "batch dims 2 and 3 differ", function()
  return ml.matmul(ml.zeros {2, 4, 4}, ml.zeros {3, 4, 4})
end)
bad("matmul", "E_VALUE", "options must be a table, not a boolean", function()
  return ml.matmul(f, f:T(), true)
end)
bad("matmul", "E_DTYPE", "takes numbers, not bool", function() return ml.matmul(b, b:T()) end)
bad("matmul", "E_SHAPE", "must ascend; transpose an operand", function()
  return op.matmul(f, f:T(), {x_contract = {2, 1}, w_contract = {1, 2}, x_batch = {}, w_batch = {}})
end)
local ids = ml.tensor {0, 1}
local pair = ml.zeros {2}
bad("take", "E_DTYPE", "the ids must be int32, not float32", function() return f:take(f) end)
bad("take", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return f:take(ids, 3) end)
bad("take", "E_SHAPE", "ids of rank 8 from float32[2,3] would make rank 9", function()
  return f:take(ml.zeros({1, 1, 1, 1, 1, 1, 1, 1}, "int32"))
end)
bad("gather", "E_SHAPE", "axes, table and ids must name every dim of x and ids once", function()
  return op.gather(f, ids, {axes = {1}, table = {0}, ids = {1}, size = {2}, outside = "error"})
end)
bad("gather", "E_SHAPE", "the last dim of the ids must have one for each of 2 axes", function()
  return op.gather(f, ml.zeros({4, 3}, "int32"), {axes = {1, 2}, table = {0}, ids = {1}, size = {2, 3},
    outside = "error"})
end)
bad("scatter_add", "E_DTYPE", "the ids must be int32", function() return ml.scatter_add(f, f, 4) end)
bad("scatter_add", "E_SHAPE", "dim 1 of the updates is not dim 1 of the ids", function()
  return ml.scatter_add(ml.tensor {0, 1, 2}, f, 4)
end)
bad("scatter_add", "E_SHAPE", "axis 3 of a tensor of rank 2", function()
  return ml.scatter_add(ids, f, 4, 3)
end)
bad("scatter_add", "E_SHAPE", "the updates must have rank 1", function()
  return op.scatter_add(ids, f, {axes = {1}, table = {0}, ids = {1}, size = {4}, rows = {4},
    outside = "error"})
end)
bad("sort", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return f:sort(3) end)
bad("sort", "E_SHAPE", "shapes differ (keys float32[2,3], values float32[4])", function()
  return f:sort(1, false, vector)
end)

bad("checkpoint_name", "E_VALUE", "the name must be a string, not nil", function()
  return ml.checkpoint_name(f)
end)
bad("top_k", "E_SHAPE", "the 4 largest of 3", function() return f:top_k(4) end)
bad("top_k", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return f:top_k(1, 3) end)
bad("scatter_set", "E_DTYPE", "the ids must be int32", function() return f:scatter_set(f, f) end)
bad("scatter_set", "E_DTYPE", "float32[2,3] into int32[2,3]; astype first", function()
  return i:scatter_set(ids, f)
end)
bad("scatter_set", "E_DTYPE", "1.5 into int32[2,3]; x:astype first", function()
  return i:scatter_set(ids, 1.5)
end)
bad("scatter_set", "E_SHAPE", "the updates are float32[2,3]; at these ids of float32[2,3] they must be "
  .. "[2,2], or stretch to it", function() return f:scatter_set(ids, f, 2) end)
bad("scatter", "E_DTYPE", "dtypes differ", function()
  return op.scatter(pair, ids, ids, {axes = {1}, table = {0}, ids = {1}, size = {2}, outside = "error",
    combine = "set"})
end)
bad("scatter_reduce", "E_VALUE", "set and add are scatter's", function()
  return op.scatter_reduce(pair, ids, pair, {axes = {1}, table = {0}, ids = {1}, size = {2},
    outside = "error", combine = "add"})
end)
bad("at:add", "E_DTYPE", "no arithmetic of bools (x bool[2])", function()
  return ml.zeros({2}, "bool"):at(ids):add(1)
end)
bad("at", "E_SHAPE", "ids for 3 dims of float32[2,3]", function() return f:at(ids, ids, ids) end)
bad("at", "E_VALUE", "beside ids stand ids, or false for a whole dim, not a number", function()
  return f:at(ids, 1)
end)
bad("at", "E_SHAPE", "a mask stands alone and has x's first dims", function()
  return f:at(ml.zeros({3}, "bool"))
end)
bad("at:get", "E_SHAPE", "how many a mask marks is not known", function() return f:at(f:gt(0)):get() end)
bad("at:get", "E_SHAPE", "ids of shapes [2] and [3] do not stretch to one", function()
  return f:at(ids, ml.tensor {0, 1, 2}):get()
end)
bad("at:get", "E_VALUE", "mode", function() return f:at(ids):get("nearest") end)
bad("segment_sum", "E_SHAPE", "the ids must have x's first dims (x float32[2,3], ids int32[3])", function()
  return ml.segment_sum(f, ml.tensor {0, 1, 2}, 2)
end)
bad("segment_max", "E_VALUE", "-1 segments", function() return ml.segment_max(f, ids, -1) end)
bad("searchsorted", "E_SHAPE", "float32[2,3] is no vector", function() return ml.searchsorted(f, 1.0) end)
bad("nonzero", "E_SHAPE", "has no dims", function() return ml.nonzero(scalar, 1) end)
bad("nonzero", "E_VALUE", "the size is -1", function() return ml.nonzero(f, -1) end)
bad("unique", "E_SHAPE", "has no elements; give fill", function() return ml.unique(ml.zeros {0}, 1) end)
bad("compress", "E_SHAPE", "the mask must have the 2 of dim 1 of x", function()
  return f:compress(ml.zeros({3}, "bool"), 1)
end)
bad("lexsort", "E_VALUE", "no keys", function() return ml.lexsort {} end)
bad("lexsort", "E_SHAPE", "key 2 is float32[2], key 1 float32[2,3]", function()
  return ml.lexsort {f, pair}
end)
bad("scatter_set", "E_SHAPE", "axis 3 of a tensor of rank 2", function() return f:scatter_set(ids, f, 3) end)
for _, name in ipairs {"cumsum", "cumprod", "cummax", "cummin"} do
  bad(name, "E_SHAPE", "axis 3 of a tensor of rank 2", function() return ml[name](f, 3) end)
  bad(name, "E_DTYPE", "takes numbers, not bool", function() return op[name](b, {axis = 1}) end)
end
bad("dynamic_slice", "E_SHAPE", "1 start and 2 sizes for a tensor of rank 2", function()
  return f:dynamic_slice({1}, {1, 1})
end)
bad("dynamic_slice", "E_SHAPE", "4 of dim 2, which has 3", function()
  return f:dynamic_slice({0, 0}, {1, 4})
end)
bad("dynamic_slice", "E_VALUE", "expected a whole number or an integer scalar", function()
  return f:dynamic_slice({0, f}, {1, 1})
end)
bad("dynamic_slice", "E_DTYPE", "the starts must be int32, not float32", function()
  return op.dynamic_slice(f, pair, {dims = {1, 1}})
end)
bad("dynamic_slice", "E_SHAPE", "one start and one size per dim", function()
  return op.dynamic_slice(f, ids, {dims = {1}})
end)
bad("dynamic_update_slice", "E_DTYPE", "int32[2,3] into float32[2,3]", function()
  return f:dynamic_update_slice(i, {0, 0})
end)
bad("dynamic_update_slice", "E_DTYPE", "dtypes differ", function()
  return op.dynamic_update_slice(f, i, ids, {})
end)
bad("dynamic_update_slice", "E_SHAPE", "3 of dim 1, which has 2", function()
  return f:dynamic_update_slice(ml.zeros {3, 3}, {0, 0})
end)

local image, kernel = ml.zeros {2, 4, 4, 6}, ml.zeros {3, 3, 6, 8}
local plain = {strides = {1, 1}, low = {0, 0}, high = {0, 0}, x_dilation = {1, 1}, w_dilation = {1, 1},
  window = {3, 3}, groups = 1}
bad("conv", "E_SHAPE", "expected [batch, spatial..., in] and [spatial..., in, out]", function()
  return ml.conv(f, f)
end)
bad("conv", "E_SHAPE", "x has 6 features, the kernel 6 in each of 2 groups", function()
  return ml.conv(image, kernel, {groups = 2})
end)
bad("conv", "E_SHAPE", "8 features of the result in 3 groups", function()
  return ml.conv(image, ml.zeros {3, 3, 2, 8}, {groups = 3})
end)
bad("conv", "E_SHAPE", "3 strides for 2 dims", function()
  return ml.conv(image, kernel, {strides = {1, 1, 1}})
end)
bad("conv", "E_VALUE", "a stride, pad, dilation or window of 0", function()
  return ml.conv(image, kernel, {strides = 0})
end)
bad("conv", "E_VALUE", "padding 'full'; it is 'same', 'valid' or a {low, high} for each dim", function()
  return ml.conv(image, kernel, {padding = "full"})
end)
bad("conv", "E_VALUE", "'same' of a dilated input says too little", function()
  return ml.conv(image, kernel, {padding = "same", input_dilation = 2})
end)
bad("conv", "E_DTYPE", "takes floats", function() return op.conv(i:reshape {1, 2, 3}, i:reshape {1, 3, 2},
  {strides = {1}, low = {0}, high = {0}, x_dilation = {1}, w_dilation = {1}, groups = 1}) end)
bad("conv_grad_kernel", "E_SHAPE", "dy is not what this convolution of x gives", function()
  return op.conv_grad_kernel(image, image, plain)
end)

local pool = {window = {1, 2}, strides = {1, 1}, low = {0, 0}, high = {0, 0}}
for _, kind in ipairs {"max", "sum"} do
  bad("reduce_window_" .. kind, "E_SHAPE", "3 windows for 2 dims", function()
    return ml.reduce_window(f, kind, {1, 1, 1})
  end)
  bad("reduce_window_" .. kind, "E_VALUE", "dim 2 has a window, stride or pad of 0", function()
    return ml.reduce_window(f, kind, {1, 2}, {strides = {1, 0}})
  end)
  bad("reduce_window_" .. kind, "E_DTYPE", "takes numbers, not bool", function()
    return ml.reduce_window(b, kind, {1, 2})
  end)
end
for _, name in ipairs {"select_and_scatter_add", "select_and_gather_add"} do
  bad(name, "E_SHAPE", "the second must have the dims of", function() return op[name](f, vector, pool) end)
  bad(name, "E_DTYPE", "takes floats", function() return op[name](i, i, pool) end)
end

-- ---- fused ops --------------------------------------------------------------------------------------

local empty = ml.zeros {2, 0}
for _, name in ipairs {"softmax", "log_softmax"} do
  bad(name, "E_SHAPE", "needs a last dim of at least one element", function() return op[name](empty) end)
  bad(name, "E_SHAPE", "axis 3 of a tensor of rank 2", function() return ml[name](f, 3) end)
end
bad("softmax_grad", "E_SHAPE", "shapes differ (y float32[2,3], dy float32[4])", function()
  return op.softmax_grad(f, vector)
end)
bad("softmax_grad", "E_DTYPE", "takes floats", function() return op.softmax_grad(i, i) end)
bad("softmax_cross_entropy", "E_DTYPE", "labels must be int32", function()
  return op.softmax_cross_entropy(f, f)
end)
bad("softmax_cross_entropy", "E_DTYPE", "logits must be floats", function()
  return op.softmax_cross_entropy(i, ids)
end)
bad("softmax_cross_entropy", "E_SHAPE", "labels must have the logits' dims less the last", function()
  return op.softmax_cross_entropy(f, ml.tensor {0, 1, 2})
end)
bad("softmax_cross_entropy_grad", "E_SHAPE", "shapes differ", function()
  return op.softmax_cross_entropy_grad(f, ids, pair, vector)
end)
local eps = {eps = 1e-5}
local scale = ml.zeros {3}
bad("layer_norm", "E_SHAPE", "scale and bias must have the last dim of x", function()
  return op.layer_norm(f, vector, scale, eps)
end)
bad("layer_norm", "E_DTYPE", "takes floats", function() return op.layer_norm(i, scale, scale, eps) end)
bad("layer_norm", "E_DTYPE", "dtypes differ", function()
  return op.layer_norm(f, scale:astype "float16", scale, eps)
end)
bad("layer_norm_grad", "E_SHAPE", "scale and bias", function()
  return op.layer_norm_grad(f, f, scale, f, f, eps)
end)
bad("layer_norm_grad", "E_SHAPE", "scale and bias", function()
  return op.layer_norm_grad(f, f, scale, pair, scale, eps)
end)
bad("rms_norm", "E_SHAPE", "needs a last dim", function() return op.rms_norm(scalar, scale, eps) end)
bad("rms_norm_grad", "E_DTYPE", "dtypes differ", function()
  return op.rms_norm_grad(f, f:astype "float64", scale, pair, eps)
end)
bad("rms_norm_grad", "E_SHAPE", "scale and bias", function()
  return op.rms_norm_grad(f, f, scale, f, eps)
end)
local attr = {scale = 1.0, causal = false}
bad("attention", "E_SHAPE", "takes [batch, length, heads, head size]", function()
  return op.attention(f, f, f, attr)
end)
bad("attention", "E_SHAPE", "q, k and v do not fit together", function()
  return op.attention(qkv, ml.zeros {2, 4, 4, 4}, ml.zeros {2, 4, 4, 4}, attr)
end)
bad("attention", "E_SHAPE", "4 query heads for 3 key heads", function()
  return op.attention(qkv, ml.zeros {2, 4, 3, 8}, ml.zeros {2, 4, 3, 8}, attr)
end)
bad("attention", "E_SHAPE", "causal attention needs as many keys as queries", function()
  return op.attention(qkv, ml.zeros {2, 3, 4, 8}, ml.zeros {2, 3, 4, 8}, {scale = 1.0, causal = true})
end)
bad("attention", "E_DTYPE", "takes floats, k and v of one dtype", function()
  return op.attention(qkv, qkv, qkv:astype "float64", attr)
end)
bad("attention_grad", "E_SHAPE", "shapes differ", function()
  return op.attention_grad(qkv, qkv, qkv, qkv, qkv, qkv, attr)
end)
bad("attention_grad", "E_DTYPE", "takes floats, k and v of one dtype", function()
  return op.attention_grad(qkv, qkv, qkv:astype "int32", qkv, lse, qkv, attr)
end)
local masked = {scale = 1.0, mask = true, dropout = true, keep = 0.5, strides = {36, 9, 3, 1}}
local dropped = ml.random.key(0)
local sees = ml.full({2, qkv.shape[3], qkv.shape[2], qkv.shape[2]}, true)
bad("attention", "E_DTYPE", "the mask must be bool", function()
  return op.attention(qkv, qkv, qkv, ml.zeros {2, 4, 4, 4}, dropped, masked)
end)
bad("attention", "E_SHAPE", "the mask must be [batch, heads, length, keys]", function()
  return op.attention(qkv, qkv, qkv, ml.full({2, 4, 1, 1}, true), dropped, masked)
end)
bad("attention", "E_VALUE", "keeps a share of 0", function()
  return op.attention(qkv, qkv, qkv, sees, dropped,
    {scale = 1.0, mask = true, dropout = true, keep = 0.0, strides = {36, 9, 3, 1}})
end)
bad("attention_grad", "E_DTYPE", "the key must be uint32[2]", function()
  return op.attention_grad(qkv, qkv, qkv, qkv, lse, qkv,
    sees, f, masked)
end)
local rope = {base = 1e4, sign = 1.0}
bad("rope", "E_DTYPE", "takes floats and int32 positions", function() return op.rope(qkv, vector, rope) end)
bad("rope", "E_SHAPE", "takes [..., length, heads, even size] and one position each", function()
  return op.rope(ml.zeros {4, 4, 3}, ml.arange(4), rope)
end)
bad("rope", "E_SHAPE", "one position each", function() return op.rope(qkv, ml.arange(5), rope) end)
bad("dropout", "E_DTYPE", "the key must be uint32[2]", function()
  return op.dropout(f, words, {keep = 0.5, strides = {3, 1}})
end)
bad("dropout", "E_VALUE", "keeps a share of 0; it must be in (0, 1]", function()
  return op.dropout(f, key, {keep = 0.0, strides = {3, 1}})
end)
bad("dropout", "E_DTYPE", "takes floats", function()
  return op.dropout(i, key, {keep = 0.5, strides = {3, 1}})
end)
local hyper = {b1 = 0.9, b2 = 0.99, eps = 1e-8, eps_root = 0.0, decay = 0.0}
bad("adamw", "E_SHAPE", "parameter, gradient and moments differ", function()
  return op.adamw(f, vector, f, f, scalar, scalar, scalar, hyper)
end)
bad("adamw", "E_SHAPE", "lr, step and clip must be scalars", function()
  return op.adamw(f, f, f, f, f, scalar, scalar, hyper)
end)
bad("adamw", "E_DTYPE", "takes floats", function()
  return op.adamw(f, i, f, f, scalar, scalar, scalar, hyper)
end)

for _, row in ipairs(rows) do
  for _, case in ipairs(row.bad or {}) do bad(row.op, table.unpack(case)) end
end

-- ---- the checks -------------------------------------------------------------------------------------

--- fn raises "spec:line: [CODE] name: ... fact ...", with a line of fn's own.
local function check(name, code, fact, fn, run)
  local ok, message = pcall(run)
  if ok then error(("%s: it did not raise (%s)"):format(name, fact)) end
  local own = debug.getinfo(fn, "S")
  local chunk, line, found, text = tostring(message):match "^(.-):(%d+): %[(E_%u+)%] (.*)$"
  if not chunk then error("no place and code in: " .. tostring(message)) end
  line = tonumber(line)
  if chunk ~= own.short_src or line < own.linedefined or line > own.lastlinedefined then
    error(("blamed on %s:%d instead of lines %d-%d: %s"):format(chunk, line, own.linedefined,
      own.lastlinedefined,
      message))
  end
  assert.equal(code, found, message)
  assert.truthy(text:find(fact, 1, true), ("'%s' is not in: %s"):format(fact, message))
end

local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)

describe("a bad call of", function()
  for _, name in ipairs(names) do
    it(name, function()
      for _, case in ipairs(cases[name]) do
        local code, fact, fn = table.unpack(case)
        check(name, code, fact, fn, fn)
        check(name .. " in a trace", code, fact, fn, ml.jit(function() return fn() end))
      end
      assert.equal(3, ml.add(1, 2):item())
    end)
  end

  it("is tried for every op", function()
    for name in pairs(rows.ops) do
      if not rows.made_by_passes[name] and not cases[name] then
        error(("no bad call of '%s': give a case row of it in tests/spec/op/cases a list `bad` (rows.lua)")
          :format(name))
      end
    end
  end)
end)
