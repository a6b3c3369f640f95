"""For each primitive of JAX the call of meshlua: ROWS[primitive](operands..., **parameters).

Names that meshlua does not have yet stand here as they would be called; cases that need them are counted as stopped.
SUMS are those whose rounding grows with the operands: they are compared beside the largest element.
"""

import string

import numpy as np
from jax import lax

from expr import absent, axes, axis, broadcast_in_dim, departs, ml, slices


def same(name):
    """A primitive without parameters that matter."""
    call = ml
    for part in name.split("."):
        call = getattr(call, part)
    return lambda *xs, **_: call(*xs)


def nothing(name):
    return lambda *xs, **_: absent(name)


def is_int(x):
    return str(x.dtype).startswith(("int", "uint"))


def is_bool(x):
    return str(x.dtype) == "bool"


def round_(x, rounding_method):
    even = rounding_method == lax.RoundingMethod.TO_NEAREST_EVEN
    return ml.round(x) if even else absent("round (halves away from 0)")


def div(x, y):
    return absent("div (of integers, toward 0)") if is_int(x) else ml.div(x, y)


def shr_logical(x, y):
    return ml.shr(x, y) if str(x.dtype).startswith("uint") else absent("shr (logical, of signed integers)")


def shr_arithmetic(x, y):
    return absent("shr (arithmetic, of unsigned integers)") if str(x.dtype).startswith("uint") else ml.shr(x, y)


def select_n(which, *cases):
    if len(cases) == 1:
        return cases[0]
    if len(cases) == 2 and is_bool(which):
        return ml.where(which, cases[1], cases[0])
    out = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        out = ml.where(ml.eq(which, i), cases[i], out)
    return out


def reduce_(name):
    return lambda x, axes: getattr(ml, name)(x, tuple(d + 1 for d in axes)) if axes else x


def kept(x, y):
    """Sums of 8 and 16 bits have 32 here, as those of jax.numpy do; the primitive keeps the dtype."""
    return ml.astype(y, x.dtype) if x.dtype in ("uint8", "uint16", "int8", "int16") else y


def reduce_sum(x, axes, out_sharding=None):
    return kept(x, ml.sum(x, tuple(d + 1 for d in axes))) if axes else x


def argreduce(name):
    return lambda x, axes, index_dtype: ml.astype(getattr(ml, name)(x, axes[0] + 1), str(np.dtype(index_dtype)))


def cumulative(name):
    return lambda x, axis, reverse: kept(x, getattr(ml, name)(x, axis + 1, reverse or None))


def slice_(x, start_indices, limit_indices, strides):
    return ml.slice(x, *slices(start_indices, limit_indices, strides or [1] * x.ndim))


def pad(x, value, padding_config):
    if value.value is None:
        departs("pad takes a number, not a tensor, to fill with")
    value.fixed, v = True, np.asarray(value.value).item()
    return ml.pad(x, [tuple(p) if p[2] else tuple(p[:2]) for p in padding_config], v)


def bitcast(x, new_dtype):
    if np.dtype(x.dtype).itemsize != np.dtype(new_dtype).itemsize:
        absent("bitcast (to another width)")
    if np.dtype(x.dtype).itemsize < 4:
        absent("bitcast (of 8 and 16 bits)")
    return ml.bitcast(x, str(np.dtype(new_dtype)))


def dot_general(x, y, dimension_numbers, preferred_element_type, **_):
    (cx, cy), (bx, by) = dimension_numbers
    letters = iter(string.ascii_letters)
    sx, sy = [None] * x.ndim, [None] * y.ndim
    for i, j in [*zip(bx, by), *zip(cx, cy)]:
        sx[i] = sy[j] = next(letters)
    for s in (sx, sy):
        for i, letter in enumerate(s):
            s[i] = letter or next(letters)
    out = [sx[i] for i in bx]
    out += [s for i, s in enumerate(sx) if i not in (*bx, *cx)] + [s for i, s in enumerate(sy) if i not in (*by, *cy)]
    if preferred_element_type is not None and str(np.dtype(preferred_element_type)) != x.dtype:
        absent("einsum (preferred_element_type)")
    if x.dtype != y.dtype:
        absent("einsum (operands of two dtypes)")
    if is_bool(x):
        absent("matmul, einsum (of bools)")
    return ml.einsum(f"{''.join(sx)},{''.join(sy)}->{''.join(out)}", x, y)


