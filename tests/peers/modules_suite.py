"""PyTorch's samples of its modules, torch/testing/_internal/common_modules.py: results, and gradients by inputs and
parameters, in evaluation. What is meant by them are the functions of torch_rows.py and meshlua's modules.
"""

import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402

from cases import Case, Stop  # noqa: E402
from expr import absent, departs, ml, tool  # noqa: E402
from torch_calls import back, last  # noqa: E402
from torch_rows import ROWS  # noqa: E402
from torch_suite import all_tensors, array, dtype_name, gradients, lua_args  # noqa: E402

NAME, VERSION = "PyTorch ModuleInfo", "torch " + torch.__version__.split("+")[0]


def function(name, *fields, **params):
    """The function of torch.nn.functional that the module calls: its fields by keyword, its parameters."""
    def row(m, p, *xs, **k):
        args = {f: getattr(m, f) for f in fields}
        args |= {k2: p[v] for k2, v in params.items() if v in p}
        xs = xs or (k.pop("input"),)
        return ROWS["nn.functional." + name](*xs, **args, **k)
    return row


def conv(n):
    def row(m, p, x):
        if m.padding_mode != "zeros":
            absent(f"pad ({m.padding_mode})")
        padding = m.padding if isinstance(m.padding, str) else tuple(m.padding)
        return ROWS[f"nn.functional.conv{n}d"](x, p["weight"], p.get("bias"), tuple(m.stride), padding,
                                               tuple(m.dilation), m.groups)
    return row


def conv_transpose(n):
    def row(m, p, x):
        return ROWS[f"nn.functional.conv_transpose{n}d"](
            x, p["weight"], p.get("bias"), tuple(m.stride), tuple(m.padding), tuple(m.output_padding), m.groups,
            tuple(m.dilation))
    return row


def instance_norm(m, p, x):
    if m.track_running_stats:
        departs("InstanceNorm has no running means")
    if x.ndim != (2 + int(type(m).__name__[-2])):
        departs("InstanceNorm without a batch")
    return ROWS["nn.functional.instance_norm"](x, None, None, p.get("weight"), p.get("bias"), True, 0.1, m.eps)


def batch_norm(m, p, x):
    if not m.track_running_stats:
        departs("BatchNorm keeps running means")
    if x.ndim < 2:
        departs("BatchNorm without a batch")
    made = ml.nn.BatchNorm(m.num_features, rngs=ml.nn.Rngs(0), epsilon=m.eps, use_scale=m.affine, use_bias=m.affine,
                           param_dtype=x.dtype)
    y = tool("fill")(made, {"scale": p.get("weight"), "bias": p.get("bias"), "mean": p["running_mean"],
                            "var": p["running_var"]})(last(x, x.ndim) if x.ndim > 2 else x)
    return back(y, x.ndim) if x.ndim > 2 else y


def softmax(name):
    def row(m, p, x):
        if m.dim is None:
            departs("the dim of a softmax is said")
        return ROWS[name](x, m.dim)
    return row


def pool(n, kind):
    def row(m, p, x):
        options = dict(ceil_mode=m.ceil_mode)
        if kind == "max":
            options |= dict(dilation=m.dilation, return_indices=m.return_indices)
        else:
            options |= dict(count_include_pad=m.count_include_pad)
            if n > 1 and m.divisor_override is not None:
                departs("a divisor of its own: by mul")
        return ROWS[f"nn.functional.{kind}_pool{n}d"](x, m.kernel_size, m.stride, m.padding, **options)
    return row


