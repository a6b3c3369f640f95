"""For each OpInfo of PyTorch the call of meshlua: ROWS[name](input, args..., **keywords), as the sample gives them. An
op that is not here is counted as stopped under its own name.
"""

import math

from expr import absent, axes, axis, departs, ml
from torch_calls import (
    SCALAR, addmm, arange, argreduce, argsort, attention, bce_logits, binary, cast, chunk, clamp, concat, conv,
    conv_transpose, created, cross_entropy, cumulative, div, einsum, embedding, expand, flatten, flip, gather,
    getitem, group_norm, huber, index_add, index_copy, index_fill, index_select, instance_norm, is_bool, is_float,
    kl_div, known, layer_norm, like, linear,
    linspace, logical, logsumexp, masked_fill, mse, narrow, one_hot, pad, permute, pool, pow_, reduced, reduction,
    rms_norm, rsub, scaled, select, shape_list, slice_, smooth_l1, softmax, sort, split, spread, squeeze,
    take_along_dim, to, topk, transpose, unary, unbind, unflatten, whole, with_index,
)


UNARY = {
    **{n: n for n in (
        "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor isfinite isinf isnan "
        "lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc "
        "frac deg2rad rad2deg signbit positive nan_to_num logdet trace isposinf isneginf i0").split()},
    "erfinv": "erf_inv", "bitwise_not": "bitnot", "nn.functional.relu": "nn.relu", "nn.functional.silu": "nn.silu",
    "nn.functional.logsigmoid": "nn.log_sigmoid", "nn.functional.softsign": "nn.soft_sign",
    "nn.functional.mish": "nn.mish", "nn.functional.hardswish": "nn.hard_swish",
    "nn.functional.hardsigmoid": "nn.hard_sigmoid", "nn.functional.tanhshrink": "nn.tanhshrink",
    "nn.functional.selu": "nn.selu", "linalg.inv": "linalg.inv", "linalg.det": "linalg.det",
    "linalg.slogdet": "linalg.slogdet",
}
BINARY = {
    "atan2": "atan2", "copysign": "copysign", "eq": "eq", "ne": "ne", "ge": "ge", "gt": "gt", "le": "le", "lt": "lt",
    "fmax": "fmax", "fmin": "fmin", "fmod": "rem", "remainder": "mod", "gcd": "gcd", "lcm": "lcm", "hypot": "hypot",
    "heaviside": "heaviside", "igamma": "igamma", "igammac": "igammac", "kron": "kron", "inner": "inner",
    "outer": "outer", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2", "maximum": "maximum", "minimum": "minimum",
    "nextafter": "nextafter", "xlogy": "xlogy", "ldexp": "ldexp", "bitwise_and": "bitand", "bitwise_or": "bitor",
    "bitwise_xor": "bitxor", "bitwise_left_shift": "shl", "bitwise_right_shift": "shr", "floor_divide": "floor_divide",
    "float_power": "float_power", "special.xlog1py": "xlog1py", "special.zeta": "zeta", "mm": "matmul", "bmm": "matmul",
    "mv": "matmul", "dot": "matmul", "matmul": "matmul", "__rmatmul__": "matmul",
    "true_divide": "div", "mul": "mul", "max.binary": "maximum", "min.binary": "minimum",
}
# Ops that meshlua does not have, by the name that it would have.
ABSENT = {
    "linalg.pinv": "pinv", "isclose": "isclose",
    "allclose": "allclose", "linalg.vecdot": "vecdot", "nn.functional.prelu": "nn.prelu",
    "linalg.cross": "cross", "cross": "cross", "vdot": "vdot", "rot90": "rot90", "repeat_interleave": "repeat",
    "tensor_split": "array_split", "index_put": "gather and scatter (several dims)", "diagonal": "diagonal",
    "diff": "diff",
    "round.decimals_0": "round (decimals)", "round.decimals_3": "round (decimals)",
    "round.decimals_neg_3": "round (decimals)", "scatter": "put_along_axis", "scatter_add": "put_along_axis (add)",
    **{f"scatter_reduce.{m}": f"put_along_axis ({m})" for m in ("sum", "prod", "mean", "amin", "amax")},
    "median": "median", "nanmedian": "nanmedian", "quantile": "quantile", "nanquantile": "nanquantile",
    "searchsorted": "searchsorted", "bucketize": "searchsorted", "histc": "histogram", "histogram": "histogram",
    "linalg.lu": "lu", "lu": "lu", "triangular_solve": "triangular_solve", "linalg.solve_ex": "solve",
    "linalg.inv_ex": "inv", "linalg.cholesky_ex": "cholesky", "linalg.lu_factor": "lu",
    "linalg.lu_factor_ex": "lu",
    "nn.functional.batch_norm": "nn.BatchNorm (as a function)", "dstack": "dstack", "column_stack": "column_stack",
    "nn.functional.batch_norm.without_cudnn": "nn.BatchNorm (as a function)", "meshgrid.variadic_tensors": "meshgrid",
    "meshgrid.list_of_tensors": "meshgrid", "diag_embed": "diag", "linalg.diagonal": "diagonal",
    "diagonal_copy": "diagonal", "diagonal_scatter": "diagonal", "unique_consecutive": "unique",
    "logspace.tensor_overload": "logspace",
    **{f"{a}_mean{b}": f"{a} and mean at once" for a in ("var", "std") for b in ("", ".unbiased")},
}
ROWS = {
    **{k: unary(v) for k, v in UNARY.items()},
    **{k: binary(v) for k, v in BINARY.items()},
    "add": scaled(ml.add), "sub": scaled(ml.sub), "rsub": rsub,
    "__radd__": lambda x, y: ml.add(y, x), "__rmul__": lambda x, y: ml.mul(y, x), "__rsub__": lambda x, y: ml.sub(y, x),
    "__rdiv__": lambda x, y: ml.div(y, x), "__rmod__": lambda x, y: ml.mod(y, x), "__rpow__": lambda x, y: pow_(y, x),
    "__rand__": lambda x, y: ml.bitand(y, x), "__ror__": lambda x, y: ml.bitor(y, x),
    "__rxor__": lambda x, y: ml.bitxor(y, x), "__rmatmul__": lambda x, y: ml.matmul(y, x),
    "div.no_rounding_mode": div, "div.trunc_rounding": div, "div.floor_rounding": div, "pow": pow_,
    "addcmul": lambda x, a, b, *, value=1: ml.add(x, ml.mul(ml.mul(a, b), value)),
    "addcdiv": lambda x, a, b, *, value=1: ml.add(x, ml.mul(ml.div(a, b), value)),
    "lerp": lambda x, y, w: ml.add(x, ml.mul(w, ml.sub(y, x))),
    "logical_and": logical("bitand"), "logical_or": logical("bitor"), "logical_xor": logical("bitxor"),
    "logical_not": lambda x: ml.bitnot(x) if is_bool(x) else departs("logic of numbers: compare them with 0 first"),
    "clamp": clamp, "clamp_max": lambda x, y: ml.minimum(x, y), "clamp_min": lambda x, y: ml.maximum(x, y),
    "sum": reduction("sum"), "mean": reduction("mean"), "prod": reduction("prod"), "amax": reduction("max"),
    "amin": reduction("min"), "nansum": reduction("nansum"), "nanmean": reduction("nanmean"),
    "all": reduction("all"), "any": reduction("any"), "count_nonzero": reduction("count_nonzero"),
    "max.reduction_no_dim": lambda x: ml.max(x), "min.reduction_no_dim": lambda x: ml.min(x),
    "max.reduction_with_dim": with_index("max", "argmax"), "min.reduction_with_dim": with_index("min", "argmin"),
    "argmax": argreduce("argmax"), "argmin": argreduce("argmin"), "var": spread("var"), "std": spread("std"),
    "var.unbiased": spread("var"), "std.unbiased": spread("std"), "logsumexp": logsumexp,
    "cumsum": cumulative("cumsum"), "cumprod": cumulative("cumprod"), "cummax": cumulative("cummax", True),
    "cummin": cumulative("cummin", True), "logcumsumexp": cumulative("cumlogsumexp"),
    "softmax": softmax("softmax"), "softmax.with_dtype": softmax("softmax"), "log_softmax": softmax("log_softmax"),
    "log_softmax.with_dtype": softmax("log_softmax"),
    "nn.functional.softmin": lambda x, dim, dtype=None: ml.softmax(ml.neg(cast(x, dtype)), axis(whole(x, dim))),
    "reshape": lambda x, *s: ml.reshape(x, shape_list(s)), "view": lambda x, *s: ml.reshape(x, shape_list(s)),
    "view_copy": lambda x, *s: ml.reshape(x, shape_list(s)), "reshape_as": lambda x, y: ml.reshape(x, tuple(y.shape)),
    "view_as": lambda x, y: ml.reshape(x, tuple(y.shape)), "ravel": lambda x: ml.reshape(x, (-1,)),
    "flatten": flatten, "unflatten": unflatten, "squeeze": squeeze, "squeeze.multiple": squeeze,
    "squeeze_copy": squeeze,
    "unsqueeze": lambda x, d: ml.expand_dims(x, axis(d)), "unsqueeze_copy": lambda x, d: ml.expand_dims(x, axis(d)),
    "expand": expand, "expand_copy": expand, "broadcast_to": expand,
    "expand_as": lambda x, y: ml.broadcast(x, tuple(y.shape)), "transpose": transpose, "transpose_copy": transpose,
    "t": lambda x: ml.T(x) if x.ndim == 2 else x, "t_copy": lambda x: ml.T(x) if x.ndim == 2 else x,
    "T": lambda x: ml.transpose(x), "mT": lambda x: ml.T(x), "permute": permute, "permute_copy": permute,
    "movedim": lambda x, a, b: ml.moveaxis(x, axes(a), axes(b)), "flip": flip, "fliplr": lambda x: ml.flip(x, 2),
    "flipud": lambda x: ml.flip(x, 1), "roll": lambda x, shifts, dims=None: ml.roll(x, shifts, axes(dims)),
    "tile": lambda x, reps: ml.tile(x, tuple(reps)),
    "repeat": lambda x, *reps: ml.tile(x, shape_list(reps)),
    "cat": concat, "stack": lambda xs, dim=0: ml.stack(
        list(xs), axis(dim) if dim >= 0 else dim),
    "hstack": lambda xs: ml.concat(list(xs), 1 if xs[0].ndim < 2 else 2) if xs[0].ndim else absent("hstack"),
    "vstack": lambda xs: ml.concat(list(xs), 1) if xs[0].ndim > 1 else absent("vstack"),
    "split": split, "split.list_args": split, "unsafe_split": split, "split_with_sizes": split, "chunk": chunk,
    "unsafe_chunk": chunk,
    "unbind": unbind, "unbind_copy": unbind, "narrow": narrow, "narrow_copy": narrow, "slice": slice_, "select": select,
    "__getitem__": getitem, "index_select": index_select, "gather": gather, "take_along_dim": take_along_dim,
    "index_add": index_add, "index_copy": index_copy, "index_fill": index_fill,
    "take": lambda x, ids: (known(ids, math.prod(x.shape)), ml.take(ml.reshape(x, (-1,)), ids))[1],
    "linalg.solve": lambda a, b, left=True: absent("solve (x a = b)") if not left else
        departs("vectors in a batch are a matrix, as NumPy has it") if 1 < b.ndim < a.ndim else ml.linalg.solve(a, b),
    "linalg.cholesky": lambda x, upper=False: ml.linalg.cholesky(x, upper, False),
    "linalg.eigvalsh": lambda x, UPLO="L": first(ml.linalg.eigh(x if UPLO == "L" else ml.T(x), False).first()),
    "linalg.svdvals": lambda x, **_: ml.linalg.svd(x, False, False),
    **dict.fromkeys(("linalg.eigh", "linalg.qr", "qr", "linalg.svd", "svd"),
                    lambda *_, **__: departs("vectors that are unique up to their signs")),
    "linalg.solve_triangular": lambda a, b, *, upper, left=True, unitriangular=False:
        ml.linalg.triangular_solve(a, b, left, not upper, False, unitriangular),
    "sort": sort, "msort": lambda x: ml.sort(x, 1) if x.ndim else departs(SCALAR), "argsort": argsort,
    "topk": topk, "masked_fill": masked_fill, "where": lambda x, c, y: ml.where(c, x, y),
    "diag": lambda x, k=0: ml.diag(x, k),
    "tril": lambda x, k=0: ml.tril(x, k), "triu": lambda x, k=0: ml.triu(x, k),
    "addmm": addmm(ml.matmul), "addmm.decomposed": addmm(ml.matmul), "addmv": addmm(ml.matmul),
    "baddbmm": addmm(ml.matmul), "addr": addmm(ml.outer), "einsum": einsum,
    "addbmm": addmm(lambda a, b: ml.sum(ml.matmul(a, b), 1)),
    "tensordot": lambda x, y, dims=2, **k: ml.tensordot(x, y, dims if isinstance(dims, int) else
                                                        tuple(axes(tuple(d)) for d in dims)),
    "clone": lambda x, **k: x, "contiguous": lambda x, **k: x, "alias_copy": lambda x: x,
    "to": lambda x, *a, **k: departs("astype and device_put are two calls"),
    "bfloat16": to("bfloat16"), "bool": to("bool"), "byte": to("uint8"), "double": to("float64"),
    "float": to("float32"),
    "half": to("float16"), "int": to("int32"), "long": to("int64"), "char": to("int8"), "short": to("int16"),
    "zeros_like": like("zeros_like"), "ones_like": like("ones_like"),
    "full_like": lambda x, v, dtype=None, **k: ml.full_like(x, v, dtype),
    "zeros": created("zeros"), "ones": created("ones"), "new_zeros": lambda x, shape, dtype=None, **k: ml.zeros(
        shape_list([shape]), dtype or x.dtype), "new_ones": lambda x, shape, dtype=None, **k: ml.ones(
        shape_list([shape]), dtype or x.dtype),
    "new_full": lambda x, shape, v, dtype=None, **k: ml.full(shape_list([shape]), v, dtype or x.dtype),
    "full": lambda shape, v, dtype=None, **k: ml.full(shape_list([shape]), v, dtype),
    "arange": arange, "linspace": linspace,
    "eye": lambda n, m=None, dtype=None, **k: ml.eye(n, m if m is not None else k.get("m"), dtype or "float32"),
    "nn.functional.elu": lambda x, alpha=1.0: ml.nn.elu(x, alpha),
    "nn.functional.gelu": lambda x, approximate="none": ml.nn.gelu(x, approximate == "tanh"),
    "nn.functional.leaky_relu": lambda x, negative_slope=0.01: ml.nn.leaky_relu(x, negative_slope),
    "nn.functional.celu": lambda x, alpha=1.0: ml.nn.celu(x, alpha),
    "nn.functional.glu": lambda x, dim=-1: ml.nn.glu(x, axis(dim)),
    "nn.functional.relu6": lambda x: ml.clip(x, 0, 6),
    "nn.functional.hardtanh": lambda x, min_val=-1.0, max_val=1.0: ml.clip(x, min_val, max_val)
    if is_float(x) else departs("a float limit of integers makes floats"),
    "nn.functional.softplus": lambda x, beta=1, threshold=20: departs("a threshold of softplus") if threshold < 20 else
    ml.nn.softplus(x) if beta == 1 else ml.div(ml.nn.softplus(ml.mul(x, beta)), beta),
    "nn.functional.linear": linear, "nn.functional.conv1d": conv(1), "nn.functional.conv2d": conv(2),
    "nn.functional.conv3d": conv(3), **{f"nn.functional.conv_transpose{n}d": conv_transpose(n) for n in (1, 2, 3)},
    "nn.functional.group_norm": group_norm, "nn.functional.instance_norm": instance_norm,
    **{f"nn.functional.max_pool{n}d": pool(n, "max") for n in (1, 2, 3)},
    **{f"nn.functional.avg_pool{n}d": pool(n, "avg") for n in (1, 2, 3)},
    "nn.functional.layer_norm": layer_norm, "nn.functional.rms_norm": rms_norm,
    "nn.functional.scaled_dot_product_attention": attention, "nn.functional.embedding": embedding,
    "nn.functional.one_hot": one_hot, "nn.functional.cross_entropy": cross_entropy,
    "nn.functional.binary_cross_entropy_with_logits": bce_logits, "nn.functional.mse_loss": mse,
    "nn.functional.huber_loss": huber, "nn.functional.smooth_l1_loss": smooth_l1,
    "nn.functional.l1_loss": lambda x, y, reduction="mean", **k: reduced(ml.abs(ml.sub(x, y)), reduction),
    "nn.functional.kl_div": kl_div, "constant_pad_nd": lambda x, pads, value=0: pad(x, pads, "constant", value),
    **{f"nn.functional.pad.{m}": pad for m in ("constant", "reflect", "replicate", "circular", "replicate_negative")},
}

