"""What the rows of torch_rows.py are made of: the calls of meshlua for functions of PyTorch, with PyTorch's arguments.

A row answers with an expression, or a list where PyTorch gives several tensors. `first(x)` compares the first alone.
"""

import math

import numpy as np

from expr import Expr, absent, axes, axis, departs, ml, slices, tool


SCALAR = "an axis of a scalar is an error"


class First(list):
    """The first results of more."""


def first(*xs):
    return First(xs)


def name_of(path):
    call = ml
    for part in path.split("."):
        call = getattr(call, part)
    return call


def unary(path):
    return lambda x: name_of(path)(x)


def binary(path):
    return lambda x, y: name_of(path)(x, y)


def is_float(x):
    return isinstance(x, float) or (isinstance(x, Expr) and "float" in x.dtype)


def is_bool(x):
    return isinstance(x, bool) or (isinstance(x, Expr) and x.dtype == "bool")


def cast(x, dtype):
    return x if dtype is None else ml.astype(x, dtype)


def scaled(op):
    def row(x, y, *, alpha=1):
        if is_bool(x) and is_bool(y):
            departs("arithmetic of bools is an error: astype first")
        return op(x, y if alpha == 1 else ml.mul(y, alpha))
    return row


def rsub(x, y, *, alpha=1):
    return ml.sub(y, x if alpha == 1 else ml.mul(x, alpha))


def div(x, y, *, rounding_mode=None):
    if rounding_mode == "trunc":
        return absent("trunc")
    return ml.floor_divide(x, y) if rounding_mode == "floor" else ml.div(x, y)


def pow_(x, y):
    if not is_float(x) and not is_float(y) and (y.value.min() if isinstance(y, Expr) and y.value.size else -1) < 0:
        departs("a negative power of an integer")
    return ml.pow(x, y)


def logical(path):
    def row(x, y):
        if not (is_bool(x) and is_bool(y)):
            departs("logic of numbers: compare them with 0 first")
        return name_of(path)(x, y)
    return row


def shape_list(shape):
    if len(shape) == 1 and isinstance(shape[0], (list, tuple)):
        shape = shape[0]
    return tuple(int(n) for n in shape)


def whole(x, dim):
    """Scalars have no axis; no axes are all."""
    if dim is None or dim == () or dim == []:
        return None
    return dim if x.ndim else departs(SCALAR)


def reduction(path):
    def row(x, dim=None, keepdim=False, *, dtype=None):
        dim = whole(x, dim)
        x = cast(x, dtype)
        return name_of(path)(x, axes(dim), keepdim or None)
    return row


def with_index(value, index):
    def row(x, dim, keepdim=False):
        dim = whole(x, dim)
        return [name_of(value)(x, axis(dim), keepdim or None), name_of(index)(x, axis(dim), keepdim or None)]
    return row


def argreduce(path):
    return lambda x, dim=None, keepdim=False: name_of(path)(x, axis(whole(x, dim)), keepdim or None)


def spread(path):
    def row(x, *args, dim=None, unbiased=None, correction=None, keepdim=False):
        args = list(args)
        if args and isinstance(args[0], bool):
            unbiased = args.pop(0)
        if args:
            dim = args.pop(0)
        if args:
            unbiased = args.pop(0)
        if args:
            keepdim = args.pop(0)
        ddof = correction if correction is not None else (1 if unbiased in (None, True) else 0)
        dim = whole(x, dim)
        if ddof != int(ddof):
            departs("a correction that is not whole")
        return name_of(path)(x, axes(dim), bool(keepdim), int(ddof))
    return row


def cumulative(path, both=False):
    def row(x, dim, *, dtype=None):
        y = name_of(path)(cast(x, dtype), axis(whole(x, dim)))
        return first(y) if both else y
    return row


def clamp(x, low=None, high=None, **k):
    return ml.clip(x, k.get("min", low), k.get("max", high))


def transpose(x, a, b):
    return ml.swapaxes(x, axis(a), axis(b)) if x.ndim else x


def permute(x, dims):
    return ml.transpose(x, axes(tuple(dims))) if len(dims) else x


def flatten(x, start_dim=0, end_dim=-1):
    if not x.ndim:
        return ml.reshape(x, (1,))
    s, e = start_dim % x.ndim, end_dim % x.ndim
    return ml.reshape(x, (*x.shape[:s], math.prod(x.shape[s:e + 1]), *x.shape[e + 1:]))