MODULES = {
    "Linear": function("linear", w="weight", b="bias"), "LayerNorm": function(
        "layer_norm", "normalized_shape", "eps", weight="weight", bias="bias"),
    "GroupNorm": function("group_norm", "num_groups", "eps", weight="weight", bias="bias"),
    **{f"InstanceNorm{n}d": instance_norm for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": conv_transpose(n) for n in (1, 2, 3)},
    "RMSNorm": function("rms_norm", "normalized_shape", "eps", weight="weight"),
    "Embedding": lambda m, p, ids: ROWS["nn.functional.embedding"](p["weight"], ids, m.padding_idx, m.max_norm),
    **{f"Conv{n}d": conv(n) for n in (1, 2, 3)}, **{f"BatchNorm{n}d": batch_norm for n in (1, 2, 3)},
    **{f"{k}Pool{n}d": pool(n, k.lower()) for k in ("Max", "Avg") for n in (1, 2, 3)},
    "ReLU": function("relu"), "ReLU6": function("relu6"), "ELU": function("elu", "alpha"), "Mish": function("mish"),
    "LeakyReLU": function("leaky_relu", "negative_slope"), "GELU": function("gelu", "approximate"),
    "SiLU": function("silu"),
    "CELU": function("celu", "alpha"), "GLU": function("glu", "dim"), "Hardtanh": function("hardtanh", "min_val",
    "max_val"),
    "LogSigmoid": function("logsigmoid"), "Softplus": function("softplus", "beta", "threshold"),
    "Softsign": function("softsign"), "Tanhshrink": function("tanhshrink"), "Hardswish": function("hardswish"),
    "SELU": function("selu"), "Sigmoid": lambda m, p, x: ROWS["sigmoid"](x), "Tanh": lambda m, p, x: ROWS["tanh"](x),
    "Softmax": softmax("softmax"), "LogSoftmax": softmax("log_softmax"), "Softmin": softmax("nn.functional.softmin"),
    "MSELoss": function("mse_loss", "reduction"), "L1Loss": function("l1_loss", "reduction"),
    "HuberLoss": function("huber_loss", "reduction", "delta"),
    "SmoothL1Loss": function("smooth_l1_loss", "reduction", "beta"),
    "BCEWithLogitsLoss": function("binary_cross_entropy_with_logits", "reduction", weight="weight",
                                  pos_weight="pos_weight"),
    "CrossEntropyLoss": function("cross_entropy", "ignore_index", "reduction", "label_smoothing", weight="weight"),
    **{f"ZeroPad{n}d": (lambda m, p, x: ROWS["nn.functional.pad.constant"](x, m.padding)) for n in (1, 2, 3)},
    **{f"ConstantPad{n}d": (lambda m, p, x: ROWS["nn.functional.pad.constant"](x, m.padding, "constant", m.value))
       for n in (1, 2, 3)},
}
ABSENT = {
    "GRU": "nn.GRU",
    "LSTM": "nn.LSTM", "RNN": "nn.RNN", "ReflectionPad": "pad (reflect)", "ReplicationPad": "pad (replicate)",
    "CircularPad": "pad (circular)", "PReLU": "nn.prelu", "Hardshrink": "nn.hardshrink", "NLLLoss": "nn.nll_loss",
}


def one(suite, info, label, sample, dtype):
    op = info.module_cls.__name__
    if op not in MODULES:
        name = next((v for k, v in ABSENT.items() if op.startswith(k)), "nn." + op)
        return suite.stop(label, op, [("absent", name)])
    torch.manual_seed(0)
    case = Case(label, op)
    case.scale = True
    try:
        m = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).to(dtype).eval()
        seen, given = [], sample.forward_input
        args, keys = lua_args(case, given.args, seen), lua_args(case, given.kwargs, seen)
        held = {**dict(m.named_parameters()), **{k: b for k, b in m.named_buffers() if b is not None}}
        params = lua_args(case, held, seen)
        want = m(*given.args, **given.kwargs)
        if not isinstance(want, torch.Tensor) or any(t.is_complex() for t in all_tensors((given.args, held))):
            departs("several results")
        expr = MODULES[op](m, params, *args, **keys)
    except Stop as stop:
        return suite.stop(label, op, [(stop.kind, stop.what)])
    except (TypeError, KeyError, AttributeError, RuntimeError) as e:
        return suite.stop(label, op, [("adapter", f"{type(e).__name__}: {e}"[:90])])
    case.results(case.let(expr, [(want.shape, dtype_name(want.dtype))]))
    stops = suite.missing(case, [a.dtype for a in case.inputs])
    if stops:
        return suite.stop(label, op, stops)
    cotangents, grads = gradients([want], seen, np.random.RandomState(0))
    suite.add(case, [array(want)], cotangents, grads)


def run(suite, only=None):
    for info in module_db:
        if only and only not in info.module_cls.__name__:
            continue
        for dtype in (torch.float32, torch.float64):
            if dtype not in info.dtypes:
                continue
            torch.manual_seed(1)
            samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=False)
            for i, sample in enumerate(s for s in samples if s.forward_input is not None):
                one(suite, info, f"{info.module_cls.__name__}_{dtype_name(dtype)}_{i}_{sample.desc}", sample, dtype)
