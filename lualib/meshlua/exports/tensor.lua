-- tensor.lua: the functions ml.NAME that are methods of tensors and Params, too, and what tensors have
-- beside them.
-- All but those written "Tensor:" also take {out_sharding = P(...)}, and their optional parameters by name.
return [[
abs(x: Tensor) -> Tensor
  The absolute value.
acos(x: Tensor|number) -> Tensor
  The inverse of cos, in [0, pi].
acosh(x: Tensor|number) -> Tensor
  The inverse of cosh, from 0 on.
add(x: Tensor|number, y: Tensor|number) -> Tensor
  x + y.
all(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  Are all true, over axes (default all)?
allclose(x: Tensor|number, y: Tensor|number, rtol: number?, atol: number?, equal_nan: boolean?) ->
    Tensor
  Is isclose true of all?
any(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  Is any true, over axes (default all)?
argmax(x: Tensor, axis: integer?, keepdims: boolean?) -> Tensor
  The 0-based place of the first largest along an axis; without one, in row-major order.
argmin(x: Tensor, axis: integer?, keepdims: boolean?) -> Tensor
  The 0-based place of the first smallest along an axis; without one, in row-major order.
argsort(x: Tensor, axis: integer?, descending: boolean?) -> Tensor
  The 0-based places that sorting along an axis (default last) would take: stable, NaN last.
array_split(x: Tensor, n: integers, axis: integer?) -> Tensor[]
  x cut along an axis (default 1) into n parts whose sizes differ by 1 at most, or as split does by a
  list.
asin(x: Tensor|number) -> Tensor
  The inverse of sin, in [-pi/2, pi/2].
asinh(x: Tensor|number) -> Tensor
  The inverse of sinh.
astype(x: Tensor, dtype: dtype) -> Tensor
  x as another dtype; floats become integers by cutting toward zero.
at(x: Tensor, ...: integer|table|Tensor|false) -> Tensor|At
  x at position i (1-based) of its first dim, which is dropped; more positions go on with the next. By
  tensors of ids (0-based; false: a whole dim), or a mask: what x:at(ids):get(), :set(u), :add(u), :mul(u),
  :max(u) and :min(u) read or change.
atan(x: Tensor|number) -> Tensor
  The inverse of tan, in (-pi/2, pi/2).
atan2(x: Tensor|number, y: Tensor|number) -> Tensor
  The angle of the point that is y along and x up: atan(x / y) in all four quadrants.
atanh(x: Tensor|number) -> Tensor
  The inverse of tanh.
bincount(x: Tensor, weights: Tensor?, minlength: integer?, length: integer?) -> Tensor
  How often each of 0, 1, ... stands in x, or the sum of its weights; `length`: how many are counted
  (default up to the largest, at least minlength).
bitand(x: Tensor|number, y: Tensor|number) -> Tensor
  x & y.
bitcast(x: Tensor, dtype: dtype) -> Tensor
  The bits of x as another dtype of the same width.
bitnot(x: Tensor) -> Tensor
  ~x.
bitor(x: Tensor|number, y: Tensor|number) -> Tensor
  x | y.
bitxor(x: Tensor|number, y: Tensor|number) -> Tensor
  x ~ y.
broadcast(x: Tensor, ...: shape|integer) -> Tensor
  x repeated to a larger shape by numpy's rule: dims align at the end, size 1 stretches.
ceil(x: Tensor) -> Tensor
  The next whole number that is not smaller.
clip(x: Tensor, low: Tensor|number?, high: Tensor|number?) -> Tensor
  x within [low, high]; either may be nil.
compress(x: Tensor, mask: Tensor, size: integer, axis: integer?, fill: number|boolean?) -> Tensor
  The first `size` rows along an axis (default 1) that a mask marks, and `fill` (default 0) behind them.
conv(x: Tensor, w: Tensor, {strides: integers, padding: padding, input_dilation: integers,
    kernel_dilation: integers, groups: integer, preferred_element_type: dtype}) -> Tensor
  The convolution of x [batch, spatial..., in] with w [spatial..., in / groups, out]; padding: default
  "valid".
cos(x: Tensor) -> Tensor
  The cosine.
cosh(x: Tensor|number) -> Tensor
  The hyperbolic cosine.
cummax(x: Tensor, axis: integer, reverse: boolean?) -> Tensor
  The largest of the elements up to each one along an axis; reverse: from each one on.
cummin(x: Tensor, axis: integer, reverse: boolean?) -> Tensor
  The smallest of the elements up to each one along an axis; reverse: from each one on.
cumprod(x: Tensor, axis: integer, reverse: boolean?) -> Tensor
  Products of the elements up to each one along an axis; reverse: from each one on.
cumsum(x: Tensor, axis: integer, reverse: boolean?) -> Tensor
  Sums of the elements up to each one along an axis, itself among them; reverse: from each one on.
diag(x: Tensor, k: integer?) -> Tensor
  The matrix that has a vector as its k-th diagonal (default 0), or that diagonal of a matrix.
diagonal(x: Tensor, offset: integer?, axis1: integer?, axis2: integer?) -> Tensor
  The diagonals of matrices over two axes (default 1 and 2), as the last dim; `offset` above the main
  one.
diff(x: Tensor, n: integer?, axis: integer?, prepend: Tensor?, append: Tensor?) -> Tensor
  The differences of neighbours along an axis (default last), taken n times (default 1).
digamma(x: Tensor|number) -> Tensor
  The derivative of lgamma.
div(x: Tensor|number, y: Tensor|number) -> Tensor
  x / y: a float.
dot(x: Tensor, y: Tensor, {preferred_element_type: dtype}) -> Tensor
  The product over the last dim of x and the second last (the only one of a vector) of y; other dims
  stand behind each other.
dynamic_slice(x: Tensor, starts: (integer|Tensor)[], sizes: shape) -> Tensor
  The part of x with these sizes that begins at starts (0-based, computed).
dynamic_update_slice(x: Tensor, update: Tensor, starts: (integer|Tensor)[]) -> Tensor
  x with the part that begins at starts (0-based, computed) replaced by update.
eq(x: Tensor|number, y: Tensor|number) -> Tensor
  x == y, element by element: bool.
erf(x: Tensor) -> Tensor
  The error function.
erf_inv(x: Tensor) -> Tensor
  The inverse of the error function.
erfc(x: Tensor) -> Tensor
  1 - erf(x), also where that is small.
exp(x: Tensor) -> Tensor
  e^x.
exp2(x: Tensor|number) -> Tensor
  2^x.
expand_dims(x: Tensor, axis: integer) -> Tensor
  A dim of size 1 put in at `axis` of the result.
expm1(x: Tensor) -> Tensor
  e^x - 1, also where x is near 0.
flip(x: Tensor, axes: axes?) -> Tensor
  The given axes backwards (default all).
floor(x: Tensor) -> Tensor
  The next whole number that is not larger.
floor_divide(x: Tensor|number, y: Tensor|number) -> Tensor
  x // y, rounded down.
fmod(x: Tensor|number, y: Tensor|number) -> Tensor
  What is left of the division, with x's sign; of integers by 0 it is 0.
full_like(x: Tensor, value: number|boolean, dtype: dtype?) -> Tensor
  A constant with the shape, dtype and sharding of x.
ge(x: Tensor|number, y: Tensor|number) -> Tensor
  x >= y: bool.
gt(x: Tensor|number, y: Tensor|number) -> Tensor
  x > y: bool.
histogram(x: Tensor, bins: integer|number[]|Tensor?, range: number[]?, weights: Tensor?, density:
    boolean?) -> Tensor, Tensor
  How many elements fall into each of so many bins (default 10), or between edges; and the edges.
hypot(x: Tensor|number, y: Tensor|number) -> Tensor
  sqrt(x^2 + y^2), without overflow.
interp(x: Tensor, xp: Tensor, fp: Tensor, left: number?, right: number?) -> Tensor
  The piecewise linear function through the points (xp, fp), xp ascending, at x; left and right: what
  is beside them.
isclose(x: Tensor|number, y: Tensor|number, rtol: number?, atol: number?, equal_nan: boolean?) -> Tensor
  |x - y| <= atol + rtol |y| (default 1e-8, 1e-5), or both the same infinity, or with equal_nan both
  NaN: bool.
isfinite(x: Tensor) -> Tensor
  Neither infinite nor NaN: bool.
isinf(x: Tensor|number) -> Tensor
  Infinite, of either sign: bool.
isnan(x: Tensor|number) -> Tensor
  Not a number: bool.
kron(x: Tensor, y: Tensor) -> Tensor
  Kronecker's product: each element of x times all of y, in its place.
le(x: Tensor|number, y: Tensor|number) -> Tensor
  x <= y: bool.
lgamma(x: Tensor) -> Tensor
  The logarithm of the absolute value of the gamma function.
log(x: Tensor) -> Tensor
  The natural logarithm.
log10(x: Tensor|number) -> Tensor
  The logarithm to base 10.
log1p(x: Tensor) -> Tensor
  log(1 + x), also where x is near 0.
log2(x: Tensor|number) -> Tensor
  The logarithm to base 2.
log_softmax(x: Tensor, axis: integer?) -> Tensor
  x - log(sum(exp(x))) along an axis (default the last).
logaddexp(x: Tensor|number, y: Tensor|number) -> Tensor
  log(exp(x) + exp(y)), without overflow.
logit(x: Tensor|number) -> Tensor
  log(x / (1 - x)).
logsumexp(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  log(sum(exp(x))) over axes (default all), without overflow.
lt(x: Tensor|number, y: Tensor|number) -> Tensor
  x < y: bool.
matmul(x: Tensor, w: Tensor, {preferred_element_type: dtype}) -> Tensor
  The matrix product by numpy's rules: the last dim of x with the second last of w; leading dims
  broadcast. preferred_element_type: in which it adds up and comes, such as int32 of int8.
max(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The largest over axes (default all).
maximum(x: Tensor|number, y: Tensor|number) -> Tensor
  The larger of both.
mean(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The mean over axes (default all); integers become float32.
median(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The element in the middle over axes (default all), or the mean of the two.
min(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The smallest over axes (default all).
minimum(x: Tensor|number, y: Tensor|number) -> Tensor
  The smaller of both.
mod(x: Tensor|number, y: Tensor|number) -> Tensor
  What is left of x // y, with y's sign.
moveaxis(x: Tensor, source: integers, destination: integers) -> Tensor
  Axes moved to other places; the others keep their order.
mul(x: Tensor|number, y: Tensor|number) -> Tensor
  x * y.
nan_to_num(x: Tensor|number, nan: number?, posinf: number?, neginf: number?) -> Tensor
  x with numbers for NaN (default 0) and the infinities (default the largest and the smallest of the
  dtype).
nanmax(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The largest that is not NaN, over axes (default all).
nanmean(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The mean of what is not NaN, over axes (default all).
nanmin(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The smallest that is not NaN, over axes (default all).
nanprod(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The product of what is not NaN, over axes (default all).
nansum(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The sum of what is not NaN, over axes (default all).
ne(x: Tensor|number, y: Tensor|number) -> Tensor
  x ~= y, element by element: bool.
neg(x: Tensor) -> Tensor
  -x.
nonzero(x: Tensor, size: integer, fill: integer?) -> Tensor, ...
  The 0-based places of the first `size` elements that are not zero, one tensor for each dim; `fill`
  (default 0) behind them.
one_hot(ids: Tensor, n: integer, dtype: dtype?) -> Tensor
  1 where the last, new dim's 0-based position is the id, else 0; default float32.
ones_like(x: Tensor, dtype: dtype?) -> Tensor
  Ones with the shape, dtype and sharding of x.
outer(x: Tensor, y: Tensor) -> Tensor
  The product of each element of x with each of y: [x.size, y.size].
pad(x: Tensor, pads: table, value: number?, mode: string?) -> Tensor
  x with a border: {{low, high[, interior]}, ...}, one (or false) for each dim; value: default 0;
  mode: "constant", or of x's elements "edge", "wrap", "reflect", "symmetric".
pow(x: Tensor|number, y: Tensor|number) -> Tensor
  x ^ y.
prod(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The product over axes (default all).
put_along_axis(x: Tensor, indices: Tensor, values: Tensor|number, axis: integer,
    combine: "set"|"add"|"mul"|"max"|"min"?, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  x with the elements that take_along_axis would take set to values, or combined with them.
quantile(x: Tensor, q: number|number[], axes: axes?, keepdims: boolean?, method: string?) -> Tensor
  What q (0 to 1, or a list, which becomes dim 1) of the elements over axes do not exceed; method:
  "linear", "lower", "higher", "midpoint", "nearest".
reduce_window(x: Tensor, kind: "max"|"sum", window: integers, {strides: integers,
    padding: padding}) -> Tensor
  The largest, or the sum, of each window that slides over x.
rem(x: Tensor|number, y: Tensor|number) -> Tensor
  What is left of the division, with x's sign.
repeat_interleave(x: Tensor, repeats: integers, axis: integer?) -> Tensor
  Each element `repeats` times, or the i-th repeats[i] times, along an axis; without one of x as a
  vector.
reshape(x: Tensor, ...: shape|integer) -> Tensor
  The same elements in another shape: {2, -1}, or 2, -1; one dim may be -1.
roll(x: Tensor, shift: integers|Tensor, axes: axes?) -> Tensor
  Elements moved on by `shift` along axes, those at the end to the front; without axes of x as a vector.
round(x: Tensor) -> Tensor
  The nearest whole number; halves to the even one.
rsqrt(x: Tensor) -> Tensor
  1 / sqrt(x).
scatter_set(x: Tensor, ids: Tensor, updates: Tensor|number, axis: integer?,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  x with its rows `ids` (0-based) along an axis (default 1) replaced by the updates; mode as of take.
searchsorted(a: Tensor, v: Tensor|number, side: "left"|"right"?) -> Tensor
  The 0-based places in the ascending vector a at which elements of v keep it sorted, before equal ones
  ("left", default) or behind them.
segment_max(x: Tensor, ids: Tensor, n: integer,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  As segment_sum, of the largest; of no rows the least number.
segment_min(x: Tensor, ids: Tensor, n: integer,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  As segment_sum, of the smallest; of no rows the largest number.
segment_prod(x: Tensor, ids: Tensor, n: integer,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  As segment_sum, of products; of no rows 1.
segment_sum(x: Tensor, ids: Tensor, n: integer,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  For each of n segments the sum of the rows of x whose id, one of each row, names it. Ids that are none
  of 0..n-1 are left out (mode: default "drop").
shl(x: Tensor|number, y: Tensor|number) -> Tensor
  x << y.
shr(x: Tensor|number, y: Tensor|number) -> Tensor
  x >> y.
sigmoid(x: Tensor) -> Tensor
  1 / (1 + exp(-x)).
sign(x: Tensor) -> Tensor
  -1, 0 or 1.
sin(x: Tensor) -> Tensor
  The sine.
sinh(x: Tensor|number) -> Tensor
  The hyperbolic sine.
slice(x: Tensor, ...: integer|table|false) -> Tensor
  A range of each dim, 1-based and inclusive: {first, last, step}, a position, whose dim is dropped, or
  false: whole.
softmax(x: Tensor, axis: integer?) -> Tensor
  exp(x) / sum(exp(x)) along an axis (default the last).
sort(x: Tensor, axis: integer?, descending: boolean?, ...: Tensor) -> Tensor, ...
  The lines along an axis (default last) in ascending order, NaN last; further tensors are permuted alike.
sqrt(x: Tensor) -> Tensor
  The square root.
square(x: Tensor) -> Tensor
  x * x.
squeeze(x: Tensor, axes: axes?) -> Tensor
  Without the given dims of size 1 (default all of them).
std(x: Tensor, axes: axes?, keepdims: boolean?, ddof: integer?) -> Tensor
  The standard deviation over axes (default all).
stop_gradient(x: Tensor) -> Tensor
  x as a constant to gradients.
sub(x: Tensor|number, y: Tensor|number) -> Tensor
  x - y.
sum(x: Tensor, axes: axes?, keepdims: boolean?) -> Tensor
  The sum over axes (default all); keepdims leaves dims of size 1.
swapaxes(x: Tensor, a: integer, b: integer) -> Tensor
  Two axes exchanged.
T(x: Tensor) -> Tensor
  The last two dims exchanged.
take(x: Tensor, ids: Tensor, axis: integer?, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?,
    fill: number|boolean?) -> Tensor
  Rows of x by 0-based id along an axis (default 1): the ids' shape takes the axis's place. Below 0 they
  count from the end; one beyond both ends is an error, or by mode `fill` (default NaN), the nearest end
  ("clip"), or goes on at the other ("wrap").
take_along_axis(x: Tensor, indices: Tensor, axis: integer,
    mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?, fill: number|boolean?) -> Tensor
  The elements of each line of x along an axis at 0-based indices; beside it dims of size 1 stretch. Mode
  as of take.
tan(x: Tensor|number) -> Tensor
  The tangent.
tanh(x: Tensor) -> Tensor
  The hyperbolic tangent.
tensordot(x: Tensor, y: Tensor, axes: integer|table?, {preferred_element_type: dtype}) -> Tensor
  The product over the last n axes of x and the first n of y (default 2), or over {axes of x, axes of
  y}.
tile(x: Tensor, reps: integers) -> Tensor
  x as often as `reps` says along each dim; dims align at the end.
top_k(x: Tensor, k: integer, axis: integer?) -> Tensor, Tensor
  The k largest along an axis (default last), falling, and their 0-based places.
trace(x: Tensor, offset: integer?, axis1: integer?, axis2: integer?) -> Tensor
  The sum of the diagonal, as `diagonal` takes it.
transpose(x: Tensor, ...: integers) -> Tensor
  The dims in another order: {3, 1, 2}, or 3, 1, 2; without axes reversed.
tril(x: Tensor, k: integer?) -> Tensor
  Matrices with zeros above the k-th diagonal (default 0: the main one).
triu(x: Tensor, k: integer?) -> Tensor
  Matrices with zeros below the k-th diagonal (default 0: the main one).
trunc(x: Tensor|number) -> Tensor
  The next whole number toward 0.
unique(x: Tensor, size: integer, fill: number|boolean?, {index: boolean, inverse: boolean,
    counts: boolean}) -> Tensor, ...
  The first `size` different elements, ascending, and `fill` (default the least) behind them; then, on
  request, the place of the first of each, for each element of x the number of its own, and counts.
var(x: Tensor, axes: axes?, keepdims: boolean?, ddof: integer?) -> Tensor
  The variance over axes (default all), divided by n - ddof (default 0).
xlogy(x: Tensor|number, y: Tensor|number) -> Tensor
  x log(y), 0 where x is 0.
zeros_like(x: Tensor, dtype: dtype?) -> Tensor
  Zeros with the shape, dtype and sharding of x.
At:get(self: At, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?, fill: number|boolean?) -> Tensor
  What the ids of x:at(ids) name; mode as of take.
At:set(self: At, u: Tensor|number|boolean, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  x with that replaced by u, which stretches to it; of several updates of one place the last.
At:add(self: At, u: Tensor|number, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  x with u added there, of several of one place all.
At:mul(self: At, u: Tensor|number, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  The same of products.
At:max(self: At, u: Tensor|number, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  The same of the largest.
At:min(self: At, u: Tensor|number, mode: "error"|"strict"|"fill"|"drop"|"clip"|"wrap"?) -> Tensor
  The same of the smallest.
Tensor:split(x: Tensor, n: integers, axis: integer?) -> Tensor[]
  x cut along an axis (default 1) into n equal parts, or behind the elements that a list counts: {2, 5}.
Tensor:constrain(x: Tensor, spec: P|NamedSharding|table) -> Tensor
  As ml.constrain.
Tensor:block_until_ready(x: any) -> any
  As ml.block_until_ready.
Tensor:address(x: Tensor, slot: integer?) -> integer
  Where the bytes of a shard are, in memory; slot: from 0.
Tensor:addressable_data(self: Tensor, i: integer) -> Tensor
  The data of the i-th shard (1-based), on one device.
Tensor:addressable_shards(x: Tensor) -> table
  The shards of this process: a list of {device, index, data, ...}.
Tensor:global_shards(x: Tensor) -> table
  The shards of all processes; data of this one's alone.
Tensor:bytes(x: Tensor) -> string
  Its elements as a string, little-endian, row-major.
Tensor:is_deleted(x: Tensor) -> boolean
  Was it donated or released?
Tensor:is_traced(x: Tensor) -> boolean
  Is it a value of a trace, not known yet?
Tensor:item(x: Tensor) -> number|boolean
  The only element, as a Lua value.
Tensor:on_device_size_in_bytes(self: Tensor) -> integer
  Bytes on all devices together.
Tensor:release(x: Tensor)
  Frees the bytes now.
Tensor:totable(x: Tensor) -> table
  Its elements as nested lists.
Tensor.shape: integer[]
  Its dims; shape[1] is the first.
Tensor.ndim: integer
  How many dims.
Tensor.size: integer
  How many elements.
Tensor.dtype: dtype
  "float32", ...
Tensor.sharding: NamedSharding
  How it lies.
Tensor.committed: boolean
  Was it put on a mesh or a device?
Tensor.is_fully_addressable: boolean
  Are all of its devices this process's?
Tensor.is_fully_replicated: boolean
  Has every device the whole?
Param:get(box: Param) -> Tensor
  The tensor that it holds.
Param:set(box: Param, value: Tensor) -> Param
  Puts a tensor in its place; in a trace, for good when the trace ends well.
Param.kind: string
  "param", "batch_stat", "rng", "opt_state", ...
Param.axes: table|P
  A logical name for each dim, or a P.
Param.opt_axes: table|P
  The same for the optimizer's state.
Param.role: string
  "kernel", "bias", "scale", "embedding".
]]