def conv(x, w, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
         batch_group_count, preferred_element_type, **_):
    if is_int(x):
        absent("conv (of integers)")
    if batch_group_count != 1:
        absent("conv (batch_group_count)")
    if preferred_element_type is not None and str(np.dtype(preferred_element_type)) != x.dtype:
        absent("conv (preferred_element_type)")
    lhs, rhs, out = dimension_numbers.lhs_spec, dimension_numbers.rhs_spec, dimension_numbers.out_spec
    x = ml.transpose(x, (lhs[0] + 1, *(d + 1 for d in lhs[2:]), lhs[1] + 1))
    w = ml.transpose(w, (*(d + 1 for d in rhs[2:]), rhs[1] + 1, rhs[0] + 1))
    y = ml.conv(x, w, strides=tuple(window_strides), padding=[tuple(p) for p in padding],
                input_dilation=tuple(lhs_dilation), kernel_dilation=tuple(rhs_dilation), groups=feature_group_count)
    # y's dims are [batch, spatial..., features]; out says where each of [batch, features, spatial...] goes.
    back = [None] * len(out)
    for place, source in zip(out, [1, len(out), *range(2, len(out))]):
        back[place] = source
    return ml.transpose(y, tuple(back))


def reduce_window(kind):
    def row(x, window_dimensions, window_strides, padding, base_dilation, window_dilation):
        if any(d != 1 for d in (*base_dilation, *window_dilation)):
            absent("reduce_window (dilations)")
        if kind not in ("max", "sum"):
            absent(f"reduce_window ({kind})")
        if is_bool(x):
            absent("reduce_window (of bools)")
        return ml.reduce_window(x, kind, tuple(window_dimensions), strides=tuple(window_strides),
                                padding=[tuple(p) for p in padding])
    return row


def reshape(x, new_sizes, dimensions=None, sharding=None):
    x = x if dimensions is None else ml.transpose(x, tuple(d + 1 for d in dimensions))
    return ml.reshape(x, tuple(new_sizes))


def clamped(starts):
    """The primitive cuts starts below 0; the function counts them from the end, and so does meshlua's."""
    return [ml.maximum(s, 0) for s in starts]


def top_k(x, k, axis, operand=None, **_):
    return ml.top_k(x, k, axis + 1)


def sort(*xs, dimension, is_stable, num_keys):
    if num_keys > 1:
        absent("sort (by several keys)")
    if len(xs) > 1 and not is_stable:
        departs("a sort that is not stable leaves open how equal keys lie")
    return ml.sort(xs[0], dimension + 1, False, *xs[1:]) if len(xs) > 1 else ml.sort(xs[0], dimension + 1)


def qr(x, full_matrices, pivoting=False, **_):
    if full_matrices and x.shape[-2] > x.shape[-1]:
        departs("columns that complete a basis may be any that do")
    return absent("qr (pivoting)") if pivoting else ml.linalg.qr(x, "complete" if full_matrices else "reduced")


def eigh(x, **_):
    departs("of a triangle alone: vectors up to their signs, and a gradient at its mean with its transpose")


def svd(x, full_matrices, compute_uv, **_):
    if not compute_uv:
        return ml.linalg.svd(x, full_matrices, False)
    three = ml.linalg.svd(x, full_matrices)
    return [three.second(), three.first(), three.nth(3)]


def triangular_solve(a, b, left_side, lower, transpose_a, unit_diagonal, **_):
    if np.dtype(a.dtype).itemsize < 4:
        departs("matrices of 16 bits: astype first")
    return ml.linalg.triangular_solve(a, b, left_side, lower, transpose_a, unit_diagonal)


def iota(dtype, shape, dimension, sharding=None):
    return ml.iota(tuple(shape), dimension + 1, str(np.dtype(dtype)))


def in_range(ids, size):
    return ids is not None and ids.size > 0 and (ids >= 0).all() and (ids < size).all()


