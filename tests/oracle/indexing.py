"""Numbers of JAX for tests/spec/op/indexing_spec.lua: elements taken and changed by id, segments, what is there once,
places in what is sorted, sorting: of ranks 0 to 4, of sizes 0 and 1, of nine dtypes, with NaN and infinities, ids
outside and from the end: the results' dtypes, shapes and values, or that JAX refuses.

    python tests/oracle/indexing.py > tests/oracle/indexing.json

A case is [name, arguments, results], as in everyday.py. What JAX has no mode for is made of what it has: an id outside
in mode "error" is one, below 0 in "strict", too; "wrap" takes the ids modulo the size first.
"""

import itertools
import json
import os
import sys
import warnings

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # it compiles for longer than it runs

import jax
import jax.numpy as jnp
import numpy as np

warnings.simplefilter("ignore")
jax.config.update("jax_disable_jit", True)
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "uint8", "uint32", "int64", "bool")
SHAPES = {
    "s": (), "z": (0,), "o": (1,), "v": (5,), "m": (3, 4), "c": (3, 1), "t": (2, 3, 2), "u": (2, 1, 3, 2),
    "e": (2, 0, 3),
}
IDS = {"a": 1, "b": [0, 1, 0], "f": [-1, -2], "g": [[0, -1], [1, 0]], "k": [], "h": [0, 9, -9, 1], "p": [[4], [-3]]}
WIDE = ("float64", "int64")
inputs, cases = {}, []


def ramp(shape, dtype):
    n = int(np.prod(shape))
    x = ((37 * np.arange(n) + 11) % 101 - 50) / 25.0
    if dtype == "bool":
        x = x > 0
    elif "int" in dtype:
        x = np.trunc(x * 3) + (6 if dtype[0] == "u" else 0)
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


def names_in(args):
    for a in args:
        if isinstance(a, str) and a[:1] == "@":
            yield a[1:]
        elif isinstance(a, list):
            yield from names_in(a)


def case(name, fn, *args):
    def arrays(a):
        if isinstance(a, str) and a[:1] == "@":
            return inputs[a[1:]]
        return [arrays(b) for b in a] if isinstance(a, list) else a

    with jax.enable_x64(any(str(inputs[n].dtype) in WIDE for n in names_in(args))):
        try:
            y = fn(*[arrays(a) for a in args])
            y = list(y) if isinstance(y, (list, tuple)) else [y]
            result = [[str(v.dtype), list(v.shape), flat(v)] for v in y]
        except Exception:  # what JAX says is its own affair
            result = "error"
    cases.append([name, list(args), result])


def ax(a):
    return a - 1 if a > 0 else a if a < 0 else 99


def places(y):
    """Places as they are here: int32, where JAX has int64 beside numbers of 64 bits."""
    return [v.astype("int32") for v in y] if isinstance(y, (list, tuple)) else y.astype("int32")


def by_mode(ids, n, mode):
    """Ids and a mode that JAX has."""
    least = {"error": -n, "strict": 0}.get(mode)
    if least is not None and np.any((np.asarray(ids) < least) | (np.asarray(ids) >= n)):
        raise IndexError
    if mode == "wrap":
        if n == 0 and np.size(ids) > 0:
            raise IndexError
        return jnp.mod(jnp.asarray(ids), max(n, 1)), "fill"
    return ids, {"error": "fill", "strict": "fill", "drop": "fill"}.get(mode, mode)


def index(x, ids, mode):
    """The index of x:at(ids), and a mode."""
    if len(ids) > x.ndim:
        raise IndexError
    out, modes = [], set()
    for d, i in enumerate(ids):
        if i is False:
            out.append(slice(None))
        else:
            i, m = by_mode(i, x.shape[d], mode)
            out.append(i)
            modes.add(m)
    return tuple(out), modes.pop()


def at_get(x, ids, mode, fill=None):
    where, mode = index(x, ids, mode)
    return x.at[where].get(mode=mode, fill_value=fill)


def at_with(how):
    def fn(x, ids, u, mode):
        where, mode = index(x, ids, mode)
        return getattr(x.at[where], how)(u, mode=mode)
    return fn


def take(x, ids, axis, mode, fill=None):
    where = [False] * x.ndim
    where[ax(axis)] = ids
    return at_get(x, where, mode, fill)


def along(x, ids, axis):
    axis = ax(axis) % x.ndim
    if ids.ndim != x.ndim:
        raise IndexError
    where = list(jnp.meshgrid(*[jnp.arange(n) for n in ids.shape], indexing="ij"))
    for d, n in enumerate(ids.shape):
        if d != axis and n != x.shape[d]:
            raise IndexError
    where[axis] = ids
    return where


