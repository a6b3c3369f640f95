-- foreign.lua: words of other libraries, and what to write here instead: by the type (or the module's prefix of
-- rows) in which they are looked for.
local tensor = {
  astype_ = "x:astype(dtype)", backward = "ml.grad(fn) and ml.value_and_grad(fn) give functions of gradients",
  clamp = "x:clip(low, high)", clone = "tensors do not change: there is no need of a copy",
  contiguous = "tensors are not strided: leave it out",
  copy = "tensors do not change: there is no need of one",
  cpu = "ml.device_put(x, sharding)", cuda = "meshlua --devices=cuda; ml.device_put(x, sharding) moves",
  data = "x itself", detach = "x:stop_gradient()", device = "x.sharding",
  dim = "x.ndim", double = "x:astype \"float64\"", expand = "x:broadcast(shape)",
  flatten = "x:reshape(-1)", float = "x:astype \"float32\"",
  grad = "ml.grad(fn) gives a function of gradients",
  half = "x:astype \"float16\"", index_select = "x:take(ids, axis)", int = "x:astype \"int32\"",
  is_cuda = "x.sharding", long = "x:astype \"int64\"", masked_fill = "ml.where(mask, value, x)",
  mm = "x:matmul(y)", bmm = "x:matmul(y)", mT = "x:T()", nbytes = "x:on_device_size_in_bytes()",
  ndims = "x.ndim", nelement = "x.size", norm = "(x * x):sum():sqrt()", numel = "x.size",
  numpy = "x:totable(), or x:bytes()", permute = "x:transpose(3, 1, 2)",
  ravel = "x:reshape(-1)", ["repeat"] = "x:repeat_interleave(n, axis); repeat is a word of Lua",
  requires_grad = "ml.grad(fn) says of which arguments",
  requires_grad_ = "ml.grad(fn) says of which arguments",
  scatter = "x:scatter_set(ids, updates, axis)", select = "x:at(i)",
  gather = "x:take_along_axis(indices, axis)",
  set = "x:scatter_set(ids, updates, axis)", subtract = "x - y", multiply = "x * y", divide = "x / y",
  t = "x:T()", to = "x:astype(dtype), ml.device_put(x, sharding)",
  tolist = "x:totable()", type = "x:astype(dtype), x.dtype", unsqueeze = "x:expand_dims(axis)",
  view = "x:reshape(2, -1)", view_as = "x:reshape(y.shape)", where = "ml.where(condition, x, y)",
  zero_ = "ml.zeros_like(x)", add_ = "x = x + y", mul_ = "x = x * y", sub_ = "x = x - y",
  argpartition = "x:top_k(k)", topk = "x:top_k(k)", amax = "x:max(axis)", amin = "x:min(axis)",
  arcsin = "x:asin()", arccos = "x:acos()", arctan = "x:atan()", arctan2 = "x:atan2(y)",
  arcsinh = "x:asinh()", arccosh = "x:acosh()", arctanh = "x:atanh()",
  erfinv = "x:erf_inv()", gammaln = "x:lgamma()",
  psi = "x:digamma()", len = "#x, or x.shape[1]", item_ = "x:item()", bool = "x:astype \"bool\"",
  bfloat16 = "x:astype \"bfloat16\"",
}