def one_axis(ids, d, size, others):
    """The ids of a gather or scatter of whole rows along one dim, or stops."""
    if ids.value is None:
        departs("ids that the case computes")
    if not in_range(ids.value, size):
        departs("an id outside, or counted from the end, is an error")
    if not others:
        absent("gather and scatter (several dims)")
    return ml.reshape(ids, tuple(ids.shape[:-1]))


def gather(x, ids, dimension_numbers, slice_sizes, **_):
    dn = dimension_numbers
    if len(dn.start_index_map) != 1 or dn.collapsed_slice_dims != dn.start_index_map or dn.operand_batching_dims:
        absent("gather and scatter (several dims)")
    d = dn.start_index_map[0]
    whole = all(s == n for i, (s, n) in enumerate(zip(slice_sizes, x.shape)) if i != d)
    y = ml.take(x, one_axis(ids, d, x.shape[d], whole), d + 1)
    # take puts the dims of the ids at d; offset_dims says where the others shall be.
    n_ids, rank = len(ids.shape) - 1, x.ndim - 1 + len(ids.shape) - 1
    order, others = [None] * rank, iter([i for i in range(rank) if not d <= i < d + n_ids])
    batch = iter(range(d, d + n_ids))
    for i in range(rank):
        order[i] = 1 + (next(others) if i in dn.offset_dims else next(batch))
    return y if order == list(range(1, rank + 1)) else ml.transpose(y, tuple(order))


def scatter(kind):
    def row(x, ids, updates, dimension_numbers, mode, **_):
        if kind not in ("set", "add"):
            absent(f"scatter_{kind}")
        dn = dimension_numbers
        if (len(dn.scatter_dims_to_operand_dims) != 1 or dn.operand_batching_dims
                or tuple(dn.inserted_window_dims) != tuple(dn.scatter_dims_to_operand_dims)):
            absent("gather and scatter (several dims)")
        d = dn.scatter_dims_to_operand_dims[0]
        window = [updates.shape[i] for i in dn.update_window_dims]
        ids1 = one_axis(ids, d, x.shape[d], window == [n for i, n in enumerate(x.shape) if i != d])
        n_ids = len(ids.shape) - 1
        batch = [i for i in range(updates.ndim) if i not in dn.update_window_dims]
        order = [*dn.update_window_dims[:d], *batch, *dn.update_window_dims[d:]]
        if order != list(range(len(order))):
            updates = ml.transpose(updates, tuple(i + 1 for i in order))
        if n_ids != 1:
            ids1 = ml.reshape(ids1, (-1,))
            flat = [*(x.shape[:d]), int(np.prod(ids.shape[:-1])), *x.shape[d + 1:]]
            updates = ml.reshape(updates, tuple(flat))
        if kind == "set":
            return ml.scatter_set(x, ids1, updates, d + 1)
        return ml.add(x, ml.scatter_add(ids1, updates, x.shape[d], d + 1))
    return row


def convert(x, new_dtype, weak_type=False, sharding=None):
    if x.value is not None and str(x.dtype).startswith(("float", "bfloat")) and np.dtype(new_dtype).kind in "iu":
        info = np.iinfo(new_dtype)
        v = np.asarray(x.value, "float64")
        if not np.all((np.trunc(v) >= info.min) & (np.trunc(v) <= info.max)):
            departs("a float outside an integer's range has no value that both sides promise")
    return ml.astype(x, str(np.dtype(new_dtype)))


