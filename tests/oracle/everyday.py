"""Numbers of jax.numpy for tests/spec/op/everyday_spec.lua: the everyday functions on tensors of ranks 0 to 4, of
sizes 0 and 1, of five dtypes, with NaN and infinities: the results' dtypes, shapes and values, or that JAX refuses.

    python tests/oracle/everyday.py > tests/oracle/everyday.json

A case is [name, arguments, results]. An argument "@NAME" is the input of that name; a table at the end has options.
Axes are written as a script writes them, from 1. Results are a list of [dtype, shape, values], or "error".
"""

import itertools
import json
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

warnings.simplefilter("ignore")
jax.config.update("jax_disable_jit", True)  # thousands of shapes: primitives alone are compiled
DTYPES = ("float32", "float64", "bfloat16", "int32", "bool")
SHAPES = {
    "s": (), "z": (0,), "o": (1,), "v": (5,), "r": (4,), "c": (3, 1), "m": (3, 4), "n": (4, 2), "q": (3, 3),
    "t": (2, 3, 2), "u": (2, 1, 3, 2), "e": (2, 0, 3),
}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-3, -2.5, 30.0, -87.0, 1e30]

inputs, cases = {}, []


def ramp(shape, dtype):
    n = int(np.prod(shape))
    x = ((37 * np.arange(n) + 11) % 101 - 50) / 25.0
    if dtype == "bool":
        x = x > 0
    if dtype == "int32":
        x = np.trunc(x * 3)
    return jnp.asarray(x, dtype).reshape(shape)


def flat(x):
    x = np.asarray(x)
    if x.dtype == bool:
        return [bool(v) for v in x.ravel()]
    if np.issubdtype(x.dtype, np.integer):
        return [int(v) for v in x.ravel()]
    digits = {"float64": 17, "float32": 9}.get(str(x.dtype), 5)
    out = []
    for v in x.astype("float64").ravel():
        out.append(float(f"{v:.{digits}g}") if np.isfinite(v) else str(v))
    return [int(v) if not isinstance(v, str) and v == int(v) and abs(v) < 1e6 and str(v) != "-0.0" else v for v in out]


def put(name, x):
    inputs[name] = x
    return "@" + name


def wide(args):
    return any(isinstance(a, str) and a[:1] == "@" and inputs[a[1:]].dtype in ("float64", "int64") for a in args)


def case(name, fn, *args, **options):
    """fn takes what the script gives, inputs as arrays; options go behind, as a table."""
    def arrays(a):
        if isinstance(a, str) and a[:1] == "@":
            return inputs[a[1:]]
        return [arrays(b) for b in a] if isinstance(a, list) else a

    names = [b for a in args for b in (a if isinstance(a, list) else [a])]
    with jax.enable_x64(wide(names)):
        try:
            y = fn(*[arrays(a) for a in args], **options)
            y = list(y) if isinstance(y, (list, tuple)) else [y]
            result = [[str(v.dtype), list(v.shape), flat(v)] for v in y]
        except Exception:  # what JAX says is its own affair
            result = "error"
    cases.append([name, list(args) + ([options] if options else []), result])


def ax(a):
    """Axes from 0."""
    if a is None:
        return None
    if isinstance(a, (list, tuple)):
        return tuple(ax(b) for b in a)
    return a - 1 if a > 0 else a if a < 0 else 99


with jax.enable_x64(True):
    for d in DTYPES:
        for key, shape in SHAPES.items():
            put(f"{key}_{d}", ramp(shape, d))
    for d in ("float32", "float64", "bfloat16"):
        put(f"x_{d}", jnp.asarray(SPECIAL, d))
        put(f"y_{d}", jnp.asarray(SPECIAL, d)[:, None])
        put(f"g_{d}", jnp.where(ramp((3, 4), d) > 0.9, jnp.nan, ramp((3, 4), d)).astype(d))
        put(f"h_{d}", jnp.asarray([[np.nan] * 3, [1, np.inf, -np.inf]], d))