local functions = {
  ["repeat"] = "ml.repeat_interleave(x, n, axis); repeat is a word of Lua",
  set_printoptions = "ml.set_print_options {precision = 4, edge_items = 3}", array2string = "ml.show(x)",
  array = "ml.tensor(values)", asarray = "ml.tensor(values)", from_numpy = "ml.tensor(values)",
  backward = "ml.grad(fn)", cat = "ml.concat({x, y}, axis)", concatenate = "ml.concat({x, y}, axis)",
  hstack = "ml.concat({x, y}, -1)", vstack = "ml.concat({x, y}, 1)", cuda = "meshlua --devices=cuda",
  clamp = "ml.clip(x, low, high)", device = "ml.devices()", mm = "ml.matmul(x, y)",
  bmm = "ml.matmul(x, y)", empty = "ml.zeros(shape)", float32 = "\"float32\"", float16 = "\"float16\"",
  bfloat16 = "\"bfloat16\"", float64 = "\"float64\"", int32 = "\"int32\"", int64 = "\"int64\"",
  uint8 = "\"uint8\"", bool = "\"bool\"", from_table = "ml.tensor(values)",
  gather = "x:take_along_axis(indices, axis)",
  gelu = "ml.nn.gelu(x)", relu = "ml.nn.relu(x)", silu = "ml.nn.silu(x)", lax = "its functions stand in ml",
  numpy = "its functions stand in ml", log_sigmoid = "ml.nn.log_sigmoid(x)",
  logical_and = "x & y", logical_or = "x | y", logical_not = "~x", logical_xor = "x ~ y",
  manual_seed = "ml.random.key(seed)",
  no_grad = "nothing is kept for gradients unless ml.grad asks; leave it out",
  ones_init = "ml.nn.initializers.ones", permute = "ml.transpose(x, 3, 1, 2)", pjit = "ml.jit(fn, options)",
  rand = "ml.random.uniform(key, shape)", randn = "ml.random.normal(key, shape)",
  randint = "ml.random.randint(key, shape, low, high)",
  checkpoint_policies = "ml.remat_policies",
  save_file = "ml.save(\"x.safetensors\", tree)", load_file = "ml.load \"x.safetensors\"",
  safe_open = "ml.load(file, {partial = patterns})", savez = "ml.save(\"x.npz\", tree)",
  savez_compressed = "ml.save(\"x.npz\", tree)", state_dict = "ml.save(file, model) takes the model itself",
  load_state_dict = "ml.load(file, {into = model})",
  from_pretrained = "ml.load(folder, {into = model, map = names})",
  save_pretrained = "ml.save(\"folder/\", model, {map = names})",
  save_checkpoint = "ml.save(file, tree)", load_checkpoint = "ml.load(file, {into = tree})",
  restore = "ml.load(file, {into = tree})", load_safetensors = "ml.load \"x.safetensors\"",
  save_safetensors = "ml.save(\"x.safetensors\", tree)", load_gguf = "ml.load \"x.gguf\"",
  scalar = "ml.tensor(1.0)", shape = "x.shape", size = "x.size", dtype = "x.dtype",
  arcsin = "ml.asin(x)", arccos = "ml.acos(x)", arctan = "ml.atan(x)", arctan2 = "ml.atan2(x, y)",
  arcsinh = "ml.asinh(x)", arccosh = "ml.acosh(x)", arctanh = "ml.atanh(x)", erfinv = "ml.erf_inv(x)",
  gammaln = "ml.lgamma(x)", psi = "ml.digamma(x)", special = "its functions stand in ml",
  inv = "ml.linalg.inv(x)", solve = "ml.linalg.solve(a, b)", cholesky = "ml.linalg.cholesky(x)",
  det = "ml.linalg.det(x)", svd = "ml.linalg.svd(x)", qr = "ml.linalg.qr(x)", eigh = "ml.linalg.eigh(x)",
  stop_grad = "ml.stop_gradient(x)", subtract = "x - y", multiply = "x * y", divide = "x / y",
  tree_map = "ml.tree.map(fn, tree)", unsqueeze = "ml.expand_dims(x, axis)", value_and_gradient =
  "ml.value_and_grad(fn)", view = "ml.reshape(x, 2, -1)", with_sharding_constraint = "ml.constrain(x, spec)",
  PartitionSpec = "ml.P", Tensor = "ml.tensor(values)", Sharding = "ml.NamedSharding(mesh, P(...))",
  Linear = "ml.nn.Linear", Module = "ml.nn.module(name)", adam = "ml.optim.adam", adamw = "ml.optim.adamw",
  pow_ = "x ^ y", topk = "ml.top_k(x, k)", norm = "ml.optim.global_norm(x)", eval = "model:eval()",
}

local nn = {
  Module = "nn.module(name) makes a class", Dense = "nn.Linear(n_in, n_out, {rngs = rngs})",
  Embedding = "nn.Embed(n, features, {rngs = rngs})", Conv1d = "nn.Conv(n_in, n_out, {3}, {rngs = rngs})",
  Conv2d = "nn.Conv(n_in, n_out, {3, 3}, {rngs = rngs})", BatchNorm2d = "nn.BatchNorm(features)",
  CrossEntropyLoss = "nn.softmax_cross_entropy_with_integer_labels(logits, labels):mean()",
  cross_entropy = "nn.softmax_cross_entropy_with_integer_labels(logits, labels):mean()",
  softmax_cross_entropy = "nn.softmax_cross_entropy_with_integer_labels(logits, labels)",
  MSELoss = "nn.mse(predictions, targets)", mse_loss = "nn.mse(predictions, targets)",
  Parameter = "nn.Param(value)", ReLU = "nn.relu", GELU = "nn.gelu", SiLU = "nn.silu", swish = "nn.silu(x)",
  Tanh = "nn.tanh", Sigmoid = "nn.sigmoid", softmax = "ml.softmax(x, axis)", Softmax = "ml.softmax(x, axis)",
  log_softmax = "ml.log_softmax(x, axis)", ModuleList = "a Lua list: self.layers = {...}",
  functional = "its functions stand in nn", init = "nn.initializers", jit = "ml.jit(fn)", one_hot =
  "ml.one_hot(ids, n)", remat = "ml.remat(fn)", MaxPool2d = "nn.max_pool(x, {2, 2})",
  MultiheadAttention = "nn.MultiHeadAttention(width, heads, {rngs = rngs})",
  scaled_dot_product_attention = "nn.attention(q, k, v, {causal = true})",
  dot_product_attention = "nn.attention(q, k, v, {causal = true})",
}