ROWS = {
    **{name: same(name) for name in (
        "abs acos acosh add asin asinh atan atan2 atanh ceil cos cosh digamma eq erf erf_inv erfc exp exp2 expm1 floor "
        "ge gt le log log1p lgamma lt mul ne neg nextafter pow rem rsqrt sign sin sinh sqrt square sub tan tanh cbrt "
        "bessel_i0e bessel_i1e igamma igammac polygamma zeta eig schur hessenberg "
        "tridiagonal_solve fft clz population_count reduce_precision").split()},
    "and": same("bitand"), "or": same("bitor"), "xor": same("bitxor"), "not": same("bitnot"),
    "add_any": same("add"), "max": same("maximum"), "min": same("minimum"), "logistic": same("sigmoid"),
    "is_finite": same("isfinite"), "stop_gradient": same("stop_gradient"), "copy": lambda x, **_: x,
    "copy_p": lambda x: x, "regularized_incomplete_beta": same("betainc"), "shift_left": same("shl"),
    "shift_right_logical": shr_logical, "shift_right_arithmetic": shr_arithmetic, "div": div, "round": round_,
    "integer_pow": lambda x, y: ml.pow(x, y), "select_n": select_n, "clamp": lambda low, x, high: ml.clip(x, low, high),
    "reduce_sum": reduce_sum, "reduce_max": lambda x, axes, **_: reduce_("max")(x, axes),
    "reduce_min": lambda x, axes, **_: reduce_("min")(x, axes),
    "reduce_prod": lambda x, axes, **_: kept(x, reduce_("prod")(x, axes)),
    "reduce_and": lambda x, axes, **_: reduce_("all")(x, axes) if is_bool(x) else absent("reduce (bitwise)"),
    "reduce_or": lambda x, axes, **_: reduce_("any")(x, axes) if is_bool(x) else absent("reduce (bitwise)"),
    "reduce_xor": nothing("reduce (bitwise)"), "reduce": nothing("reduce (by a function)"),
    "argmax": argreduce("argmax"), "argmin": argreduce("argmin"),
    **{name: cumulative(name) for name in "cumsum cumprod cummax cummin cumlogsumexp".split()},
    "broadcast_in_dim": lambda x, shape, broadcast_dimensions, sharding=None: broadcast_in_dim(
        x, shape, broadcast_dimensions),
    "reshape": reshape,
    "transpose": lambda x, permutation: ml.transpose(x, tuple(d + 1 for d in permutation)),
    "squeeze": lambda x, dimensions: ml.squeeze(x, axes(dimensions)),
    "expand_dims": lambda x, dimensions: ml.expand_dims(x, axis(dimensions[0])),
    "rev": lambda x, dimensions: ml.flip(x, axes(dimensions)) if len(dimensions) else x,
    "slice": slice_, "pad": pad, "concatenate": lambda *xs, dimension: ml.concat(list(xs), dimension + 1),
    "dynamic_slice": lambda x, *starts, slice_sizes: ml.dynamic_slice(x, clamped(starts), tuple(slice_sizes)),
    "dynamic_update_slice": lambda x, update, *starts: ml.dynamic_update_slice(x, update, clamped(starts)),
    "convert_element_type": convert, "bitcast_convert_type": bitcast, "iota": iota,
    "dot_general": dot_general, "conv_general_dilated": conv,
    "reduce_window_max": reduce_window("max"), "reduce_window_sum": reduce_window("sum"),
    "reduce_window_min": reduce_window("min"), "reduce_window": nothing("reduce_window (by a function)"),
    "select_and_scatter_add": nothing("select_and_scatter_add"),
    "select_and_gather_add": nothing("select_and_gather_add"),
    "cholesky": lambda x: departs("the primitive leaves what is above the diagonal as it was"), "lu": same("linalg.lu"), "qr": qr, "eigh": eigh, "svd": svd,
    "triangular_solve": triangular_solve,
    "top_k": top_k, "approx_top_k": nothing("approx_top_k"), "sort": sort, "gather": gather,
    "scatter": scatter("set"), "scatter-add": scatter("add"), "scatter_add": scatter("add"),
    "scatter-mul": scatter("mul"), "scatter_mul": scatter("mul"), "scatter_max": scatter("max"),
    "scatter-max": scatter("max"), "scatter_min": scatter("min"), "scatter-min": scatter("min"),
    "device_put": lambda *xs, **_: list(xs) if len(xs) > 1 else xs[0],
    "conj": nothing("complex numbers"), "real": nothing("complex numbers"), "imag": nothing("complex numbers"),
    "complex": nothing("complex numbers"), "custom_linear_solve": nothing("custom_linear_solve"),
    "while": nothing("while (of JAX's own programs)"), "scan": nothing("scan (of JAX's own programs)"),
}

SUMS = {"dot_general", "conv_general_dilated", "reduce_sum", "cumsum", "reduce_window_sum", "scatter-add",
    "cumlogsumexp", "svd", "eigh", "qr", "lu", "triangular_solve",
        "cumprod", "reduce_prod", "erf_inv"}