def elementwise():
    one = {
        "exp2": jnp.exp2, "log2": jnp.log2, "log10": jnp.log10, "logit": special.logit, "tan": jnp.tan,
        "sinh": jnp.sinh, "cosh": jnp.cosh, "isnan": jnp.isnan, "isinf": jnp.isinf, "trunc": jnp.trunc,
        "nan_to_num": jnp.nan_to_num, "asin": jnp.asin, "acos": jnp.acos, "atan": jnp.atan, "asinh": jnp.asinh,
        "acosh": jnp.acosh, "atanh": jnp.atanh, "erfc": special.erfc, "lgamma": special.gammaln,
        "digamma": special.digamma,
    }
    for name, fn in one.items():
        for d, s in itertools.product(DTYPES, SHAPES):
            case(name, fn, f"@{s}_{d}")
        for d in ("float32", "float64", "bfloat16"):
            case(name, fn, f"@x_{d}")
    case("nan_to_num", jnp.nan_to_num, "@x_float32", nan=1.5, posinf=7.0)
    case("nan_to_num", jnp.nan_to_num, "@x_float32", neginf=-7.0)
    two = {
        "hypot": jnp.hypot, "logaddexp": jnp.logaddexp, "xlogy": special.xlogy, "fmod": jnp.fmod,
        "isclose": jnp.isclose, "allclose": jnp.allclose, "atan2": jnp.atan2,
    }
    pairs = [("float32",) * 2, ("float64",) * 2, ("bfloat16",) * 2, ("int32",) * 2, ("int32", "float32"),
             ("bool", "float32"), ("float32", "bfloat16"), ("bool", "bool")]
    for name, fn in two.items():
        for (a, b), (s, t) in itertools.product(pairs, ("ss", "vv", "mr", "ts", "zz", "mc", "oz", "mv", "uo")):
            case(name, fn, f"@{s}_{a}", f"@{t}_{b}")
        for d in ("float32", "float64"):
            case(name, fn, f"@x_{d}", f"@y_{d}")
        for d in ("float32", "float64", "bfloat16"):
            case(name, fn, f"@v_{d}", 0.5)
            case(name, fn, 1.5, f"@v_{d}")
    for d, n in itertools.product(("float32", "float64", "bfloat16"), (0, 1, 2, 3, 7)):
        for s in "vmsz":
            case("polygamma", special.polygamma, n, f"@{s}_{d}")
        case("polygamma", special.polygamma, n, f"@x_{d}")
    for name, fn in (("isclose", jnp.isclose), ("allclose", jnp.allclose)):
        for d in ("float32", "float64"):
            case(name, fn, f"@x_{d}", f"@x_{d}", equal_nan=True)
            case(name, fn, f"@v_{d}", f"@s_{d}", rtol=0.5)
            case(name, fn, f"@v_{d}", f"@s_{d}", atol=1.0)


def reductions():
    names = {
        "prod": jnp.prod, "nansum": jnp.nansum, "nanmean": jnp.nanmean, "nanmax": jnp.nanmax,
        "nanmin": jnp.nanmin, "nanprod": jnp.nanprod, "median": jnp.median,
    }
    for name, f in names.items():
        def fn(x, axes=None, keepdims=False):
            return f(x, axis=ax(axes), keepdims=keepdims)

        for d in DTYPES:
            for s in "szovmtue":
                case(name, fn, f"@{s}_{d}")
                if s in "mtue":
                    case(name, fn, f"@{s}_{d}", 1)
                    case(name, fn, f"@{s}_{d}", axes=-1, keepdims=True)
                    case(name, fn, f"@{s}_{d}", [2, 1])
            case(name, fn, f"@m_{d}", 3)
            case(name, fn, f"@m_{d}", [1, -2])
        for d in ("float32", "float64", "bfloat16"):
            for s in "gh":
                case(name, fn, f"@{s}_{d}")
                case(name, fn, f"@{s}_{d}", 1)
                case(name, fn, f"@{s}_{d}", axes=-1, keepdims=True)

    def quantile(x, q, axes=None, keepdims=False, method="linear"):
        return jnp.quantile(x, jnp.asarray(q, "float64" if x.dtype == "float64" else "float32"), axis=ax(axes),
                            method=method, keepdims=keepdims)

    for d in ("float32", "float64", "int32"):
        for q, s in itertools.product((0.0, 0.25, 1.0, [0.5, 0.125], 1.5), "vmtog"):
            if f"{s}_{d}" in inputs:
                case("quantile", quantile, f"@{s}_{d}", q)
                case("quantile", quantile, f"@{s}_{d}", q, 1)
                case("quantile", quantile, f"@{s}_{d}", q, axes=-1, keepdims=True)
        for method in ("lower", "higher", "midpoint", "nearest", "linear", "best"):
            case("quantile", quantile, f"@v_{d}", [0.25, 0.375, 0.5, 0.875], method=method)