def take_along(x, ids, axis, mode):
    return at_get(x, along(x, ids, axis), mode)


def put_along(x, ids, u, axis, how, mode):
    return at_with({"mul": "multiply"}.get(how, how))(x, along(x, ids, axis), u, mode)


MODES = ("error", "fill", "clip", "wrap")
HOW = {"set": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}

with jax.enable_x64(True):
    for d in DTYPES:
        for key, shape in SHAPES.items():
            put(f"{key}_{d}", ramp(shape, d))
        put(f"w_{d}", ramp((64,), d)[::-1][:7])
        put(f"q_{d}", jnp.sort(ramp((9,), d)))
    for key, ids in IDS.items():
        put(f"i{key}", jnp.asarray(np.asarray(ids), "int32"))
        if np.all(np.asarray(ids) >= 0):
            put(f"b{key}", jnp.asarray(np.asarray(ids), "uint8"))
        put(f"l{key}", jnp.asarray(np.asarray(ids), "int64"))
    put("jm", jnp.asarray([[0, -1, 7, 1]] * 2 + [[1, 1, 0, -9]], "int32"))
    put("jn", jnp.asarray([[0, -1], [3, 2], [5, 0]], "int32"))
    for d in ("float32", "float64", "bfloat16"):
        x = jnp.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, np.nan, -1.0, 1.0, 30.0], d)
        put(f"x_{d}", x)
        put(f"y_{d}", jnp.sort(x))


def gathers():
    for d, s, i, mode in itertools.product(DTYPES, SHAPES, IDS, MODES):
        rank = len(SHAPES[s])
        if d != "float32" and (s not in "vm" or i not in "gh"):
            continue
        axis = (1, rank, -1)[len(cases) % 3]
        case("take", take, f"@{s}_{d}", f"@i{i}", axis, mode)
    for i, mode in itertools.product("ab", MODES):
        case("take", take, "@m_float32", f"@b{i}", 2, mode)
    for i, mode in itertools.product("bfh", MODES):
        case("take", take, "@m_float32", f"@l{i}", 1, mode)
    for s, i in itertools.product("vme", IDS):
        case("take", take, f"@{s}_float32", f"@i{i}", 1, "strict")
    for axis in (0, 3, -3):
        case("take", take, "@m_float32", "@ib", axis, "fill")
    case("take", take, "@m_float32", "@ih", 1, "fill", 7)
    case("take", take, "@m_float32", "@v_float32", 1, "fill")
    for d, mode in itertools.product(DTYPES, MODES):
        case("take_along_axis", take_along, f"@v_{d}", "@ih", 1, mode)
    for d, mode in itertools.product(DTYPES, MODES):
        case("take_along_axis", take_along, f"@m_{d}", "@jm", 1, mode)
        case("take_along_axis", take_along, f"@m_{d}", "@jn", -1, mode)
    case("take_along_axis", take_along, "@m_float32", "@jn", 1, "fill")
    case("take_along_axis", take_along, "@m_float32", "@ib", 1, "fill")


PLACES = {"v": (["@ih"], ["@g"], ["@ib"]), "m": (["@ib", "@ib"], ["@ih", "@ih"], [False, "@if"], ["@ig", "@ip"],
          ["@ia", "@ib"], ["@ih"], ["@ik", "@ik"]),
          "t": (["@if", "@if", "@if"], ["@if", False, "@if"], [False, "@ih", "@ih"], ["@ib", "@ib"],
                [False, "@ip", "@if"]),
          "u": (["@ib", False, "@ib"], [False, "@ib", False, "@ib"], [False, False, "@ig"], ["@if", "@if", "@if", "@if"]),
          "e": (["@ib"], [False, False, "@ib"], [False, "@ik"], [False, "@ib"]), "s": (["@ib"],), "z": (["@ib"], ["@ik"]),
          "o": (["@ib"], ["@if"], ["@ih"])}
PLACES["v"] = (["@ih"], ["@ig"], ["@ib"], ["@ik"], ["@ip"])


def shape_of(s, ids):
    """The shape of x[ids]; numpy finds no element in a dim of 0, and does in one of 7."""
    x = np.zeros([n or 7 for n in SHAPES[s]])
    where = tuple(slice(None) if i is False else np.zeros(inputs[i[1:]].shape, "int32") for i in ids)
    return tuple(n % 7 for n in x[where].shape)


