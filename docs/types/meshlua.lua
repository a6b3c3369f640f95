---@meta meshlua
-- Made by `meshlua --types`: the public names, for editors.

---@alias DType "bfloat16"|"bool"|"float16"|"float32"|"float64"|"float8_e4m3fn"|"float8_e5m2"|"int16"|"int32"|"int64"|"int8"|"uint16"|"uint32"|"uint64"|"uint8"

---@class Tensor
---@operator add(Tensor|number): Tensor
---@operator sub(Tensor|number): Tensor
---@operator mul(Tensor|number): Tensor
---@operator div(Tensor|number): Tensor
---@operator mod(Tensor|number): Tensor
---@operator idiv(Tensor|number): Tensor
---@operator pow(Tensor|number): Tensor
---@operator band(Tensor|integer): Tensor
---@operator bor(Tensor|integer): Tensor
---@operator bxor(Tensor|integer): Tensor
---@operator shl(Tensor|integer): Tensor
---@operator shr(Tensor|integer): Tensor
---@operator unm: Tensor
---@operator bnot: Tensor
---@operator len: integer
---@field shape integer[] Its dims; shape[1] is the first.
---@field ndim integer How many dims.
---@field size integer How many elements.
---@field dtype DType "float32", ...
---@field sharding NamedSharding How it lies.
---@field committed boolean Was it put on a mesh or a device?
---@field is_fully_addressable boolean Are all of its devices this process's?
---@field is_fully_replicated boolean Has every device the whole?
local Tensor = {}

--- The absolute value.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:abs() end

--- The inverse of cos, in [0, pi].
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:acos() end

--- The inverse of cosh, from 0 on.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:acosh() end

--- x + y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:add(y) end

--- Are all true, over axes (default all)?
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:all(axes, keepdims) end

--- Is isclose true of all?
---@param y Tensor|number
---@param rtol? number
---@param atol? number
---@param equal_nan? boolean
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:allclose(y, rtol, atol, equal_nan) end

--- Is any true, over axes (default all)?
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:any(axes, keepdims) end

--- The 0-based place of the first largest along an axis; without one, in row-major order.
---@param axis? integer
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axis?: integer, keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:argmax(axis, keepdims) end

--- The 0-based place of the first smallest along an axis; without one, in row-major order.
---@param axis? integer
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axis?: integer, keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:argmin(axis, keepdims) end

--- The 0-based places that sorting along an axis (default last) would take: stable, NaN last.
---@param axis? integer
---@param descending? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axis?: integer, descending?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:argsort(axis, descending) end