def movement():
    for d, s in itertools.product(DTYPES, "sovmtue"):
        x = f"@{s}_{d}"
        for reps in (2, [2, 1], [1, 2, 3], 0, [2, 0]):
            case("tile", jnp.tile, x, reps)
        for n in (2, 0, [1, 0, 2], -1) if d in ("float32", "bool") else ():
            for axis in (None, 1, -1, 2):
                args = [x, n] + ([] if axis is None else [axis])
                case("repeat_interleave", lambda x, n, axis=None: jnp.repeat(
                    x, np.asarray(n) if isinstance(n, list) else n, axis=ax(axis)), *args)
        for shift, axis in ((1, None), (-2, None), (1, 1), (7, -1), ([1, -1], [1, 2]), (1, [1, 2]), ([1, 2], 1), (1, 5)):
            args = [x, shift] + ([] if axis is None else [axis])
            case("roll", lambda x, n, axis=None: jnp.roll(x, n, axis=ax(axis)), *args)
    for d, s in itertools.product(("float32", "bool"), "smtu"):
        for a, b in ((1, -1), (-1, 1), ([1, 2], [2, 1]), ([1, 2], [-1, -2]), (9, 1), ([1, 1], [1, 2]), ([1], [1, 2])):
            case("moveaxis", lambda x, a, b: jnp.moveaxis(x, ax(a), ax(b)), f"@{s}_{d}", a, b)
    for d, s in itertools.product(DTYPES, "svomnteq"):
        for k in (0, 1, -2, 9):
            for name in ("tril", "triu", "diag"):
                case(name, getattr(jnp, name), f"@{s}_{d}", k)
            case("diagonal", jnp.diagonal, f"@{s}_{d}", k)
            case("trace", jnp.trace, f"@{s}_{d}", k)
        case("diagonal", lambda x, offset, axis1, axis2: jnp.diagonal(x, offset, ax(axis1), ax(axis2)),
             f"@{s}_{d}", offset=1, axis1=-1, axis2=1)
    for d in DTYPES:
        for s in "svomtue":
            for n in (1, 2, 0):
                case("diff", lambda x, n, axis=-1: jnp.diff(x, n, axis=ax(axis)), f"@{s}_{d}", n)
                case("diff", lambda x, n, axis=-1: jnp.diff(x, n, axis=ax(axis)), f"@{s}_{d}", n, 1)
        for cuts in (2, 3, [1], [1, 3], [3, 1], [-1], [0, 9]) if d in ("float32", "bool") else ():
            for s, axis in (("v", 1), ("m", 2), ("t", -2), ("e", 2), ("z", 1), ("s", 1)):
                for name in ("split", "array_split"):
                    case(name, lambda x, n, axis: getattr(jnp, name)(x, n, ax(axis)), f"@{s}_{d}", cuts, axis)
    for d in ("float32", "int32", "bool"):
        for s, pads in (("v", [[1, 2]]), ("v", [[0, 0]]), ("v", [[12, 9]]), ("o", [[3, 2]]), ("m", [[1, 2], [2, 0]]),
                        ("z", [[1, 1]]), ("e", [[1, 1], [0, 0], [2, 2]]), ("v", [[-1, 1]])):
            for mode in ("edge", "wrap", "reflect", "symmetric", "mirrored"):
                case("pad", lambda x, pads, mode: jnp.pad(x, pads, mode=mode), f"@{s}_{d}", pads, mode=mode)
    for d in ("float32", "int32"):
        for list_ in ("v", "vr", "vro", "vs", "vm", "z", "zr"):
            for indexing in ("xy", "ij"):
                case("meshgrid", lambda xs, indexing: jnp.meshgrid(*xs, indexing=indexing),
                     [f"@{s}_{d}" for s in list_], indexing=indexing)


def products():
    specs = (
        ("ij,jk", "mn"), ("ij,jk->ki", "mn"), ("ii", "q"), ("ii->i", "q"), ("ij->", "m"), ("ij->j", "m"), ("ba", "m"),
        ("i,i", "vv"), ("i,j", "vr"), ("i,j->ji", "vr"), (",i->i", "sv"), (",", "ss"), ("", "s"), ("ij,jk,kl->il", "mnn"),
        ("ij,jk,lk->il", "mnn"), ("ij,jk,ij->k", "mnm"), ("i,i,i->i", "vvv"), ("ij,j,i", "mrc"), ("...", "t"),
        ("...->...", "t"), ("...i->i...", "t"), ("i...->...", "t"), ("...ij,...jk", "tn"), ("...ij,jk->...ik", "ee"),
        ("...ij,...kj->...ik", "ut"), ("...,...", "ts"), ("...i,...i->...", "vm"), ("i...i", "q"), ("ij,ij->ij", "mm"),
        ("ij,ij", "mm"), ("ij,kj->ik", "mm"), ("ij,ji", "qq"), ("iij->j", "q"), ("ij,jk->il", "mn"), ("ij,jk", "mm"),
        ("ij->ii", "m"), ("i", "m"), ("ij,jk", "m"), ("ij,i1", "mm"), ("ij..", "m"), ("ij,", "m"), ("iji->j", "q"),
        ("ij,ij->i", "mc"), ("ijk,ikl->ijl", "tt"), ("aij,bij->ab", "tt"), ("abcd->dcba", "u"), ("abcd,cd->ab", "ut"),
        ("Aa,aB", "mn"), ("ij,jk,kl,lm->im", "qqqq"), ("ii,ii->i", "qq"), ("z,zi->i", "ze"), ("ab,bc->ac", "zz"),
        ("i->", "z"), ("i,i->", "zz"), ("ij , jk -> ik", "mn"), ("...i,ij->...j", "mn"), ("...a,...b->...ab", "vr"),
        ("bij,b...->...ij", "tt"), ("i...,j...->ij...", "mm"),
    )
    for spec, s in specs:
        for d in ("float32", "float64", "bfloat16", "int32"):
            case("einsum", lambda spec, *x: jnp.einsum(spec, *x), spec, *[f"@{k}_{d}" for k in s])
    case("einsum", lambda spec, *x: jnp.einsum(spec, *x), "ij,jk", "@m_int32", "@n_float32")
    pairs = ("ss", "sv", "ms", "vv", "mr", "mn", "tn", "nm", "ut", "vr", "zz", "ez", "qq", "cr", "oo")
    for (a, b), d in itertools.product(pairs, DTYPES):
        for name in ("dot", "outer", "kron"):
            case(name, getattr(jnp, name), f"@{a}_{d}", f"@{b}_{d}")
        for axes in (1, 0, 2, [1, 1], [[1, 2], [2, 1]], [-1, 1], 5):
            if d in ("float32", "int32"):
                case("tensordot", lambda x, y, axes: jnp.tensordot(
                    x, y, axes if isinstance(axes, int) else ax(axes)), f"@{a}_{d}", f"@{b}_{d}", axes)