def scatters():
    for d, s in itertools.product(DTYPES, PLACES):
        for k, ids in enumerate(PLACES[s]):
            few = d != "float32"
            if few and k > 1:
                continue
            for mode in MODES if not few else (MODES[(k + len(d)) % 4],):
                case("at:get", at_get, f"@{s}_{d}", ids, mode)
            try:
                shape = shape_of(s, ids)
            except Exception:
                shape = (1,)
            with jax.enable_x64(True):
                u = put(f"u{'x'.join(map(str, shape))}_{d}", ramp((int(np.prod(shape)) + 3,), d)[3:].reshape(shape))
            for n, how in enumerate(HOW):
                modes = (MODES[(k + n) % 4],) if few else (MODES[(k + n) % 4], MODES[(k + n + 1) % 4])
                for mode in modes:
                    case("at:" + how, at_with(HOW[how]), f"@{s}_{d}", ids, u, mode)
                if k == 0:
                    case("at:" + how, at_with(HOW[how]), f"@{s}_{d}", ids, 1, "fill")
    for how in HOW:
        case("at:" + how, at_with(HOW[how]), "@m_float32", ["@ib"], "@v_float32", "fill")
        case("at:" + how, at_with(HOW[how]), "@m_float32", ["@ib"], "@c_float32", "fill")
        case("at:" + how, at_with(HOW[how]), "@m_float32", ["@ib", "@if"], 1, "fill")
        case("at:" + how, at_with(HOW[how]), "@x_float32", ["@ib"], "@o_float32", "fill")
        with jax.enable_x64(True):
            put("nan", jnp.asarray([1.0, np.nan, np.inf, -np.inf, 2.0], "float32"))
            put("inan", jnp.asarray([0, 1, 2, 3, 3], "int32"))
        case("at:" + how, at_with(HOW[how]), "@x_float32", ["@inan"], "@nan", "fill")
    for k, (d, how) in enumerate(itertools.product(DTYPES, HOW)):
        case("put_along_axis", put_along, f"@m_{d}", "@jn", 1, -1, how, MODES[k % 4])
        case("put_along_axis", put_along, f"@m_{d}", "@jm", f"@m_{d}", 1, how, MODES[(k + 1) % 4])


def segments():
    fns = {"segment_sum": jax.ops.segment_sum, "segment_prod": jax.ops.segment_prod,
           "segment_max": jax.ops.segment_max, "segment_min": jax.ops.segment_min}
    with jax.enable_x64(True):
        ids = {5: [1, 0, 1, -1, 4], 3: [0, 2, 0], 2: [1, 1], 1: [0], 0: [], 10: [0, 0, 1, 1, 2, 2, 3, 4, 4, 9]}
        for n, list_ in ids.items():
            put(f"n{n}", jnp.asarray(list_, "int32"))
    for (name, fn), d, (s, n), k in itertools.product(
            fns.items(), DTYPES, (("v", 5), ("m", 3), ("t", 2), ("u", 2), ("o", 1), ("z", 0), ("e", 2), ("c", 3)),
            (0, 1, 3)):
        if d not in ("float32", "int32") and (k != 3 or s in "tuco"):
            continue
        case(name, lambda x, i, k: fn(x, i, k), f"@{s}_{d}", f"@n{n}", k)
        if k == 3 and s in "vm":
            case(name, lambda x, i, k, mode: fn(x, i, k, mode=mode), f"@{s}_{d}", f"@n{n}", k, "clip")
    for name, fn in fns.items():
        for d in ("float32", "float64", "bfloat16"):
            case(name, lambda x, i, k: fn(x, i, k), f"@x_{d}", "@n10", 5)
        case(name, lambda x, i, k: fn(x, i, k), "@v_float32", "@n3", 3)


