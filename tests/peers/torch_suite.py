"""PyTorch's samples of its operators: the OpInfos of torch/testing/_internal/common_methods_invocations.py, with the
results and gradients that PyTorch has for them on a CPU.
"""

import logging
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import ml_dtypes  # noqa: E402, F401: numpy then knows bfloat16
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal import common_methods_invocations as methods  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from cases import Case, Stop  # noqa: E402
from torch_calls import First  # noqa: E402
from torch_rows import ABSENT, COMPLEX, OWN, RANDOM, ROWS, SUMS, WIDE  # noqa: E402

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
MOST = 25  # samples of an op and dtype
LARGEST = 40000  # elements of a tensor

torch.set_num_threads(1)


def array(t):
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    return t.view(torch.int16).numpy().view("bfloat16") if t.dtype == torch.bfloat16 else t.numpy()


def dtype_name(d):
    return str(d).removeprefix("torch.")


def lua_args(case, tree, seen):
    """Samples with inputs of the case in the place of tensors, and names in that of dtypes."""
    def one(x):
        if isinstance(x, torch.Tensor):
            seen.append(x)
            return case.input(array(x))
        if isinstance(x, torch.dtype):
            return dtype_name(x)
        return x
    return pytree.tree_map(one, tree, is_leaf=lambda x: isinstance(x, slice))


def all_tensors(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def translate(case, row, sample, outs):
    seen = []
    args = lua_args(case, (sample.input, *sample.args), seen)
    keys = {k: v for k, v in sample.kwargs.items() if k not in ("device", "layout", "memory_format", "requires_grad",
                                                                "pin_memory", "out")}
    keys = lua_args(case, keys, seen)
    try:
        exprs = row(*args, **keys)
    except (TypeError, AttributeError, ValueError, IndexError, KeyError) as e:
        raise Stop("adapter", f"{type(e).__name__}: {e}") from e
    kept = len(exprs) if isinstance(exprs, First) else None
    exprs = list(exprs) if isinstance(exprs, (list, tuple)) else [exprs]
    shapes = [(o.shape, dtype_name(o.dtype)) for o in outs]
    case.results([case.let([e], [s])[0] for e, s in zip(exprs, shapes)])
    if kept is None and len(exprs) != len(outs):
        raise Stop("adapter", f"{len(exprs)} results, not {len(outs)}")
    return len(exprs), seen


def results(fn, sample):
    out = fn(sample.input, *sample.args, **sample.kwargs)
    return list(out) if isinstance(out, (list, tuple)) else [out]


def gradients(outs, seen, rng):
    """Cotangents of the float results, and by input (from 0) the gradient."""
    wanted = [i for i, t in enumerate(seen) if t.requires_grad]
    floats = [o for o in outs if o.dtype.is_floating_point]
    if not wanted or not any(o.requires_grad for o in floats):
        return [], {}
    cotangents = [torch.from_numpy(np.asarray(rng.standard_normal(tuple(o.shape)))).to(o.dtype) for o in floats]
    pairs = [(o, c) for o, c in zip(floats, cotangents) if o.requires_grad]
    try:
        got = torch.autograd.grad([o for o, _ in pairs], [seen[i] for i in wanted], [c for _, c in pairs],
                                  allow_unused=True)
    except (RuntimeError, NotImplementedError):  # PyTorch has none
        return [], {}
    zeros = [torch.zeros_like(seen[i]) if g is None else g for i, g in zip(wanted, got)]
    return [array(c) for c in cotangents], {i: array(g) for i, g in zip(wanted, zeros)}


def why_none(name, base):
    """What stops all samples of an op without a row; base: its name without the variant."""
    if name in ABSENT:
        return ("absent", ABSENT[name])
    if name in RANDOM:
        return ("departs", "results that are random, or left unset, there")
    if name.startswith(COMPLEX):
        return ("absent", "complex numbers")
    if name.startswith(OWN):
        return ("departs", "strides, storage, sparse layouts and kernels that are PyTorch's own")
    if name.startswith(("special.", "signal.", "masked.")):
        return ("absent", name.split(".")[0] + ".*")
    return ("absent", base.replace("nn.functional.", "nn.").removeprefix("linalg."))


def one(suite, op, name, sample, dtype, i):
    label = f"{name}_{dtype_name(dtype)}_{i}"
    if name not in ROWS:
        return suite.stop(label, name, [why_none(name, op.name)])
    tensors = all_tensors((sample.input, sample.args, sample.kwargs))
    if any(t.numel() > LARGEST or t.is_complex() or t.layout != torch.strided for t in tensors):
        return suite.stop(label, name, [("departs", f"complex, sparse or more than {LARGEST} elements")])
    case = Case(label, name)
    case.check = "value" if name in WIDE else "all"
    case.scale = any(s in name for s in SUMS)
    try:
        outs = results(op, sample)
        if not all(isinstance(o, torch.Tensor) for o in outs):
            raise Stop("departs", "results that are no tensors there")
        n, seen = translate(case, ROWS[name], sample, outs)
    except Stop as stop:
        return suite.stop(label, name, [(stop.kind, stop.what)])
    except Exception as e:
        return suite.stop(label, name, [("peer", f"PyTorch refuses its own sample: {type(e).__name__}")])
    stops = suite.missing(case, [a.dtype for a in case.inputs] + [dtype_name(o.dtype) for o in outs[:n]])
    if stops:
        return suite.stop(label, name, stops)
    rng = np.random.RandomState(i)
    cotangents, grads = gradients(outs[:n], seen, rng)
    suite.add(case, [array(o) for o in outs[:n]], cotangents, grads)


def run(suite, only=None):
    for op in methods.op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if only and only not in name:
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            torch.manual_seed(1)
            grad = dtype.is_floating_point and op.supports_autograd and dtype in op.backward_dtypes
            if name not in ROWS:
                # Without a row only the number of samples counts.
                try:
                    n = min(MOST, sum(1 for _ in zip(range(MOST), op.sample_inputs("cpu", dtype))))
                except Exception:
                    continue
                for i in range(n):
                    suite.stop(f"{name}_{dtype_name(dtype)}_{i}", name, [why_none(name, op.name)])
                continue
            try:
                samples = list(zip(range(MOST), op.sample_inputs("cpu", dtype, requires_grad=grad)))
            except Exception as e:
                suite.stop(f"{name}_{dtype_name(dtype)}", name, [("peer", f"no samples: {type(e).__name__}")])
                continue
            for i, sample in samples:
                one(suite, op, name, sample, dtype, i)


NAME = "PyTorch OpInfo"
VERSION = "torch " + torch.__version__.split("+")[0]
