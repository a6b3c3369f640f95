-- ops.lua: the functions that make and join tensors. They take {out_sharding = P(...)}, and their optional
-- parameters by name.
return [[
arange(first: number, last: number|dtype?, step: number|dtype?, dtype: dtype?) -> Tensor
  0, 1, ... below n: arange(n); or from first, below last. int32 for whole numbers, float32 for others.
concat(list: Tensor[], axis: integer?) -> Tensor
  Tensors behind each other along an axis (default 1).
einsum(spec: string, x: Tensor, ...: Tensor, {preferred_element_type: dtype}) -> Tensor
  A sum of products of tensors by letters: einsum("btc,vc->btv", x, w); "..." stands for any dims, a
  letter twice for a diagonal; without "->" the result has what stands once.
eye(n: integer, m: integer?, dtype: dtype?) -> Tensor
  The identity matrix, n x m (default n).
full(shape: shape, value: number|boolean, dtype: dtype?) -> Tensor
  Every element the same; the dtype follows the number.
iota(shape: shape, dim: integer?, dtype: dtype?) -> Tensor
  0, 1, 2, ... along a dim (default 1) of a shape; default int32.
lexsort(keys: Tensor[], axis: integer?) -> Tensor
  The 0-based places that sort lines along an axis (default last) by several keys, the last of which counts
  most.
linspace(first: number, last: number, n: integer) -> Tensor
  n numbers from first to last, both included: float32.
logspace(first: number, last: number, n: integer, base: number?) -> Tensor
  n numbers from base^first to base^last, both included (base: default 10): float32.
meshgrid(list: Tensor[], indexing: "xy"|"ij"?) -> Tensor[]
  The coordinates of a grid, a tensor for each of the vectors; "xy" (default) has the first along dim 2.
ones(shape: shape, ...: integer|dtype, {dtype: dtype}) -> Tensor
  Ones: ones({2, 3}, dtype), or ones(2, 3, dtype); default float32.
polygamma(n: Tensor|integer, x: Tensor) -> Tensor
  The n-th derivative of digamma at x; NaN for an n that is no whole number from 0.
scatter_add(ids: Tensor, updates: Tensor, size: integer, axis: integer?,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  A table of `size` rows of zeros along an axis (default 1), with the updates added to rows `ids`
  (0-based); mode as of take.
stack(list: Tensor[], axis: integer?) -> Tensor
  Tensors of one shape along a new axis (default 1).
tensor(values: number|boolean|table, dtype: dtype?) -> Tensor
  A tensor of a number or boolean, or of nested lists of them.
where(condition: Tensor, x: Tensor|number, y: Tensor|number) -> Tensor
  x where the condition holds, else y.
zeros(shape: shape, ...: integer|dtype, {dtype: dtype}) -> Tensor
  Zeros: zeros({2, 3}, dtype), or zeros(2, 3, dtype); default float32.
random.bernoulli(key: key, p: number|Tensor?, shape: shape?) -> Tensor
  true with probability p (default 0.5).
random.beta(key: key, a: number|Tensor, b: number|Tensor, shape: shape?, dtype: dtype?) -> Tensor
  Beta(a, b).
random.bits(key: key, shape: shape?, width: integer?) -> Tensor
  Random words: uint32; uint8 for width 8, int64 for width 64.
random.categorical(key: key, logits: Tensor, axis: integer?, shape: shape?) -> Tensor
  0-based classes drawn with probability softmax(logits) along an axis (default last): int32.
random.choice(key: key, a: integer|Tensor, shape: shape?, replace: boolean?, p: Tensor?,
    axis: integer?) -> Tensor
  Draws among 0..a-1, or among the parts of a tensor along an axis (default 1), with probabilities p
  (default: all alike); replace = false: each is drawn once at most.
random.debug_key_reuse(on: boolean) -> boolean
  Switches on (or off) that a key which is used twice is an error; returns what it was.
random.dirichlet(key: key, alpha: Tensor, shape: shape?, dtype: dtype?) -> Tensor
  Dirichlet(alpha) along the last axis; shape: of the draws, without that axis.
random.exponential(key: key, shape: shape?, dtype: dtype?) -> Tensor
  Standard exponential: -log(1 - u).
random.fold_in(key: key, data: integer|Tensor) -> key
  The key that belongs to a number under this key.
random.gamma(key: key, a: number|Tensor, shape: shape?, dtype: dtype?) -> Tensor
  Gamma(a, 1). It has no gradient.
random.gumbel(key: key, shape: shape?, dtype: dtype?) -> Tensor
  Standard Gumbel: -log(-log(u)).
random.key(seed: integer) -> key
  A key from a seed: uint32[2].
random.keys(key: key, n: integer?) -> key[]
  A list of n new keys (default 2).
random.laplace(key: key, shape: shape?, dtype: dtype?) -> Tensor
  Standard Laplace.
random.loggamma(key: key, a: number|Tensor, shape: shape?, dtype: dtype?) -> Tensor
  The logarithm of Gamma(a, 1), also where that is too small for the dtype. It has no gradient.
random.multivariate_normal(key: key, mean: Tensor, cov: Tensor, shape: shape?, dtype: dtype?) -> Tensor
  Normal with a mean and a covariance (positive definite; NaN of others) of the last dim; shape: of the draws.
random.normal(key: key, shape: shape?, dtype: dtype?) -> Tensor
  Standard normal; default float32.
random.permutation(key: key, x: integer|Tensor) -> Tensor
  The rows of x, or 0..n-1, in random order.
random.poisson(key: key, rate: number|Tensor, shape: shape?) -> Tensor
  Poisson counts: int32.
random.randint(key: key, shape: shape?, low: integer, high: integer, dtype: dtype?) -> Tensor
  Whole numbers in [low, high); default int32.
random.split(key: key, n: integer?) -> Tensor
  n new keys (default 2): uint32[n, 2].
random.truncated_normal(key: key, low: number, high: number, shape: shape?, dtype: dtype?) -> Tensor
  Standard normal cut to [low, high].
random.uniform(key: key, shape: shape?, dtype: dtype?, low: number?, high: number?) -> Tensor
  Uniform in [low, high), default [0, 1).
]]
