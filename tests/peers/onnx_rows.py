"""For each operator of ONNX the call of meshlua: ROWS[op_type](inputs..., **attributes). An input that a node leaves
out is None; what ONNX passes as a tensor and meshlua takes as a number (axes, shapes, pads) is read from the case.
"""

import math

import numpy as np

from expr import absent, axes, axis, departs, ml, slices


def known(x):
    return None if x is None else np.asarray(x.value).tolist()


def is_float(x):
    return "float" in x.dtype


def unary(path):
    def row(x, **_):
        call = ml
        for part in path.split("."):
            call = getattr(call, part)
        return call(x)
    return row


def binary(name):
    return lambda x, y, **_: getattr(ml, name)(x, y)


def several(name):
    def row(x, *more):
        for y in more:
            x = getattr(ml, name)(x, y)
        return x
    return row


def div(x, y):
    return ml.div(x, y) if is_float(x) else absent("div (of integers, toward 0)")


def mod(x, y, fmod=0):
    return ml.rem(x, y) if fmod else ml.mod(x, y)


def pow_(x, y):
    return ml.pow(x, y) if x.dtype == y.dtype else departs("the result has the dtype that both operands give")


def reduced(name):
    def row(x, dims=None, keepdims=1, noop_with_empty_axes=0, axes=None):
        dims = axes if axes is not None else known(dims)
        if not dims and noop_with_empty_axes:
            return x
        if x.dtype == "bool":
            departs("the largest and smallest of bools: all and any")
        return getattr(ml, name)(x, tuple(d + 1 if d >= 0 else d for d in dims) if dims else None, bool(keepdims))
    return row


def arg(name):
    def row(x, axis=0, keepdims=1, select_last_index=0):
        if select_last_index:
            absent(f"{name} (the last of equals)")
        return ml.astype(getattr(ml, name)(x, axis + 1 if axis >= 0 else axis, bool(keepdims)), "int64")
    return row


def cumulative(name):
    def row(x, dim, exclusive=0, reverse=0):
        if exclusive:
            absent(f"{name} (exclusive)")
        return getattr(ml, name)(x, axis(int(dim.value)), bool(reverse))
    return row


def cast(x, to=None, saturate=1, round_mode="up"):
    import onnx
    if to not in (1, 10, 11, 16, 6, 7, 9, 2, 12):
        raise_dtype(to)
    return ml.astype(x, str(onnx.helper.tensor_dtype_to_np_dtype(to)))


def raise_dtype(to):
    import onnx
    from expr import Stop
    raise Stop("dtype", onnx.TensorProto.DataType.Name(to).lower())


def gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):
    y = ml.matmul(ml.T(a) if transA else a, ml.T(b) if transB else b)
    y = y if alpha == 1 else ml.mul(y, alpha)
    return y if c is None else ml.add(y, c if beta == 1 else ml.mul(c, beta))


def clip(x, low=None, high=None, **k):
    return ml.clip(x, low if low is not None else k.get("min"), high if high is not None else k.get("max"))


def slice_(x, starts, ends, dims=None, steps=None):
    starts, ends = known(starts), known(ends)
    dims = known(dims) if dims is not None else list(range(len(starts)))
    steps = known(steps) if steps is not None else [1] * len(starts)
    if any(s < 1 for s in steps):
        departs("slices run forward: flip first")
    ranges = [False] * x.ndim
    for s, e, d, step in zip(starts, ends, dims, steps):
        s, e, step = slice(s, e, step).indices(x.shape[d])
        ranges[d % x.ndim] = slices([s], [e], [step])[0]
    return ml.slice(x, *ranges)


def reshape(x, shape, allowzero=0):
    shape = [x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(known(shape))]
    return ml.reshape(x, tuple(shape))


def flatten(x, axis=1):
    axis = axis % x.ndim if axis < 0 else axis
    return ml.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def squeeze(x, dims=None, axes=None):
    dims = axes if axes is not None else known(dims)
    return ml.squeeze(x, tuple(d + 1 if d >= 0 else d for d in dims) if dims else None)