def orders():
    for d, s, n in itertools.product(DTYPES, SHAPES, (0, 1, 4, 30)):
        if d != "float32" and (n != 4 or s in "ocu"):
            continue
        case("nonzero", lambda x, n: places(jnp.nonzero(x, size=n)), f"@{s}_{d}", n)
        if n == 4:
            case("nonzero", lambda x, n, fill: places(jnp.nonzero(x, size=n, fill_value=fill)), f"@{s}_{d}", n, -1)
    kinds = ({}, {"index": True}, {"inverse": True}, {"counts": True}, {"index": True, "inverse": True, "counts": True})

    def unique(x, n, fill, o):
        y = jnp.unique(x, size=n, fill_value=None if fill is False else fill, return_index="index" in o,
                       return_inverse="inverse" in o, return_counts="counts" in o)
        return [y[0], *places(y[1:])] if o else y

    for d, s, n in itertools.product(DTYPES, list(SHAPES) + ["x", "w"], (1, 3, 12)):
        if f"{s}_{d}" not in inputs or d not in ("float32", "int32") and (n != 3 or s in "ocu"):
            continue
        for fill in (False, 1):
            o = kinds[len(cases) % 5]
            case("unique", lambda x, n, fill: unique(x, n, fill, o), f"@{s}_{d}", n, fill)
            cases[-1][1].append(o)
    for d, (a, v), side in itertools.product(
            DTYPES, [a.split() for a in ("q v", "q m", "q s", "q z", "o m", "z v", "q q", "y x", "y y")],
            ("left", "right")):
        if f"{a}_{d}" in inputs and f"{v}_{d}" in inputs:
            case("searchsorted", lambda a, v, side: jnp.searchsorted(a, v, side=side), f"@{a}_{d}", f"@{v}_{d}", side)
    case("searchsorted", jnp.searchsorted, "@q_int32", "@v_float32")
    case("searchsorted", jnp.searchsorted, "@m_int32", "@v_float32")
    case("searchsorted", jnp.searchsorted, "@q_float32", 0.25)
    with jax.enable_x64(True):
        for d in DTYPES:
            put(f"d_{d}", jnp.asarray(np.asarray(ramp((3, 4), d)).astype("float64").round() % 2, d))
    for d, s in itertools.product(("float32", "int32"), SHAPES):
        case("lexsort", lambda k: places(jnp.lexsort(k)), [f"@{s}_{d}", f"@{s}_{d}"])
        case("lexsort", lambda k, axis: places(jnp.lexsort(k, axis=ax(axis))), [f"@{s}_{d}"], 1)
    for d, axis in itertools.product(DTYPES, (1, 2, -1, 3)):
        case("lexsort", lambda k, axis: places(jnp.lexsort(k, axis=ax(axis))), [f"@m_{d}", f"@d_{d}", "@d_int32"], axis)
    case("lexsort", lambda k: places(jnp.lexsort(k)), ["@x_float32", "@x_float32"])
    with jax.enable_x64(True):
        for n in (0, 1, 2, 3, 4, 5):
            put(f"k{n}", jnp.arange(n) % 3 != 1)
    for d, (s, n, axis), size in itertools.product(
            DTYPES, (("v", 5, 1), ("m", 3, 1), ("m", 4, 2), ("t", 2, 3), ("u", 1, 2), ("z", 0, 1), ("o", 1, 1)), (1, 4)):
        if size > n and d != "float32":
            continue
        case("compress", lambda x, k, size, axis: jnp.compress(k, x, size=size, axis=ax(axis)), f"@{s}_{d}", f"@k{n}",
             size, axis)


def top_k(x, k, axis):
    found = jax.lax.top_k(jnp.moveaxis(x, ax(axis), -1), k)
    return [jnp.moveaxis(y, -1, ax(axis)) for y in found]


def sorts():
    for d, (s, axis) in itertools.product(
            DTYPES, (("v", 1), ("m", 1), ("m", -1), ("c", 1), ("u", 3), ("z", 1), ("o", 1), ("e", 3), ("s", -1),
                     ("x", 1), ("v", 2))):
        if f"{s}_{d}" not in inputs or d not in ("float32", "int32", "bfloat16") and s in "cuzoe":
            continue
        for down in (False, True):
            case("sort", lambda x, axis, down: jnp.sort(x, axis=ax(axis), descending=down), f"@{s}_{d}", axis, down)
            case("argsort", lambda x, axis, down: places(jnp.argsort(x, axis=ax(axis), descending=down)), f"@{s}_{d}",
                 axis, down)
        for k in (0, 2, 9):
            case("top_k", top_k, f"@{s}_{d}", k, axis)


for part in (gathers, scatters, segments, orders, sorts):
    if part.__name__ in (sys.argv[1:] or part.__name__):
        part()
used = {n for _, args, _ in cases for n in names_in(args)}
print('{"jax": "%s", "inputs": {' % jax.__version__)
print(",\n".join(json.dumps(k) + ":" + json.dumps([str(x.dtype), list(x.shape), flat(x)], separators=(",", ":"))
                 for k, x in inputs.items() if k in used))
print('}, "cases": [')
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]}")
print(len(cases), "cases", sum(c[2] == "error" for c in cases), "errors", file=sys.stderr)