--- x cut along an axis (default 1) into n parts whose sizes differ by 1 at most, or as split does by a list.
---@param n integer|integer[]
---@param axis? integer
---@return Tensor[]
---@overload fun(self: Tensor, n: integer|integer[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor[]
function Tensor:array_split(n, axis) end

--- The inverse of sin, in [-pi/2, pi/2].
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:asin() end

--- The inverse of sinh.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:asinh() end

--- x as another dtype; floats become integers by cutting toward zero.
---@param dtype DType
---@return Tensor
---@overload fun(self: Tensor, dtype: DType, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:astype(dtype) end

--- x at position i (1-based) of its first dim, which is dropped; more positions go on with the next. By tensors of ids (0-based; false: a whole dim), or a mask: what x:at(ids):get(), :set(u), :add(u), :mul(u), :max(u) and :min(u) read or change.
---@param ... integer|table|Tensor|false
---@return Tensor|At
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor|At
function Tensor:at(...) end

--- The inverse of tan, in (-pi/2, pi/2).
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:atan() end

--- The angle of the point that is y along and x up: atan(x / y) in all four quadrants.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:atan2(y) end

--- The inverse of tanh.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:atanh() end

--- How often each of 0, 1, ... stands in x, or the sum of its weights; `length`: how many are counted (default up to the largest, at least minlength).
---@param weights? Tensor
---@param minlength? integer
---@param length? integer
---@return Tensor
---@overload fun(self: Tensor, options: {weights?: Tensor, minlength?: integer, length?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bincount(weights, minlength, length) end

--- x & y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bitand(y) end

--- The bits of x as another dtype of the same width.
---@param dtype DType
---@return Tensor
---@overload fun(self: Tensor, dtype: DType, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bitcast(dtype) end

--- ~x.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bitnot() end

--- x | y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bitor(y) end

--- x ~ y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:bitxor(y) end

--- x repeated to a larger shape by numpy's rule: dims align at the end, size 1 stretches.
---@param ... integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:broadcast(...) end

--- The next whole number that is not smaller.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:ceil() end

--- x within [low, high]; either may be nil.
---@param low? Tensor|number
---@param high? Tensor|number
---@return Tensor
---@overload fun(self: Tensor, options: {low?: Tensor|number, high?: Tensor|number, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:clip(low, high) end

--- The first `size` rows along an axis (default 1) that a mask marks, and `fill` (default 0) behind them.
---@param mask Tensor
---@param size integer
---@param axis? integer
---@param fill? number|boolean
---@return Tensor
---@overload fun(self: Tensor, mask: Tensor, size: integer, options: {axis?: integer, fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:compress(mask, size, axis, fill) end

--- The convolution of x [batch, spatial..., in] with w [spatial..., in / groups, out]; padding: default "valid".
---@param w Tensor
---@return Tensor
---@overload fun(self: Tensor, w: Tensor, options: {groups?: integer, input_dilation?: integer|integer[], kernel_dilation?: integer|integer[], out_sharding?: NamedSharding|P|table, padding?: "same"|"valid"|integer[][], preferred_element_type?: DType, strides?: integer|integer[]}): Tensor
function Tensor:conv(w) end

--- The cosine.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cos() end

--- The hyperbolic cosine.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cosh() end

--- The largest of the elements up to each one along an axis; reverse: from each one on.
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(self: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cummax(axis, reverse) end

--- The smallest of the elements up to each one along an axis; reverse: from each one on.
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(self: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cummin(axis, reverse) end

--- Products of the elements up to each one along an axis; reverse: from each one on.
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(self: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cumprod(axis, reverse) end

--- Sums of the elements up to each one along an axis, itself among them; reverse: from each one on.
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(self: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:cumsum(axis, reverse) end

--- The matrix that has a vector as its k-th diagonal (default 0), or that diagonal of a matrix.
---@param k? integer
---@return Tensor
---@overload fun(self: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:diag(k) end

--- The diagonals of matrices over two axes (default 1 and 2), as the last dim; `offset` above the main one.
---@param offset? integer
---@param axis1? integer
---@param axis2? integer
---@return Tensor
---@overload fun(self: Tensor, options: {offset?: integer, axis1?: integer, axis2?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:diagonal(offset, axis1, axis2) end

--- The differences of neighbours along an axis (default last), taken n times (default 1).
---@param n? integer
---@param axis? integer
---@param prepend? Tensor
---@param append? Tensor
---@return Tensor
---@overload fun(self: Tensor, options: {n?: integer, axis?: integer, prepend?: Tensor, append?: Tensor, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:diff(n, axis, prepend, append) end

--- The derivative of lgamma.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:digamma() end

--- x / y: a float.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:div(y) end

--- The product over the last dim of x and the second last (the only one of a vector) of y; other dims stand behind each other.
---@param y Tensor
---@return Tensor
---@overload fun(self: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function Tensor:dot(y) end

--- The part of x with these sizes that begins at starts (0-based, computed).
---@param starts (integer|Tensor)[]
---@param sizes integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, starts: (integer|Tensor)[], sizes: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:dynamic_slice(starts, sizes) end

--- x with the part that begins at starts (0-based, computed) replaced by update.
---@param update Tensor
---@param starts (integer|Tensor)[]
---@return Tensor
---@overload fun(self: Tensor, update: Tensor, starts: (integer|Tensor)[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:dynamic_update_slice(update, starts) end

--- x == y, element by element: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:eq(y) end

--- The error function.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:erf() end

--- The inverse of the error function.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:erf_inv() end

--- 1 - erf(x), also where that is small.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:erfc() end

--- e^x.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:exp() end

--- 2^x.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:exp2() end

--- A dim of size 1 put in at `axis` of the result.
---@param axis integer
---@return Tensor
---@overload fun(self: Tensor, axis: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:expand_dims(axis) end

--- e^x - 1, also where x is near 0.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:expm1() end

--- The given axes backwards (default all).
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:flip(axes) end

--- The next whole number that is not larger.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:floor() end

--- x // y, rounded down.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:floor_divide(y) end

--- What is left of the division, with x's sign; of integers by 0 it is 0.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:fmod(y) end

--- A constant with the shape, dtype and sharding of x.
---@param value number|boolean
---@param dtype? DType
---@return Tensor
---@overload fun(self: Tensor, value: number|boolean, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:full_like(value, dtype) end

--- x >= y: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:ge(y) end

--- x > y: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:gt(y) end

--- How many elements fall into each of so many bins (default 10), or between edges; and the edges.
---@param bins? integer|number[]|Tensor
---@param range? number[]
---@param weights? Tensor
---@param density? boolean
---@return Tensor
---@return Tensor
---@overload fun(self: Tensor, options: {bins?: integer|number[]|Tensor, range?: number[], weights?: Tensor, density?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:histogram(bins, range, weights, density) end

--- sqrt(x^2 + y^2), without overflow.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:hypot(y) end

--- The piecewise linear function through the points (xp, fp), xp ascending, at x; left and right: what is beside them.
---@param xp Tensor
---@param fp Tensor
---@param left? number
---@param right? number
---@return Tensor
---@overload fun(self: Tensor, xp: Tensor, fp: Tensor, options: {left?: number, right?: number, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:interp(xp, fp, left, right) end

--- |x - y| <= atol + rtol |y| (default 1e-8, 1e-5), or both the same infinity, or with equal_nan both NaN: bool.
---@param y Tensor|number
---@param rtol? number
---@param atol? number
---@param equal_nan? boolean
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:isclose(y, rtol, atol, equal_nan) end

--- Neither infinite nor NaN: bool.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:isfinite() end

--- Infinite, of either sign: bool.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:isinf() end

--- Not a number: bool.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:isnan() end

--- Kronecker's product: each element of x times all of y, in its place.
---@param y Tensor
---@return Tensor
---@overload fun(self: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:kron(y) end

--- x <= y: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:le(y) end

--- The logarithm of the absolute value of the gamma function.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:lgamma() end

--- The natural logarithm.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:log() end

--- The logarithm to base 10.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:log10() end

--- log(1 + x), also where x is near 0.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:log1p() end

--- The logarithm to base 2.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:log2() end

--- x - log(sum(exp(x))) along an axis (default the last).
---@param axis? integer
---@return Tensor
---@overload fun(self: Tensor, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:log_softmax(axis) end

--- log(exp(x) + exp(y)), without overflow.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:logaddexp(y) end

--- log(x / (1 - x)).
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:logit() end

--- log(sum(exp(x))) over axes (default all), without overflow.
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:logsumexp(axes, keepdims) end

--- x < y: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:lt(y) end

--- The matrix product by numpy's rules: the last dim of x with the second last of w; leading dims broadcast. preferred_element_type: in which it adds up and comes, such as int32 of int8.
---@param w Tensor
---@return Tensor
---@overload fun(self: Tensor, w: Tensor, options: {out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function Tensor:matmul(w) end

--- The largest over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:max(axes, keepdims) end

--- The larger of both.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:maximum(y) end

--- The mean over axes (default all); integers become float32.
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:mean(axes, keepdims) end

--- The element in the middle over axes (default all), or the mean of the two.
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:median(axes, keepdims) end

--- The smallest over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:min(axes, keepdims) end

--- The smaller of both.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:minimum(y) end

--- What is left of x // y, with y's sign.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:mod(y) end

--- Axes moved to other places; the others keep their order.
---@param source integer|integer[]
---@param destination integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, source: integer|integer[], destination: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:moveaxis(source, destination) end

--- x * y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:mul(y) end

--- x with numbers for NaN (default 0) and the infinities (default the largest and the smallest of the dtype).
---@param nan? number
---@param posinf? number
---@param neginf? number
---@return Tensor
---@overload fun(self: Tensor, options: {nan?: number, posinf?: number, neginf?: number, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nan_to_num(nan, posinf, neginf) end

--- The largest that is not NaN, over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nanmax(axes, keepdims) end

--- The mean of what is not NaN, over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nanmean(axes, keepdims) end

--- The smallest that is not NaN, over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nanmin(axes, keepdims) end

--- The product of what is not NaN, over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nanprod(axes, keepdims) end

--- The sum of what is not NaN, over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nansum(axes, keepdims) end

--- x ~= y, element by element: bool.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:ne(y) end

--- -x.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:neg() end

--- The 0-based places of the first `size` elements that are not zero, one tensor for each dim; `fill` (default 0) behind them.
---@param size integer
---@param fill? integer
---@return Tensor
---@return any ...
---@overload fun(self: Tensor, size: integer, options: {fill?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:nonzero(size, fill) end

--- 1 where the last, new dim's 0-based position is the id, else 0; default float32.
---@param n integer
---@param dtype? DType
---@return Tensor
---@overload fun(self: Tensor, n: integer, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:one_hot(n, dtype) end

--- Ones with the shape, dtype and sharding of x.
---@param dtype? DType
---@return Tensor
---@overload fun(self: Tensor, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:ones_like(dtype) end

--- The product of each element of x with each of y: [x.size, y.size].
---@param y Tensor
---@return Tensor
---@overload fun(self: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:outer(y) end

--- x with a border: {{low, high[, interior]}, ...}, one (or false) for each dim; value: default 0; mode: "constant", or of x's elements "edge", "wrap", "reflect", "symmetric".
---@param pads table
---@param value? number
---@param mode? string
---@return Tensor
---@overload fun(self: Tensor, pads: table, options: {value?: number, mode?: string, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:pad(pads, value, mode) end

--- x ^ y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:pow(y) end

--- The product over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:prod(axes, keepdims) end

--- x with the elements that take_along_axis would take set to values, or combined with them.
---@param indices Tensor
---@param values Tensor|number
---@param axis integer
---@param combine? "set"|"add"|"mul"|"max"|"min"
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, indices: Tensor, values: Tensor|number, axis: integer, options: {combine?: "set"|"add"|"mul"|"max"|"min", mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:put_along_axis(indices, values, axis, combine, mode) end

--- What q (0 to 1, or a list, which becomes dim 1) of the elements over axes do not exceed; method: "linear", "lower", "higher", "midpoint", "nearest".
---@param q number|number[]
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param method? string
---@return Tensor
---@overload fun(self: Tensor, q: number|number[], options: {axes?: integer|integer[], keepdims?: boolean, method?: string, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:quantile(q, axes, keepdims, method) end

--- The largest, or the sum, of each window that slides over x.
---@param kind "max"|"sum"
---@param window integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, kind: "max"|"sum", window: integer|integer[], options: {out_sharding?: NamedSharding|P|table, padding?: "same"|"valid"|integer[][], strides?: integer|integer[]}): Tensor
function Tensor:reduce_window(kind, window) end

--- What is left of the division, with x's sign.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:rem(y) end

--- Each element `repeats` times, or the i-th repeats[i] times, along an axis; without one of x as a vector.
---@param repeats integer|integer[]
---@param axis? integer
---@return Tensor
---@overload fun(self: Tensor, repeats: integer|integer[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:repeat_interleave(repeats, axis) end

--- The same elements in another shape: {2, -1}, or 2, -1; one dim may be -1.
---@param ... integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:reshape(...) end

--- Elements moved on by `shift` along axes, those at the end to the front; without axes of x as a vector.
---@param shift integer|integer[]|Tensor
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, shift: integer|integer[]|Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:roll(shift, axes) end

--- The nearest whole number; halves to the even one.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:round() end

--- 1 / sqrt(x).
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:rsqrt() end

--- x with its rows `ids` (0-based) along an axis (default 1) replaced by the updates; mode as of take.
---@param ids Tensor
---@param updates Tensor|number
---@param axis? integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, updates: Tensor|number, options: {axis?: integer, mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:scatter_set(ids, updates, axis, mode) end

--- The 0-based places in the ascending vector a at which elements of v keep it sorted, before equal ones ("left", default) or behind them.
---@param v Tensor|number
---@param side? "left"|"right"
---@return Tensor
---@overload fun(self: Tensor, v: Tensor|number, options: {side?: "left"|"right", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:searchsorted(v, side) end

--- As segment_sum, of the largest; of no rows the least number.
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:segment_max(ids, n, mode) end

--- As segment_sum, of the smallest; of no rows the largest number.
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:segment_min(ids, n, mode) end

--- As segment_sum, of products; of no rows 1.
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:segment_prod(ids, n, mode) end

--- For each of n segments the sum of the rows of x whose id, one of each row, names it. Ids that are none of 0..n-1 are left out (mode: default "drop").
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:segment_sum(ids, n, mode) end

--- x << y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:shl(y) end

--- x >> y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:shr(y) end

--- 1 / (1 + exp(-x)).
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sigmoid() end

--- -1, 0 or 1.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sign() end

--- The sine.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sin() end

--- The hyperbolic sine.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sinh() end

--- A range of each dim, 1-based and inclusive: {first, last, step}, a position, whose dim is dropped, or false: whole.
---@param ... integer|table|false
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:slice(...) end

--- exp(x) / sum(exp(x)) along an axis (default the last).
---@param axis? integer
---@return Tensor
---@overload fun(self: Tensor, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:softmax(axis) end

--- The lines along an axis (default last) in ascending order, NaN last; further tensors are permuted alike.
---@param axis? integer
---@param descending? boolean
---@param ... Tensor
---@return Tensor
---@return any ...
---@overload fun(self: Tensor, options: {axis?: integer, descending?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sort(axis, descending, ...) end

--- The square root.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sqrt() end

--- x * x.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:square() end

--- Without the given dims of size 1 (default all of them).
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:squeeze(axes) end

--- The standard deviation over axes (default all).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param ddof? integer
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, ddof?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:std(axes, keepdims, ddof) end

--- x as a constant to gradients.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:stop_gradient() end

--- x - y.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sub(y) end

--- The sum over axes (default all); keepdims leaves dims of size 1.
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:sum(axes, keepdims) end

--- Two axes exchanged.
---@param a integer
---@param b integer
---@return Tensor
---@overload fun(self: Tensor, a: integer, b: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:swapaxes(a, b) end

--- The last two dims exchanged.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:T() end

--- Rows of x by 0-based id along an axis (default 1): the ids' shape takes the axis's place. Below 0 they count from the end; one beyond both ends is an error, or by mode `fill` (default NaN), the nearest end ("clip"), or goes on at the other ("wrap").
---@param ids Tensor
---@param axis? integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@param fill? number|boolean
---@return Tensor
---@overload fun(self: Tensor, ids: Tensor, options: {axis?: integer, mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:take(ids, axis, mode, fill) end

--- The elements of each line of x along an axis at 0-based indices; beside it dims of size 1 stretch. Mode as of take.
---@param indices Tensor
---@param axis integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@param fill? number|boolean
---@return Tensor
---@overload fun(self: Tensor, indices: Tensor, axis: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:take_along_axis(indices, axis, mode, fill) end

--- The tangent.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:tan() end

--- The hyperbolic tangent.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:tanh() end

--- The product over the last n axes of x and the first n of y (default 2), or over {axes of x, axes of y}.
---@param y Tensor
---@param axes? integer|table
---@return Tensor
---@overload fun(self: Tensor, y: Tensor, options: {axes?: integer|table, out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function Tensor:tensordot(y, axes) end

--- x as often as `reps` says along each dim; dims align at the end.
---@param reps integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, reps: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:tile(reps) end

--- The k largest along an axis (default last), falling, and their 0-based places.
---@param k integer
---@param axis? integer
---@return Tensor
---@return Tensor
---@overload fun(self: Tensor, k: integer, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:top_k(k, axis) end

--- The sum of the diagonal, as `diagonal` takes it.
---@param offset? integer
---@param axis1? integer
---@param axis2? integer
---@return Tensor
---@overload fun(self: Tensor, options: {offset?: integer, axis1?: integer, axis2?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:trace(offset, axis1, axis2) end

--- The dims in another order: {3, 1, 2}, or 3, 1, 2; without axes reversed.
---@param ... integer|integer[]
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:transpose(...) end

--- Matrices with zeros above the k-th diagonal (default 0: the main one).
---@param k? integer
---@return Tensor
---@overload fun(self: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:tril(k) end

--- Matrices with zeros below the k-th diagonal (default 0: the main one).
---@param k? integer
---@return Tensor
---@overload fun(self: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:triu(k) end

--- The next whole number toward 0.
---@return Tensor
---@overload fun(self: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:trunc() end

--- The first `size` different elements, ascending, and `fill` (default the least) behind them; then, on request, the place of the first of each, for each element of x the number of its own, and counts.
---@param size integer
---@param fill? number|boolean
---@return Tensor
---@return any ...
---@overload fun(self: Tensor, size: integer, options: {fill?: number|boolean, counts?: boolean, index?: boolean, inverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:unique(size, fill) end

--- The variance over axes (default all), divided by n - ddof (default 0).
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param ddof? integer
---@return Tensor
---@overload fun(self: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, ddof?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:var(axes, keepdims, ddof) end

--- x log(y), 0 where x is 0.
---@param y Tensor|number
---@return Tensor
---@overload fun(self: Tensor, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:xlogy(y) end

--- Zeros with the shape, dtype and sharding of x.
---@param dtype? DType
---@return Tensor
---@overload fun(self: Tensor, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function Tensor:zeros_like(dtype) end

--- x cut along an axis (default 1) into n equal parts, or behind the elements that a list counts: {2, 5}.
---@param n integer|integer[]
---@param axis? integer
---@return Tensor[]
function Tensor:split(n, axis) end

--- As ml.constrain.
---@param spec P|NamedSharding|table
---@return Tensor
function Tensor:constrain(spec) end

--- As ml.block_until_ready.
---@return any
function Tensor:block_until_ready() end

--- Where the bytes of a shard are, in memory; slot: from 0.
---@param slot? integer
---@return integer
function Tensor:address(slot) end

--- The data of the i-th shard (1-based), on one device.
---@param i integer
---@return Tensor
function Tensor:addressable_data(i) end

--- The shards of this process: a list of {device, index, data, ...}.
---@return table
function Tensor:addressable_shards() end

--- The shards of all processes; data of this one's alone.
---@return table
function Tensor:global_shards() end

--- Its elements as a string, little-endian, row-major.
---@return string
function Tensor:bytes() end

--- Was it donated or released?
---@return boolean
function Tensor:is_deleted() end

--- Is it a value of a trace, not known yet?
---@return boolean
function Tensor:is_traced() end

--- The only element, as a Lua value.
---@return number|boolean
function Tensor:item() end

--- Bytes on all devices together.
---@return integer
function Tensor:on_device_size_in_bytes() end

--- Frees the bytes now.
function Tensor:release() end

--- Its elements as nested lists.
---@return table
function Tensor:totable() end

---@class At
local At = {}

--- What the ids of x:at(ids) name; mode as of take.
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@param fill? number|boolean
---@return Tensor
function At:get(mode, fill) end

--- x with that replaced by u, which stretches to it; of several updates of one place the last.
---@param u Tensor|number|boolean
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
function At:set(u, mode) end

--- x with u added there, of several of one place all.
---@param u Tensor|number
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
function At:add(u, mode) end

--- The same of products.
---@param u Tensor|number
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
function At:mul(u, mode) end

--- The same of the largest.
---@param u Tensor|number
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
function At:max(u, mode) end

--- The same of the smallest.
---@param u Tensor|number
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
function At:min(u, mode) end

---@class Param: Tensor
---@field kind string "param", "batch_stat", "rng", "opt_state", ...
---@field axes table|P A logical name for each dim, or a P.
---@field opt_axes table|P The same for the optimizer's state.
---@field role string "kernel", "bias", "scale", "embedding".
local Param = {}

--- The tensor that it holds.
---@return Tensor
function Param:get() end

--- Puts a tensor in its place; in a trace, for good when the trace ends well.
---@param value Tensor
---@return Param
function Param:set(value) end

---@class Mesh
---@field abstract_mesh Mesh Its names, sizes and axis types, without devices.
---@field auto_axes string[] The axes that are auto.
---@field axis_names string[] Their names.
---@field axis_sizes integer[] Their sizes.
---@field axis_types string[] "auto", "explicit" or "manual" for each.
---@field device_ids integer[] The ids of its devices, flat.
---@field devices table The same, nested.
---@field explicit_axes string[] The axes that are explicit.
---@field is_abstract boolean Has it no devices?
---@field is_multi_process boolean Are devices of other processes in it?
---@field local_devices integer[] The devices of this process.
---@field local_mesh Mesh The mesh of the devices of this process alone.
---@field manual_axes string[] The axes that are manual.
---@field shape table<string, integer> Name -> size.
---@field size integer How many devices.
local Mesh = {}

--- Calls fn(...) with this mesh (and rules) in context.
---@param rules? table|function
---@param fn? function
---@param ... any
---@return any
function Mesh:with(rules, fn, ...) end

---@class NamedSharding
---@field device_ids integer[] The ids of the devices, in the mesh's order.
---@field is_fully_addressable boolean Are all devices this process's?
---@field is_fully_replicated boolean Has every device the whole?
---@field mesh Mesh Its mesh; nil for one device.
---@field num_devices integer How many devices.
---@field replicated_axes string[] The mesh axes that the spec does not name.
---@field spec P Its P; nil for one device.
local NamedSharding = {}

--- Device id -> index of its shard, for this process.
---@param shape integer|integer[]
---@return table
function NamedSharding:addressable_devices_indices_map(shape) end

--- Raises if a tensor of that shape, called `what`, cannot lie so.
---@param shape integer|integer[]
---@param what string
function NamedSharding:check(shape, what) end

--- Device id -> index of its shard of a tensor of this shape.
---@param shape integer|integer[]
---@return table
function NamedSharding:devices_indices_map(shape) end

--- Does it place tensors of this rank as the other does?
---@param other NamedSharding
---@param ndim integer
---@return boolean
function NamedSharding:is_equivalent_to(other, ndim) end

--- The shape of one shard.
---@param shape integer|integer[]
---@return integer|integer[]
function NamedSharding:shard_shape(shape) end

---@class P
---@field partitions table Its entries, false where a dim is whole.
---@field reduced string[] Axes that are reduced.
---@field unreduced string[] Axes over which a sum is still to be made.
---@field unreduced_kind string "sum", "max", "min", or nil.
local P = {}

--- A P like this one with some of its fields replaced.
---@param options? {partitions?: table, reduced?: string[], unreduced?: string[], unreduced_kind?: string}
---@return P
function P:update(options) end

---@class DistributedConfig
local DistributedConfig = {}

--- How many copies of the model there are.
---@return integer
function DistributedConfig:data_parallel_size() end

--- Is this process the first of its host?
---@return boolean
function DistributedConfig:is_local_main_process() end

--- Is this process rank 0?
---@return boolean
function DistributedConfig:is_main_process() end

---@class JittedFunction
---@overload fun(...: any): any
local JittedFunction = {}

--- The step with its first arguments given, to be called with the rest.
---@param ... any
---@return function
function JittedFunction:bind(...) end

--- The program of one device, with its collectives.
---@param ... any
---@return Lowered
function JittedFunction:lower(...) end

--- The plan for these arguments.
---@param ... any
---@return Plan
function JittedFunction:plan(...) end

--- The program, for the library's own reports.
---@param ... any
---@return Program
function JittedFunction:program(...) end

--- Calls that found a plan, calls that were traced.
---@return integer
---@return integer
function JittedFunction:stats() end

--- The ops as written.
---@param ... any
---@return Traced
function JittedFunction:trace(...) end

--- Why the last call was traced.
---@return string
function JittedFunction:why_miss() end

---@class Traced
---@field in_avals table The types of what goes in.
---@field out_avals table The types of what comes out.
local Traced = {}

--- The program as written.
---@return string
function Traced:as_text() end

--- The program of one device.
---@return Lowered
function Traced:lower() end

---@class Lowered
---@field in_avals table The types of what goes in.
---@field out_avals table The types of what comes out.
local Lowered = {}

--- The program of one device, or as it is after another stage.
---@param stage? string
---@return string
function Lowered:as_text(stage) end

--- What runs.
---@return Compiled
function Lowered:compile() end

---@class Compiled
---@overload fun(...: any): any
---@field in_avals table The types of what goes in.
---@field out_avals table The types of what comes out.
---@field input_shardings table How arguments lie.
---@field output_shardings table How results lie.
local Compiled = {}

--- The plan, or the program after another stage.
---@param stage? string
---@return string
function Compiled:as_text(stage) end

--- What a call costs each device.
---@return table
function Compiled:cost_analysis() end

--- What a call holds on each device, in bytes.
---@return table
function Compiled:memory_analysis() end

---@class BatchNorm: Module
---@overload fun(x: Tensor): Tensor
local BatchNorm = {}

---@class Bidirectional: Module
---@overload fun(x: Tensor, options?: {initial_carry?: table, seq_lengths?: Tensor}): Tensor
local Bidirectional = {}

---@class Conv: Module
---@overload fun(x: Tensor): Tensor
local Conv = {}

---@class ConvTranspose: Module
---@overload fun(x: Tensor): Tensor
local ConvTranspose = {}

---@class Dropout: Module
---@overload fun(x: Tensor, rngs?: table): Tensor
local Dropout = {}

--- The key of a call, or nil where nothing is dropped.
---@param rngs? table
---@return Tensor
function Dropout:key(rngs) end

---@class Embed: Module
---@overload fun(ids: Tensor): Tensor
local Embed = {}

--- The product of each vector with every row of the table: logits.
---@param x Tensor
---@return Tensor
function Embed:attend(x) end

---@class GroupNorm: Module
---@overload fun(x: Tensor): Tensor
local GroupNorm = {}

---@class GRUCell: Module
---@overload fun(carry: Tensor, x: Tensor): Tensor
local GRUCell = {}

--- Zeros for the rows of one step's x.
---@param x Tensor
---@return Tensor
function GRUCell:initialize_carry(x) end

---@class InstanceNorm: Module
---@overload fun(x: Tensor): Tensor
local InstanceNorm = {}

---@class LayerNorm: Module
---@overload fun(x: Tensor): Tensor
local LayerNorm = {}

---@class Linear: Module
---@overload fun(x: Tensor): Tensor
local Linear = {}

---@class LSTMCell: Module
---@overload fun(carry: table, x: Tensor): table
local LSTMCell = {}

--- Zeros for the rows of one step's x.
---@param x Tensor
---@return table
function LSTMCell:initialize_carry(x) end

---@class MoE: Module
---@overload fun(x: Tensor): Tensor
local MoE = {}

--- How many tokens of a group an expert has room for.
---@param tokens integer
---@return integer
function MoE:capacity(tokens) end

---@class MultiHeadAttention: Module
---@overload fun(x: Tensor, options?: {bias?: Tensor, cache?: table, causal?: boolean, kv?: Tensor, lengths?: Tensor, mask?: Tensor, rngs?: table, segment_ids?: Tensor|table}): Tensor
local MultiHeadAttention = {}

--- The layer's part of a cache: see ml.cache.
---@param make function
---@param walk function
---@return table
function MultiHeadAttention:new_cache(make, walk) end

---@class RMSNorm: Module
---@overload fun(x: Tensor): Tensor
local RMSNorm = {}

---@class Rngs: Module
local Rngs = {}

---@class RngStream: Module
---@overload fun(): Tensor
local RngStream = {}

--- A stream of its own, started with the next key of this one.
---@return RngStream
function RngStream:fork() end

---@class RNN: Module
---@overload fun(x: Tensor, options?: {initial_carry?: Tensor|table|number, seq_lengths?: Tensor}): Tensor
local RNN = {}

---@class Sequential: Module
---@overload fun(x: any, ...: any): any
local Sequential = {}

---@class SimpleCell: Module
---@overload fun(carry: Tensor, x: Tensor): Tensor
local SimpleCell = {}

--- Zeros for the rows of one step's x.
---@param x Tensor
---@return Tensor
function SimpleCell:initialize_carry(x) end

---@class WeightNorm: Module
---@overload fun(...: any): any
local WeightNorm = {}

---@class Module
local Module = {}

--- Switches the module and all in it to evaluation; returns it.
---@return table
function Module:eval() end

--- Switches the module and all in it to training; returns it.
---@return table
function Module:train() end

---@class EMA
local EMA = {}

--- The model with the means in the place of its Params.
---@param model table
---@return table
function EMA:apply_to(model) end

--- Moves the means toward the model's Params.
---@param model table
---@param options? {apply?: Tensor}
function EMA:update(model, options) end

---@class Optimizer
local Optimizer = {}

--- One step: the Params and the state are written. Gives {grad_norm, finite}.
---@param model table
---@param grads table
---@param options? {apply?: Tensor, if_finite?: boolean}
---@return table
function Optimizer:update(model, grads, options) end

---@class LossScale
local LossScale = {}

--- The loss to differentiate.
---@param loss Tensor
---@return Tensor
function LossScale:scaled(loss) end

--- The gradients of the loss itself.
---@param grads table
---@return table
function LossScale:unscaled(grads) end

--- Takes note of an update's outcome.
---@param finite Tensor
function LossScale:note(finite) end

---@class Manager
local Manager = {}

--- Waits for the save under way, and gives the folder free.
---@return boolean
function Manager:close() end

--- The newest step that can be restored, or nil.
---@return integer
function Manager:latest() end

--- Reads a step into trees of Params, wherever they lie.
---@param trees table
---@param options? {cast?: boolean, partial?: boolean, pass_over?: boolean, step?: integer}
---@return table
function Manager:restore(trees, options) end

--- Saves trees of Params as a step, while training goes on.
---@param step integer
---@param trees table
---@param options? {force?: boolean, metrics?: table, state?: table}
---@return boolean
function Manager:save(step, trees, options) end

--- The steps that can be restored.
---@return integer[]
function Manager:steps() end

--- Waits until the save under way is committed.
---@return boolean
function Manager:wait() end

---@class Cache
local Cache = {}

--- How many tokens each row has.
---@return integer[]
function Cache:filled() end

--- Begins a call of a model: what its layers take, by their paths; ids below 0 are no tokens.
---@param ids Tensor
---@return Past
function Cache:open(ids) end

--- Forgets what is behind the first tokens of each row.
---@param lengths? integer[]
function Cache:rewind(lengths) end

---@class ChatTemplate
---@field source string Its text.
local ChatTemplate = {}

--- The text of messages and whatever else a template knows by name; or nil, message, code.
---@param variables table
---@return string
---@return string
---@return string
function ChatTemplate:render(variables) end

---@class Past
local Past = {}

--- Ends the call: its tokens count from now on.
function Past:close() end

--- Of x [batch, T, ...] what belongs to each row's last token, [batch, 1, ...].
---@param x Tensor
---@return Tensor
function Past:last(x) end

---@class Plan
local Plan = {}

--- What lies where in memory, when.
---@return table
function Plan:buffers() end

--- Its collectives, each with lines, tensors, bytes, axes, reasons.
---@return table
function Plan:collectives() end

--- Donations so far that needed a copy.
---@return integer
function Plan:copies() end

--- Operations of each device, in the order of the mesh: they may differ where devices skip branches.
---@return number[]
function Plan:device_flops() end

--- Does it fit on a device; if not, why.
---@return boolean
---@return string
function Plan:fits() end

--- Operations of one device: of the one that has the most, and of the one that has the fewest.
---@return number
---@return number
function Plan:flops() end

--- Bytes on one device, by kind.
---@return table
function Plan:memory() end

--- The mesh of its layouts, or nil.
---@return Mesh
function Plan:mesh() end

--- Its steps.
---@return table
function Plan:steps() end

---@class Program
local Program = {}

--- Of a value in shard_map what each device has, as a value.
---@param value integer
---@return integer
function Program:blocks(value) end

--- Appends what a node does inside, in an iteration or branch; the number of its first node.
---@param node integer
---@param which integer
---@return integer
function Program:body(node, which) end

--- Frees it.
function Program:close() end

--- Of a value whether it has an infinity (0), a NaN (1) or neither (-1), as a value.
---@param value integer
---@param stacked? boolean
---@return integer
function Program:flag(value, stacked) end

--- Its ops.
---@return table
function Program:nodes() end

--- What goes in.
---@return table
function Program:params() end

--- Its plan.
---@return Plan
function Program:plan() end

--- The values that come out.
---@return table
function Program:results() end

--- Runs it with other inputs or results.
---@param ... any
---@return any
function Program:run(...) end

--- Of a value the sum of its bits, as a value.
---@param value integer
---@return integer
function Program:sum(value) end

--- The type of a value as it will lie, and who split it.
---@param value integer
---@return string
---@return string
function Program:why(value) end

---@class Tokenizer
---@field bos integer The id that begins a text; nil where there is none.
---@field chat_template string The template of conversations, as text; nil where there is none.
---@field eos integer The id that ends a text; nil where there is none.
---@field size integer How many ids there are.
---@field stops integer[] The ids that end a turn.
local Tokenizer = {}

--- The bytes of ids; special: of special tokens, too.
---@param ids integer[]
---@param options? {special?: boolean}
---@return string
function Tokenizer:decode(ids, options) end

--- The ids of a text, from 0; offsets: and a list of {begin, end}, in bytes from 0. special: what is done with the text of special tokens; default false: it is text. bos, eos: default as the file says.
---@param text string
---@param options? {bos?: boolean, eos?: boolean, offsets?: boolean, special?: boolean|"refuse"}
---@return integer[]
---@return table?
function Tokenizer:encode(text, options) end

--- The ids of each text, over the processor's threads.
---@param texts string[]
---@param options? {bos?: boolean, eos?: boolean, special?: boolean|"refuse"}
---@return table
function Tokenizer:encode_batch(texts, options) end

--- The id of a piece (its bytes) or a special token; nil where there is none.
---@param piece string
---@return integer
function Tokenizer:id(piece) end

--- The bytes of an id.
---@param id integer
---@return string
function Tokenizer:piece(id) end

--- Writes a tokenizer.json. Or nil, message, code.
---@param path string
---@return boolean
function Tokenizer:save(path) end

--- A function from the next id to the text that is complete with it; without an id, to the rest.
---@param options? {special?: boolean}
---@return function
function Tokenizer:stream(options) end

--- The ids of a text file, or of bytes that data.tokens gave, for training. Or nil, message, code.
---@param source string|Tokens
---@param options? {bos?: boolean, eos?: boolean, special?: boolean|"refuse"}
---@return Tokens
function Tokenizer:tokens(source, options) end

---@class Tokens
local Tokens = {}

--- The ids as bytes.
---@param first? integer
---@param last? integer
---@return string
function Tokens:bytes(first, last) end

--- Where the pieces between marks begin and end, as a list: the mark is an id, or a text of up to 16 bytes. It belongs to no piece; keep "end": to the one before it, "start": to the one behind.
---@param mark integer|string
---@param keep? string
---@return Tokens
function Tokens:cut(mark, keep) end

--- The largest id of a range, and its first place.
---@param first? integer
---@param last? integer
---@return integer
---@return integer?
function Tokens:largest(first, last) end

--- The ids as a list.
---@param first? integer
---@param last? integer
---@return integer[]
function Tokens:numbers(first, last) end

--- The file that has id number `at` (from 0), and its first byte there.
---@param at integer
---@return string?
---@return integer
function Tokens:place(at) end

--- Bytes per id.
---@return integer
function Tokens:width() end

--- Rows of ids that begin at the starts (from 0); both: and those that begin one later, read at once.
---@param starts table
---@param shape integer|integer[]
---@param dtype DType
---@param sharding? NamedSharding|P
---@param both? boolean
---@return Tensor
---@return Tensor?
function Tokens:windows(starts, shape, dtype, sharding, both) end

---@class Records
local Records = {}

--- The given records (ids from 0): a tensor of each field.
---@param ids integer[]
---@param shardings? table
---@return table
function Records:batch(ids, shardings) end

--- All records in order, in batches of one size.
---@param size integer
---@param shardings? table
---@return function
function Records:each(size, shardings) end

--- Those for which pick(record, id) is true; all are looked at once. file: where the index of them is kept.
---@param pick function
---@param options? {file?: string}
---@return Records
function Records:filter(pick, options) end

--- Says for each field whether the data is the same.
---@return table
function Records:fingerprint() end

--- One record (ids from 0), as numbers in nested lists and texts.
---@param id integer
---@return table
function Records:get(id) end

--- What fn(record, id) makes of each: tables of fields. The name of a module that returns fn: in threads, ahead of the step.
---@param fn string|function
---@param options? {workers?: integer}
---@return Records
function Records:map(fn, options) end

--- Batches in random order: called with a step (from 1) they give its batch, and begin those behind it.
---@param options? {batch?: integer, prefetch?: integer, seed?: integer, shardings?: table}
---@return Batches
function Records:shuffled(options) end

---@class Batches
---@overload fun(step: integer): table
local Batches = {}

--- The step that has a record (ids from 0), and its row there; epoch: how often all have come before.
---@param id integer
---@param epoch? integer
---@return integer
---@return integer
function Batches:where(id, epoch) end

---@class Accuracy: Module
local Accuracy = {}

--- The share so far, a scalar.
---@return Tensor
function Accuracy:compute() end

--- Forgets what it was given.
function Accuracy:reset() end

--- Takes in logits [..., classes] and 0-based labels [...]; weights: of each label; count: only so many rows count.
---@param logits Tensor
---@param labels Tensor
---@param options? {count?: integer|Tensor, weights?: Tensor}
function Accuracy:update(logits, labels, options) end

---@class Mean: Module
local Mean = {}

--- The mean so far, a scalar.
---@return Tensor
function Mean:compute() end

--- Forgets what it was given.
function Mean:reset() end

--- Takes in values; weights: of each, or of each of the first dims; count: only so many of the first dim count.
---@param values Tensor|number
---@param options? {count?: integer|Tensor, weights?: Tensor}
function Mean:update(values, options) end

---@class MultiMetric: Module
local MultiMetric = {}

--- The value of each, a scalar.
---@return table
function MultiMetric:compute() end

--- Forgets what they were given.
function MultiMetric:reset() end

--- Gives each what it asks for by name, and all of them weights and count where these are given.
---@param values table
function MultiMetric:update(values) end

---@class Perplexity: Module
local Perplexity = {}

--- The perplexity so far, a scalar.
---@return Tensor
function Perplexity:compute() end

--- Forgets what it was given.
function Perplexity:reset() end

--- Takes in losses; weights, count: as in Mean:update.
---@param loss Tensor
---@param options? {count?: integer|Tensor, weights?: Tensor}
function Perplexity:update(loss, options) end

---@class Trainer
local Trainer = {}

--- Trains on these records or on the recipe's: what the program writes into result.json.
---@param train? Records
---@param val? Records
---@return table
function Trainer:train(train, val) end

---@class meshlua
local ml = {Auto = "auto", Explicit = "explicit", Manual = "manual"}

ml.checkpoint = {}
ml.data = {}
ml.linalg = {}
ml.metrics = {}
ml.nn = {}
ml.nn.initializers = {}
ml.optim = {}
ml.profile = {}
ml.random = {}
ml.remat_policies = {}
ml.schedule = {}
ml.train = {}
ml.tree = {}

--- The absolute value.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.abs(x) end

--- The inverse of cos, in [0, pi].
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.acos(x) end

--- The inverse of cosh, from 0 on.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.acosh(x) end

--- x + y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.add(x, y) end

--- Are all true, over axes (default all)?
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.all(x, axes, keepdims) end

--- Is isclose true of all?
---@param x Tensor|number
---@param y Tensor|number
---@param rtol? number
---@param atol? number
---@param equal_nan? boolean
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.allclose(x, y, rtol, atol, equal_nan) end

--- Is any true, over axes (default all)?
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.any(x, axes, keepdims) end

--- The 0-based place of the first largest along an axis; without one, in row-major order.
---@param x Tensor
---@param axis? integer
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axis?: integer, keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.argmax(x, axis, keepdims) end

--- The 0-based place of the first smallest along an axis; without one, in row-major order.
---@param x Tensor
---@param axis? integer
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axis?: integer, keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.argmin(x, axis, keepdims) end

--- The 0-based places that sorting along an axis (default last) would take: stable, NaN last.
---@param x Tensor
---@param axis? integer
---@param descending? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axis?: integer, descending?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.argsort(x, axis, descending) end

--- x cut along an axis (default 1) into n parts whose sizes differ by 1 at most, or as split does by a list.
---@param x Tensor
---@param n integer|integer[]
---@param axis? integer
---@return Tensor[]
---@overload fun(x: Tensor, n: integer|integer[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor[]
function ml.array_split(x, n, axis) end

--- The inverse of sin, in [-pi/2, pi/2].
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.asin(x) end

--- The inverse of sinh.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.asinh(x) end

--- x as another dtype; floats become integers by cutting toward zero.
---@param x Tensor
---@param dtype DType
---@return Tensor
---@overload fun(x: Tensor, dtype: DType, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.astype(x, dtype) end

--- x at position i (1-based) of its first dim, which is dropped; more positions go on with the next. By tensors of ids (0-based; false: a whole dim), or a mask: what x:at(ids):get(), :set(u), :add(u), :mul(u), :max(u) and :min(u) read or change.
---@param x Tensor
---@param ... integer|table|Tensor|false
---@return Tensor|At
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor|At
function ml.at(x, ...) end

--- The inverse of tan, in (-pi/2, pi/2).
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.atan(x) end

--- The angle of the point that is y along and x up: atan(x / y) in all four quadrants.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.atan2(x, y) end

--- The inverse of tanh.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.atanh(x) end

--- How often each of 0, 1, ... stands in x, or the sum of its weights; `length`: how many are counted (default up to the largest, at least minlength).
---@param x Tensor
---@param weights? Tensor
---@param minlength? integer
---@param length? integer
---@return Tensor
---@overload fun(x: Tensor, options: {weights?: Tensor, minlength?: integer, length?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.bincount(x, weights, minlength, length) end

--- x & y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.bitand(x, y) end

--- The bits of x as another dtype of the same width.
---@param x Tensor
---@param dtype DType
---@return Tensor
---@overload fun(x: Tensor, dtype: DType, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.bitcast(x, dtype) end

--- ~x.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.bitnot(x) end

--- x | y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.bitor(x, y) end

--- x ~ y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.bitxor(x, y) end

--- x repeated to a larger shape by numpy's rule: dims align at the end, size 1 stretches.
---@param x Tensor
---@param ... integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.broadcast(x, ...) end

--- The next whole number that is not smaller.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.ceil(x) end

--- x within [low, high]; either may be nil.
---@param x Tensor
---@param low? Tensor|number
---@param high? Tensor|number
---@return Tensor
---@overload fun(x: Tensor, options: {low?: Tensor|number, high?: Tensor|number, out_sharding?: NamedSharding|P|table}): Tensor
function ml.clip(x, low, high) end

--- The first `size` rows along an axis (default 1) that a mask marks, and `fill` (default 0) behind them.
---@param x Tensor
---@param mask Tensor
---@param size integer
---@param axis? integer
---@param fill? number|boolean
---@return Tensor
---@overload fun(x: Tensor, mask: Tensor, size: integer, options: {axis?: integer, fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.compress(x, mask, size, axis, fill) end

--- The convolution of x [batch, spatial..., in] with w [spatial..., in / groups, out]; padding: default "valid".
---@param x Tensor
---@param w Tensor
---@return Tensor
---@overload fun(x: Tensor, w: Tensor, options: {groups?: integer, input_dilation?: integer|integer[], kernel_dilation?: integer|integer[], out_sharding?: NamedSharding|P|table, padding?: "same"|"valid"|integer[][], preferred_element_type?: DType, strides?: integer|integer[]}): Tensor
function ml.conv(x, w) end

--- The cosine.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.cos(x) end

--- The hyperbolic cosine.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.cosh(x) end

--- The largest of the elements up to each one along an axis; reverse: from each one on.
---@param x Tensor
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(x: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.cummax(x, axis, reverse) end

--- The smallest of the elements up to each one along an axis; reverse: from each one on.
---@param x Tensor
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(x: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.cummin(x, axis, reverse) end

--- Products of the elements up to each one along an axis; reverse: from each one on.
---@param x Tensor
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(x: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.cumprod(x, axis, reverse) end

--- Sums of the elements up to each one along an axis, itself among them; reverse: from each one on.
---@param x Tensor
---@param axis integer
---@param reverse? boolean
---@return Tensor
---@overload fun(x: Tensor, axis: integer, options: {reverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.cumsum(x, axis, reverse) end

--- The matrix that has a vector as its k-th diagonal (default 0), or that diagonal of a matrix.
---@param x Tensor
---@param k? integer
---@return Tensor
---@overload fun(x: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.diag(x, k) end

--- The diagonals of matrices over two axes (default 1 and 2), as the last dim; `offset` above the main one.
---@param x Tensor
---@param offset? integer
---@param axis1? integer
---@param axis2? integer
---@return Tensor
---@overload fun(x: Tensor, options: {offset?: integer, axis1?: integer, axis2?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.diagonal(x, offset, axis1, axis2) end

--- The differences of neighbours along an axis (default last), taken n times (default 1).
---@param x Tensor
---@param n? integer
---@param axis? integer
---@param prepend? Tensor
---@param append? Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {n?: integer, axis?: integer, prepend?: Tensor, append?: Tensor, out_sharding?: NamedSharding|P|table}): Tensor
function ml.diff(x, n, axis, prepend, append) end

--- The derivative of lgamma.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.digamma(x) end

--- x / y: a float.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.div(x, y) end

--- The product over the last dim of x and the second last (the only one of a vector) of y; other dims stand behind each other.
---@param x Tensor
---@param y Tensor
---@return Tensor
---@overload fun(x: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function ml.dot(x, y) end

--- The part of x with these sizes that begins at starts (0-based, computed).
---@param x Tensor
---@param starts (integer|Tensor)[]
---@param sizes integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, starts: (integer|Tensor)[], sizes: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.dynamic_slice(x, starts, sizes) end

--- x with the part that begins at starts (0-based, computed) replaced by update.
---@param x Tensor
---@param update Tensor
---@param starts (integer|Tensor)[]
---@return Tensor
---@overload fun(x: Tensor, update: Tensor, starts: (integer|Tensor)[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.dynamic_update_slice(x, update, starts) end

--- x == y, element by element: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.eq(x, y) end

--- The error function.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.erf(x) end

--- The inverse of the error function.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.erf_inv(x) end

--- 1 - erf(x), also where that is small.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.erfc(x) end

--- e^x.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.exp(x) end

--- 2^x.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.exp2(x) end

--- A dim of size 1 put in at `axis` of the result.
---@param x Tensor
---@param axis integer
---@return Tensor
---@overload fun(x: Tensor, axis: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.expand_dims(x, axis) end

--- e^x - 1, also where x is near 0.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.expm1(x) end

--- The given axes backwards (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.flip(x, axes) end

--- The next whole number that is not larger.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.floor(x) end

--- x // y, rounded down.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.floor_divide(x, y) end

--- What is left of the division, with x's sign; of integers by 0 it is 0.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.fmod(x, y) end

--- A constant with the shape, dtype and sharding of x.
---@param x Tensor
---@param value number|boolean
---@param dtype? DType
---@return Tensor
---@overload fun(x: Tensor, value: number|boolean, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.full_like(x, value, dtype) end

--- x >= y: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.ge(x, y) end

--- x > y: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.gt(x, y) end

--- How many elements fall into each of so many bins (default 10), or between edges; and the edges.
---@param x Tensor
---@param bins? integer|number[]|Tensor
---@param range? number[]
---@param weights? Tensor
---@param density? boolean
---@return Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {bins?: integer|number[]|Tensor, range?: number[], weights?: Tensor, density?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.histogram(x, bins, range, weights, density) end

--- sqrt(x^2 + y^2), without overflow.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.hypot(x, y) end

--- The piecewise linear function through the points (xp, fp), xp ascending, at x; left and right: what is beside them.
---@param x Tensor
---@param xp Tensor
---@param fp Tensor
---@param left? number
---@param right? number
---@return Tensor
---@overload fun(x: Tensor, xp: Tensor, fp: Tensor, options: {left?: number, right?: number, out_sharding?: NamedSharding|P|table}): Tensor
function ml.interp(x, xp, fp, left, right) end

--- |x - y| <= atol + rtol |y| (default 1e-8, 1e-5), or both the same infinity, or with equal_nan both NaN: bool.
---@param x Tensor|number
---@param y Tensor|number
---@param rtol? number
---@param atol? number
---@param equal_nan? boolean
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.isclose(x, y, rtol, atol, equal_nan) end

--- Neither infinite nor NaN: bool.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.isfinite(x) end

--- Infinite, of either sign: bool.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.isinf(x) end

--- Not a number: bool.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.isnan(x) end

--- Kronecker's product: each element of x times all of y, in its place.
---@param x Tensor
---@param y Tensor
---@return Tensor
---@overload fun(x: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.kron(x, y) end

--- x <= y: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.le(x, y) end

--- The logarithm of the absolute value of the gamma function.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.lgamma(x) end

--- The natural logarithm.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.log(x) end

--- The logarithm to base 10.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.log10(x) end

--- log(1 + x), also where x is near 0.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.log1p(x) end

--- The logarithm to base 2.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.log2(x) end

--- x - log(sum(exp(x))) along an axis (default the last).
---@param x Tensor
---@param axis? integer
---@return Tensor
---@overload fun(x: Tensor, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.log_softmax(x, axis) end

--- log(exp(x) + exp(y)), without overflow.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.logaddexp(x, y) end

--- log(x / (1 - x)).
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.logit(x) end

--- log(sum(exp(x))) over axes (default all), without overflow.
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.logsumexp(x, axes, keepdims) end

--- x < y: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.lt(x, y) end

--- The matrix product by numpy's rules: the last dim of x with the second last of w; leading dims broadcast. preferred_element_type: in which it adds up and comes, such as int32 of int8.
---@param x Tensor
---@param w Tensor
---@return Tensor
---@overload fun(x: Tensor, w: Tensor, options: {out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function ml.matmul(x, w) end

--- The largest over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.max(x, axes, keepdims) end

--- The larger of both.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.maximum(x, y) end

--- The mean over axes (default all); integers become float32.
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.mean(x, axes, keepdims) end

--- The element in the middle over axes (default all), or the mean of the two.
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.median(x, axes, keepdims) end

--- The smallest over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.min(x, axes, keepdims) end

--- The smaller of both.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.minimum(x, y) end

--- What is left of x // y, with y's sign.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.mod(x, y) end

--- Axes moved to other places; the others keep their order.
---@param x Tensor
---@param source integer|integer[]
---@param destination integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, source: integer|integer[], destination: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.moveaxis(x, source, destination) end

--- x * y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.mul(x, y) end

--- x with numbers for NaN (default 0) and the infinities (default the largest and the smallest of the dtype).
---@param x Tensor|number
---@param nan? number
---@param posinf? number
---@param neginf? number
---@return Tensor
---@overload fun(x: Tensor|number, options: {nan?: number, posinf?: number, neginf?: number, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nan_to_num(x, nan, posinf, neginf) end

--- The largest that is not NaN, over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nanmax(x, axes, keepdims) end

--- The mean of what is not NaN, over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nanmean(x, axes, keepdims) end

--- The smallest that is not NaN, over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nanmin(x, axes, keepdims) end

--- The product of what is not NaN, over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nanprod(x, axes, keepdims) end

--- The sum of what is not NaN, over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nansum(x, axes, keepdims) end

--- x ~= y, element by element: bool.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.ne(x, y) end

--- -x.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.neg(x) end

--- The 0-based places of the first `size` elements that are not zero, one tensor for each dim; `fill` (default 0) behind them.
---@param x Tensor
---@param size integer
---@param fill? integer
---@return Tensor
---@return any ...
---@overload fun(x: Tensor, size: integer, options: {fill?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.nonzero(x, size, fill) end

--- 1 where the last, new dim's 0-based position is the id, else 0; default float32.
---@param ids Tensor
---@param n integer
---@param dtype? DType
---@return Tensor
---@overload fun(ids: Tensor, n: integer, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.one_hot(ids, n, dtype) end

--- Ones with the shape, dtype and sharding of x.
---@param x Tensor
---@param dtype? DType
---@return Tensor
---@overload fun(x: Tensor, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.ones_like(x, dtype) end

--- The product of each element of x with each of y: [x.size, y.size].
---@param x Tensor
---@param y Tensor
---@return Tensor
---@overload fun(x: Tensor, y: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.outer(x, y) end

--- x with a border: {{low, high[, interior]}, ...}, one (or false) for each dim; value: default 0; mode: "constant", or of x's elements "edge", "wrap", "reflect", "symmetric".
---@param x Tensor
---@param pads table
---@param value? number
---@param mode? string
---@return Tensor
---@overload fun(x: Tensor, pads: table, options: {value?: number, mode?: string, out_sharding?: NamedSharding|P|table}): Tensor
function ml.pad(x, pads, value, mode) end

--- x ^ y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.pow(x, y) end

--- The product over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.prod(x, axes, keepdims) end

--- x with the elements that take_along_axis would take set to values, or combined with them.
---@param x Tensor
---@param indices Tensor
---@param values Tensor|number
---@param axis integer
---@param combine? "set"|"add"|"mul"|"max"|"min"
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, indices: Tensor, values: Tensor|number, axis: integer, options: {combine?: "set"|"add"|"mul"|"max"|"min", mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.put_along_axis(x, indices, values, axis, combine, mode) end

--- What q (0 to 1, or a list, which becomes dim 1) of the elements over axes do not exceed; method: "linear", "lower", "higher", "midpoint", "nearest".
---@param x Tensor
---@param q number|number[]
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param method? string
---@return Tensor
---@overload fun(x: Tensor, q: number|number[], options: {axes?: integer|integer[], keepdims?: boolean, method?: string, out_sharding?: NamedSharding|P|table}): Tensor
function ml.quantile(x, q, axes, keepdims, method) end

--- The largest, or the sum, of each window that slides over x.
---@param x Tensor
---@param kind "max"|"sum"
---@param window integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, kind: "max"|"sum", window: integer|integer[], options: {out_sharding?: NamedSharding|P|table, padding?: "same"|"valid"|integer[][], strides?: integer|integer[]}): Tensor
function ml.reduce_window(x, kind, window) end

--- What is left of the division, with x's sign.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.rem(x, y) end

--- Each element `repeats` times, or the i-th repeats[i] times, along an axis; without one of x as a vector.
---@param x Tensor
---@param repeats integer|integer[]
---@param axis? integer
---@return Tensor
---@overload fun(x: Tensor, repeats: integer|integer[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.repeat_interleave(x, repeats, axis) end

--- The same elements in another shape: {2, -1}, or 2, -1; one dim may be -1.
---@param x Tensor
---@param ... integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.reshape(x, ...) end

--- Elements moved on by `shift` along axes, those at the end to the front; without axes of x as a vector.
---@param x Tensor
---@param shift integer|integer[]|Tensor
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, shift: integer|integer[]|Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.roll(x, shift, axes) end

--- The nearest whole number; halves to the even one.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.round(x) end

--- 1 / sqrt(x).
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.rsqrt(x) end

--- x with its rows `ids` (0-based) along an axis (default 1) replaced by the updates; mode as of take.
---@param x Tensor
---@param ids Tensor
---@param updates Tensor|number
---@param axis? integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, updates: Tensor|number, options: {axis?: integer, mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.scatter_set(x, ids, updates, axis, mode) end

--- The 0-based places in the ascending vector a at which elements of v keep it sorted, before equal ones ("left", default) or behind them.
---@param a Tensor
---@param v Tensor|number
---@param side? "left"|"right"
---@return Tensor
---@overload fun(a: Tensor, v: Tensor|number, options: {side?: "left"|"right", out_sharding?: NamedSharding|P|table}): Tensor
function ml.searchsorted(a, v, side) end

--- As segment_sum, of the largest; of no rows the least number.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.segment_max(x, ids, n, mode) end

--- As segment_sum, of the smallest; of no rows the largest number.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.segment_min(x, ids, n, mode) end

--- As segment_sum, of products; of no rows 1.
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.segment_prod(x, ids, n, mode) end

--- For each of n segments the sum of the rows of x whose id, one of each row, names it. Ids that are none of 0..n-1 are left out (mode: default "drop").
---@param x Tensor
---@param ids Tensor
---@param n integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, n: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.segment_sum(x, ids, n, mode) end

--- x << y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.shl(x, y) end

--- x >> y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.shr(x, y) end

--- 1 / (1 + exp(-x)).
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sigmoid(x) end

--- -1, 0 or 1.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sign(x) end

--- The sine.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sin(x) end

--- The hyperbolic sine.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sinh(x) end

--- A range of each dim, 1-based and inclusive: {first, last, step}, a position, whose dim is dropped, or false: whole.
---@param x Tensor
---@param ... integer|table|false
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.slice(x, ...) end

--- exp(x) / sum(exp(x)) along an axis (default the last).
---@param x Tensor
---@param axis? integer
---@return Tensor
---@overload fun(x: Tensor, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.softmax(x, axis) end

--- The lines along an axis (default last) in ascending order, NaN last; further tensors are permuted alike.
---@param x Tensor
---@param axis? integer
---@param descending? boolean
---@param ... Tensor
---@return Tensor
---@return any ...
---@overload fun(x: Tensor, options: {axis?: integer, descending?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.sort(x, axis, descending, ...) end

--- The square root.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sqrt(x) end

--- x * x.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.square(x) end

--- Without the given dims of size 1 (default all of them).
---@param x Tensor
---@param axes? integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.squeeze(x, axes) end

--- The standard deviation over axes (default all).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param ddof? integer
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, ddof?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.std(x, axes, keepdims, ddof) end

--- x as a constant to gradients.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.stop_gradient(x) end

--- x - y.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.sub(x, y) end

--- The sum over axes (default all); keepdims leaves dims of size 1.
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.sum(x, axes, keepdims) end

--- Two axes exchanged.
---@param x Tensor
---@param a integer
---@param b integer
---@return Tensor
---@overload fun(x: Tensor, a: integer, b: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.swapaxes(x, a, b) end

--- The last two dims exchanged.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.T(x) end

--- Rows of x by 0-based id along an axis (default 1): the ids' shape takes the axis's place. Below 0 they count from the end; one beyond both ends is an error, or by mode `fill` (default NaN), the nearest end ("clip"), or goes on at the other ("wrap").
---@param x Tensor
---@param ids Tensor
---@param axis? integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@param fill? number|boolean
---@return Tensor
---@overload fun(x: Tensor, ids: Tensor, options: {axis?: integer, mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.take(x, ids, axis, mode, fill) end

--- The elements of each line of x along an axis at 0-based indices; beside it dims of size 1 stretch. Mode as of take.
---@param x Tensor
---@param indices Tensor
---@param axis integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@param fill? number|boolean
---@return Tensor
---@overload fun(x: Tensor, indices: Tensor, axis: integer, options: {mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", fill?: number|boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.take_along_axis(x, indices, axis, mode, fill) end

--- The tangent.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.tan(x) end

--- The hyperbolic tangent.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.tanh(x) end

--- The product over the last n axes of x and the first n of y (default 2), or over {axes of x, axes of y}.
---@param x Tensor
---@param y Tensor
---@param axes? integer|table
---@return Tensor
---@overload fun(x: Tensor, y: Tensor, options: {axes?: integer|table, out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function ml.tensordot(x, y, axes) end

--- x as often as `reps` says along each dim; dims align at the end.
---@param x Tensor
---@param reps integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, reps: integer|integer[], options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.tile(x, reps) end

--- The k largest along an axis (default last), falling, and their 0-based places.
---@param x Tensor
---@param k integer
---@param axis? integer
---@return Tensor
---@return Tensor
---@overload fun(x: Tensor, k: integer, options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.top_k(x, k, axis) end

--- The sum of the diagonal, as `diagonal` takes it.
---@param x Tensor
---@param offset? integer
---@param axis1? integer
---@param axis2? integer
---@return Tensor
---@overload fun(x: Tensor, options: {offset?: integer, axis1?: integer, axis2?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.trace(x, offset, axis1, axis2) end

--- The dims in another order: {3, 1, 2}, or 3, 1, 2; without axes reversed.
---@param x Tensor
---@param ... integer|integer[]
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.transpose(x, ...) end

--- Matrices with zeros above the k-th diagonal (default 0: the main one).
---@param x Tensor
---@param k? integer
---@return Tensor
---@overload fun(x: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.tril(x, k) end

--- Matrices with zeros below the k-th diagonal (default 0: the main one).
---@param x Tensor
---@param k? integer
---@return Tensor
---@overload fun(x: Tensor, options: {k?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.triu(x, k) end

--- The next whole number toward 0.
---@param x Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.trunc(x) end

--- The first `size` different elements, ascending, and `fill` (default the least) behind them; then, on request, the place of the first of each, for each element of x the number of its own, and counts.
---@param x Tensor
---@param size integer
---@param fill? number|boolean
---@return Tensor
---@return any ...
---@overload fun(x: Tensor, size: integer, options: {fill?: number|boolean, counts?: boolean, index?: boolean, inverse?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.unique(x, size, fill) end

--- The variance over axes (default all), divided by n - ddof (default 0).
---@param x Tensor
---@param axes? integer|integer[]
---@param keepdims? boolean
---@param ddof? integer
---@return Tensor
---@overload fun(x: Tensor, options: {axes?: integer|integer[], keepdims?: boolean, ddof?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.var(x, axes, keepdims, ddof) end

--- x log(y), 0 where x is 0.
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.xlogy(x, y) end

--- Zeros with the shape, dtype and sharding of x.
---@param x Tensor
---@param dtype? DType
---@return Tensor
---@overload fun(x: Tensor, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.zeros_like(x, dtype) end

--- 0, 1, ... below n: arange(n); or from first, below last. int32 for whole numbers, float32 for others.
---@param first number
---@param last? number|DType
---@param step? number|DType
---@param dtype? DType
---@return Tensor
---@overload fun(first: number, options: {last?: number|DType, step?: number|DType, dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.arange(first, last, step, dtype) end

--- Tensors behind each other along an axis (default 1).
---@param list Tensor[]
---@param axis? integer
---@return Tensor
---@overload fun(list: Tensor[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.concat(list, axis) end

--- A sum of products of tensors by letters: einsum("btc,vc->btv", x, w); "..." stands for any dims, a letter twice for a diagonal; without "->" the result has what stands once.
---@param spec string
---@param x Tensor
---@param ... Tensor
---@return Tensor
---@overload fun(spec: string, x: Tensor, options: {out_sharding?: NamedSharding|P|table, preferred_element_type?: DType}): Tensor
function ml.einsum(spec, x, ...) end

--- The identity matrix, n x m (default n).
---@param n integer
---@param m? integer
---@param dtype? DType
---@return Tensor
---@overload fun(n: integer, options: {m?: integer, dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.eye(n, m, dtype) end

--- Every element the same; the dtype follows the number.
---@param shape integer|integer[]
---@param value number|boolean
---@param dtype? DType
---@return Tensor
---@overload fun(shape: integer|integer[], value: number|boolean, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.full(shape, value, dtype) end

--- 0, 1, 2, ... along a dim (default 1) of a shape; default int32.
---@param shape integer|integer[]
---@param dim? integer
---@param dtype? DType
---@return Tensor
---@overload fun(shape: integer|integer[], options: {dim?: integer, dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.iota(shape, dim, dtype) end

--- The 0-based places that sort lines along an axis (default last) by several keys, the last of which counts most.
---@param keys Tensor[]
---@param axis? integer
---@return Tensor
---@overload fun(keys: Tensor[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.lexsort(keys, axis) end

--- n numbers from first to last, both included: float32.
---@param first number
---@param last number
---@param n integer
---@return Tensor
---@overload fun(first: number, last: number, n: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linspace(first, last, n) end

--- n numbers from base^first to base^last, both included (base: default 10): float32.
---@param first number
---@param last number
---@param n integer
---@param base? number
---@return Tensor
---@overload fun(first: number, last: number, n: integer, options: {base?: number, out_sharding?: NamedSharding|P|table}): Tensor
function ml.logspace(first, last, n, base) end

--- The coordinates of a grid, a tensor for each of the vectors; "xy" (default) has the first along dim 2.
---@param list Tensor[]
---@param indexing? "xy"|"ij"
---@return Tensor[]
---@overload fun(list: Tensor[], options: {indexing?: "xy"|"ij", out_sharding?: NamedSharding|P|table}): Tensor[]
function ml.meshgrid(list, indexing) end

--- Ones: ones({2, 3}, dtype), or ones(2, 3, dtype); default float32.
---@param shape integer|integer[]
---@param ... integer|DType
---@return Tensor
---@overload fun(shape: integer|integer[], options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.ones(shape, ...) end

--- The n-th derivative of digamma at x; NaN for an n that is no whole number from 0.
---@param n Tensor|integer
---@param x Tensor
---@return Tensor
---@overload fun(n: Tensor|integer, x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.polygamma(n, x) end

--- A table of `size` rows of zeros along an axis (default 1), with the updates added to rows `ids` (0-based); mode as of take.
---@param ids Tensor
---@param updates Tensor
---@param size integer
---@param axis? integer
---@param mode? "error"|"strict"|"fill"|"drop"|"clip"|"wrap"
---@return Tensor
---@overload fun(ids: Tensor, updates: Tensor, size: integer, options: {axis?: integer, mode?: "error"|"strict"|"fill"|"drop"|"clip"|"wrap", out_sharding?: NamedSharding|P|table}): Tensor
function ml.scatter_add(ids, updates, size, axis, mode) end

--- Tensors of one shape along a new axis (default 1).
---@param list Tensor[]
---@param axis? integer
---@return Tensor
---@overload fun(list: Tensor[], options: {axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.stack(list, axis) end

--- A tensor of a number or boolean, or of nested lists of them.
---@param values number|boolean|table
---@param dtype? DType
---@return Tensor
---@overload fun(values: number|boolean|table, options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.tensor(values, dtype) end

--- x where the condition holds, else y.
---@param condition Tensor
---@param x Tensor|number
---@param y Tensor|number
---@return Tensor
---@overload fun(condition: Tensor, x: Tensor|number, y: Tensor|number, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.where(condition, x, y) end

--- Zeros: zeros({2, 3}, dtype), or zeros(2, 3, dtype); default float32.
---@param shape integer|integer[]
---@param ... integer|DType
---@return Tensor
---@overload fun(shape: integer|integer[], options: {dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.zeros(shape, ...) end

--- true with probability p (default 0.5).
---@param key Tensor
---@param p? number|Tensor
---@param shape? integer|integer[]
---@return Tensor
---@overload fun(key: Tensor, options: {p?: number|Tensor, shape?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.bernoulli(key, p, shape) end

--- Beta(a, b).
---@param key Tensor
---@param a number|Tensor
---@param b number|Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, a: number|Tensor, b: number|Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.beta(key, a, b, shape, dtype) end

--- Random words: uint32; uint8 for width 8, int64 for width 64.
---@param key Tensor
---@param shape? integer|integer[]
---@param width? integer
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], width?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.bits(key, shape, width) end

--- 0-based classes drawn with probability softmax(logits) along an axis (default last): int32.
---@param key Tensor
---@param logits Tensor
---@param axis? integer
---@param shape? integer|integer[]
---@return Tensor
---@overload fun(key: Tensor, logits: Tensor, options: {axis?: integer, shape?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.categorical(key, logits, axis, shape) end

--- Draws among 0..a-1, or among the parts of a tensor along an axis (default 1), with probabilities p (default: all alike); replace = false: each is drawn once at most.
---@param key Tensor
---@param a integer|Tensor
---@param shape? integer|integer[]
---@param replace? boolean
---@param p? Tensor
---@param axis? integer
---@return Tensor
---@overload fun(key: Tensor, a: integer|Tensor, options: {shape?: integer|integer[], replace?: boolean, p?: Tensor, axis?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.choice(key, a, shape, replace, p, axis) end

--- Switches on (or off) that a key which is used twice is an error; returns what it was.
---@param on boolean
---@return boolean
---@overload fun(on: boolean, options: {out_sharding?: NamedSharding|P|table}): boolean
function ml.random.debug_key_reuse(on) end

--- Dirichlet(alpha) along the last axis; shape: of the draws, without that axis.
---@param key Tensor
---@param alpha Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, alpha: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.dirichlet(key, alpha, shape, dtype) end

--- Standard exponential: -log(1 - u).
---@param key Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.exponential(key, shape, dtype) end

--- The key that belongs to a number under this key.
---@param key Tensor
---@param data integer|Tensor
---@return Tensor
---@overload fun(key: Tensor, data: integer|Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.fold_in(key, data) end

--- Gamma(a, 1). It has no gradient.
---@param key Tensor
---@param a number|Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, a: number|Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.gamma(key, a, shape, dtype) end

--- Standard Gumbel: -log(-log(u)).
---@param key Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.gumbel(key, shape, dtype) end

--- A key from a seed: uint32[2].
---@param seed integer
---@return Tensor
---@overload fun(seed: integer, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.key(seed) end

--- A list of n new keys (default 2).
---@param key Tensor
---@param n? integer
---@return Tensor[]
---@overload fun(key: Tensor, options: {n?: integer, out_sharding?: NamedSharding|P|table}): Tensor[]
function ml.random.keys(key, n) end

--- Standard Laplace.
---@param key Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.laplace(key, shape, dtype) end

--- The logarithm of Gamma(a, 1), also where that is too small for the dtype. It has no gradient.
---@param key Tensor
---@param a number|Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, a: number|Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.loggamma(key, a, shape, dtype) end

--- Normal with a mean and a covariance (positive definite; NaN of others) of the last dim; shape: of the draws.
---@param key Tensor
---@param mean Tensor
---@param cov Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, mean: Tensor, cov: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.multivariate_normal(key, mean, cov, shape, dtype) end

--- Standard normal; default float32.
---@param key Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.normal(key, shape, dtype) end

--- The rows of x, or 0..n-1, in random order.
---@param key Tensor
---@param x integer|Tensor
---@return Tensor
---@overload fun(key: Tensor, x: integer|Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.permutation(key, x) end

--- Poisson counts: int32.
---@param key Tensor
---@param rate number|Tensor
---@param shape? integer|integer[]
---@return Tensor
---@overload fun(key: Tensor, rate: number|Tensor, options: {shape?: integer|integer[], out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.poisson(key, rate, shape) end

--- Whole numbers in [low, high); default int32.
---@param key Tensor
---@param shape? integer|integer[]
---@param low integer
---@param high integer
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], low?: integer, high?: integer, dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.randint(key, shape, low, high, dtype) end

--- n new keys (default 2): uint32[n, 2].
---@param key Tensor
---@param n? integer
---@return Tensor
---@overload fun(key: Tensor, options: {n?: integer, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.split(key, n) end

--- Standard normal cut to [low, high].
---@param key Tensor
---@param low number
---@param high number
---@param shape? integer|integer[]
---@param dtype? DType
---@return Tensor
---@overload fun(key: Tensor, low: number, high: number, options: {shape?: integer|integer[], dtype?: DType, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.truncated_normal(key, low, high, shape, dtype) end

--- Uniform in [low, high), default [0, 1).
---@param key Tensor
---@param shape? integer|integer[]
---@param dtype? DType
---@param low? number
---@param high? number
---@return Tensor
---@overload fun(key: Tensor, options: {shape?: integer|integer[], dtype?: DType, low?: number, high?: number, out_sharding?: NamedSharding|P|table}): Tensor
function ml.random.uniform(key, shape, dtype, low, high) end

--- The lower triangles l of symmetric positive definite matrices x = l l^T (upper: l^T), NaN for others; of (x + x^T) / 2, unless symmetrize_input is false.
---@param x Tensor
---@param upper? boolean
---@param symmetrize_input? boolean
---@return Tensor
---@overload fun(x: Tensor, options: {upper?: boolean, symmetrize_input?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.cholesky(x, upper, symmetrize_input) end

--- The determinants of matrices.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.det(x) end

--- Eigenvalues of symmetric matrices, rising, and eigenvectors, a column each; of (x + x^T) / 2, unless symmetrize_input is false: then the lower triangle is read.
---@param x Tensor
---@param symmetrize_input? boolean
---@return Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {symmetrize_input?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.eigh(x, symmetrize_input) end

--- The inverses of matrices.
---@param x Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.inv(x) end

--- l (below the diagonal; its own is of ones) and u in one matrix, the rows that were exchanged, and the order of x's rows in l u (both 0-based int32).
---@param x Tensor
---@return Tensor
---@return Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.lu(x) end

--- Orthonormal columns q and upper triangles r with x = q r; complete: q is square; "r": r alone.
---@param x Tensor
---@param mode? "reduced"|"complete"|"r"
---@return Tensor
---@return Tensor?
---@overload fun(x: Tensor, options: {mode?: "reduced"|"complete"|"r", out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.qr(x, mode) end

--- The signs of determinants, and the logarithms of their absolute values.
---@param x Tensor
---@return Tensor
---@return Tensor
---@overload fun(x: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.slogdet(x) end

--- x of a x = b; b: matrices, or one vector. Singular matrices give infinities or NaN.
---@param a Tensor
---@param b Tensor
---@return Tensor
---@overload fun(a: Tensor, b: Tensor, options: {out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.solve(a, b) end

--- u, s and vt with x = u diag(s) vt, s falling; full_matrices (default true): u and vt are square; compute_uv = false: s alone.
---@param x Tensor
---@param full_matrices? boolean
---@param compute_uv? boolean
---@return Tensor
---@return Tensor?
---@return Tensor?
---@overload fun(x: Tensor, options: {full_matrices?: boolean, compute_uv?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.svd(x, full_matrices, compute_uv) end

--- x of a x = b (left_side) or x a = b (default) for triangles a, default the upper.
---@param a Tensor
---@param b Tensor
---@param left_side? boolean
---@param lower? boolean
---@param transpose_a? boolean
---@param unit_diagonal? boolean
---@return Tensor
---@overload fun(a: Tensor, b: Tensor, options: {left_side?: boolean, lower?: boolean, transpose_a?: boolean, unit_diagonal?: boolean, out_sharding?: NamedSharding|P|table}): Tensor
function ml.linalg.triangular_solve(a, b, left_side, lower, transpose_a, unit_diagonal) end

--- Names and sizes of a mesh without devices.
---@param sizes integer[]
---@param names string[]
---@param options? {axis_types?: string|table}
---@return Mesh
function ml.AbstractMesh(sizes, names, options) end

--- A mesh from a nested list of 0-based device ids.
---@param devices table
---@param names string|string[]
---@param options? {axis_types?: string|table}
---@return Mesh
function ml.Mesh(devices, names, options) end

--- How a tensor lies: a P on a mesh.
---@param mesh Mesh
---@param spec P
---@return NamedSharding
function ml.NamedSharding(mesh, spec) end

--- For each dim the mesh axis (or axes) that it is split over; nil: whole.
---@param ... string|string[]|table|false|nil
---@return P
function ml.P(...) end

--- What a tensor of this kind would be, without values.
---@param shape integer|integer[]
---@param dtype DType
---@param sharding? NamedSharding|P
---@return Tensor
function ml.ShapeDtypeStruct(shape, dtype, sharding) end

--- All devices' x along mesh axes, stacked along a new dim (default 1), or tiled along it.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@param options? {axis?: integer, tiled?: boolean}
---@return Tensor|table|number
function ml.all_gather(x, axis_name, options) end

--- x replicated, so that each process can read all of it.
---@param x Tensor|table|number
---@return Tensor|table|number
function ml.all_gather_to_host(x) end

--- Each device cuts x along one dim, sends the parts, and joins what it gets along another.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@param split_axis? integer
---@param concat_axis? integer
---@return Tensor|table|number
---@overload fun(x: Tensor|table|number, axis_name: string|string[], options: {split_axis?: integer, concat_axis?: integer, tiled?: boolean}): Tensor|table|number
function ml.all_to_all(x, axis_name, split_axis, concat_axis) end

--- fn with explicit axes (default: all) left to propagation inside.
---@param fn function
---@param options? {axes?: string|string[], out_sharding?: NamedSharding|P|table}
---@return function
function ml.auto_axes(fn, options) end

--- This device's place along mesh axes, from 0.
---@param axis_name string|string[]
---@return Tensor
function ml.axis_index(axis_name) end

--- How many devices there are along mesh axes.
---@param axis_name string|string[]
---@return integer
function ml.axis_size(axis_name) end

--- Waits until all tensors of a tree are computed; returns the tree.
---@param x any
---@return any
function ml.block_until_ready(x) end

--- Settles devices before the first tensor, and switches passes.
---@param options? {devices?: integer|string, passes?: table}
function ml.config(options) end

--- x with the layout, as a hard constraint: P(...) names mesh axes, a table logical axes.
---@param x Tensor
---@param spec P|NamedSharding|table
---@return Tensor
function ml.constrain(x, spec) end

--- How many devices there are, in all processes.
---@return integer
function ml.device_count() end

--- x, or every leaf of a tree, with the given sharding.
---@param x any
---@param sharding? NamedSharding|P|integer|table
---@param options? {donate?: boolean, may_alias?: boolean}
---@return any
function ml.device_put(x, sharding, options) end

--- x once per device, stacked along a new first dim that is split over them.
---@param x Tensor|table|number
---@param devices? integer[]
---@return Tensor|table|number
function ml.device_put_replicated(x, devices) end

--- The 0-based ids of all devices.
---@return integer[]
function ml.devices() end

--- The configuration of a run in many processes, held against what runs.
---@param options? {backend?: string, enabled?: boolean, local_rank?: integer, master_addr?: string, master_port?: integer, mesh_axis_names?: string[], mesh_shape?: integer[], mixed_precision?: string, num_nodes?: integer, num_processes_per_node?: integer, pipeline_parallel_size?: integer, rank?: integer, tensor_parallel_size?: integer, world_size?: integer}
---@return DistributedConfig
function ml.distributed(options) end

--- fn with auto axes (default: all) explicit inside.
---@param fn function
---@param options? {axes?: string|string[], in_sharding?: NamedSharding|P|table}
---@return function
function ml.explicit_axes(fn, options) end

--- The mesh in context, or nil.
---@return Mesh
function ml.get_mesh() end

--- A tree like the model with the NamedSharding of each leaf.
---@param model table
---@param mesh? Mesh
---@return table
function ml.get_named_sharding(model, mesh) end

--- A tree like the model with the P of each leaf.
---@param model table
---@return table
function ml.get_partition_spec(model) end

--- How many devices this process has.
---@return integer
function ml.local_device_count() end

--- The ids of this process's devices.
---@return integer[]
function ml.local_devices() end

--- The array whose shards a callback gives, one for each distinct index of this process.
---@param shape integer|integer[]
---@param sharding NamedSharding|P
---@param cb function
---@param dtype? DType
---@return Tensor
---@overload fun(shape: integer|integer[], sharding: NamedSharding|P, cb: function, options: {dtype?: DType}): Tensor
function ml.make_array_from_callback(shape, sharding, cb, dtype) end

--- The array of which each process gives what its devices hold.
---@param sharding NamedSharding|P
---@param data Tensor|table
---@param global_shape? integer|integer[]
---@return Tensor
function ml.make_array_from_process_local_data(sharding, data, global_shape) end

--- The array whose shards are these, each on its device.
---@param shape integer|integer[]
---@param sharding NamedSharding|P
---@param arrays Tensor[]
---@return Tensor
function ml.make_array_from_single_device_arrays(shape, sharding, arrays) end

--- A mesh over all devices, the last axis fastest.
---@param sizes integer[]
---@param names string[]
---@param options? {axis_types?: string|table, devices?: integer[]}
---@return Mesh
function ml.make_mesh(sizes, names, options) end

--- What runs when the processes are asked to stop, behind a whole step.
---@param handler? function
function ml.on_stop(handler) end

--- x as another kind of value along mesh axes: "varying", "reduced", "unreduced"; nothing is moved.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@param options? {to?: string}
---@return Tensor|table|number
function ml.pcast(x, axis_name, options) end

--- fn once per place of its arguments' mapped dims, each on its own device.
---@param fn function
---@param options? {axis_name?: string, devices?: integer[], in_axes?: integer|table, out_axes?: integer|table}
---@return function
function ml.pmap(fn, options) end

--- The largest of all devices' x along mesh axes.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@return Tensor|table|number
function ml.pmax(x, axis_name) end

--- The mean of all devices' x along mesh axes.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@return Tensor|table|number
function ml.pmean(x, axis_name) end

--- The smallest of all devices' x along mesh axes.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@return Tensor|table|number
function ml.pmin(x, axis_name) end

--- x of another device: a list of {source, destination}, 0-based places.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@param perm table
---@return Tensor|table|number
function ml.ppermute(x, axis_name, perm) end

--- How many processes there are.
---@return integer
function ml.process_count() end

--- Which of them this is, from 0.
---@return integer
function ml.process_index() end

--- x; layouts do not reach across.
---@param x Tensor
---@return Tensor
function ml.propagation_barrier(x) end

--- The sum of all devices' x along mesh axes.
---@param x Tensor|table|number
---@param axis_name string|string[]
---@return Tensor|table|number
function ml.psum(x, axis_name) end

--- The sum of all devices' x, of which each keeps its part of a dim (default 1).
---@param x Tensor|table|number
---@param axis_name string|string[]
---@param options? {scatter_dimension?: integer, tiled?: boolean}
---@return Tensor|table|number
function ml.psum_scatter(x, axis_name, options) end

--- The tensors of x laid out as asked: any P of their mesh.
---@param x Tensor|table|number
---@param sharding NamedSharding|P|table
---@return Tensor|table|number
function ml.reshard(x, sharding) end

--- Puts a mesh into context; closing what it returns puts back the one before.
---@param mesh? Mesh
---@return table
function ml.set_mesh(mesh) end

--- x and y, which propagation gives one layout.
---@param x Tensor
---@param y Tensor
---@return Tensor
---@return Tensor
function ml.shard_alike(x, y) end

--- A rule that spreads every Param over a mesh axis, on its largest whole dim.
---@param axis string
---@param min_size? integer
---@return function
function ml.shard_largest(axis, min_size) end

--- fn on every device of a mesh, on its block of each argument.
---@param fn function
---@param options? {axis_names?: string[], in_specs?: P|table, mesh?: Mesh, out_specs?: P|table}
---@return function
function ml.shard_map(fn, options) end

--- "float32[8@data,16]": the type of a tensor, number or boolean, or of every leaf of a table.
---@param x any
---@return any
function ml.typeof(x) end

--- Prints which device stands where in a mesh.
---@param mesh Mesh
function ml.visualize_mesh(mesh) end

--- Prints the shards of a tensor as boxes, or writes an SVG file.
---@param x Tensor
---@param options? {file?: string}
---@return boolean
function ml.visualize_sharding(x, options) end

--- What fn(...) returns (a function, class or module), with types in the place of tensors; nothing runs.
---@param fn function
---@param ... any
---@return any
function ml.abstract(fn, ...) end

--- Calls fn on each of n microbatches, and gives the means of what it returns; bits = "mesh": the same bits on every mesh.
---@param n integer
---@param fn function
---@param batch any
---@param options? {bits?: string}
---@return any
---@return any ...
function ml.accumulate(n, fn, batch, options) end

--- All partial results of an associative function of two.
---@param fn function
---@param elems Tensor|table|number
---@param options? {axis?: integer, reverse?: boolean}
---@return any
function ml.associative_scan(fn, elems, options) end

--- x, under a name that policies of `remat` can ask for.
---@param x Tensor
---@param name string
---@return Tensor
function ml.checkpoint_name(x, name) end

--- true_fn(...) or false_fn(...), as the predicate says.
---@param pred Tensor|boolean
---@param true_fn function
---@param false_fn function
---@param ... any
---@return any
---@return any ...
function ml.cond(pred, true_fn, false_fn, ...) end

--- fn, with a derivative of its own, for forward and reverse mode.
---@param fn function
---@param options? {jvp?: function, nondiff?: integer[]}
---@return function
function ml.custom_jvp(fn, options) end

--- fn, with a gradient of its own.
---@param fn function
---@param options? {bwd?: function, fwd?: function, nondiff?: integer[]}
---@return function
function ml.custom_vjp(fn, options) end

--- Calls fn(...) with the values of its tensors, also from a traced function.
---@param fn function
---@param ... any
function ml.debug_callback(fn, ...) end

--- Writes a line as string.format would, also from a traced function; {per_device = true} at the end: one for each device.
---@param format string
---@param ... any
function ml.debug_print(format, ...) end

--- carry = body(i, carry) for i = lower, ..., upper - 1; returns the last carry.
---@param lower integer|Tensor
---@param upper integer|Tensor
---@param body function
---@param init any
---@return any
function ml.fori_loop(lower, upper, body, init) end

--- A function that returns the gradients of fn's loss.
---@param fn function
---@param options? {argnums?: integer|integer[], has_aux?: boolean}
---@return function
function ml.grad(fn, options) end

--- A function that returns the second derivatives of fn's scalar result.
---@param fn function
---@param options? {argnums?: integer|integer[], has_aux?: boolean}
---@return function
function ml.hessian(fn, options) end

--- The Hessian of fn at the primals times the tangents, without the Hessian.
---@param fn function
---@param primals table
---@param tangents table
---@return any
---@return any ...
function ml.hvp(fn, primals, tangents) end

--- The module that fn(rngs) makes (a function, or a class), every Param born in its sharding.
---@param fn function
---@param options? {mesh?: Mesh, rules?: table, seed?: integer}
---@return table
function ml.init(fn, options) end

--- A function that returns the Jacobian of fn, by forward mode: for results larger than the argument.
---@param fn function
---@param options? {argnums?: integer|integer[], has_aux?: boolean}
---@return function
function ml.jacfwd(fn, options) end

--- A function that returns the Jacobian of fn, by reverse mode: for arguments larger than the result.
---@param fn function
---@param options? {argnums?: integer|integer[], has_aux?: boolean}
---@return function
function ml.jacrev(fn, options) end

--- fn, traced once per kind of arguments and then run as a plan.
---@param fn function
---@param options? {donate?: integer|string|table|false, in_shardings?: P|NamedSharding|table, mesh?: Mesh, out_shardings?: P|NamedSharding|table, rules?: table, static?: integer|string|table}
---@return JittedFunction
function ml.jit(fn, options) end

--- fn at the primals, and its derivative there along the tangents.
---@param fn function
---@param primals table
---@param tangents table
---@param options? {has_aux?: boolean}
---@return any
---@return any
---@return any ...
function ml.jvp(fn, primals, tangents, options) end

--- fn at the arguments, and the linear function of tangents that is its derivative there.
---@param fn function
---@param ... any
---@return any
---@return function
function ml.linearize(fn, ...) end

--- f of each slice of xs along dim 1, one after another, stacked.
---@param f function
---@param xs Tensor|table|number
---@param options? {batch_size?: integer}
---@return any
function ml.map(f, xs, options) end

--- The module that split took apart, with these tensors.
---@param structure table
---@param ... table
---@return table
function ml.merge(structure, ...) end

--- The batch in n parts of the same size.
---@param batch any
---@param n integer
---@return any[]
function ml.microbatches(batch, n) end

--- Calls fn(...); what it computes carries the name.
---@param name string
---@param fn function
---@param ... any
---@return any
---@return any ...
function ml.named_scope(name, fn, ...) end

--- fn, of whose inside gradients keep only what the policy says.
---@param fn function
---@param options? {policy?: table}
---@return function
function ml.remat(fn, options) end

--- Named values that have none of the names.
---@param ... string
---@return table
function ml.remat_policies.save_any_names_but_these(...) end

--- Values, named or not, that have none of the names.
---@param ... string
---@return table
function ml.remat_policies.save_anything_except_these_names(...) end

--- What either policy keeps.
---@param a table
---@param b table
---@return table
function ml.remat_policies.save_from_both_policies(a, b) end

--- Values that have one of the names.
---@param ... string
---@return table
function ml.remat_policies.save_only_these_names(...) end

--- carry, y = f(carry, x) for each slice of xs along dim 1; returns the last carry, and the ys stacked.
---@param f function
---@param init any
---@param xs any
---@param options? {length?: integer, reverse?: boolean, unroll?: integer}
---@return any
---@return any
function ml.scan(f, init, xs, options) end

--- Takes a module apart: its structure, and its state, or one for each filter. A tensor: cuts it into n parts.
---@param model table|Tensor
---@param ... any
---@return any
---@return any ...
function ml.split(model, ...) end

--- The tensors of a module as a tree of plain tables: of all its leaves, or of some.
---@param model table
---@param filter? string|function|table|boolean
---@return table
function ml.state(model, filter) end

--- cond, of which each device of a shard_map knows before the program runs when it takes which branch.
---@param pred Tensor|boolean
---@param true_fn function
---@param false_fn function
---@param ... any
---@return any
---@return any ...
function ml.static_cond(pred, true_fn, false_fn, ...) end

--- branches[index + 1](...): the index counts from 0 and is clamped.
---@param index integer|Tensor
---@param branches table
---@param ... any
---@return any
---@return any ...
function ml.switch(index, branches, ...) end

--- The leaves of a model: path, type, kind, bytes, bytes on each device.
---@param model table
---@return string
function ml.tabulate(model) end

--- Writes the tensors of a state into a module.
---@param model table
---@param state table
---@return table
function ml.update(model, state) end

--- A function that returns fn's loss and its gradients.
---@param fn function
---@param options? {argnums?: integer|integer[], has_aux?: boolean}
---@return function
function ml.value_and_grad(fn, options) end

--- fn over all dims in front of those that it takes, as the functions on tensors broadcast.
---@param fn function
---@param options? {excluded?: integer[], signature?: string}
---@return function
function ml.vectorize(fn, options) end

--- fn's result at the arguments, and its pullback.
---@param fn function
---@param ... any
---@return any
---@return function
function ml.vjp(fn, ...) end

--- The function of one example, for many at once.
---@param fn function
---@param options? {axis_name?: string, axis_size?: integer, in_axes?: integer|table|false, out_axes?: integer|table|false, spmd_axis?: string|string[]}
---@return function
function ml.vmap(fn, options) end

--- Runs body_fn on the carry as long as cond_fn of it is true.
---@param cond_fn function
---@param body_fn function
---@param init any
---@return any
function ml.while_loop(cond_fn, body_fn, init) end

--- Is x a tensor, a Param, or a type of ml.abstract?
---@param x any
---@return boolean
function ml.tree.is_leaf(x) end

--- The distinct leaves and their paths.
---@param tree any
---@return table
---@return string[]
function ml.tree.leaves(tree) end

--- A tree with fn(leaf) in the place of each leaf; further trees give fn more arguments.
---@param fn function
---@param tree any
---@param ... any
---@return any
function ml.tree.map(fn, tree, ...) end

--- The same with fn(path, leaf).
---@param fn function
---@param tree any
---@return any
function ml.tree.map_with_path(fn, tree) end

--- A tree of plain tables with only the leaves in `of`, replaced by what it maps them to.
---@param tree any
---@param of table
---@return any
function ml.tree.only(tree, of) end

--- A tree of the same structure with the leaves in `with` replaced, metatables kept.
---@param tree any
---@param with table
---@return any
function ml.tree.replace(tree, with) end

--- Calls visit(path, leaf) for every distinct leaf, in order.
---@param tree any
---@param visit function
function ml.tree.visit(tree, visit) end

--- softmax(scale q k^T) v for each head: [batch, length, heads, head_dim].
---@param q Tensor
---@param k Tensor
---@param v Tensor
---@param options? {bias?: Tensor, causal?: boolean, dropout?: number, key?: Tensor, lengths?: Tensor, mask?: Tensor, offset?: integer|Tensor, query_lengths?: Tensor, scale?: number, segment_ids?: Tensor|table, soft_cap?: number, window?: integer|table}
---@return Tensor
function ml.nn.attention(q, k, v, options) end

--- The mean of each window over the spatial dims of [batch, spatial..., features].
---@param x Tensor
---@param window integer|integer[]
---@param options? {count_include_pad?: boolean, padding?: "same"|"valid"|integer[][], strides?: integer|integer[]}
---@return Tensor
function ml.nn.avg_pool(x, window, options) end

--- x where it is positive, else alpha (exp(x / alpha) - 1); alpha: default 1.
---@param x Tensor
---@param alpha? number
---@return Tensor
function ml.nn.celu(x, alpha) end

--- 1 - cosine_similarity.
---@param predictions Tensor
---@param targets Tensor
---@param epsilon? number
---@return Tensor
function ml.nn.cosine_distance(predictions, targets, epsilon) end

--- The cosine of the angle between rows; epsilon: what the square of a norm is at least (default 0).
---@param predictions Tensor
---@param targets Tensor
---@param epsilon? number
---@return Tensor
function ml.nn.cosine_similarity(predictions, targets, epsilon) end

--- x / (1 - rate) with probability 1 - rate, else 0.
---@param x Tensor
---@param rate number
---@param key Tensor
---@return Tensor
function ml.nn.dropout(x, rate, key) end

--- Calls visit(module, path) for every module in a tree, the outer before the inner.
---@param tree any
---@param visit function
function ml.nn.each_module(tree, visit) end

--- x where it is positive, else alpha (exp(x) - 1); alpha: default 1.
---@param x Tensor
---@param alpha? number
---@return Tensor
function ml.nn.elu(x, alpha) end

--- What nn.pipeline does with these arguments: tostring shows who works on what in each tick, and the cost.
---@param layers table
---@param batch any
---@param options? {body?: function, first?: function, last?: function, mesh?: Mesh, microbatches?: integer, rngs?: table, schedule?: string, stage?: string}
---@return table
function ml.nn.explain_pipeline(layers, batch, options) end

--- x Phi(x), by default in the tanh approximation; false: with erf.
---@param x Tensor
---@param approximate? boolean
---@return Tensor
function ml.nn.gelu(x, approximate) end

--- kl of numbers whose sum need not be 1.
---@param log_predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.generalized_kl_divergence(log_predictions, targets) end

--- The first half along an axis (default last) times the sigmoid of the second.
---@param x Tensor
---@param axis? integer
---@return Tensor
function ml.nn.glu(x, axis) end

--- relu6(x + 3) / 6.
---@param x Tensor
---@return Tensor
function ml.nn.hard_sigmoid(x) end

--- x hard_sigmoid(x).
---@param x Tensor
---@return Tensor
function ml.nn.hard_silu(x) end

--- hard_silu.
---@param x Tensor
---@return Tensor
function ml.nn.hard_swish(x) end

--- x within [-1, 1].
---@param x Tensor
---@return Tensor
function ml.nn.hard_tanh(x) end

--- max(0, 1 - x y) of each element; y is -1 or 1.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.hinge_loss(predictions, targets) end

--- Quadratic up to |x - y| = delta (default 1), linear beyond, of each element.
---@param predictions Tensor
---@param targets Tensor
---@param delta? number
---@return Tensor
function ml.nn.huber(predictions, targets, delta) end

--- x.
---@param x any
---@return any
function ml.nn.identity(x) end

--- Is x an instance of a class made by nn.module?
---@param x any
---@return boolean
function ml.nn.is_module(x) end

--- The Kullback-Leibler divergence of each row.
---@param log_predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.kl(log_predictions, targets) end

--- kl of logarithms.
---@param log_predictions Tensor
---@param log_targets Tensor
---@return Tensor
function ml.nn.kl_divergence_with_log_targets(log_predictions, log_targets) end

--- (x - y)^2 / 2 of each element.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.l2_loss(predictions, targets) end

--- Layer i (1-based) of a stack, to be called.
---@param stack table
---@param i integer
---@return table
function ml.nn.layer(stack, i) end

--- x where it is not negative, else slope x (default 0.01).
---@param x Tensor
---@param slope? number
---@return Tensor
function ml.nn.leaky_relu(x, slope) end

--- log(cosh(x - y)) of each element.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.log_cosh(predictions, targets) end

--- log(sigmoid(x)).
---@param x Tensor
---@return Tensor
function ml.nn.log_sigmoid(x) end

--- Gives Linear layers Params lora_a and lora_b of low rank, whose product is added to the kernel.
---@param model table
---@param options? {a_init?: function, alpha?: number, b_init?: function, only?: string|table|function, param_dtype?: DType, rank?: integer, rngs?: table}
---@return table
function ml.nn.lora(model, options) end

--- The largest of each window over the spatial dims of [batch, spatial..., features].
---@param x Tensor
---@param window integer|integer[]
---@param options? {padding?: "same"|"valid"|integer[][], strides?: integer|integer[]}
---@return Tensor
function ml.nn.max_pool(x, window, options) end

--- Adds to the kernels what nn.lora has given their layers, and takes that away.
---@param model table
---@return table
function ml.nn.merge_lora(model) end

--- x tanh(softplus(x)).
---@param x Tensor
---@return Tensor
function ml.nn.mish(x) end

--- A class of modules: write Name:init(...) and Name:__call(x) on it; Name(...) makes one.
---@param name string
---@return table
function ml.nn.module(name) end

--- The mean of (x - y)^2 over all elements.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.mse(predictions, targets) end

--- What the largest score, those of other classes plus 1, has above the label's; labels are class ids.
---@param scores Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.multiclass_hinge_loss(scores, labels) end

--- What the largest score has above the label's; labels are 0-based class ids.
---@param scores Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.multiclass_perceptron_loss(scores, labels) end

--- max(0, -x y) of each element; y is -1 or 1.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.perceptron_loss(predictions, targets) end

--- Layers on the places along a mesh axis, a microbatch behind the other through them: the mean loss that `last` gives, and the sums of what else it gives; without `last` what the last layer gives.
---@param layers table
---@param batch any
---@param options? {body?: function, first?: function, last?: function, mesh?: Mesh, microbatches?: integer, rngs?: table, schedule?: string, stage?: string}
---@return any
---@return any
function ml.nn.pipeline(layers, batch, options) end

--- softmax_cross_entropy + epsilon * (1 - the probability of the label); epsilon: default 2.
---@param logits Tensor
---@param labels Tensor
---@param epsilon? number
---@return Tensor
function ml.nn.poly_loss_cross_entropy(logits, labels, epsilon) end

--- max(x, 0).
---@param x Tensor
---@return Tensor
function ml.nn.relu(x) end

--- x within [0, 6].
---@param x Tensor
---@return Tensor
function ml.nn.relu6(x) end

--- Rotary positions: each pair of features of [..., length, heads, size] turned by position / base^(2i / size).
---@param x Tensor
---@param options? {base?: number, interleaved?: boolean, positions?: Tensor, scaling?: table}
---@return Tensor
function ml.nn.rope(x, options) end

--- softmax_cross_entropy where a label of 0 counts nothing, also beside a logit of -inf.
---@param logits Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.safe_softmax_cross_entropy(logits, labels) end

--- Goes through the layers of a stack in order, as one loop that is traced once.
---@param stack table
---@param carry any
---@param body? function
---@param options? {reverse?: boolean, unroll?: integer}
---@return any
---@return any
function ml.nn.scan(stack, carry, body, options) end

--- elu with the alpha and factor that keep mean 0 and variance 1.
---@param x Tensor
---@return Tensor
function ml.nn.selu(x) end

--- 1 / (1 + exp(-x)).
---@param x Tensor
---@return Tensor
function ml.nn.sigmoid(x) end

--- -y log(sigmoid(x)) - (1 - y) log(1 - sigmoid(x)) of each element.
---@param logits Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.sigmoid_binary_cross_entropy(logits, labels) end

--- sigmoid_binary_cross_entropy times (1 - p)^gamma, p the probability of the label; gamma: default 2.
---@param logits Tensor
---@param labels Tensor
---@param options? {alpha?: number, gamma?: number}
---@return Tensor
function ml.nn.sigmoid_focal_loss(logits, labels, options) end

--- x sigmoid(x), also called swish.
---@param x Tensor
---@return Tensor
function ml.nn.silu(x) end

--- Labels times 1 - alpha, and alpha evenly over all classes.
---@param labels Tensor
---@param alpha number
---@return Tensor
function ml.nn.smooth_labels(labels, alpha) end

--- x / (1 + |x|).
---@param x Tensor
---@return Tensor
function ml.nn.soft_sign(x) end

--- -sum of label * log softmax(logits) of each row; labels are probabilities.
---@param logits Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.softmax_cross_entropy(logits, labels) end

--- -log softmax(logits)[label] of each row; labels are 0-based class ids.
---@param logits Tensor
---@param labels Tensor
---@return Tensor
function ml.nn.softmax_cross_entropy_with_integer_labels(logits, labels) end

--- log(1 + exp(x)), without overflow.
---@param x Tensor
---@return Tensor
function ml.nn.softplus(x) end

--- 0 up to -1, x from 1 on, (x + 1)^2 / 4 between.
---@param x Tensor
---@return Tensor
function ml.nn.sparse_plus(x) end

--- (x + 1) / 2 within [0, 1].
---@param x Tensor
---@return Tensor
function ml.nn.sparse_sigmoid(x) end

--- (x - y)^2 of each element.
---@param predictions Tensor
---@param targets Tensor
---@return Tensor
function ml.nn.squared_error(predictions, targets) end

--- (x + sqrt(x^2 + b)) / 2; b: default 4.
---@param x Tensor
---@param b? number
---@return Tensor
function ml.nn.squareplus(x, b) end

--- The modules make(1), ..., make(n) as one: each Param has a leading dim of size n.
---@param n integer
---@param make function
---@param options? {axis?: string}
---@return table
function ml.nn.stack(n, make, options) end

--- x less its mean, over its deviation, along axes (default last); epsilon: default 1e-5.
---@param x Tensor
---@param axes? integer|integer[]
---@param epsilon? number
---@return Tensor
function ml.nn.standardize(x, axes, epsilon) end

--- silu.
---@param x Tensor
---@return Tensor
function ml.nn.swish(x) end

--- The hyperbolic tangent.
---@param x Tensor
---@return Tensor
function ml.nn.tanh(x) end

--- Normalises over all dims but the last, by the batch while training, by running means after it.
---@param features integer|integer[]
---@param options? {axes?: table|P, bias_init?: function, dtype?: DType, epsilon?: number, momentum?: number, param_dtype?: DType, rngs?: table, scale_init?: function, use_bias?: boolean, use_scale?: boolean}
---@return BatchNorm
function ml.nn.BatchNorm(features, options) end

--- Two RNNs, one from the start and one from the end; results one behind the other, or as merge_fn says.
---@param forward table
---@param backward table
---@param options? {merge_fn?: function}
---@return Bidirectional
function ml.nn.Bidirectional(forward, backward, options) end

--- y = conv(x, kernel) + bias; padding: default "same".
---@param n_in integer|integer[]
---@param n_out integer|integer[]
---@param window integer|integer[]
---@param options? {axes?: table|P, bias_axes?: table|P, bias_init?: function, dtype?: DType, groups?: integer, input_dilation?: integer|integer[], kernel_dilation?: integer|integer[], kernel_init?: function, padding?: "same"|"valid"|integer[][], param_dtype?: DType, rngs?: table, strides?: integer|integer[], use_bias?: boolean}
---@return Conv
function ml.nn.Conv(n_in, n_out, window, options) end

--- Each element of x, strides apart, times the kernel; padding: default "same".
---@param n_in integer|integer[]
---@param n_out integer|integer[]
---@param window integer|integer[]
---@param options? {axes?: table|P, bias_axes?: table|P, bias_init?: function, dtype?: DType, groups?: integer, kernel_dilation?: integer|integer[], kernel_init?: function, padding?: "same"|"valid"|integer[][], param_dtype?: DType, rngs?: table, strides?: integer|integer[], use_bias?: boolean}
---@return ConvTranspose
function ml.nn.ConvTranspose(n_in, n_out, window, options) end

--- Drops elements while training.
---@param rate number
---@param options? {rngs?: table, stream?: string}
---@return Dropout
function ml.nn.Dropout(rate, options) end

--- A table of vectors by 0-based id.
---@param num_embeddings integer
---@param features integer
---@param options? {axes?: table|P, dtype?: DType, embedding_init?: function, param_dtype?: DType, rngs?: table}
---@return Embed
function ml.nn.Embed(num_embeddings, features, options) end

--- Normalises each example over its spatial dims and groups of features; num_groups: default 32.
---@param features integer|integer[]
---@param options? {axes?: table|P, bias_init?: function, dtype?: DType, epsilon?: number, group_size?: integer, num_groups?: integer, param_dtype?: DType, rngs?: table, scale_init?: function, use_bias?: boolean, use_scale?: boolean}
---@return GroupNorm
function ml.nn.GroupNorm(features, options) end

--- The gated recurrent unit.
---@param n_in integer|integer[]
---@param hidden integer|integer[]
---@param options? {activation_fn?: function, axes?: table|P, bias_init?: function, dtype?: DType, gate_fn?: function, kernel_init?: function, param_dtype?: DType, recurrent_kernel_init?: function, rngs?: table}
---@return GRUCell
function ml.nn.GRUCell(n_in, hidden, options) end

--- Normalises each feature of each example over its spatial dims.
---@param features integer|integer[]
---@param options? {axes?: table|P, bias_init?: function, dtype?: DType, epsilon?: number, param_dtype?: DType, rngs?: table, scale_init?: function, use_bias?: boolean, use_scale?: boolean}
---@return InstanceNorm
function ml.nn.InstanceNorm(features, options) end

--- (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dim.
---@param features integer|integer[]
---@param options? {axes?: table|P, bias_init?: function, dtype?: DType, epsilon?: number, param_dtype?: DType, rngs?: table, scale_init?: function, use_bias?: boolean, use_scale?: boolean}
---@return LayerNorm
function ml.nn.LayerNorm(features, options) end

--- A matrix product with a bias, over x's last dim(s).
---@param n_in integer|integer[]
---@param n_out integer|integer[]
---@param options? {axes?: table|P, bias_axes?: table|P, bias_init?: function, dtype?: DType, kernel_init?: function, param_dtype?: DType, rngs?: table, use_bias?: boolean}
---@return Linear
function ml.nn.Linear(n_in, n_out, options) end

--- Long short-term memory; the carry is {c, h}.
---@param n_in integer|integer[]
---@param hidden integer|integer[]
---@param options? {activation_fn?: function, axes?: table|P, bias_init?: function, dtype?: DType, gate_fn?: function, kernel_init?: function, param_dtype?: DType, recurrent_kernel_init?: function, rngs?: table}
---@return LSTMCell
function ml.nn.LSTMCell(n_in, hidden, options) end

--- A mixture of experts behind a router.
---@param width integer
---@param hidden integer
---@param experts integer
---@param options? {activation?: function, capacity_factor?: number, dtype?: DType, gated?: boolean, kernel_init?: function, param_dtype?: DType, rngs?: table, top_k?: integer}
---@return MoE
function ml.nn.MoE(width, hidden, experts, options) end

--- Self-attention (or cross-attention) with q, k, v and output projections.
---@param width integer
---@param heads integer
---@param options? {axes?: table, bias_init?: function, causal?: boolean, dropout?: number, dtype?: DType, fused?: boolean, head_dim?: integer, kernel_init?: function, kv_heads?: integer, out_kernel_init?: function, param_dtype?: DType, rngs?: table, rope?: number|table, soft_cap?: number, use_bias?: boolean, window?: integer|table}
---@return MultiHeadAttention
function ml.nn.MultiHeadAttention(width, heads, options) end

--- A place for a tensor in a module; meta: kind, axes, opt_axes, role, rules, and anything else.
---@param value Tensor|number|table
---@param meta? table
---@return Param
function ml.nn.Param(value, meta) end

--- x / sqrt(mean(x^2) + epsilon) * scale over the last dim.
---@param features integer|integer[]
---@param options? {axes?: table|P, dtype?: DType, epsilon?: number, param_dtype?: DType, rngs?: table, scale_init?: function, use_scale?: boolean}
---@return RMSNorm
function ml.nn.RMSNorm(features, options) end

--- Streams of keys by name: nn.Rngs(0), nn.Rngs{params = 0, dropout = 1}.
---@param seeds integer|Tensor|table
---@return Rngs
function ml.nn.Rngs(seeds) end

--- A stream of keys; calling it gives the next one.
---@param key integer|Tensor
---@param tag string
---@return RngStream
function ml.nn.RngStream(key, tag) end

--- A cell over time; reverse: from the end on.
---@param cell_of table
---@param options? {keep_order?: boolean, reverse?: boolean, time_major?: boolean, unroll?: integer}
---@return RNN
function ml.nn.RNN(cell_of, options) end

--- Modules (or functions) called one behind the other.
---@param layers table
---@return Sequential
function ml.nn.Sequential(layers) end

--- tanh(x W + b + h U).
---@param n_in integer|integer[]
---@param hidden integer|integer[]
---@param options? {activation_fn?: function, axes?: table|P, bias_init?: function, dtype?: DType, gate_fn?: function, kernel_init?: function, param_dtype?: DType, recurrent_kernel_init?: function, rngs?: table}
---@return SimpleCell
function ml.nn.SimpleCell(n_in, hidden, options) end

--- A layer whose kernels are over their columns' norms, times scales.
---@param layer table
---@param options? {epsilon?: number, param_dtype?: DType, rngs?: table, scale_init?: function, use_scale?: boolean}
---@return WeightNorm
function ml.nn.WeightNorm(layer, options) end

--- Every element the same.
---@param value number
---@return function
function ml.nn.initializers.constant(value) end

--- Of a convolution's kernel: an orthogonal matrix in the middle, zeros around it.
---@param scale? number
---@param column_axis? integer
---@return function
function ml.nn.initializers.delta_orthogonal(scale, column_axis) end

--- variance_scaling(1, "fan_avg", "truncated_normal").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.glorot_normal(options) end

--- variance_scaling(1, "fan_avg", "uniform").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.glorot_uniform(options) end

--- variance_scaling(2, "fan_in", "truncated_normal").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.he_normal(options) end

--- variance_scaling(2, "fan_in", "uniform").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.he_uniform(options) end

--- As he_normal.
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.kaiming_normal(options) end

--- As he_uniform.
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.kaiming_uniform(options) end

--- variance_scaling(1, "fan_in", "truncated_normal").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.lecun_normal(options) end

--- variance_scaling(1, "fan_in", "uniform").
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.lecun_uniform(options) end

--- Normal with mean 0; stddev: default 0.01.
---@param stddev? number
---@return function
function ml.nn.initializers.normal(stddev) end

--- Ones; itself an initialiser.
---@param _ any
---@param shape integer|integer[]
---@param dtype? DType
---@param _dims? table
---@return Tensor
function ml.nn.initializers.ones(_, shape, dtype, _dims) end

--- Columns, or rows, at right angles, each of length scale (default 1).
---@param scale? number
---@param column_axis? integer
---@return function
function ml.nn.initializers.orthogonal(scale, column_axis) end

--- Normal, cut to [lower, upper] (default -2, 2) before it is multiplied by stddev (default 0.01).
---@param stddev? number
---@param lower? number
---@param upper? number
---@return function
function ml.nn.initializers.truncated_normal(stddev, lower, upper) end

--- Uniform in [0, scale); default 0.01.
---@param scale? number
---@return function
function ml.nn.initializers.uniform(scale) end

--- Mean 0 and variance scale / n.
---@param scale number
---@param mode "fan_in"|"fan_out"|"fan_avg"|"fan_geo_avg"
---@param distribution "truncated_normal"|"normal"|"uniform"
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.variance_scaling(scale, mode, distribution, options) end

--- As glorot_normal.
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.xavier_normal(options) end

--- As glorot_uniform.
---@param options? {batch_axis?: integer|integer[], in_axis?: integer|integer[], out_axis?: integer|integer[]}
---@return function
function ml.nn.initializers.xavier_uniform(options) end

--- Zeros; itself an initialiser.
---@param _ any
---@param shape integer|integer[]
---@param dtype? DType
---@param _dims? table
---@return Tensor
function ml.nn.initializers.zeros(_, shape, dtype, _dims) end

--- Adafactor: second moments of large matrices by rows and columns.
---@param model? table
---@param options? {clip?: number, clipping_threshold?: number|false, decay_offset?: number, decay_rate?: number, dtype_momentum?: DType, eps?: number, factored?: boolean, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, min_dim_size_to_factor?: integer, momentum?: number, multiply_by_parameter_scale?: boolean, only?: string|table|function, weight_decay?: number}
---@return Optimizer
function ml.optim.adafactor(model, options) end

--- Gradients over the root of the sum of their squares.
---@param model? table
---@param options? {clip?: number, eps?: number, freeze?: string|table|function, initial_accumulator_value?: number, lr?: number|function, only?: string|table|function}
---@return Optimizer
function ml.optim.adagrad(model, options) end

--- Adam; without a model the transformation, for chain. only, freeze: which Params are trained, and which are not, by a pattern of paths or a list of them, fun(path, param) or a tree of booleans.
---@param model? table
---@param options? {b1?: number, b2?: number, clip?: number, eps?: number, eps_root?: number, freeze?: string|table|function, lr?: number|function, master?: boolean, mu_dtype?: DType, nesterov?: boolean, only?: string|table|function}
---@return Optimizer
function ml.optim.adam(model, options) end

--- Adam with weight decay beside the gradients, times lr.
---@param model? table
---@param options? {b1?: number, b2?: number, clip?: number, eps?: number, eps_root?: number, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, master?: boolean, mu_dtype?: DType, nesterov?: boolean, only?: string|table|function, weight_decay?: number}
---@return Optimizer
function ml.optim.adamw(model, options) end

--- Adam with steps in proportion to each Param's norm.
---@param model? table
---@param options? {b1?: number, b2?: number, clip?: number, eps?: number, eps_root?: number, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, only?: string|table|function, weight_decay?: number}
---@return Optimizer
function ml.optim.lamb(model, options) end

--- Momentum in proportion to each Param's norm.
---@param model? table
---@param options? {clip?: number, eps?: number, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, momentum?: number, nesterov?: boolean, only?: string|table|function, trust_coefficient?: number, weight_decay?: number}
---@return Optimizer
function ml.optim.lars(model, options) end

--- The sign of momentum, with weight decay.
---@param model? table
---@param options? {b1?: number, b2?: number, clip?: number, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, mu_dtype?: DType, only?: string|table|function, weight_decay?: number}
---@return Optimizer
function ml.optim.lion(model, options) end

--- Momentum of matrices made orthogonal; adamw for all other Params.
---@param model? table
---@param options? {adam_b1?: number, adam_b2?: number, adam_eps_root?: number, adam_lr?: number|function, adam_weight_decay?: number, beta?: number, clip?: number, consistent_rms?: number, eps?: number, freeze?: string|table|function, lr?: number|function, mask?: string|table|function, matrices?: string|table|function, mu_dtype?: DType, nesterov?: boolean, ns_coeffs?: table, ns_steps?: integer, only?: string|table|function, weight_decay?: number}
---@return Optimizer
function ml.optim.muon(model, options) end

--- Gradients over the root of their running mean square.
---@param model? table
---@param options? {bias_correction?: boolean, centered?: boolean, clip?: number, decay?: number, eps?: number, eps_in_sqrt?: boolean, freeze?: string|table|function, initial_scale?: number, lr?: number|function, momentum?: number, nesterov?: boolean, only?: string|table|function}
---@return Optimizer
function ml.optim.rmsprop(model, options) end

--- Stochastic gradient descent.
---@param model? table
---@param options? {clip?: number, freeze?: string|table|function, lr?: number|function, momentum?: number, nesterov?: boolean, only?: string|table|function}
---@return Optimizer
function ml.optim.sgd(model, options) end

--- Adds weight_decay times the Param.
---@param weight_decay number
---@param mask? string|table|function
---@return table
function ml.optim.add_decayed_weights(weight_decay, mask) end

--- One transformation behind the other.
---@param ... table
---@return table
function ml.optim.chain(...) end

--- Cuts every element to [-limit, limit].
---@param limit number
---@return table
function ml.optim.clip(limit) end

--- Scales all updates so that their global norm is at most max_norm.
---@param max_norm number
---@return table
function ml.optim.clip_by_global_norm(max_norm) end

--- Scales each update whose root mean square is above the threshold down to it.
---@param threshold number
---@return table
function ml.optim.clip_by_block_rms(threshold) end

--- The running mean of updates; debias (default true) corrects it for its start at 0.
---@param decay number
---@param options? {accumulator_dtype?: DType, debias?: boolean}
---@return table
function ml.optim.ema(decay, options) end

--- sqrt(sum of all squares) over all tensors of a tree.
---@param x Tensor|table|number
---@return Tensor
function ml.optim.global_norm(x) end

--- A transformation of the Params in the mask alone; updates of the others pass as they are.
---@param transformation table
---@param mask string|table|function
---@return table
function ml.optim.masked(transformation, mask) end

--- For each Param the transformation of its label: labels are rows {pattern, label}, or fun(path, param).
---@param transforms table
---@param labels table|function
---@return table
function ml.optim.multi_transform(transforms, labels) end

--- Updates of 0: Params of this label are frozen.
---@return table
function ml.optim.set_to_zero() end

--- Multiplies by a number.
---@param factor number
---@return table
function ml.optim.scale(factor) end

--- Divides the running mean of gradients by the root of the running mean of their squares.
---@param options? {b1?: number, b2?: number, eps?: number, eps_root?: number, mu_dtype?: DType, nesterov?: boolean}
---@return table
function ml.optim.scale_by_adam(options) end

--- Divides by the root of running means of squares, of large matrices those of rows and columns alone.
---@param options? {decay_offset?: number, decay_rate?: number, eps?: number, factored?: boolean, min_dim_size_to_factor?: integer}
---@return table
function ml.optim.scale_by_factored_rms(options) end

--- Multiplies by -lr.
---@param lr number|function
---@return table
function ml.optim.scale_by_learning_rate(lr) end

--- The sign of a running mean that leans toward the gradient.
---@param options? {b1?: number, b2?: number, mu_dtype?: DType}
---@return table
function ml.optim.scale_by_lion(options) end

--- Multiplies each update by the root mean square of its Param, at least min_scale (default 1e-3).
---@param min_scale? number
---@return table
function ml.optim.scale_by_param_block_rms(min_scale) end

--- Divides by the root of the running mean of squares; centered: by the running standard deviation.
---@param options? {bias_correction?: boolean, centered?: boolean, decay?: number, eps?: number, eps_in_sqrt?: boolean, initial_scale?: number}
---@return table
function ml.optim.scale_by_rms(options) end

--- Divides by the root of the sum of all squares so far.
---@param options? {eps?: number, initial_accumulator_value?: number}
---@return table
function ml.optim.scale_by_rss(options) end

--- Multiplies by what a schedule gives.
---@param schedule function
---@return table
function ml.optim.scale_by_schedule(schedule) end

--- Gives each update the norm of its Param, times a coefficient.
---@param options? {eps?: number, min_norm?: number, trust_coefficient?: number}
---@return table
function ml.optim.scale_by_trust_ratio(options) end

--- Momentum: the sum of gradients that fade by `decay` at each step.
---@param decay number
---@param options? {accumulator_dtype?: DType, nesterov?: boolean}
---@return table
function ml.optim.trace(decay, options) end

--- The running mean of a model's Params; decay: default 0.999.
---@param model table
---@param options? {decay?: number, dtype?: DType}
---@return EMA
function ml.optim.EMA(model, options) end

--- Gathers the mean of every_k gradients, and gives the transformation that.
---@param transformation table
---@param every_k integer|function
---@param options? {accumulator_dtype?: DType, use_grad_mean?: boolean}
---@return table
function ml.optim.MultiSteps(transformation, every_k, options) end

--- What holds a transformation and its state.
---@param model table
---@param transformation table
---@param options? {clip?: number, freeze?: string|table|function, only?: string|table|function}
---@return Optimizer
function ml.optim.Optimizer(model, transformation, options) end

--- Keeps float16 gradients within float16.
---@param options? {initial?: number, interval?: integer}
---@return LossScale
function ml.optim.LossScale(options) end

--- Always the same.
---@param value number
---@return function
function ml.schedule.constant(value) end

--- From init_value along half a cosine to alpha * init_value.
---@param options? {alpha?: number, decay_steps?: number, exponent?: number, init_value?: number}
---@return function
function ml.schedule.cosine(options) end

--- Up to peak_value and down to nearly nothing, along cosines.
---@param options? {div_factor?: number, final_div_factor?: number, pct_start?: number, peak_value?: number, transition_steps?: number}
---@return function
function ml.schedule.cosine_onecycle(options) end

--- init_value times decay_rate ^ (count / transition_steps).
---@param options? {decay_rate?: number, end_value?: number, init_value?: number, staircase?: boolean, transition_begin?: number, transition_steps?: number}
---@return function
function ml.schedule.exponential(options) end

--- Linear to peak_value over warmup_steps, then falling as 1 / sqrt(count).
---@param options? {init_value?: number, peak_value?: number, timescale?: number, warmup_steps?: number}
---@return function
function ml.schedule.inverse_sqrt(options) end

--- The first schedule up to the first boundary, then the next one, counted from there.
---@param schedules table
---@param boundaries table
---@return function
function ml.schedule.join(schedules, boundaries) end

--- From init_value to end_value in a straight line.
---@param options? {end_value?: number, init_value?: number, transition_begin?: number, transition_steps?: number}
---@return function
function ml.schedule.linear(options) end

--- Up to peak_value and down to nearly nothing, in straight lines.
---@param options? {div_factor?: number, final_div_factor?: number, pct_final?: number, pct_start?: number, peak_value?: number, transition_steps?: number}
---@return function
function ml.schedule.linear_onecycle(options) end

--- init_value, times a factor at each boundary: {[count] = factor}.
---@param options? {boundaries_and_scales?: table, init_value?: number}
---@return function
function ml.schedule.piecewise_constant(options) end

--- The same in straight lines or half cosines between the boundaries.
---@param options? {boundaries_and_scales?: table, init_value?: number, interpolate_type?: "linear"|"cosine"}
---@return function
function ml.schedule.piecewise_interpolate(options) end

--- From init_value to end_value along a power of what is left.
---@param options? {end_value?: number, init_value?: number, power?: number, transition_begin?: number, transition_steps?: number}
---@return function
function ml.schedule.polynomial(options) end

--- Linear to peak_value over warmup_steps, then a cosine to end_value at decay_steps.
---@param options? {decay_steps?: number, end_value?: number, exponent?: number, init_value?: number, peak_value?: number, warmup_steps?: number}
---@return function
function ml.schedule.warmup_cosine(options) end

--- Warm-up to peak_value, stable, decay to end_value.
---@param options? {decay?: "linear"|"cosine"|"sqrt", decay_steps?: number, end_value?: number, init_value?: number, peak_value?: number, stable_steps?: number, warmup_steps?: number}
---@return function
function ml.schedule.wsd(options) end

--- The tensors of a .safetensors, .npy, .npz or .gguf file, or of a folder of Hugging Face, as a table by name and the file's metadata; or into the Params of a model, each device reading its part. Or nil, message, code.
---@param file string
---@param options? {cast?: boolean|DType, into?: table|Tensor, map?: table, mesh?: Mesh, numbers?: table, partial?: string|string[], rules?: table, sharding?: NamedSharding|P|table|function, strict?: boolean, tree?: boolean}
---@return table|Tensor
---@return table
function ml.load(file, options) end

--- The tensors of a tree as a .safetensors, .npy, .npz or .gguf file, or in a folder/. Or nil, message, code.
---@param file string
---@param tree table|Tensor
---@param options? {cast?: DType, encoding?: string, map?: table, metadata?: table, numbers?: table, shard_bytes?: integer, strict?: boolean}
---@return boolean
function ml.save(file, tree, options) end

--- A folder of checkpoints, which is this run's until close.
---@param folder string
---@param options? {async?: boolean, best?: string|table, every_minutes?: number, every_steps?: integer, keep?: integer, keep_every?: integer, memory?: integer, timeout?: number}
---@return Manager
function ml.checkpoint.Manager(folder, options) end

--- Computes a step twice, with the devices in each other's places, and compares the bits.
---@param step any
---@param ... any
---@return table
function ml.audit(step, ...) end

--- Room for the keys and values of a model's attention layers: rows of so many tokens.
---@param model table
---@param batch integer
---@param length integer
---@param options? {dtype?: DType, mesh?: Mesh, rules?: table}
---@return Cache
function ml.cache(model, batch, length, options) end

--- Reads a chat template, as models bring them; or nil, message, code.
---@param source string
---@return ChatTemplate
---@return string
---@return string
function ml.chat_template(source) end

--- What only data shows: equal shards, equal random bits, means of means, tokens without an expert.
---@param step any
---@param ... any
---@return table
function ml.checks(step, ...) end

--- Raises E_BUDGET unless the plan's communication is as said.
---@param plan any
---@param budget table
---@return any
function ml.expect(plan, budget) end

--- How a call would run: collectives, memory, work; as a text by tostring.
---@param step any
---@param ... any
---@return table
function ml.explain(step, ...) end

--- Which rule gave which dim of which Param its mesh axes.
---@param rules table
---@param model table
---@param mesh? Mesh
---@return table
function ml.explain_rules(rules, model, mesh) end

--- Runs a step that gave a NaN or an infinity again, and says which op gave the first.
---@param step any
---@param ... any
---@return table
function ml.find_nonfinite(step, ...) end

--- Raises E_BUDGET if the plan has a collective that answers to all that is said.
---@param plan any
---@param what? table
---@return any
function ml.forbid(plan, what) end

--- Continues prompts, lists of ids: the new tokens, why they end, with a tokenizer their texts.
---@param model table
---@param ids table|string|Tensor
---@param options? {cache?: table, cache_dtype?: DType, callback?: function, max_tokens?: integer, mesh?: Mesh, min_p?: number, repetition_penalty?: number, rules?: table, seed?: integer, slide?: boolean, stop?: table|integer|string, temperature?: number, tokenizer?: table, top_k?: integer, top_p?: number}
---@return table
---@return any
---@return any
function ml.generate(model, ids, options) end

--- A byte-level tokenizer of so many ids, learnt from texts. pattern: how they are split; default GPT-2's. special: tokens behind all others; default <|endoftext|>. Or nil, message, code.
---@param texts string|string[]
---@param options? {pattern?: string, size?: integer, special?: string[]}
---@return Tokenizer
function ml.learn_tokenizer(texts, options) end

--- How tensors print from now on; returns what held before.
---@param options? {edge_items?: integer, float_mode?: "maxprec"|"fixed"|"unique"|"maxprec_equal", precision?: integer, sign?: "-"|"+"|" ", suppress?: boolean, threshold?: number, width?: number}
---@return table
function ml.set_print_options(options) end

--- Any value as a text to be read: tables and what is in them, tensors with their values.
---@param value any
---@param options? {by_device?: boolean, edge_items?: integer, float_mode?: "maxprec"|"fixed"|"unique"|"maxprec_equal", gather?: boolean, items?: integer, precision?: integer, sign?: "-"|"+"|" ", suppress?: boolean, threshold?: number, width?: number}
---@return string
function ml.show(value, options) end

--- A tokenizer from a file (tokenizer.json, .tiktoken, sentencepiece's .model, GGUF) or a folder with one. pattern, special: of a .tiktoken file, which says neither. Or nil, message, code.
---@param path string
---@param options? {pattern?: string, special?: table}
---@return Tokenizer
function ml.tokenizer(path, options) end

--- Runs a step on its mesh and on one device, and compares the results.
---@param step any
---@param ... any
---@return table
function ml.verify(step, ...) end

--- Who gave a tensor its layout, op by op.
---@param x any
---@param ... any
---@return string
---@return any ...
function ml.why_sharding(x, ...) end

--- How many bytes of data files this process has read.
---@return integer
function ml.data.bytes_read() end

--- Records that a function of the id (from 0) gives: tables of fields.
---@param n integer
---@param fn function
---@return Records
function ml.data.computed(n, fn) end

--- The documents of a list of ids: an id ends each, or starts it.
---@param tokens Tokens
---@param options? {ends?: integer, starts?: integer}
---@return Records
function ml.data.documents(tokens, options) end

--- Texts as documents of ids, which are kept between runs. field: default "text"; key: the name of a function's ids; folder: where they are kept, false: nowhere.
---@param texts Records
---@param encoder Tokenizer|function
---@param options? {field?: string, folder?: string|false, key?: string}
---@return Records
function ml.data.encode(texts, encoder, options) end

--- Records from IDX files, one file a field.
---@param paths table
---@return Records
function ml.data.idx(paths) end

--- Records from lines of JSON, an object each.
---@param path string|string[]
---@param options? {fields?: string[]}
---@return Records
function ml.data.jsonl(path, options) end

--- The largest of the ids, 0 where there are none.
---@param tokens Tokens
---@return integer
function ml.data.largest(tokens) end

--- Records of several kinds by weights: any number of them from the first on has each kind's share to within one.
---@param kinds table
---@param weights table
---@return Records
function ml.data.mix(kinds, weights) end

--- Records from npy files, one file a field.
---@param paths table
---@return Records
function ml.data.npy(paths) end

--- Documents as rows of one length: inputs, labels, segments for attention, weights of the labels. file: where the index is kept.
---@param documents Records
---@param length integer
---@param options? {file?: string, mode?: "split"|"best_fit"}
---@return Records
function ml.data.pack(documents, length, options) end

--- Records from tensors, whose first dim counts them.
---@param values table
---@return Records
function ml.data.tensors(values) end

--- Texts: each file is one, or what stands between separators.
---@param path string|string[]
---@param options? {separator?: string}
---@return Records
function ml.data.text(path, options) end

--- The ids of a file, by what it is; several files, or a name with *, are one list.
---@param path string|string[]
---@return Tokens
function ml.data.tokens(path) end

--- Pieces of a text, to learn from each what comes next.
---@param tokens Tokens
---@param length integer
---@param first? integer
---@param last? integer
---@return Records
---@overload fun(tokens: Tokens, length: integer, options: {first?: integer, last?: integer}): Records
function ml.data.windows(tokens, length, first, last) end

--- The share of rows whose label is where the logits are largest, or among the top_k largest.
---@param options? {top_k?: integer}
---@return Accuracy
function ml.metrics.Accuracy(options) end

--- The mean of all values that it was given, summed on the devices.
---@param options? {of?: string}
---@return Mean
function ml.metrics.Mean(options) end

--- Metrics by name, updated and computed at once.
---@param metrics table
---@return MultiMetric
function ml.metrics.MultiMetric(metrics) end

--- e to the mean of the losses, in nats.
---@param options? {of?: string}
---@return Perplexity
function ml.metrics.Perplexity(options) end

--- A function that takes a step's scalars, as a tree, and gives the numbers of the step before; nil the first time.
---@return function
function ml.metrics.late() end

--- A trainer of a recipe, from three configurations: what the program takes as flags stands in them.
---@param model_config table|string
---@param training_config table
---@param distributed_config? table
---@return Trainer
function ml.train.Trainer(model_config, training_config, distributed_config) end

--- A recipe's model with the weights of a folder (config.json, or Meta's params.json) or of a GGUF file, its config, and what the file says of it. Or nil, message, code.
---@param recipe table
---@param path string
---@param options? {config?: table, mesh?: Mesh, rules?: table}
---@return table
---@return table
---@return table
function ml.train.from_pretrained(recipe, path, options) end

--- The program: trains a recipe as the arguments say.
---@param recipe table|string
---@param args table
---@param instead? function
function ml.train.main(recipe, args, instead) end

--- A mesh from "data:4,model:2"; nil for "none".
---@param text string
---@return Mesh
function ml.train.mesh(text) end

--- The dtype of a recipe's arithmetic.
---@param config table
---@return string
function ml.train.precision(config) end

--- One training run of a recipe.
---@param recipe table
---@param options table
---@return table
function ml.train.run(recipe, options) end

--- Writes a recipe's model as a folder of Hugging Face, or as a GGUF file where the path ends in .gguf. Or nil, message, code.
---@param recipe table
---@param path string
---@param model table
---@param config table
---@param options? {cast?: DType, encoding?: string, metadata?: table}
---@return boolean
function ml.train.save_pretrained(recipe, path, model, config, options) end

--- Runs the program where the recipe's file is the script that was started.
---@param recipe table
function ml.train.script(recipe) end

--- The end of a program that was started with --profile=FILE: the table, on the standard error.
function ml.profile.finish() end

--- A function that gives the shares of time that threads and devices were busy since its last call.
---@return function
function ml.profile.meter() end

--- Shares as a text: "96% 93%", or the range of many.
---@param list number[]
---@return string
function ml.profile.shares_text(list) end

--- Records from now on what runs.
---@param file string
---@return boolean
function ml.profile.start(file) end

--- Ends the recording, writes the file, and gives what took how long.
---@return table
function ml.profile.stop() end

return ml