def unsqueeze(x, dims):
    dims = known(dims)
    rank = x.ndim + len(dims)
    shape, rest = [None] * rank, iter(x.shape)
    for d in dims:
        shape[d] = 1
    return ml.reshape(x, tuple(1 if n else next(rest) for n in shape))


def expand(x, shape):
    return ml.broadcast(x, tuple(np.broadcast_shapes(x.shape, tuple(known(shape)))))


def split(x, sizes=None, axis=0, num_outputs=None):
    n = x.shape[axis]
    sizes = known(sizes) if sizes is not None else [math.ceil(n / num_outputs)] * num_outputs if num_outputs else None
    if sizes is None or len(set(sizes)) != 1 or sum(sizes) != n:
        return absent("split (into parts that are not equal)")
    parts = ml.split(x, len(sizes), axis + 1 if axis >= 0 else axis)
    return [parts.at(i) for i in range(len(sizes))]


def in_range(ids, n):
    if ids.value.size and ((ids.value < 0).any() or (ids.value >= n).any()):
        departs("an id outside, or counted from the end, is an error")


def gather(x, ids, axis=0):
    in_range(ids, x.shape[axis])
    return ml.take(x, ids, axis + 1 if axis >= 0 else axis)


def gather_elements(x, ids, axis=0):
    in_range(ids, x.shape[axis])
    if any(a != b for i, (a, b) in enumerate(zip(x.shape, ids.shape)) if i != axis % x.ndim):
        departs("ids of another shape")
    return ml.take_along_axis(x, ids, axis + 1 if axis >= 0 else axis)


def pad(x, pads, value=None, dims=None, mode="constant"):
    if mode != "constant":
        absent(f"pad ({mode})")
    pads, dims = known(pads), known(dims) if dims is not None else list(range(x.ndim))
    rows, n = [(0, 0)] * x.ndim, len(dims)
    for i, d in enumerate(dims):
        rows[d] = (pads[i], pads[i + n])
    return ml.pad(x, rows, None if value is None else np.asarray(value.value).item())


def top_k(x, k, axis=-1, largest=1, sorted=1):
    if not largest:
        return absent("top_k (the smallest)")
    y = ml.top_k(x, int(np.asarray(k.value).item()), axis + 1 if axis >= 0 else axis)
    return [y.first(), ml.astype(y.second(), "int64")]


def one_hot(ids, depth, values, axis=-1):
    if axis != -1:
        departs("one_hot makes the last dim")
    n = int(np.asarray(depth.value).item())
    if (ids.value < 0).any():
        departs("an id outside, or counted from the end, is an error")
    off, on = known(values)
    return ml.astype(ml.add(ml.mul(ml.one_hot(ids, n, "float32"), float(on - off)), float(off)), values.dtype)


def spatial(n, auto_pad, pads):
    if auto_pad == "VALID":
        return "valid"
    if auto_pad == "SAME_UPPER":
        return "same"
    if auto_pad == "SAME_LOWER":
        absent("padding (same, the larger half in front)")
    return [(p, q) for p, q in zip(pads[:n], pads[n:])] if pads else [(0, 0)] * n


def last(x):
    return ml.transpose(x, (1, *range(3, x.ndim + 1), 2))


def back(y, rank):
    return ml.transpose(y, (1, rank, *range(2, rank)))