local optim = {
  SGD = "optim.sgd(model, {lr = 0.1})", Adam = "optim.adam(model, {lr = 1e-3})",
  AdamW = "optim.adamw(model, {lr = 1e-3})", lr_scheduler = "ml.schedule; lr takes a schedule",
  apply_updates = "opt:update(model, grads) writes the Params",
}

local optimizer = {
  step = "opt:update(model, grads), with the gradients of ml.value_and_grad",
  zero_grad = "gradients are values, nothing is summed up; leave it out",
  apply_gradients = "opt:update(model, grads)", state_dict = "ml.state(opt); ml.save(file, opt) saves it",
  load_state_dict = "ml.load(file, {into = opt})",
}

local model = {
  zero_grad = "gradients are values, nothing is summed up; leave it out",
  state_dict = "ml.state(model); ml.save(file, model) saves it",
  load_state_dict = "ml.load(file, {into = model}), or ml.update(model, state)",
  save_pretrained = "ml.save(\"folder/\", model)", from_pretrained = "ml.load(folder, {into = model})",
  save = "ml.save(file, model)", load = "ml.load(file, {into = model})",
  named_parameters = "ml.tree.visit(model, function(path, param) ... end)",
  requires_grad_ = "ml.grad(fn) says of which arguments", cuda = "ml.init(fn, {mesh = mesh}) places Params",
  forward = "model(x); a class has function Name:__call(x)", parameters = "ml.tree.leaves(model)",
  to = "ml.init(fn, {mesh = mesh}) places Params; ml.device_put(model, sharding) moves them",
}

-- ---- errors of Lua itself, as the program prints them -------------------------------------------------------

local libraries = {torch = true, np = true, numpy = true, jnp = true, jax = true, tf = true, F = true,
  nn = true,
  optim = true}

-- x.T is a legal value (local f = x.T), and what Lua does with it next never comes to the library where the other
-- operand is a number: `x.T + 1` is looked up in the metatable of functions. One could be set, but it is one for all
-- functions of the state, of scripts and of other modules, which the library does not own; so this is said where the
-- program prints the error. Where the other operand is a tensor, or x.T an argument, the library says it at once.

--- What to write instead, where an error that Lua raised comes from a word of another library; or nil.
---@param message string
---@return string?
local function of_error(message)
  local what, how, name = message:match "attempt to .- a (%l+) value %((%l+) '([%w_]+)'%)"
  if what == "function" and how == "field" and tensor[name] == nil then
    local row = require("meshlua.exports").row(name)
    return row and row.family == "tensor" and ("x:%s(...) calls the method"):format(name) or nil
  end
  if how == "method" and (name == "size" or name == "shape" or name == "dtype" or name == "ndim") then
    return name == "size" and "x.size is the number of elements, x.shape the dims"
      or ("x.%s is a field"):format(name)
  end
  if what == "nil" and how == "field" and name == "weight" then
    return "a Linear has the Params kernel and bias"
  end
  if what == "nil" and how == "global" and libraries[name] then
    return (name == "nn" or name == "optim") and ("local %s = require(\"meshlua\").%s"):format(name, name)
      or "local ml = require \"meshlua\" has the functions of that library: ml.NAME"
  end
end

return {of_error = of_error, Tensor = tensor, Param = tensor, [""] = functions, ["nn."] = nn,
  ["optim."] = optim,
  Optimizer = optimizer, module = model,
  ["random."] = {PRNGKey = "random.key(seed)", seed = "random.key(seed)",
    shuffle = "random.permutation(key, x)", rand = "random.uniform(key, shape)",
    randn = "random.normal(key, shape)"},
  jit = {lower_ = "step:lower(...)", clear_cache = "a step keeps 4096 traces and begins anew by itself"},
  Mesh = {axis_size = "mesh.shape[axis]", ndim = "#mesh.axis_names", shape_tuple = "mesh.axis_sizes"},
}