def unflatten(x, dim, sizes):
    d = dim % x.ndim
    sizes, rest = list(sizes), 1
    if -1 in sizes:
        at = sizes.index(-1)
        rest = math.prod(n for n in sizes if n != -1)
        sizes[at] = x.shape[d] // rest
    return ml.reshape(x, (*x.shape[:d], *sizes, *x.shape[d + 1:]))


def squeeze(x, dim=None):
    if dim is None:
        return ml.squeeze(x)
    dims = [d % max(x.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim)]
    dims = [d for d in dims if x.ndim and x.shape[d] == 1]
    return ml.squeeze(x, tuple(d + 1 for d in dims)) if dims else x


def expand(x, *shape):
    shape = list(shape_list(shape))
    for i in range(1, x.ndim + 1):
        if shape[-i] == -1:
            shape[-i] = x.shape[-i]
    return ml.broadcast(x, tuple(shape))


def concat(xs, dim=0, **k):
    dim = k.get("axis", k.get("dim", dim))
    rank = max(len(x.shape) for x in xs)
    kept = [x for x in xs if not (len(x.shape) == 1 and x.shape[0] == 0 and rank > 1)]
    return ml.concat(list(kept), axis(dim))


def pieces(x, sizes, dim):
    d, at, out = dim % x.ndim, 0, []
    for n in sizes:
        ranges = [False] * x.ndim
        ranges[d] = (at + 1, at + n)
        out.append(ml.slice(x, *ranges))
        at += n
    return out