def tables():
    def histogram(x, bins=10, range=None, weights=None, density=False):
        bins = jnp.asarray(bins) if isinstance(bins, list) else bins
        weights = None if weights is None else inputs[weights[1:]]
        return jnp.histogram(x, bins, range, weights, density)

    for d in ("float32", "float64", "int32"):
        for s in "vmtos":
            case("histogram", histogram, f"@{s}_{d}")
            case("histogram", histogram, f"@{s}_{d}", 4, range=[-1.0, 1.5])
            case("histogram", histogram, f"@{s}_{d}", 3, density=True)
            case("histogram", histogram, f"@{s}_{d}", [-2.0, -0.5, 0.25, 3.0])
    for i, x in enumerate(([0, 3, 1, 1], [2], [], [-1, 5, 5, -7])):
        x = put(f"b{i}", jnp.asarray(x, "int32"))
        w = put(f"w{i}", jnp.asarray(np.arange(inputs[x[1:]].size) / 4, "float32"))
        case("bincount", lambda x: jnp.bincount(x), x)
        case("bincount", lambda x, w: jnp.bincount(x, w), x, w)
        case("bincount", lambda x, minlength: jnp.bincount(x, minlength=minlength), x, minlength=9)
        case("bincount", lambda x, length: jnp.bincount(x, length=length), x, length=3)
    case("bincount", jnp.bincount, "@v_float32")
    with jax.enable_x64(True):
        for d in ("float32", "float64"):
            put(f"p_{d}", jnp.asarray([-1, -0.5, 0.25, 1.0], d))
            put(f"k_{d}", jnp.asarray([0, 0, 1.0, 1.0], d))
    for d in ("float32", "float64"):
        for s, p in itertools.product("svmzgh", "pk"):
            case("interp", jnp.interp, f"@{s}_{d}", f"@{p}_{d}", f"@r_{d}")
            case("interp", lambda x, p, f, left, right: jnp.interp(x, p, f, left, right), f"@{s}_{d}", f"@{p}_{d}",
                 f"@r_{d}", left=-9.0, right=9.0)
        case("interp", jnp.interp, f"@v_{d}", f"@p_{d}", f"@v_{d}")
        case("interp", jnp.interp, f"@v_{d}", f"@o_{d}", f"@o_{d}")
    for args in ((0, 3, 4), (-1.0, 1.0, 5), (2, 2, 3), (0, 1, 1), (0, 1, 0)):
        case("logspace", lambda a, b, n: jnp.logspace(a, b, n), *args)
        case("logspace", lambda a, b, n, base: jnp.logspace(a, b, n, base=base), *args, 2.0)


for part in (elementwise, reductions, movement, products, tables):
    part()
used = {b[1:] for _, args, _ in cases for a in args for b in (a if isinstance(a, list) else [a])
        if isinstance(b, str) and b[:1] == "@"}
print('{"jax": "%s", "inputs": {' % jax.__version__)
print(",\n".join(json.dumps(k) + ":" + json.dumps([str(x.dtype), list(x.shape), flat(x)], separators=(",", ":"))
                 for k, x in inputs.items() if k in used))
print('}, "cases": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
print(len(cases), "cases", sum(c[2] == "error" for c in cases), "errors", file=sys.stderr)