COMPLEX = ("fft.", "view_as_", "conj", "resolve_", "polar", "stft", "istft", "complex", "angle", "imag", "real", "H",
       "mH",
           "cfloat", "cdouble", "chalf", "isreal")
RANDOM = {
    "cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform", "randn", "randn_like",
    "rand_like",
    "randint", "randint_like", "multinomial", "normal", "normal.number_mean", "bernoulli", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout", "empty", "empty_like",
    "new_empty",
    "new_empty_strided", "empty_strided", "empty_permuted", "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.feature_alpha_dropout.without_train", "nn.functional.rrelu",
    "torch.ops.aten._flash_attention_forward", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
}
# What only PyTorch's own representation has: strides, storage, views, sparse layouts, just-in-time strings.
OWN = ("as_strided", "jiterator", "sparse", "to_sparse", "resize_", "torch._scaled_mm", "_native_batch_norm",
       "_chunk_cat",
       "native_", "_upsample", "_softmax_backward", "_unsafe", "_segment", "hash_tensor", "torch.ops",
       "max_pool2d_with",
       "_batch_norm", "broadcast_shapes", "item", "bmm.triton", "set_")
SUMS = ("sum", "mean", "prod", "var", "std", "cumsum", "cumprod", "matmul", "mm", "bmm", "mv", "dot", "einsum", "addmm",
        "addmv", "baddbmm", "addbmm", "logsumexp", "linear", "conv", "avg_pool", "norm", "attention", "loss", "entropy",
        "logit", "matmul", "softmax")
# int64 there, where meshlua keeps int32: places, and sums of integers. Their values are compared, not their dtype.
WIDE = {"argmax", "argmin", "argsort", "sort", "topk", "max.reduction_with_dim", "min.reduction_with_dim", "sum",
    "cumsum",
        "cumprod", "einsum", "prod", "count_nonzero", "nansum"}
