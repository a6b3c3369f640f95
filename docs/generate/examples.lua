-- examples.lua: an example for each public name that has one: an expression, or statements that print. generate/api.lua
-- runs them, each with fresh variables: ml, nn, optim, P, NamedSharding, mesh, key and x, as its pages say.
return {
  -- ---- tensors --------------------------------------------------------------------------------------
  abs = "ml.tensor({1, -2}):abs()",
  acos = "ml.tensor({1.0, 0.0}):acos()",
  acosh = "ml.tensor({1.0, 2.0}):acosh()",
  add = "x:add(10)",
  all = "x:gt(0):all()",
  allclose = "ml.tensor({1.0, 2.0}):allclose(ml.tensor {1.0, 2.000001})",
  any = "x:gt(5):any(2)",
  argmax = "x:argmax(2)",
  argmin = "x:argmin()",
  argsort = "ml.tensor({3, 1, 2}):argsort()",
  array_split = "#ml.arange(5):array_split(2)",
  asin = "ml.tensor({0.0, 1.0}):asin()",
  asinh = "ml.tensor({0.0, 1.0}):asinh()",
  astype = 'ml.tensor({1.7, -1.7}):astype "int32"',
  at = "x:at(2)",
  bincount = "ml.tensor({0, 1, 1, 3}):bincount()",
  bitand = "ml.tensor({6, 3}):bitand(2)",
  bitcast = 'ml.tensor({1.0}):bitcast "uint32"',
  bitnot = "ml.tensor({0, 5}):bitnot()",
  bitor = "ml.tensor({4, 1}):bitor(2)",
  bitxor = "ml.tensor({6, 3}):bitxor(2)",
  broadcast = "ml.tensor({1, 2}):broadcast {3, 2}",
  ceil = "ml.tensor({1.2, -1.2}):ceil()",
  clip = "x:clip(2, 5)",
  compress = "x:compress(ml.tensor {false, true}, 2)",
  conv = "ml.ones({1, 4, 1}):conv(ml.ones {2, 1, 1}).shape",
  cos = "ml.tensor({0.0, math.pi}):cos()",
  cosh = "ml.tensor({0.0, 1.0}):cosh()",
  cummax = "ml.tensor({1, 3, 2}):cummax(1)",
  cummin = "ml.tensor({2, 3, 1}):cummin(1)",
  cumprod = "ml.tensor({1, 2, 3}):cumprod(1)",
  cumsum = "ml.tensor({1, 2, 3}):cumsum(1, {reverse = true})",
  diag = "ml.tensor({1, 2}):diag()",
  diagonal = "x:diagonal(1)",
  diff = "ml.tensor({1, 4, 9}):diff()",
  digamma = "ml.tensor({1.0, 2.0}):digamma()",
  div = "x:div(2)",
  dot = "ml.tensor({1, 2}):dot(ml.tensor {3, 4})",
  dynamic_slice = "x:dynamic_slice({0, 1}, {2, 2})",
  dynamic_update_slice = "x:dynamic_update_slice(ml.zeros {1, 2}, {1, 1})",
  eq = "x:eq(2)",
  erf = "ml.tensor({0.0, 1.0}):erf()",
  erf_inv = "ml.tensor({0.0, 0.5}):erf_inv()",
  erfc = "ml.tensor({0.0, 2.0}):erfc()",
  exp = "ml.tensor({0.0, 1.0}):exp()",
  exp2 = "ml.tensor({0.0, 3.0}):exp2()",
  expand_dims = "x:expand_dims(1).shape",
  expm1 = "ml.tensor({0.0, 1.0}):expm1()",
  flip = "x:flip(2)",
  floor = "ml.tensor({1.2, -1.2}):floor()",
  floor_divide = "ml.tensor({7, -7}):floor_divide(2)",
  fmod = "ml.tensor({7, -7}):fmod(3)",
  full_like = "x:full_like(7)",
  ge = "x:ge(3)",
  gt = "x:gt(3)",
  histogram = "(ml.tensor({1, 2, 2, 5}):histogram(4))",
  hypot = "ml.tensor({3.0}):hypot(4.0)",
  interp = "ml.tensor({0.5}):interp(ml.tensor {0.0, 1.0}, ml.tensor {10.0, 20.0})",
  isclose = "ml.tensor({1.0, 2.0}):isclose(ml.tensor {1.0, 2.1})",
  isfinite = "ml.tensor({1.0, 1 / 0, 0 / 0}):isfinite()",
  isinf = "ml.tensor({1.0, 1 / 0}):isinf()",
  isnan = "ml.tensor({1.0, 0 / 0}):isnan()",
  kron = "ml.tensor({1, 2}):kron(ml.tensor {1, 10})",
  le = "x:le(3)",
  log = "ml.tensor({1.0, 2.0}):log()",
  log10 = "ml.tensor({1.0, 1000.0}):log10()",
  log1p = "ml.tensor({0.0, 1.0}):log1p()",
  log2 = "ml.tensor({1.0, 8.0}):log2()",
  log_softmax = "x:log_softmax()",
  logaddexp = "ml.tensor({1000.0}):logaddexp(1000.0)",
  logit = "ml.tensor({0.5, 0.75}):logit()",
  logsumexp = "x:logsumexp(2)",
  lt = "x:lt(3)",
  matmul = "x:matmul(x:T())",
  max = "x:max(1)",
  maximum = "x:maximum(3)",
  mean = "x:mean(2)",
  median = "ml.tensor({1, 9, 2}):median()",
  min = "x:min {axes = 1, keepdims = true}",
  minimum = "x:minimum(3)",
  mod = "ml.tensor({7, -7}):mod(3)",
  moveaxis = "ml.zeros({2, 3, 4}):moveaxis(1, -1).shape",
  mul = "x:mul(x)",
  nan_to_num = "ml.tensor({1.0, 0 / 0}):nan_to_num()",
  nanmax = "ml.tensor({1.0, 0 / 0}):nanmax()",
  nanmean = "ml.tensor({1.0, 0 / 0, 3.0}):nanmean()",
  nanmin = "ml.tensor({1.0, 0 / 0}):nanmin()",
  nanprod = "ml.tensor({2.0, 0 / 0, 3.0}):nanprod()",
  nansum = "ml.tensor({1.0, 0 / 0, 3.0}):nansum()",
  ne = "x:ne(2)",
  neg = "x:neg()",
  one_hot = "ml.tensor({0, 2}):one_hot(3)",
  ones_like = 'x:ones_like "int32"',
  outer = "ml.tensor({1, 2}):outer(ml.tensor {3, 4})",
  pad = "x:pad {{0, 1}, {1, 0}}",
  nonzero = "x:gt(3):nonzero(4)",
  polygamma = "ml.polygamma(1, ml.tensor {1.0, 2.0})",
  pow = "x:pow(2)",
  put_along_axis = "x:put_along_axis(ml.tensor {{2}, {0}}, 9, 2)",
  prod = "x:prod(2)",
  quantile = "ml.tensor({1, 2, 3, 4}):quantile(0.25)",
  reduce_window = 'ml.tensor({1.0, 3, 2, 4}):reduce_window("max", {2}, {strides = {2}})',
  rem = "ml.tensor({7, -7}):rem(3)",
  repeat_interleave = "ml.tensor({1, 2}):repeat_interleave(2)",
  reshape = "x:reshape(3, -1)",
  roll = "ml.tensor({1, 2, 3}):roll(1)",
  round = "ml.tensor({0.5, 1.5, 2.4}):round()",
  rsqrt = "ml.tensor({4.0, 16.0}):rsqrt()",
  scatter_set = "x:scatter_set(ml.tensor {1}, ml.zeros {1, 3})",
  shl = "ml.tensor({1, 2}):shl(3)",
  shr = "ml.tensor({8, 9}):shr(1)",
  sigmoid = "ml.tensor({0.0, 2.0}):sigmoid()",
  sign = "ml.tensor({-2.0, 0.0, 3.0}):sign()",
  sin = "ml.tensor({0.0, math.pi / 2}):sin()",
  sinh = "ml.tensor({0.0, 1.0}):sinh()",
  slice = "x:slice(2, {1, 2})",
  softmax = "x:softmax()",
  sort = "ml.tensor({3, 1, 2}):sort {descending = true}",
  sqrt = "ml.tensor({4.0, 9.0}):sqrt()",
  square = "x:square()",
  squeeze = "x:expand_dims(1):squeeze().shape",
  std = "x:std(2)",
  stop_gradient = "ml.grad(function(t) return (t * t:stop_gradient()):sum() end)(x)",
  sub = "x:sub(1)",
  sum = "x:sum(1)",
  swapaxes = "x:swapaxes(1, 2)",
  T = "x:T()",
  searchsorted = "ml.tensor({1.0, 2.0, 2.0, 4.0}):searchsorted(ml.tensor {2.0, 3.0, 9.0})",
  segment_max = "x:segment_max(ml.tensor {1, 1}, 2)",
  segment_min = "x:segment_min(ml.tensor {1, 1}, 2)",
  segment_prod = "ml.tensor({2, 3, 4}):segment_prod(ml.tensor {0, 1, 0}, 2)",
  segment_sum = "ml.tensor({2, 3, 4}):segment_sum(ml.tensor {0, 1, 0}, 2)",
  take = "x:take(ml.tensor {2, 0}, 2)",
  take_along_axis = "x:take_along_axis(ml.tensor {{2}, {0}}, 2)",
  tan = "ml.tensor({0.0, 1.0}):tan()",
  tanh = "ml.tensor({0.0, 1.0}):tanh()",
  tensordot = "x:tensordot(x, {{1, 2}, {1, 2}})",
  tile = "ml.tensor({1, 2}):tile(2)",
  top_k = "x:top_k(2)",
  trace = "ml.tensor({{1, 2}, {3, 4}}):trace()",
  transpose = "x:transpose(2, 1).shape",
  tril = "ml.ones({3, 3}):tril()",
  triu = "ml.ones({3, 3}):triu(1)",
  trunc = "ml.tensor({1.7, -1.7}):trunc()",
  var = "x:var {axes = 2, ddof = 1}",
  xlogy = "ml.tensor({0.0, 2.0}):xlogy(ml.tensor {0.0, 3.0})",
  zeros_like = "x:zeros_like()",
  unique = "ml.tensor({3, 1, 3, 2}):unique(3)",
  ["At:get"] = "x:at(ml.tensor {0, -1}, ml.tensor {2, 0}):get()",
  ["At:set"] = "x:at(ml.tensor {0, -1}, ml.tensor {2, 0}):set(9)",
  ["At:add"] = "x:at(ml.tensor {1, 1}):add(10)",
  ["At:mul"] = "x:at(false, ml.tensor {0, 2}):mul(10)",
  ["At:max"] = "x:at(x:lt(3)):max(2)",
  ["At:min"] = "x:at(ml.tensor {0, 7}):min(2, \"drop\")",
  ["Tensor:split"] = "x:split(3, 2)",
  ["Tensor:constrain"] = 'ml.ones({8, 4}):constrain(NamedSharding(mesh, P("data", nil))).sharding',
  ["Tensor:block_until_ready"] = "x:block_until_ready()",
  ["Tensor:addressable_data"] = "x:addressable_data(1).shape",
  ["Tensor:addressable_shards"] =
    "#ml.device_put(ml.arange(8), NamedSharding(mesh, P \"data\")):addressable_shards()",
  ["Tensor:global_shards"] = "#ml.device_put(ml.arange(8), NamedSharding(mesh, P \"data\")):global_shards()",
  ["Tensor:bytes"] = "#x:bytes()",
  ["Tensor:is_deleted"] = "x:is_deleted()",
  ["Tensor:is_traced"] = "x:is_traced()",
  ["Tensor:item"] = "x:sum():item()",
  ["Tensor:on_device_size_in_bytes"] = "x:on_device_size_in_bytes()",
  ["Tensor:release"] = "x:release() print(x)",
  ["Tensor:totable"] = "x:totable()",
  ["Param:get"] = "nn.Param(x):get().shape",
  ["Param:set"] = "nn.Param(x):set(x * 2)",
  ["Tensor:address"] = "math.type(x:address())",
  -- ---- making them ----------------------------------------------------------------------------------
  arange = "ml.arange(2, 8, 2)",
  concat = "ml.concat({x, x}, 2)",
  einsum = 'ml.einsum("ij,kj->ik", x, x)',
  eye = "ml.eye(2, 3)",
  full = "ml.full({2}, 7)",
  iota = "ml.iota({2, 3}, 2)",
  lexsort = "ml.lexsort {ml.tensor {1, 0, 0}, ml.tensor {2, 3, 2}}",
  lgamma = "ml.tensor({1.0, 5.0}):lgamma()",
  linspace = "ml.linspace(0, 1, 5)",
  logspace = "ml.logspace(0, 3, 4)",
  meshgrid = "ml.meshgrid({ml.arange(2), ml.arange(3)})[1]",
  ones = "ml.ones {2, 3}",
  scatter_add = "ml.scatter_add(ml.tensor {0, 2, 0}, ml.tensor {1.0, 2, 3}, 4)",
  stack = "ml.stack({x, x}).shape",
  tensor = "ml.tensor {{1, 2}, {3, 4}}",
  where = "ml.where(x:gt(3), x, 0)",
  zeros = 'ml.zeros({2, 2}, "int32")',
  ["linalg.cholesky"] = "ml.linalg.cholesky(ml.tensor {{4.0, 2}, {2, 5}})",
  ["linalg.det"] = "ml.linalg.det(ml.tensor {{4.0, 2}, {2, 5}})",
  ["linalg.eigh"] = "(ml.linalg.eigh(ml.tensor {{2.0, 1}, {1, 2}}))",
  ["linalg.inv"] = "ml.linalg.inv(ml.tensor {{2.0, 0}, {0, 4}})",
  ["linalg.lu"] = "ml.linalg.lu(ml.tensor {{1.0, 2}, {4, 4}})",
  ["linalg.qr"] = "ml.linalg.qr(ml.tensor {{3.0, 0}, {4, 5}}, \"r\").shape",
  ["linalg.slogdet"] = "ml.linalg.slogdet(ml.tensor {{0.0, 1}, {1, 0}})",
  ["linalg.solve"] = "ml.linalg.solve(ml.tensor {{2.0, 0}, {0, 4}}, ml.tensor {2.0, 4})",
  ["linalg.svd"] = "ml.linalg.svd(ml.tensor {{3.0, 0}, {0, 4}}, {compute_uv = false})",
  ["linalg.triangular_solve"] =
    "ml.linalg.triangular_solve(ml.tensor {{2.0, 0}, {1, 4}}, ml.tensor {2.0, 5}, true, true)",
  ["random.bernoulli"] = "ml.random.bernoulli(key, 0.5, {4})",
  ["random.beta"] = "ml.random.beta(key, 2.0, 3.0, {3})",
  ["random.bits"] = "ml.random.bits(key, {2}, 8).dtype",
  ["random.categorical"] = "ml.random.categorical(key, ml.tensor {0.0, 100.0}, -1, {3})",
  ["random.choice"] = "ml.random.choice(key, ml.tensor {10, 20, 30}, {2}, false)",
  ["random.debug_key_reuse"] = "ml.random.debug_key_reuse(false)",
  ["random.dirichlet"] = "ml.random.dirichlet(key, ml.tensor {1.0, 2.0})",
  ["random.exponential"] = "ml.random.exponential(key, {3})",
  ["random.fold_in"] = "ml.random.fold_in(key, 7).shape",
  ["random.gamma"] = "ml.random.gamma(key, 2.5, {3})",
  ["random.gumbel"] = "ml.random.gumbel(key, {3}).shape",
  ["random.key"] = "ml.random.key(7)",
  ["random.keys"] = "#ml.random.keys(key, 3)",
  ["random.laplace"] = "ml.random.laplace(key, {3})",
  ["random.loggamma"] = "ml.random.loggamma(key, 1e-3, {3})",
  ["random.multivariate_normal"] = "ml.random.multivariate_normal(key, ml.zeros(2), ml.eye(2)).shape",
  ["random.normal"] = "ml.random.normal(key, {3})",
  ["random.permutation"] = "ml.random.permutation(key, 5)",
  ["random.poisson"] = "ml.random.poisson(key, 4.0, {3})",
  ["random.randint"] = "ml.random.randint(key, {3}, 0, 10)",
  ["random.split"] = "ml.random.split(key, 3).shape",
  ["random.truncated_normal"] = "ml.random.truncated_normal(key, -1, 1, {3})",
  ["random.uniform"] = "ml.random.uniform(key, {3})",
  -- ---- shardings ------------------------------------------------------------------------------------
  AbstractMesh = 'ml.AbstractMesh({512, 8}, {"data", "model"})',
  Mesh = 'ml.Mesh({{0, 1}, {2, 3}}, {"data", "model"})',
  NamedSharding = 'NamedSharding(mesh, P("data", "model"))',
  P = 'P({"data", "model"}, nil)',
  ShapeDtypeStruct = 'ml.ShapeDtypeStruct({8, 4}, "float32", NamedSharding(mesh, P "data"))',
  all_gather = [[
local f = ml.shard_map(function(t) return ml.all_gather(t, "data", {tiled = true}) end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P "data"})
print(f(ml.arange(8)).shape)]],
  all_gather_to_host = 'ml.all_gather_to_host(ml.device_put(ml.arange(8), NamedSharding(mesh, P "data")))',
  axis_index = [[
local f = ml.shard_map(function() return ml.axis_index "data":reshape(1) end,
  {mesh = mesh, in_specs = {}, out_specs = P "data"})
print(f())]],
  axis_size = [[
local f = ml.shard_map(function(t) return t * ml.axis_size "data" end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P "data"})
print(f(ml.ones {4}))]],
  block_until_ready = "ml.block_until_ready(x)",
  config = "ml.config {passes = {bucket = false}} ml.config {passes = {bucket = \"default\"}}",
  constrain = 'ml.constrain(ml.ones {8, 4}, NamedSharding(mesh, P("data", nil))).sharding.spec',
  device_count = "ml.device_count()",
  device_put = 'ml.device_put(x, NamedSharding(mesh, P("model", nil)))',
  device_put_replicated = "ml.device_put_replicated(x, {0, 1})",
  devices = "ml.devices()",
  get_mesh = "ml.get_mesh()",
  get_named_sharding = [[
local function make(rngs) return nn.Linear(4, 8, {axes = P(nil, "model"), rngs = rngs}) end
local model = ml.init(make, {mesh = mesh})
print(ml.get_named_sharding(model).kernel)]],
  get_partition_spec = [[
local function make(rngs) return nn.Linear(4, 8, {axes = P(nil, "model"), rngs = rngs}) end
local model = ml.init(make, {mesh = mesh})
print(ml.get_partition_spec(model).kernel)]],
  local_device_count = "ml.local_device_count()",
  local_devices = "#ml.local_devices()",
  make_array_from_callback = [[
ml.make_array_from_callback({8}, NamedSharding(mesh, P "data"), function(index)
  return {index[1][1], index[1][2]}
end)]],
  make_array_from_process_local_data =
    'ml.make_array_from_process_local_data(NamedSharding(mesh, P "data"), ml.arange(8))',
  make_array_from_single_device_arrays = [[
local shards = {}
for i = 1, 8 do shards[i] = ml.device_put(ml.full({1}, i), i - 1) end
print(ml.make_array_from_single_device_arrays({8}, NamedSharding(mesh, P {"data", "model"}), shards))]],
  make_mesh = 'ml.make_mesh({4, 2}, {"data", "model"})',
  pmap = "ml.pmap(function(t) return t * 2 end)(ml.arange(8):reshape(8, 1)).shape",
  pmean = [[
local f = ml.shard_map(function(t) return ml.pmean(t, "data") end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P()})
print(f(ml.arange(4.0)))]],
  psum = [[
local f = ml.shard_map(function(t) return ml.psum(t, "data") end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P()})
print(f(ml.arange(4.0)))]],
  pmax = [[
local f = ml.shard_map(function(t) return ml.pmax(t, "data") end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P()})
print(f(ml.arange(4)))]],
  pmin = [[
local f = ml.shard_map(function(t) return ml.pmin(t, "data") end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P()})
print(f(ml.arange(4)))]],
  ppermute = [[
local f = ml.shard_map(function(t) return ml.ppermute(t, "data", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}) end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P "data"})
print(f(ml.arange(4)))]],
  psum_scatter = [[
local f = ml.shard_map(function(t) return ml.psum_scatter(t, "data", {tiled = true}) end,
  {mesh = mesh, in_specs = {P()}, out_specs = P "data"})
print(f(ml.arange(4.0)))]],
  all_to_all = [[
local f = ml.shard_map(function(t) return ml.all_to_all(t, "data", 2, 1, {tiled = true}) end,
  {mesh = mesh, in_specs = {P("data", nil)}, out_specs = P(nil, "data")})
print(f(ml.arange(16):reshape(4, 4)).sharding.spec)]],
  process_count = "ml.process_count()",
  process_index = "ml.process_index()",
  propagation_barrier = "ml.propagation_barrier(x).shape",
  shard_alike = "local a, b = ml.shard_alike(x, x * 2)\nprint(a.sharding == b.sharding)",
  shard_map = [[
local f = ml.shard_map(function(block) return block:sum():reshape(1) end,
  {mesh = mesh, in_specs = {P "data"}, out_specs = P "data"})
print(f(ml.arange(8)))]],
  typeof = 'ml.typeof {x, 1, ml.device_put(ml.arange(8), NamedSharding(mesh, P "data"))}',
  ["Mesh:with"] = [[
mesh:with({{"batch", "data"}}, function()
  print(ml.ones({8, 4}):constrain({"batch", false}).sharding.spec)
end)]],
  ["NamedSharding:addressable_devices_indices_map"] =
    'NamedSharding(mesh, P "data"):addressable_devices_indices_map({8})[0]',
  ["NamedSharding:devices_indices_map"] = 'NamedSharding(mesh, P "data"):devices_indices_map({8})[7]',
  ["NamedSharding:check"] = 'NamedSharding(mesh, P "data"):check({8}, "x")',
  ["NamedSharding:is_equivalent_to"] =
    'NamedSharding(mesh, P "data"):is_equivalent_to(NamedSharding(mesh, P("data", nil)), 2)',
  ["NamedSharding:shard_shape"] = 'NamedSharding(mesh, P("data", "model")):shard_shape {8, 8}',
  ["P:update"] = 'P("data", nil):update {partitions = {false, "model"}}',
  atan = "ml.tensor({0.0, 1.0}):atan()",
  atan2 = "ml.tensor({1.0, -1.0}):atan2(-1.0)",
  atanh = "ml.tensor({0.0, 0.5}):atanh()",
  auto_axes = [[
local explicit = ml.make_mesh({8}, {"data"}, {axis_types = "explicit"})
local twice = ml.auto_axes(function(t) return t * 2 end, {out_sharding = NamedSharding(explicit, P "data")})
local f = ml.jit(twice)
print(ml.typeof(f(ml.device_put(ml.ones {8}, NamedSharding(explicit, P "data")))))]],
  explicit_axes = [[
local twice = ml.explicit_axes(function(t) return t * 2 end, {in_sharding = NamedSharding(mesh, P "data")})
local f = ml.jit(twice, {mesh = mesh})
print(ml.typeof(f(ml.ones {8})))]],
  reshard = [[
local explicit = ml.make_mesh({8}, {"data"}, {axis_types = "explicit"})
local t = ml.device_put(ml.ones {8}, NamedSharding(explicit, P "data"))
print(ml.typeof(ml.reshard(t, NamedSharding(explicit, P()))))]],
  pcast = [[
local f = ml.shard_map(function(t) return ml.pcast(t, "data", {to = "varying"}) end,
  {mesh = mesh, in_specs = {P()}, out_specs = P "data"})
print(f(ml.ones {2}).shape)]],
  set_mesh = "ml.set_mesh(mesh)\nprint(ml.get_mesh())\nml.set_mesh()",
  shard_largest = 'type(ml.shard_largest("data"))',
  -- ---- transformations ------------------------------------------------------------------------------
  abstract = "ml.abstract(function() return {w = ml.zeros {1 << 20, 1 << 20}} end)",
  accumulate = "ml.accumulate(2, function(part) return part:mean() end, ml.arange(8.0))",
  associative_scan = "ml.associative_scan(ml.mul, ml.tensor {1, 2, 3, 4})",
  checkpoint_name = 'ml.checkpoint_name(x, "hidden").shape',
  cond = "ml.cond(x:sum():gt(10), function(t) return t end, function(t) return -t end, x)",
  custom_vjp = [[
local clipped = ml.custom_vjp(function(t) return t end,
  {fwd = function(t) return t, t end, bwd = function(t, g) return g:clip(-1, 1) end})
print(ml.grad(function(t) return (clipped(t) * 5):sum() end)(ml.ones {2}))]],
  custom_jvp = [[
local doubled = ml.custom_jvp(function(t) return t:sin() end,
  {jvp = function(p, d) return p[1]:sin(), d[1] * p[1]:cos() * 2 end})
print(ml.grad(doubled)(ml.tensor(0.0)))]],
  fori_loop = "ml.fori_loop(0, 5, function(i, sum) return sum + i end, ml.tensor(0))",
  grad = "ml.grad(function(t) return (t ^ 2):sum() end)(x)",
  hessian = "ml.hessian(function(t) return (t ^ 3):sum() end)(ml.tensor {1.0, 2.0})",
  hvp = "ml.hvp(function(t) return (t ^ 3):sum() end, {ml.tensor {1.0, 2.0}}, {ml.tensor {1.0, 0.0}})",
  init = 'ml.init(function(rngs) return nn.Linear(2, 3, {rngs = rngs}) end, {mesh = mesh})',
  jacfwd = "ml.jacfwd(function(t) return t * t end)(ml.tensor {1.0, 2.0})",
  jacrev = "ml.jacrev(function(t) return (t * t):sum() end)(ml.tensor {1.0, 2.0})",
  jit = [[
local step = ml.jit(function(t) return t * 2 end)
print(step(x):sum(), step(x):sum())
print(step)]],
  jvp = "ml.jvp(function(t) return t * t end, {ml.tensor(3.0)}, {ml.tensor(1.0)})",
  linearize = [[
local y, linear = ml.linearize(function(t) return t * t end, ml.tensor(3.0))
print(y, linear(ml.tensor(1.0)), linear(ml.tensor(2.0)))]],
  map = "ml.map(function(row) return row:sum() end, x)",
  merge = [[
local structure, state = ml.split(nn.Linear(2, 3, {rngs = nn.Rngs(0)}))
print(ml.merge(structure, state))]],
  microbatches = "ml.microbatches(ml.arange(6), 3)",
  named_scope = 'ml.named_scope("block", function() return x:sum() end)',
  remat = "ml.grad(ml.remat(function(t) return t:sin():sum() end))(ml.zeros {2})",
  ["remat_policies.save_any_names_but_these"] =
    "ml.remat(nn.relu, {policy = ml.remat_policies.save_any_names_but_these \"big\"})(x):sum()",
  ["remat_policies.save_anything_except_these_names"] =
    "ml.remat(nn.relu, {policy = ml.remat_policies.save_anything_except_these_names \"big\"})(x):sum()",
  ["remat_policies.save_from_both_policies"] = [[
local policies = ml.remat_policies
local a, b = policies.save_only_these_names "a", policies.save_only_these_names "b"
local both = policies.save_from_both_policies(a, b)
print(ml.remat(nn.relu, {policy = both})(x):sum())]],
  ["remat_policies.save_only_these_names"] = [[
local policy = ml.remat_policies.save_only_these_names "hidden"
local function f(t) return ml.checkpoint_name(t:sin(), "hidden"):exp():sum() end
print(ml.grad(ml.remat(f, {policy = policy}))(ml.zeros {2}))]],
  scan = "ml.scan(function(sum, row) return sum + row, sum end, ml.zeros {3}, x)",
  split = "x:split(3, 2)[1]",
  state = "ml.state(nn.Linear(2, 3, {rngs = nn.Rngs(0)}))",
  static_cond = "ml.static_cond(true, function(t) return t end, function(t) return -t end, x)",
  switch = "ml.switch(1, {function(t) return t end, function(t) return t * 10 end}, x)",
  tabulate = "ml.tabulate(nn.Linear(2, 3, {rngs = nn.Rngs(0)}))",
  update = [[
local model = nn.Linear(2, 3, {rngs = nn.Rngs(0)})
ml.update(model, {bias = ml.ones {3}})
print(model.bias)]],
  value_and_grad = "ml.value_and_grad(function(t) return (t ^ 2):sum() end)(x)",
  vectorize = [[
local f = ml.vectorize(function(m, v) return m:matmul(v) end, {signature = "(n,m),(m)->(n)"})
print(f(ml.ones {4, 2, 3}, ml.ones {3}).shape)]],
  vjp = [[
local y, pull = ml.vjp(function(t) return t * t end, ml.tensor(3.0))
print(y, pull(ml.tensor(1.0)))]],
  vmap = "ml.vmap(function(row) return row:sum() end)(x)",
  while_loop = "ml.while_loop(function(n) return n:lt(100) end, function(n) return n * 2 end, ml.tensor(1))",
  debug_callback = "ml.debug_callback(function(t) print(t:sum():item()) end, x)",
  ["tree.is_leaf"] = "ml.tree.is_leaf(x)",
  ["tree.leaves"] = "ml.tree.leaves {a = x, b = {x * 2}}",
  ["tree.map"] = "ml.tree.map(function(t) return t:sum() end, {a = x, b = {x * 2}})",
  ["tree.map_with_path"] = "ml.tree.map_with_path(function(path) return path end, {a = x, b = {x * 2}})",
  ["tree.only"] = "ml.tree.only({a = x, b = x * 2}, {[x] = \"kept\"})",
  ["tree.replace"] = "ml.tree.replace({a = x, b = {n = 1}}, {[x] = ml.zeros {2}})",
  ["tree.visit"] = "ml.tree.visit({a = x}, function(path, leaf) print(path, leaf.shape) end)",
  ["jit:bind"] = "ml.jit(function(a, b) return a + b end):bind(x)(x):sum()",
  ["jit:lower"] = "ml.jit(function(t) return t:sum() end):lower(x):as_text() ~= \"\"",
  ["jit:plan"] = "ml.jit(function(t) return t:sum() end):plan(x):flops()",
  ["jit:stats"] = "ml.jit(function(t) return t end):stats()",
  ["jit:trace"] = "ml.jit(function(t) return t:sum() end):trace(x).out_avals",
  ["jit:why_miss"] = "local step = ml.jit(function(t) return t end)\nstep(x)\nprint(step:why_miss())",
  ["Traced:as_text"] = "ml.jit(function(t) return t end):trace(x):as_text() ~= \"\"",
  ["Traced:lower"] = "ml.jit(function(t) return t * 2 end):trace(x):lower().out_avals",
  ["Lowered:compile"] = "ml.jit(function(t) return t * 2 end):lower(x):compile()(x):sum()",
  ["Compiled:memory_analysis"] =
    "ml.jit(function(t) return t * 2 end):lower(x):compile():memory_analysis().peak_memory_in_bytes",
  ["Compiled:cost_analysis"] =
    "ml.jit(function(t) return t * 2 end):lower(x):compile():cost_analysis().flops",
  ["Lowered:as_text"] = "#ml.jit(function(t) return t * 2 end):lower(x):as_text() > 0",
  ["Compiled:as_text"] = "#ml.jit(function(t) return t * 2 end):lower(x):compile():as_text() > 0",
  ["Compiled:__call"] = "ml.jit(function(t) return t * 2 end):lower(x):compile()(x)",
  -- ---- layers ---------------------------------------------------------------------------------------
  ["nn.attention"] =
    "local q = ml.ones {1, 3, 2, 4}\nprint(nn.attention(q, q, q, {causal = true}).shape)",
  ["nn.avg_pool"] = "nn.avg_pool(ml.arange(4.0):reshape(1, 4, 1), 2, {strides = 2})",
  ["nn.dropout"] = "nn.dropout(ml.ones {4}, 0.5, key)",
  ["nn.elu"] = "nn.elu(ml.tensor {-1.0, 1.0})",
  ["nn.gelu"] = "nn.gelu(ml.tensor {-1.0, 1.0})",
  ["nn.huber"] = "nn.huber(ml.tensor {0.0, 0.0}, ml.tensor {0.5, 3.0})",
  ["nn.celu"] = "nn.celu(ml.tensor {-2.0, 0.5})",
  ["nn.hard_sigmoid"] = "nn.hard_sigmoid(ml.tensor {-2.0, 0.5})",
  ["nn.hard_silu"] = "nn.hard_silu(ml.tensor {-2.0, 0.5})",
  ["nn.hard_swish"] = "nn.hard_swish(ml.tensor {-2.0, 0.5})",
  ["nn.hard_tanh"] = "nn.hard_tanh(ml.tensor {-2.0, 0.5})",
  ["nn.identity"] = "nn.identity(ml.tensor {-2.0, 0.5})",
  ["nn.mish"] = "nn.mish(ml.tensor {-2.0, 0.5})",
  ["nn.relu6"] = "nn.relu6(ml.tensor {-2.0, 0.5})",
  ["nn.selu"] = "nn.selu(ml.tensor {-2.0, 0.5})",
  ["nn.soft_sign"] = "nn.soft_sign(ml.tensor {-2.0, 0.5})",
  ["nn.sparse_plus"] = "nn.sparse_plus(ml.tensor {-2.0, 0.5})",
  ["nn.sparse_sigmoid"] = "nn.sparse_sigmoid(ml.tensor {-2.0, 0.5})",
  ["nn.squareplus"] = "nn.squareplus(ml.tensor {-2.0, 0.5})",
  ["nn.standardize"] = "nn.standardize(ml.tensor {-2.0, 0.5})",
  ["nn.swish"] = "nn.swish(ml.tensor {-2.0, 0.5})",
  ["nn.glu"] = "nn.glu(ml.tensor {1.0, 2.0, 0.0, 0.0})",
  ["nn.cosine_distance"] = "nn.cosine_distance(ml.tensor {1.0, 0.0}, ml.tensor {1.0, 1.0})",
  ["nn.cosine_similarity"] = "nn.cosine_similarity(ml.tensor {1.0, 0.0}, ml.tensor {1.0, 1.0})",
  ["nn.generalized_kl_divergence"] =
    "nn.generalized_kl_divergence(ml.tensor({0.5, 0.5}):log(), ml.tensor {0.9, 0.3})",
  ["nn.hinge_loss"] = "nn.hinge_loss(ml.tensor {0.5, -2.0}, ml.tensor {1.0, 1.0})",
  ["nn.kl_divergence_with_log_targets"] =
    "nn.kl_divergence_with_log_targets(ml.tensor({0.5, 0.5}):log(), ml.tensor({0.9, 0.1}):log())",
  ["nn.l2_loss"] = "nn.l2_loss(ml.tensor {1.0, 2.0}, ml.tensor {1.0, 4.0})",
  ["nn.log_cosh"] = "nn.log_cosh(ml.tensor {0.0, 2.0}, ml.tensor {0.0, 0.0})",
  ["nn.multiclass_hinge_loss"] = "nn.multiclass_hinge_loss(x, ml.tensor {2, 0})",
  ["nn.multiclass_perceptron_loss"] = "nn.multiclass_perceptron_loss(x, ml.tensor {2, 0})",
  ["nn.perceptron_loss"] = "nn.perceptron_loss(ml.tensor {0.5, -2.0}, ml.tensor {1.0, 1.0})",
  ["nn.poly_loss_cross_entropy"] =
    "nn.poly_loss_cross_entropy(x, ml.one_hot(ml.tensor {2, 0}, 3, \"float32\"))",
  ["nn.safe_softmax_cross_entropy"] =
    "nn.safe_softmax_cross_entropy(ml.tensor {-math.huge, 0.0, 0.0}, ml.tensor {0.0, 0.5, 0.5})",
  ["nn.sigmoid_focal_loss"] = "nn.sigmoid_focal_loss(ml.tensor {0.0, 2.0}, ml.tensor {1.0, 1.0})",
  ["nn.smooth_labels"] = "nn.smooth_labels(ml.tensor {0.0, 1.0, 0.0, 0.0}, 0.1)",
  ["nn.softmax_cross_entropy"] =
    "nn.softmax_cross_entropy(ml.tensor {1.0, 0.0}, nn.smooth_labels(ml.tensor {1.0, 0.0}, 0.1))",
  ["nn.squared_error"] = "nn.squared_error(ml.tensor {1.0, 2.0}, ml.tensor {1.0, 4.0})",
  ["nn.is_module"] = "nn.is_module(nn.Linear(2, 3, {rngs = nn.Rngs(0)}))",
  ["nn.kl"] = "nn.kl(ml.tensor({0.5, 0.5}):log(), ml.tensor {0.9, 0.1})",
  ["nn.layer"] = [[
local stack = nn.stack(3, function() return nn.Linear(2, 2, {rngs = nn.Rngs(0)}) end)
print(nn.layer(stack, 2)(ml.ones {1, 2}).shape)]],
  ["nn.leaky_relu"] = "nn.leaky_relu(ml.tensor {-1.0, 1.0})",
  ["nn.log_sigmoid"] = "nn.log_sigmoid(ml.tensor {0.0})",
  ["nn.lora"] = [[
local model = nn.lora(nn.Linear(8, 4, {rngs = nn.Rngs(0)}), {rank = 2, rngs = nn.Rngs(1)})
optim.adamw(model, {lr = 1e-4, only = "lora_"})
print(model)]],
  ["nn.max_pool"] = "nn.max_pool(ml.arange(4.0):reshape(1, 4, 1), 2, {strides = 2})",
  ["nn.merge_lora"] = [[
local model = nn.lora(nn.Linear(8, 4, {rngs = nn.Rngs(0)}), {rank = 2, rngs = nn.Rngs(1)})
print(nn.merge_lora(model))]],
  ["nn.module"] = [[
local Scale = nn.module "Scale"
function Scale:init(n) self.factor = nn.Param(ml.ones {n}) end
function Scale:__call(t) return t * self.factor end
print(Scale(3))
print(Scale(3)(x):sum())]],
  ["nn.mse"] = "nn.mse(x, x + 1)",
  ["nn.Param"] = "nn.Param(ml.zeros {2}, {axes = {\"embed\"}})",
  ["nn.pipeline"] = [[
local layers = nn.stack(4, function() return nn.Linear(2, 2, {rngs = nn.Rngs(0)}) end)
local options = {stage = "stage", microbatches = 4, schedule = "1f1b",
  mesh = ml.Mesh({0, 1}, {"stage"}), last = function(h) return (h ^ 2):mean() end}
print(ml.grad(function(l) return (nn.pipeline(l, ml.ones {8, 2}, options)) end)(layers).kernel.shape[1])]],
  ["nn.explain_pipeline"] = [[
local layers = nn.stack(4, function() return nn.Linear(2, 2, {rngs = nn.Rngs(0)}) end)
print(nn.explain_pipeline(layers, ml.ones {8, 2}, {microbatches = 4, schedule = "1f1b",
  mesh = ml.Mesh({0, 1}, {"stage"}), last = function(h) return (h ^ 2):mean() end}))]],
  ["nn.relu"] = "nn.relu(ml.tensor {-1.0, 1.0})",
  ["nn.rope"] = "nn.rope(ml.ones {1, 2, 1, 2})",
  ["nn.scan"] = [[
local stack = nn.stack(3, function() return nn.Linear(2, 2, {rngs = nn.Rngs(0)}) end)
print((nn.scan(stack, ml.ones {1, 2})).shape)]],
  ["nn.sigmoid"] = "nn.sigmoid(ml.tensor {0.0})",
  ["nn.sigmoid_binary_cross_entropy"] =
    "nn.sigmoid_binary_cross_entropy(ml.tensor {0.0, 2.0}, ml.tensor {1.0, 1.0})",
  ["nn.silu"] = "nn.silu(ml.tensor {-1.0, 1.0})",
  ["nn.softmax_cross_entropy_with_integer_labels"] =
    "nn.softmax_cross_entropy_with_integer_labels(x, ml.tensor {2, 0})",
  ["nn.softplus"] = "nn.softplus(ml.tensor {0.0})",
  ["nn.stack"] = "nn.stack(3, function() return nn.Linear(2, 2, {rngs = nn.Rngs(0)}) end)",
  ["nn.tanh"] = "nn.tanh(ml.tensor {1.0})",
  ["nn.BatchNorm"] = "nn.BatchNorm(3, {rngs = nn.Rngs(0)})(x)",
  ["nn.Conv"] = "nn.Conv(1, 4, {3, 3}, {rngs = nn.Rngs(0)})(ml.ones {2, 8, 8, 1}).shape",
  ["nn.Bidirectional"] = [[
local rngs = nn.Rngs(0)
local function rnn() return nn.RNN(nn.LSTMCell(3, 4, {rngs = rngs})) end
print(nn.Bidirectional(rnn(), rnn())(ml.ones {2, 5, 3}).shape)]],
  ["nn.ConvTranspose"] = [[
nn.ConvTranspose(4, 1, {3, 3}, {rngs = nn.Rngs(0), strides = 2})(ml.ones {2, 8, 8, 4}).shape]],
  ["nn.GroupNorm"] = "nn.GroupNorm(4, {rngs = nn.Rngs(0), num_groups = 2})(ml.ones {1, 8, 8, 4}).shape",
  ["nn.GRUCell"] = "(nn.RNN(nn.GRUCell(3, 4, {rngs = nn.Rngs(0)}))(ml.ones {2, 5, 3})).shape",
  ["nn.InstanceNorm"] = "nn.InstanceNorm(4, {rngs = nn.Rngs(0)})(ml.ones {1, 8, 8, 4}).shape",
  ["nn.LSTMCell"] = [[
local cell = nn.LSTMCell(3, 4, {rngs = nn.Rngs(0)})
local carry, y = cell(cell:initialize_carry(x), x)
print(carry[1].shape, y.shape)]],
  ["nn.RNN"] = [[
local rnn = nn.RNN(nn.LSTMCell(3, 4, {rngs = nn.Rngs(0)}))
local y, carry = rnn(ml.ones {2, 5, 3}, {seq_lengths = ml.tensor {5, 2}})
print(y.shape, carry[1].shape)]],
  ["nn.SimpleCell"] = "(nn.RNN(nn.SimpleCell(3, 4, {rngs = nn.Rngs(0)}))(ml.ones {2, 5, 3})).shape",
  ["nn.WeightNorm"] = "nn.WeightNorm(nn.Linear(3, 4, {rngs = nn.Rngs(0)}), {rngs = nn.Rngs(0)})(x).shape",
  ["nn.Dropout"] = "nn.Dropout(0.5, {rngs = nn.Rngs(0)}):eval()(x).shape",
  ["nn.Embed"] = "nn.Embed(10, 4, {rngs = nn.Rngs(0)})(ml.tensor {1, 3}).shape",
  ["nn.LayerNorm"] = "nn.LayerNorm(3, {rngs = nn.Rngs(0)})(x)",
  ["nn.Linear"] = "nn.Linear(3, 4, {rngs = nn.Rngs(0)})(x).shape",
  ["nn.MoE"] = "(nn.MoE(4, 8, 2, {rngs = nn.Rngs(0)})(ml.ones {1, 4, 4})).shape",
  ["nn.MultiHeadAttention"] =
    "nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), causal = true})(ml.ones {1, 3, 8}).shape",
  ["nn.RMSNorm"] = "nn.RMSNorm(3, {rngs = nn.Rngs(0)})(x)",
  ["nn.Rngs"] = "nn.Rngs {params = 0, dropout = 1}",
  ["nn.Sequential"] = "nn.Sequential {nn.Linear(3, 4, {rngs = nn.Rngs(0)}), nn.relu}(x).shape",
  ["nn.each_module"] = [[
nn.each_module({a = nn.Linear(2, 3, {rngs = nn.Rngs(0)})}, function(_, path) print(path) end)]],
  ["nn.RngStream"] = 'nn.RngStream(0, "dropout")().shape',
  ["BatchNorm:__call"] = "nn.BatchNorm(3, {rngs = nn.Rngs(0)}):eval()(x).shape",
  ["Bidirectional:__call"] = [[
local function rnn(seed) return nn.RNN(nn.GRUCell(3, 4, {rngs = nn.Rngs(seed)})) end
print(nn.Bidirectional(rnn(0), rnn(1))(x:reshape(1, 2, 3)).shape)]],
  ["ConvTranspose:__call"] = "nn.ConvTranspose(1, 2, {3}, {rngs = nn.Rngs(0)})(ml.ones {1, 8, 1}).shape",
  ["GroupNorm:__call"] = "nn.GroupNorm(4, {rngs = nn.Rngs(0), group_size = 2})(ml.ones {1, 8, 4}).shape",
  ["GRUCell:__call"] = [[
local cell = nn.GRUCell(3, 4, {rngs = nn.Rngs(0)})
print((cell(ml.zeros {2, 4}, x)).shape)]],
  ["GRUCell:initialize_carry"] = "nn.GRUCell(3, 4, {rngs = nn.Rngs(0)}):initialize_carry(x).shape",
  ["InstanceNorm:__call"] = "nn.InstanceNorm(4, {rngs = nn.Rngs(0)})(ml.ones {1, 8, 4}).shape",
  ["LSTMCell:__call"] = [[
local cell = nn.LSTMCell(3, 4, {rngs = nn.Rngs(0)})
print(select(2, cell({ml.zeros {2, 4}, ml.zeros {2, 4}}, x)).shape)]],
  ["LSTMCell:initialize_carry"] = "#nn.LSTMCell(3, 4, {rngs = nn.Rngs(0)}):initialize_carry(x)",
  ["RNN:__call"] = "(nn.RNN(nn.GRUCell(3, 4, {rngs = nn.Rngs(0)}))(x:reshape(1, 2, 3))).shape",
  ["SimpleCell:__call"] = [[
local cell = nn.SimpleCell(3, 4, {rngs = nn.Rngs(0)})
print((cell(ml.zeros {2, 4}, x)).shape)]],
  ["SimpleCell:initialize_carry"] = "nn.SimpleCell(3, 4, {rngs = nn.Rngs(0)}):initialize_carry(x).shape",
  ["WeightNorm:__call"] =
    "nn.WeightNorm(nn.Linear(3, 4, {rngs = nn.Rngs(0)}), {rngs = nn.Rngs(0)})(ml.ones {2, 3}).shape",
  ["initializers.delta_orthogonal"] =
    'nn.initializers.delta_orthogonal()(key, {3, 2, 2}, "float32"):sum(1):square():sum():round()',
  ["initializers.orthogonal"] =
    'nn.initializers.orthogonal()(key, {4, 2}, "float32"):square():sum(1):round()',
  ["Conv:__call"] = "nn.Conv(1, 2, {3}, {rngs = nn.Rngs(0)})(ml.ones {1, 8, 1}).shape",
  ["Dropout:__call"] = "nn.Dropout(0.5)(x, nn.Rngs(0)).shape",
  ["Dropout:key"] = "nn.Dropout(0.5, {rngs = nn.Rngs(0)}):key().shape",
  ["Embed:__call"] = "nn.Embed(10, 4, {rngs = nn.Rngs(0)})(ml.tensor {{1, 2}}).shape",
  ["Embed:attend"] = "nn.Embed(10, 4, {rngs = nn.Rngs(0)}):attend(ml.ones {2, 4}).shape",
  ["LayerNorm:__call"] = "nn.LayerNorm(3, {rngs = nn.Rngs(0)})(x):mean(2):round()",
  ["Linear:__call"] = "nn.Linear(3, 4, {rngs = nn.Rngs(0)})(x).shape",
  ["MoE:__call"] = "(nn.MoE(4, 8, 2, {rngs = nn.Rngs(0)})(ml.ones {1, 4, 4})).shape",
  ["MoE:capacity"] = "nn.MoE(4, 8, 2, {rngs = nn.Rngs(0)}):capacity(16)",
  ["MultiHeadAttention:new_cache"] = [[
local layer = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0)})
layer:new_cache(function(heads, size) print(heads, size) end)]],
  ["MultiHeadAttention:__call"] =
    "nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0)})(ml.ones {1, 3, 8}, {causal = true}).shape",
  ["RMSNorm:__call"] = "nn.RMSNorm(3, {rngs = nn.Rngs(0)})(x).shape",
  ["RngStream:__call"] = 'nn.RngStream(0, "dropout")().dtype',
  ["RngStream:fork"] = 'nn.RngStream(0, "dropout"):fork()().shape',
  ["Sequential:__call"] = "nn.Sequential {nn.relu, nn.tanh}(x).shape",
  ["module:train"] = "nn.Dropout(0.5, {rngs = nn.Rngs(0)}):train().training",
  ["module:eval"] = "nn.Dropout(0.5, {rngs = nn.Rngs(0)}):eval().training",
  ["initializers.constant"] = 'nn.initializers.constant(3)(key, {2}, "float32")',
  ["initializers.normal"] = 'nn.initializers.normal(1)(key, {2}, "float32")',
  ["initializers.ones"] = 'nn.initializers.ones(key, {2}, "float32")',
  ["initializers.zeros"] = 'nn.initializers.zeros(key, {2}, "float32")',
  ["initializers.uniform"] = 'nn.initializers.uniform(1)(key, {2}, "float32")',
  ["initializers.lecun_normal"] = 'nn.initializers.lecun_normal()(key, {4, 2}, "float32").shape',
  ["initializers.glorot_normal"] = 'nn.initializers.glorot_normal()(key, {4, 2}, "float32").shape',
  ["initializers.glorot_uniform"] = 'nn.initializers.glorot_uniform()(key, {4, 2}, "float32").shape',
  ["initializers.he_normal"] = 'nn.initializers.he_normal()(key, {4, 2}, "float32").shape',
  ["initializers.he_uniform"] = 'nn.initializers.he_uniform()(key, {4, 2}, "float32").shape',
  ["initializers.kaiming_normal"] = 'nn.initializers.kaiming_normal()(key, {4, 2}, "float32").shape',
  ["initializers.kaiming_uniform"] = 'nn.initializers.kaiming_uniform()(key, {4, 2}, "float32").shape',
  ["initializers.lecun_uniform"] = 'nn.initializers.lecun_uniform()(key, {4, 2}, "float32").shape',
  ["initializers.truncated_normal"] = 'nn.initializers.truncated_normal(1)(key, {4, 2}, "float32").shape',
  ["initializers.xavier_normal"] = 'nn.initializers.xavier_normal()(key, {4, 2}, "float32").shape',
  ["initializers.xavier_uniform"] = 'nn.initializers.xavier_uniform()(key, {4, 2}, "float32").shape',
  ["initializers.variance_scaling"] =
    'nn.initializers.variance_scaling(1, "fan_in", "uniform")(key, {4, 2}, "float32").shape',
  -- ---- optimizers -----------------------------------------------------------------------------------
  ["optim.adam"] = "optim.adam(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 1e-3})",
  ["optim.adamw"] = [[
local model = nn.Linear(3, 1, {rngs = nn.Rngs(0)})
local opt = optim.adamw(model, {lr = 1e-2, weight_decay = 0.1})
local loss, grads = ml.value_and_grad(function(m) return m(x):square():mean() end)(model)
opt:update(model, grads)
print(opt.count:get())]],
  ["optim.sgd"] = "optim.sgd(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 0.1, momentum = 0.9})",
  ["optim.adafactor"] = "optim.adafactor(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 1e-2})",
  ["optim.adagrad"] = "optim.adagrad(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 0.1})",
  ["optim.lamb"] = "optim.lamb(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 1e-3})",
  ["optim.lars"] = "optim.lars(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 0.1})",
  ["optim.lion"] = "optim.lion(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 1e-4, weight_decay = 0.1})",
  ["optim.muon"] = "optim.muon(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 0.02, adam_lr = 3e-4})",
  ["optim.rmsprop"] = "optim.rmsprop(nn.Linear(2, 3, {rngs = nn.Rngs(0)}), {lr = 1e-3, momentum = 0.9})",
  ["optim.chain"] = [[
optim.Optimizer(nn.Linear(2, 3, {rngs = nn.Rngs(0)}),
  optim.chain(optim.clip_by_global_norm(1), optim.scale_by_adam(), optim.scale_by_learning_rate(1e-3)))]],
  ["optim.add_decayed_weights"] = "optim.chain(optim.add_decayed_weights(0.1), optim.scale(-1)) ~= nil",
  ["optim.clip"] =
    "optim.Optimizer(nn.Linear(2, 1, {rngs = nn.Rngs(0)}), optim.chain(optim.clip(1), optim.scale(-0.1)))",
  ["optim.clip_by_global_norm"] = "optim.chain(optim.clip_by_global_norm(1), optim.scale(-0.1)) ~= nil",
  ["optim.clip_by_block_rms"] = "optim.chain(optim.clip_by_block_rms(1), optim.scale(-0.1)) ~= nil",
  ["optim.ema"] = "optim.chain(optim.ema(0.9), optim.scale(-0.1)) ~= nil",
  ["optim.masked"] = 'optim.chain(optim.masked(optim.clip(1), "bias"), optim.scale(-0.1)) ~= nil',
  ["optim.multi_transform"] = [[
local model = {body = nn.Linear(2, 3, {rngs = nn.Rngs(0)}), head = nn.Linear(3, 1, {rngs = nn.Rngs(1)})}
local opt = optim.Optimizer(model, optim.multi_transform({slow = optim.adamw {lr = 1e-4},
  fast = optim.sgd {lr = 0.1}, frozen = optim.set_to_zero()},
  {{"^body.*bias", "frozen"}, {"^body", "slow"}, {".", "fast"}}))
print(opt.state.slow.mu.body.kernel.shape)]],
  ["optim.set_to_zero"] = [[
local model = nn.Linear(2, 1, {rngs = nn.Rngs(0)})
print(optim.Optimizer(model, optim.set_to_zero()):update(model, ml.state(model)).grad_norm:gt(0))]],
  ["optim.MultiSteps"] = [[
local model = nn.Linear(2, 1, {rngs = nn.Rngs(0)})
print(optim.Optimizer(model, optim.MultiSteps(optim.adamw {lr = 1e-3}, 4)).state.mini_step)]],
  ["optim.EMA"] = [[
local model = nn.Linear(2, 1, {rngs = nn.Rngs(0)})
local mean = optim.EMA(model, {decay = 0.99})
mean:update(model) -- behind each opt:update
print(mean:apply_to(model)(ml.ones {1, 2}).shape)]],
  ["EMA:apply_to"] = [[
local model = {w = nn.Param(ml.tensor {1.0})}
print(optim.EMA(model):apply_to(model).w)]],
  ["EMA:update"] = [[
local model = {w = nn.Param(ml.tensor {1.0})}
local mean = optim.EMA(model, {decay = 0.75})
model.w:set(ml.tensor {2.0})
mean:update(model)
print(mean.params.w)]],
  ["optim.scale"] = "optim.chain(optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_adam"] = "optim.chain(optim.scale_by_adam {b1 = 0.9}, optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_learning_rate"] = "optim.chain(optim.scale_by_learning_rate(0.1)) ~= nil",
  ["optim.scale_by_schedule"] = "optim.chain(optim.scale_by_schedule(ml.schedule.constant(-0.1))) ~= nil",
  ["optim.scale_by_factored_rms"] = "optim.chain(optim.scale_by_factored_rms(), optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_lion"] = "optim.chain(optim.scale_by_lion {b1 = 0.9}, optim.scale(-1e-4)) ~= nil",
  ["optim.scale_by_param_block_rms"] =
    "optim.chain(optim.scale_by_param_block_rms(), optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_rms"] = "optim.chain(optim.scale_by_rms {decay = 0.9}, optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_rss"] = "optim.chain(optim.scale_by_rss(), optim.scale(-0.1)) ~= nil",
  ["optim.scale_by_trust_ratio"] = "optim.chain(optim.scale_by_trust_ratio(), optim.scale(-0.1)) ~= nil",
  ["optim.trace"] = "optim.chain(optim.trace(0.9), optim.scale(-0.1)) ~= nil",
  ["optim.Optimizer"] =
    "optim.Optimizer(nn.Linear(2, 1, {rngs = nn.Rngs(0)}), optim.scale(-0.1), {clip = 1})",
  ["Optimizer:update"] = [[
local model = nn.Linear(3, 1, {rngs = nn.Rngs(0), use_bias = false})
local opt = optim.sgd(model, {lr = 0.1})
local grads = ml.grad(function(m) return m(x):sum() end)(model)
print(opt:update(model, grads).grad_norm)]],
  ["LossScale:scaled"] = "optim.LossScale {initial = 8}:scaled(ml.tensor(0.5))",
  ["LossScale:unscaled"] = "optim.LossScale {initial = 8}:unscaled {a = ml.tensor(4.0)}",
  ["LossScale:note"] = "optim.LossScale {initial = 8}:note(ml.tensor(true))",
  ["optim.global_norm"] = "optim.global_norm {x, {x}}",
  ["optim.LossScale"] = "optim.LossScale {initial = 1024}:scaled(ml.tensor(2.0))",
  ["schedule.constant"] = "ml.schedule.constant(0.1)(7)",
  ["schedule.cosine"] = "ml.schedule.cosine {init_value = 1, decay_steps = 10}(5)",
  ["schedule.cosine_onecycle"] = "ml.schedule.cosine_onecycle {transition_steps = 10, peak_value = 1}(3)",
  ["schedule.exponential"] =
    "ml.schedule.exponential {init_value = 1, transition_steps = 10, decay_rate = 0.5}(20)",
  ["schedule.inverse_sqrt"] = "ml.schedule.inverse_sqrt {peak_value = 1, warmup_steps = 10}(40)",
  ["schedule.linear_onecycle"] = "ml.schedule.linear_onecycle {transition_steps = 10, peak_value = 1}(3)",
  ["schedule.piecewise_constant"] =
    "ml.schedule.piecewise_constant {init_value = 1, boundaries_and_scales = {[10] = 0.5, [20] = 0.5}}(20)",
  ["schedule.piecewise_interpolate"] = [[
ml.schedule.piecewise_interpolate {interpolate_type = "linear", init_value = 1,
  boundaries_and_scales = {[10] = 0.5}}(5)]],
  ["schedule.polynomial"] =
    "ml.schedule.polynomial {init_value = 1, end_value = 0, power = 2, transition_steps = 10}(5)",
  ["schedule.wsd"] =
    "ml.schedule.wsd {peak_value = 1, warmup_steps = 10, stable_steps = 80, decay_steps = 10}(95)",
  ["schedule.join"] = "ml.schedule.join({ml.schedule.constant(1), ml.schedule.constant(2)}, {10})(12)",
  ["schedule.linear"] = "ml.schedule.linear {init_value = 0, end_value = 1, transition_steps = 10}(5)",
  ["schedule.warmup_cosine"] = [[
ml.schedule.warmup_cosine {init_value = 0, peak_value = 1, warmup_steps = 10, decay_steps = 100}(10)]],
  -- ---- files, asking --------------------------------------------------------------------------------
  save = [[
local file = os.tmpname()
print(ml.save(file .. ".npy", x), (ml.load(file .. ".npy")))
os.remove(file) os.remove(file .. ".npy")]],
  load = [[
local file = os.tmpname()
assert(ml.save(file .. ".safetensors", {w = x}))
print(ml.load(file .. ".safetensors").w)
os.remove(file) os.remove(file .. ".safetensors")]],
  ["checkpoint.Manager"] = [[
local folder = os.tmpname()
os.remove(folder)
local manager = assert(ml.checkpoint.Manager(folder, {keep = 2}))
manager:save(10, {model = nn.Linear(2, 1, {rngs = nn.Rngs(0)})})
manager:wait()
print(manager:latest(), #manager:steps())
manager:close()
os.execute("rm -r " .. folder)]],
  ["data.windows"] = [[
local file = os.tmpname()
io.open(file, "wb"):write("abcdefghij"):close()
local windows = ml.data.windows(assert(ml.data.tokens(file)), 4)
print(ml.show(windows:batch {0, 1}))
os.remove(file)]],
  ["data.tokens"] = [[
local file = os.tmpname()
io.open(file, "wb"):write("hello"):close()
local tokens = assert(ml.data.tokens(file))
print(#tokens, tokens:width(), tokens:largest(), tokens:bytes(1, 4))
os.remove(file)]],
  ["data.tensors"] = "ml.show(ml.data.tensors({x = x}):batch {1, 0})",
  ["data.computed"] = [[
print(ml.data.computed(10, function(id) return {square = id * id} end):batch({3, 4}).square)]],
  ["data.mix"] = [[
local web, code = ml.data.tensors {id = ml.arange(6)}, ml.data.tensors {id = ml.arange(6) + 100}
print(ml.data.mix({web, code}, {2, 1}):shuffled {batch = 6}(1).id)]],
  ["data.npy"] = [[
local file = os.tmpname()
assert(ml.save(file .. ".npy", x))
print(ml.show(ml.data.npy({x = file .. ".npy"}):batch {1, 0}))
os.remove(file) os.remove(file .. ".npy")]],
  ["data.text"] = [[
local file = os.tmpname()
io.open(file, "w"):write("one\ntwo\n"):close()
print(ml.data.text(file, {separator = "\n"}):get(1).text)
os.remove(file)]],
  ["data.jsonl"] = [[
local file = os.tmpname()
io.open(file, "w"):write('{"y": 1}\n{"y": 2}\n'):close()
print(ml.data.jsonl(file):batch({1, 0}).y)
os.remove(file)]],
  ["data.documents"] = [[
local tokens = ml.core.tokens("one.two.", 1)
print(ml.show(ml.data.documents(tokens, {ends = 46}):get(1)))]],
  ["data.encode"] = [[
local file = os.tmpname()
io.open(file, "w"):write("one two"):close()
local texts = assert(ml.data.text(file))
print(ml.show(ml.data.encode(texts, function(text) return {text:byte(1, 3)} end):get(0)))
os.remove(file)]],
  ["data.pack"] = [[
local documents = ml.data.documents(ml.core.tokens("one.two.three.", 1), {ends = 46})
print(ml.show(ml.data.pack(documents, 6):batch {0}))]],
  ["data.bytes_read"] = "math.type(ml.data.bytes_read())",
  ["train.mesh"] = 'ml.train.mesh "data:4,model:2"',
  ["metrics.Mean"] = [[
local m = ml.metrics.Mean()
m:update(ml.tensor {1.0, 2.0, 6.0})
print(m:compute())]],
  ["metrics.Accuracy"] = [[
local m = ml.metrics.Accuracy {top_k = 2}
m:update(ml.tensor {{0.1, 0.7, 0.2}, {0.5, 0.2, 0.3}}, ml.tensor({2, 1}, "int32"))
print(m:compute())]],
  ["metrics.late"] = [[
local late = ml.metrics.late()
print(late {loss = ml.tensor(2.5)})
print(late {loss = ml.tensor(2.25)}.loss, late().loss)]],
  ["profile.shares_text"] = "ml.profile.shares_text {0.5, 0.25}",
  expect = "ml.expect(ml.jit(function(t) return t * 2 end):plan(x), {all_reduce = 0}) ~= nil",
  explain_rules = [[
local make = function(rngs) return nn.Linear(4, 8, {axes = {"embed", "hidden"}, rngs = rngs}) end
print(ml.explain_rules({{"hidden", "model"}, {"embed", false}}, ml.abstract(make, nn.Rngs(0)), mesh))]],
  explain = [[
local w = ml.device_put(ml.ones {8, 8}, NamedSharding(mesh, P("model", nil)))
print(#ml.explain(ml.jit(function(t) return t:matmul(w):sum() end), ml.ones {8, 8}).collectives)]],
  forbid = 'ml.forbid(ml.jit(function(t) return t * 2 end):plan(x), {"all_gather"}) ~= nil',
  cache = [[
local layer = nn.MultiHeadAttention(8, 2, {rngs = nn.Rngs(0), causal = true})
local cache = ml.cache({attn = layer}, 1, 16)
for id = 1, 3 do
  local past = cache:open(ml.tensor({{id}}, "int32"))
  layer(ml.ones {1, 1, 8}, {cache = past.attn})
  past:close()
end
print(cache:filled()[1])]],
  chat_template = [[
local template = ml.chat_template "{% for m in messages %}<{{ m.role }}> {{ m.content | trim }}\n{% endfor %}"
print(template:render {messages = {{role = "user", content = " Hello. "}}})]],
  ["ChatTemplate:render"] = [[
local template = ml.chat_template "{{ bos_token }}{{ messages | length }}"
print(template:render {bos_token = "<s>", messages = {}})]],
  set_print_options = [[
local before = ml.set_print_options {precision = 2}
print(x / 3)
ml.set_print_options(before)]],
  show = "ml.show({x.shape, \"text\", {1, 2}}, {width = 20})",
  verify = [[
local t = ml.device_put(ml.ones {8}, NamedSharding(mesh, P "data"))
print(ml.verify(ml.jit(function(t) return t:sum() end), t).ok)]],
  why_sharding = 'ml.why_sharding(ml.device_put(ml.ones {8}, NamedSharding(mesh, P "data")))',
  ["Plan:memory"] = "ml.jit(function(t) return t:sum() end):plan(x):memory().peak",
  ["Plan:flops"] = "ml.jit(function(t) return t:matmul(t:T()) end):plan(x):flops()",
  ["Plan:collectives"] = "#ml.jit(function(t) return t:sum() end):plan(x):collectives()",
  ["Plan:buffers"] = "#ml.jit(function(t) return t:sum() end):plan(x):buffers() > 0",
  ["Plan:mesh"] = "ml.jit(function(t) return t:sum() end, {mesh = mesh}):plan(x):mesh()",
  ["Plan:steps"] = "#ml.jit(function(t) return t:sum() end):plan(x):steps()",
  ["Plan:fits"] = "ml.jit(function(t) return t:sum() end):plan(x):fits()",
  ["Plan:copies"] = "ml.jit(function(t) return t:sum() end):plan(x):copies()",
}