def conv(x, w, b=None, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    n = x.ndim - 2
    y = ml.conv(last(x), ml.transpose(w, (*range(3, n + 3), 2, 1)), strides=tuple(strides or [1] * n),
                padding=spatial(n, auto_pad, pads), kernel_dilation=tuple(dilations or [1] * n), groups=group)
    return back(y if b is None else ml.add(y, b), n + 2)


def pool(name):
    def row(x, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, strides=None,
            count_include_pad=0, storage_order=0):
        n = x.ndim - 2
        if ceil_mode:
            absent("nn.max_pool, nn.avg_pool (ceil_mode)")
        if dilations and any(d != 1 for d in dilations):
            absent(f"nn.{name} (kernel_dilation)")
        options = {"count_include_pad": bool(count_include_pad)} if name == "avg_pool" else {}
        return back(getattr(ml.nn, name)(last(x), tuple(kernel_shape), strides=tuple(strides or [1] * n),
                                         padding=spatial(n, auto_pad, pads), **options), n + 2)
    return row


def global_pool(name):
    return lambda x: getattr(ml, name)(x, tuple(range(3, x.ndim + 1)), True)


def normalized(kind):
    def row(x, scale=None, bias=None, axis=-1, epsilon=1e-5, stash_type=1):
        from torch_calls import filled
        if axis % x.ndim != x.ndim - 1:
            return absent(f"nn.{kind} (over several dims)")
        if is_float(x) and x.dtype != "float32":
            departs("norms of 16 bits compute in their own dtype")
        options = dict(use_scale=scale is not None)
        if kind == "LayerNorm":
            options["use_bias"] = bias is not None
        m = getattr(ml.nn, kind)(x.shape[-1], rngs=ml.nn.Rngs(0), epsilon=epsilon, **options)
        return filled(m, scale=scale, bias=bias)(x)
    return row


def softmax(name):
    return lambda x, axis=-1: getattr(ml, name)(x, axis + 1 if axis >= 0 else axis)


def eye_like(x, dtype=None, k=0):
    dtype = {None: x.dtype, 1: "float32", 11: "float64", 6: "int32"}[dtype]
    return absent("eye (a diagonal beside the main one)") if k else ml.eye(*x.shape, dtype)


def constant_of_shape(shape, value=None):
    v = np.asarray(value if value is not None else np.zeros(1, "float32"))
    return ml.full(tuple(known(shape)), v.item(), str(v.dtype))


def range_(first, limit, delta):
    return ml.arange(*(np.asarray(v.value).item() for v in (first, limit, delta)), first.dtype)


def bit_shift(x, y, direction=None):
    return ml.shl(x, y) if direction == "LEFT" else ml.shr(x, y)


def bit_cast(x, to=None):
    import onnx
    if np.dtype(x.dtype).itemsize < 4:
        return absent("bitcast (of 8 and 16 bits)")
    return ml.bitcast(x, str(onnx.helper.tensor_dtype_to_np_dtype(to)))


def cross_entropy(x, labels, weights=None, reduction="mean", ignore_index=None):
    if weights is not None or ignore_index is not None:
        departs("weights and ignored labels: by where and mul")
    y = ml.nn.softmax_cross_entropy_with_integer_labels(last(x) if x.ndim > 2 else x, labels)
    return y if reduction == "none" else getattr(ml, reduction)(y)


def einsum(*xs, equation):
    if "->" not in equation or "" in equation.split("->")[0].split(","):
        return absent("einsum (implicit output, scalars)")
    if "." in equation or any(len(set(t)) < len(t) for t in equation.replace(" ", "").split("->")[0].split(",")):
        return absent("einsum (..., diagonals)")
    return ml.einsum(equation, *xs)


def attention(q, k, v, mask=None, past_k=None, past_v=None, nonpad=None, is_causal=0, q_num_heads=None,
              kv_num_heads=None, scale=None, softcap=0.0, qk_matmul_output_mode=0, softmax_precision=None,
              left_window_size=None,
              right_window_size=None):
    """[batch, heads, length, size], or [batch, length, heads * size] where heads are given."""
    if v.ndim == 4 and v.shape[-1] != q.shape[-1] or v.ndim == 3 and v.shape[-1] != k.shape[-1]:
        absent("nn.attention (values of another size)")
    if q.dtype == "float16":
        departs("softmax of 16 bits computes in float32")

    def heads(x, n):
        if x.ndim == 4:
            return ml.transpose(x, (1, 3, 2, 4))
        return ml.reshape(x, (*x.shape[:2], n, x.shape[2] // n))

    keys, values = heads(k, kv_num_heads), heads(v, kv_num_heads)
    count, past = k.shape[-2 if k.ndim == 4 else 1], past_k.shape[2] if past_k is not None else 0
    if past:
        keys, values = (ml.concat((heads(x, None), y), 2) for x, y in ((past_k, keys), (past_v, values)))
    if mask is not None and mask.shape[-1] != count + past:
        departs("a mask is of all keys")
    window = tuple(False if n is None or n < 0 else n for n in (left_window_size, right_window_size))
    options = {"offset": past if nonpad is None else ml.sub(nonpad, q.shape[-2 if q.ndim == 4 else 1]),
               "window": None if window == (False, False) else window, "lengths": nonpad,
               "soft_cap": softcap or None, "causal": bool(is_causal) or None, "scale": scale}
    if mask is not None:
        options["mask" if mask.dtype == "bool" else "bias"] = mask
    y = ml.nn.attention(heads(q, q_num_heads), keys, values, **options)
    return ml.transpose(y, (1, 3, 2, 4)) if q.ndim == 4 else ml.reshape(y, (*q.shape[:2], -1))


def dropout(x, ratio=None, training=None, seed=None):
    return departs("dropout: other random bits") if training is not None and training.value else x


def gelu(x, approximate="none"):
    return ml.nn.gelu(x, approximate == "tanh")


def trilu(x, k=None, upper=1):
    return (ml.triu if upper else ml.tril)(x, None if k is None else int(k.value))


def group_norm(x, scale, bias, num_groups, epsilon=1e-5, stash_type=1):
    from torch_calls import group_norm as call
    return call(x, num_groups, scale, bias, epsilon)


def instance_norm(x, scale, bias, epsilon=1e-5):
    from torch_calls import instance_norm as call
    return call(x, weight=scale, bias=bias, eps=epsilon)


def selu(x, alpha=None, gamma=None):
    return ml.nn.selu(x) if alpha is None and gamma is None else departs("selu with numbers of its own")


def is_inf(x, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return ml.isinf(x)
    return ml.eq(x, math.inf if detect_positive else -math.inf)


UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log",
    "Neg": "neg", "Reciprocal": "reciprocal", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "IsNaN": "isnan", "Not": "bitnot",
    "BitwiseNot": "bitnot", "Relu": "nn.relu", "Softplus": "nn.softplus", "Softsign": "nn.soft_sign", "Det": "det",
    "Mish": "nn.mish", "HardSwish": "nn.hard_swish", "Swish": "nn.silu",
}
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "And": "bitand", "Or": "bitor", "Xor": "bitxor", "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor", "BitwiseXor": "bitxor", "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt",
    "LessOrEqual": "le", "MatMul": "matmul",
}
ROWS = {
    **{k: unary(v) for k, v in UNARY.items()}, **{k: binary(v) for k, v in BINARY.items()},
    "Max": several("maximum"), "Min": several("minimum"), "Sum": several("add"), "Div": div, "Mod": mod, "Pow": pow_,
    "ReduceSum": reduced("sum"), "ReduceMean": reduced("mean"), "ReduceMax": reduced("max"),
    "ReduceMin": reduced("min"),
    "ReduceProd": reduced("prod"), "ReduceLogSumExp": reduced("logsumexp"),
    "ReduceSumSquare": lambda x, *a, **k: reduced("sum")(x.of(ml.square(x)), *a, **k),
    "ReduceL1": lambda x, *a, **k: reduced("sum")(x.of(ml.abs(x)), *a, **k),
    "ReduceL2": lambda x, *a, **k: ml.sqrt(reduced("sum")(x.of(ml.square(x)), *a, **k)),
    "ReduceLogSum": lambda x, *a, **k: ml.log(reduced("sum")(x, *a, **k)),
    "ArgMax": arg("argmax"), "ArgMin": arg("argmin"), "CumSum": cumulative("cumsum"), "CumProd": cumulative("cumprod"),
    "Cast": cast, "CastLike": lambda x, y, **_: ml.astype(x, y.dtype), "Gemm": gemm, "Clip": clip, "Slice": slice_,
    "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Expand": expand,
    "Split": split,
    "Concat": lambda *xs, axis: ml.concat(list(xs), axis + 1 if axis >= 0 else axis), "Identity": lambda x: x,
    "Transpose": lambda x, perm=None: ml.transpose(x, axes(tuple(perm)) if perm else None), "Gather": gather,
    "GatherElements": gather_elements, "Pad": pad, "TopK": top_k, "OneHot": one_hot, "Conv": conv,
    "MaxPool": pool("max_pool"), "AveragePool": pool("avg_pool"), "GlobalAveragePool": global_pool("mean"),
    "GlobalMaxPool": global_pool("max"), "LayerNormalization": normalized("LayerNorm"),
    "RMSNormalization": normalized("RMSNorm"), "Softmax": softmax("softmax"), "LogSoftmax": softmax("log_softmax"),
    "Where": lambda c, x, y: ml.where(c, x, y), "EyeLike": eye_like, "ConstantOfShape": constant_of_shape,
    "Range": range_, "Attention": attention, "BitShift": bit_shift, "BitCast": bit_cast,
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "Einsum": einsum, "Gelu": gelu, "Elu": lambda x, alpha=1.0: ml.nn.elu(x, alpha),
    "LeakyRelu": lambda x, alpha=0.01: ml.nn.leaky_relu(x, alpha), "Trilu": trilu,
    "Tile": lambda x, reps: ml.tile(x, tuple(known(reps))),
    "Shape": lambda x, start=0, end=None: departs("shapes are Lua lists, not tensors"),
    "Size": lambda x: departs("shapes are Lua lists, not tensors"),
    "GroupNormalization": group_norm, "InstanceNormalization": instance_norm,
    "Celu": lambda x, alpha=1.0: ml.nn.celu(x, alpha), "Selu": selu,
    "PRelu": lambda x, slope: ml.where(ml.ge(x, 0), x, ml.mul(x, slope)),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: ml.clip(ml.add(ml.mul(x, alpha), beta), 0, 1),
    "Dropout": dropout, "IsInf": is_inf,
    "NonZero": lambda x: departs("what has a size that is computed is given one"),
}

# Operators that meshlua has nothing for, by the name that they would have.
ABSENT = {
    "ConvTranspose": "nn.ConvTranspose", "ScatterElements": "put_along_axis", "Scatter": "put_along_axis",
    "ScatterND": "gather and scatter (several dims)", "GatherND": "gather and scatter (several dims)", "GRU": "nn.GRU",
    "LSTM": "nn.LSTM", "RNN": "nn.RNN", "Unique": "unique",
    "DFT": "complex numbers", "STFT": "complex numbers", "Bernoulli": "other random bits", "Resize": "interpolate",
    "Upsample": "interpolate", "MaxUnpool": "max_unpool", "NegativeLogLikelihoodLoss": "nn.nll_loss",
    "GridSample": "grid_sample", "AffineGrid": "grid_sample", "RotaryEmbedding": "nn.rope (caches of cosines)",
}
OWN = ("String", "Sequence", "Optional", "RegexFullMatch", "TfIdf", "LabelEncoder", "TreeEnsemble", "ImageDecoder",
       "Quantize", "Dequantize", "QLinear", "ConvInteger", "MatMulInteger", "DynamicQuantize", "If", "Loop", "Scan",
       "Momentum", "Adagrad", "Adam", "SplitToSequence", "Constant", "NonMaxSuppression", "RoiAlign", "Binarizer",
       "ArrayFeature", "FlexAttention", "LinearAttention", "CausalConvWithState", "TensorScatter", "MelWeight",
       "Bernoulli")