def split(x, size, dim=0):
    d = dim % x.ndim
    if isinstance(size, (list, tuple)):
        return absent("split (at sizes)")
    n = x.shape[d]
    if size == 0 or n % size:
        return absent("split (into parts that are not equal)")
    return many(ml.split(x, max(n // size, 1), axis(dim)), n // size)


def chunk(x, chunks, dim=0):
    n = x.shape[dim % x.ndim]
    if n % chunks:
        return absent("split (into parts that are not equal)")
    return many(ml.split(x, chunks, axis(dim)), chunks)


def many(list_, n):
    return [list_.at(i) for i in range(n)]


def unbind(x, dim=0):
    d, out = dim % x.ndim, []
    for i in range(x.shape[d]):
        where = [False] * x.ndim
        where[d] = i + 1
        out.append(ml.slice(x, *where))
    return out


def narrow(x, dim, start, length):
    if isinstance(start, Expr):
        start = int(start.value)
    d = dim % x.ndim
    ranges = [False] * x.ndim
    start = start + x.shape[d] if start < 0 else start
    ranges[d] = (start + 1, start + length)
    return ml.slice(x, *ranges)


def slice_(x, dim=0, start=None, end=None, step=1):
    n = x.shape[dim % x.ndim]
    start, end, step = slice(start, end, step).indices(n)
    ranges = [False] * x.ndim
    ranges[dim % x.ndim] = slices([start], [end], [step])[0]
    return ml.slice(x, *ranges)


def select(x, dim, index):
    where = [False] * x.ndim
    where[dim % x.ndim] = index + 1 if index >= 0 else index
    return ml.slice(x, *where)


def getitem(x, index):
    index = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, Expr) or isinstance(i, (list, tuple)) for i in index):
        return absent("gather and scatter (several dims)")
    if any(i is None or i is Ellipsis for i in index):
        return absent("slice (new dims, ...)")
    ranges = []
    for n, i in zip(x.shape, index):
        if isinstance(i, slice):
            ranges.append(slices(*[[v] for v in i.indices(n)])[0])
        else:
            ranges.append(i + 1 if i >= 0 else i)
    return ml.slice(x, *ranges)


def flip(x, dims):
    dims = axes(tuple(dims) if isinstance(dims, (list, tuple)) else (dims,))
    return ml.flip(x, dims) if x.ndim and dims else x


def known(ids, size):
    if ids.value.size and ((ids.value < 0).any() or (ids.value >= size).any()):
        departs("an id outside, or counted from the end, is an error")


def index_select(x, dim, ids):
    if not x.ndim:
        return departs(SCALAR)
    known(ids, x.shape[dim % x.ndim])
    return ml.take(x, ids if ids.ndim else ml.reshape(ids, (1,)), axis(dim))


def gather(x, dim, ids, *, sparse_grad=False):
    if not x.ndim or not ids.ndim:
        return departs(SCALAR)
    d = dim % x.ndim
    if ids.ndim != x.ndim:
        return departs("ids of another rank")
    known(ids, x.shape[d])
    if any(a != b and i != d for i, (a, b) in enumerate(zip(x.shape, ids.shape))):
        ranges = [False if i == d else (1, n) for i, n in enumerate(ids.shape)]
        x = ml.slice(x, *ranges)
    return ml.take_along_axis(x, ids, axis(dim))


def take_along_dim(x, ids, dim=None):
    if dim is None:
        known(ids, math.prod(x.shape))
        return ml.take(ml.reshape(x, (-1,)), ml.reshape(ids, (-1,)))
    known(ids, x.shape[dim % x.ndim])
    return ml.take_along_axis(x, ids, axis(dim))


def ties(x, dim):
    """Are there equal elements in a line? Where they lie is open, unless a sort is stable."""
    lines = x.value if dim is None else np.moveaxis(x.value, dim, -1)
    lines = np.sort(lines.reshape(-1, lines.shape[-1]))
    return bool((lines[:, 1:] == lines[:, :-1]).any())


def sort(x, dim=-1, descending=False, stable=False):
    values = ml.sort(x, axis(whole(x, dim)), descending)
    return first(values) if not stable and ties(x, dim) else [values, ml.argsort(x, axis(dim), descending)]


def argsort(x, dim=-1, descending=False, stable=False):
    if not stable and ties(x, whole(x, dim)):
        departs("a sort that is not stable leaves open how equal keys lie")
    return ml.argsort(x, axis(dim), descending)


def topk(x, k, dim=-1, largest=True, sorted=True):
    if not largest:
        return absent("top_k (the smallest)")
    both = ml.top_k(x, k, axis(whole(x, dim)))
    return first(both.first()) if ties(x, dim) else [both.first(), both.second()]


def addmm(product):
    def row(x, a, b, *, beta=1, alpha=1):
        if beta == 0 or not is_float(x) and (is_float(alpha) or is_float(beta)):
            departs("a factor 0 does not stop NaN; a float factor makes a float")
        y = product(a, b)
        return ml.add(x if beta == 1 else ml.mul(x, beta), y if alpha == 1 else ml.mul(y, alpha))
    return row


def einsum(xs, spec):
    terms = spec.replace(" ", "").split("->")[0].split(",")
    if "." in spec or any(len(set(t)) < len(t) for t in terms):
        return absent("einsum (..., diagonals)")
    if len(xs) > 2:
        return absent("einsum (of more operands)")
    return ml.einsum(spec, *xs)


def masked_fill(x, mask, value):
    return ml.where(mask, value, x)


def one_hot(x, num_classes=-1):
    if num_classes == -1:
        departs("the number of classes is said, not found")
    return ml.one_hot(x, num_classes, "int64")


def reduced(y, reduction):
    if reduction == "none":
        return y
    return ml.mean(y) if reduction == "mean" else ml.sum(y)


def cross_entropy(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    if label_smoothing or is_float(target):
        return absent("nn.softmax_cross_entropy")
    if weight is not None or (target.value == ignore_index).any():
        departs("weights and ignored labels: by where and mul")
    if x.ndim > 2:
        x = ml.transpose(x, (1, *range(3, x.ndim + 1), 2))
    return reduced(ml.nn.softmax_cross_entropy_with_integer_labels(x, target), reduction)


def bce_logits(x, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    if pos_weight is not None:
        departs("weights: by mul")
    y = ml.nn.sigmoid_binary_cross_entropy(x, target)
    return reduced(y if weight is None else ml.mul(y, weight), reduction)


def mse(x, y, size_average=None, reduce=None, reduction="mean"):
    return ml.nn.mse(x, y) if reduction == "mean" else reduced(ml.square(ml.sub(x, y)), reduction)


def huber(x, y, reduction="mean", delta=1.0, **k):
    return reduced(ml.nn.huber(x, y, delta), reduction)


def smooth_l1(x, y, reduction="mean", beta=1.0, **k):
    if beta == 0:
        return reduced(ml.abs(ml.sub(x, y)), reduction)
    return reduced(ml.div(ml.nn.huber(x, y, beta), beta), reduction)


def whole_sizes(shape):
    if len(shape) == 0:
        departs("a norm over no dim")
    return [int(n) for n in shape]


def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    if weight is None and bias is not None:
        departs("a bias without a scale")
    m = ml.nn.GroupNorm(x.shape[1], rngs=ml.nn.Rngs(0), num_groups=int(num_groups), epsilon=eps,
                        use_scale=weight is not None, use_bias=bias is not None, param_dtype=x.dtype)
    return back(filled(m, scale=weight, bias=bias)(last(x, x.ndim)), x.ndim)


def instance_norm(x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1,
                  eps=1e-5):
    if not use_input_stats:
        departs("InstanceNorm has no running means")
    m = ml.nn.InstanceNorm(x.shape[1], rngs=ml.nn.Rngs(0), epsilon=eps, use_scale=weight is not None,
                           use_bias=bias is not None, param_dtype=x.dtype)
    return back(filled(m, scale=weight, bias=bias)(last(x, x.ndim)), x.ndim)


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    m = ml.nn.LayerNorm(whole_sizes(normalized_shape), rngs=ml.nn.Rngs(0), epsilon=eps, use_scale=weight is not None,
                        use_bias=bias is not None, param_dtype=x.dtype)
    return filled(m, scale=weight, bias=bias)(x)


def rms_norm(x, normalized_shape, weight=None, eps=None):
    if eps is None:
        eps = {"float64": 2.220446049250313e-16, "float32": 1.1920928955078125e-07}[x.dtype]
    m = ml.nn.RMSNorm(whole_sizes(normalized_shape), rngs=ml.nn.Rngs(0), epsilon=eps, use_scale=weight is not None,
                      param_dtype=x.dtype)
    return filled(m, scale=weight)(x)


def filled(module, **params):
    """A module whose Params are tensors of the case."""
    return tool("fill")(module, params)


def last(x, rank):
    """[batch, features, spatial...] as [batch, spatial..., features]."""
    return ml.transpose(x, (1, *range(3, rank + 1), 2))


def back(y, rank):
    return ml.transpose(y, (1, rank, *range(2, rank)))


def ntuple(v, n):
    return (v,) * n if isinstance(v, int) else tuple(v) if len(v) == n else (v[0],) * n


def batched(x, rank):
    return (x, False) if len(x.shape) == rank else (
        Expr(ml.expand_dims(x, 1).text, x.uses | {"expand_dims"}, (1, *x.shape), x.dtype), True)


def linear(x, w, b=None):
    y = ml.matmul(x, ml.T(w) if w.ndim > 1 else w)
    return y if b is None else ml.add(y, b)


def conv(n):
    def row(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if not is_float(x):
            absent("conv (of integers)")
        x, added = batched(x, n + 2)
        pads = padding
        if not isinstance(padding, str):
            pads = [(p, p) for p in ntuple(padding, n)]
        y = ml.conv(last(x, n + 2), ml.transpose(w, (*range(3, n + 3), 2, 1)), strides=ntuple(stride, n), padding=pads,
                    kernel_dilation=ntuple(dilation, n), groups=groups)
        if bias is not None:
            y = ml.add(y, bias)
        y = back(y, n + 2)
        return ml.squeeze(y, 1) if added else y
    return row


def conv_transpose(n):
    def row(x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        if not is_float(x):
            absent("conv (of integers)")
        x, added = batched(x, n + 2)
        n_in, n_out, *window = w.shape
        stride, padding, more, dilation = (ntuple(v, n) for v in (stride, padding, output_padding, dilation))
        reach = [d * (k - 1) - p for d, k, p in zip(dilation, window, padding)]
        m = ml.nn.ConvTranspose(n_in, groups * n_out, window, rngs=ml.nn.Rngs(0), strides=stride, groups=groups,
                                padding=[(r, r + o) for r, o in zip(reach, more)], kernel_dilation=dilation,
                                use_bias=bias is not None, param_dtype=x.dtype)
        # Features in of each group, then features out of all groups; the window turned round.
        w = ml.transpose(ml.reshape(w, (groups, n_in // groups, n_out, *window)), (*range(4, n + 4), 2, 1, 3))
        w = ml.flip(ml.reshape(w, (*window, n_in // groups, groups * n_out)), tuple(range(1, n + 1)))
        y = back(filled(m, kernel=w, bias=bias)(last(x, n + 2)), n + 2)
        return ml.squeeze(y, 1) if added else y
    return row


def pool(n, name):
    def row(x, kernel_size, stride=None, padding=0, *args, **k):
        if name == "max":
            dilation = args[0] if args else k.get("dilation", 1)
            ceil_mode, indices = k.get("ceil_mode", False), k.get("return_indices", False)
            ceil_mode = args[1] if len(args) > 1 else ceil_mode
            if ntuple(dilation, n) != (1,) * n:
                return absent("nn.max_pool (kernel_dilation)")
            if indices:
                return absent("nn.max_pool (places)")
        else:
            ceil_mode = args[0] if args else k.get("ceil_mode", False)
            if (k.get("divisor_override") or (args[2] if len(args) > 2 else None)) is not None:
                departs("a divisor of its own: by mul")
        if ceil_mode:
            return absent("nn.max_pool, nn.avg_pool (ceil_mode)")
        include = args[1] if len(args) > 1 else k.get("count_include_pad", True)
        x, added = batched(x, n + 2)
        size = ntuple(kernel_size, n)
        pads = [(p, p) for p in ntuple(padding, n)]
        options = dict(strides=size if stride is None or stride == [] or stride == () else ntuple(stride, n),
                       padding=pads)
        if name == "avg":
            options["count_include_pad"] = bool(include)
        y = back(name_of(f"nn.{name}_pool")(last(x, n + 2), size, **options), n + 2)
        return ml.squeeze(y, 1) if added else y
    return row


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        departs("dropout: other random bits")
    if q.ndim != 4:
        departs("attention is of [batch, length, heads, size]")
    heads = lambda t: ml.transpose(t, (1, 3, 2, 4))  # noqa: E731
    options = {} if attn_mask is None else {"mask" if attn_mask.dtype == "bool" else "bias": attn_mask}
    y = ml.nn.attention(heads(q), heads(k), heads(v), causal=is_causal or None, scale=scale, offset=0, **options)
    return ml.transpose(y, (1, 3, 2, 4))


def embedding(w, ids, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if not ids.ndim:
        departs(SCALAR)
    if max_norm is not None or scale_grad_by_freq:
        departs("lookups that change the table")
    if padding_idx is not None:
        departs("a row without a gradient: by stop_gradient")
    return ml.take(w, ids)


def pad(x, pads, mode="constant", value=None):
    if mode != "constant":
        return absent(f"pad ({mode})")
    rows = [(0, 0)] * x.ndim
    for i in range(len(pads) // 2):
        rows[x.ndim - 1 - i] = (int(pads[2 * i]), int(pads[2 * i + 1]))
    return ml.pad(x, rows, value)


def softmax(path):
    return lambda x, dim=None, _stacklevel=3, dtype=None: (
        name_of(path)(cast(x, dtype), axis(dim)) if x.ndim else departs(SCALAR))


def kl_div(x, target, reduction="mean", log_target=False, **k):
    departs("nn.kl sums each row")


def to(dtype):
    return lambda x, **k: ml.astype(x, dtype)


def like(path):
    return lambda x, dtype=None, **k: name_of(path)(x, dtype)


def arange(first, last=None, step=1, dtype=None, end=None):
    if isinstance(first, bool):
        return departs("bools as numbers")
    if last is None:
        first, last = 0, first if end is None else end
    return ml.arange(first, last, step, dtype)


def linspace(first, last, steps, dtype=None, **k):
    if isinstance(first, Expr) or isinstance(last, Expr) or dtype != "float32":
        return departs("linspace is of numbers, and float32")
    return ml.linspace(first, last, steps)


def created(path):
    return lambda shape, dtype=None, **k: name_of(path)(shape_list([shape] if isinstance(shape, int) else shape),
                                                        dtype or "float32")


def index_add(x, dim, ids, src, *, alpha=1):
    if not x.ndim:
        departs(SCALAR)
    known(ids, x.shape[dim % x.ndim])
    rows = ml.scatter_add(ids if ids.ndim else ml.reshape(ids, (1,)), src, x.shape[dim % x.ndim], axis(dim))
    return ml.add(x, rows if alpha == 1 else ml.mul(rows, alpha))


def index_copy(x, dim, ids, src):
    if not x.ndim:
        departs(SCALAR)
    known(ids, x.shape[dim % x.ndim])
    return ml.scatter_set(x, ids if ids.ndim else ml.reshape(ids, (1,)), src, axis(dim))


def index_fill(x, dim, ids, value):
    if not x.ndim or isinstance(value, Expr):
        departs(SCALAR)
    known(ids, x.shape[dim % x.ndim])
    shape = list(x.shape)
    shape[dim % x.ndim] = math.prod(ids.shape)
    rows = ml.full(tuple(shape), value, x.dtype)
    return ml.scatter_set(x, ids if ids.ndim else ml.reshape(ids, (1,)), rows, axis(dim))


def logsumexp(x, dim, keepdim=False):
    return ml.logsumexp(x, axes(whole(x, dim)), keepdim or None)
