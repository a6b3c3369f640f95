"""What jax.numpy makes of small integers, uint64 and 8-bit floats, for tests/spec/storage_spec.lua.

    python tests/oracle/storage.py > tests/oracle/storage.json

Bytes are hexadecimal. values[dtype]: the elements that all cases of a dtype take. cases: {name, dtype, result, hex}; of
one operand the values, of two every value with every other. products: of drawn matrices, with the dtype asked for.
narrow[dtype]: what float16's 65536 numbers, and float32's between any two neighbours, become: a sum over the words
(see the spec), NaN as one word; widened: the float32 of all 256.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

warnings.filterwarnings("ignore")
INTS = ["int8", "int16", "uint16", "uint64"]
FLOATS = ["float8_e4m3fn", "float8_e5m2"]


def words(dtype):
    return np.arange(256, dtype=np.uint8).view(dtype)


def values(dtype):
    if dtype in FLOATS:
        return np.concatenate([words(dtype)[[0, 1, 3, 8, 0x30, 0x38, 0x39, 0x3c, 0x40, 0x45, 0x5a, 0x7b, 0x7c, 0x7e, 0x7f]],
                               words(dtype)[[0x80, 0x82, 0xb8, 0xc1, 0xd7, 0xfb]]])
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return np.array([0, 1, 2, 3, 7, 100, high // 2 + 1, high - 1, high]
                    + ([-1, -2, -3, -100, low + 1, low] if low else []), dtype)


def shape_of_cumulative(f):
    return lambda x: f(x, axis=0)


BINARY = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "maximum": jnp.maximum,
          "minimum": jnp.minimum, "rem": jax.lax.rem, "mod": jnp.mod, "floor_divide": jnp.floor_divide,
          "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater,
          "ge": jnp.greater_equal}
BITS = {"bitand": jnp.bitwise_and, "bitor": jnp.bitwise_or, "bitxor": jnp.bitwise_xor, "shl": jnp.left_shift,
        "shr": jnp.right_shift}
UNARY = {"neg": jnp.negative, "abs": jnp.abs, "sign": jnp.sign, "square": jnp.square,
         "sort": jnp.sort, "argsort": jnp.argsort, "cumsum": shape_of_cumulative(jnp.cumsum),
         "cumprod": shape_of_cumulative(jnp.cumprod), "cummax": shape_of_cumulative(jax.lax.cummax),
         "cummin": shape_of_cumulative(jax.lax.cummin), "sum": jnp.sum, "prod": jnp.prod, "max": jnp.max,
         "min": jnp.min, "argmax": jnp.argmax, "argmin": jnp.argmin}
ROUNDED = {"floor": jnp.floor, "ceil": jnp.ceil, "round": jnp.round, "sqrt": jnp.sqrt, "isfinite": jnp.isfinite}


def hexed(x):
    return np.asarray(x).tobytes().hex()


def case(name, dtype, f, *args):
    try:
        y = f(*args)
    except (TypeError, ValueError) as e:
        return {"name": name, "dtype": dtype, "error": str(e).split("\n")[0][:80]}
    return {"name": name, "dtype": dtype, "result": str(y.dtype), "hex": hexed(y)}


def cases():
    for dtype in INTS + FLOATS:
        with jax.enable_x64(dtype == "uint64"):
            x = jnp.asarray(values(dtype))
            assert str(x.dtype) == dtype
            a, b = jnp.broadcast_arrays(x[:, None], x[None, :])
            binary, unary = dict(BINARY), dict(UNARY)
            (binary if dtype in INTS else unary).update(BITS if dtype in INTS else ROUNDED)
            for name, f in binary.items():
                yield case(name, dtype, f, a, b)
            finite = x[~jnp.isnan(x)] if dtype in FLOATS else x
            for name, f in unary.items():
                yield case(name, dtype, f, finite if name in ("argmax", "argmin", "argsort") else x)


def products():
    rng = np.random.default_rng(20)
    for dtype, wanted in [(d, w) for d in INTS for w in [None, d, "int32", "uint32", "int64", "uint64", "float32"]] + \
            [(d, w) for d in FLOATS + ["bfloat16"] for w in [None, "float32", "bfloat16", "float16", "float64", "int32"]] + \
            [("int32", "int64"), ("int32", "int8"), ("float32", "bfloat16"), ("float32", "float64"), ("uint8", "uint32"),
             ("uint8", "int32"), ("float16", "float32")]:
        with jax.enable_x64("64" in dtype or "64" in str(wanted)):
            if "float" in dtype:
                x, w = (jnp.asarray(rng.normal(size=s) * 4, dtype) for s in ((3, 5), (5, 4)))
            else:
                i = np.iinfo(dtype)
                x, w = (jnp.asarray(rng.integers(i.min, i.max, s, dtype, True)) for s in ((3, 5), (5, 4)))
            c = case("matmul", dtype, lambda: jnp.matmul(x, w, preferred_element_type=wanted))
            yield c | {"wanted": wanted, "x": hexed(x), "w": hexed(w)}


def total(codes):
    """A sum that says where a word stands, modulo 2^64."""
    t = 0
    for c in codes.tolist():
        t = (t * 31 + c + 1) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % t


def narrowed(x, dtype):
    y = jnp.asarray(x).astype(dtype)
    assert np.array_equal(np.isnan(np.asarray(y, np.float32)), np.isnan(np.asarray(x.astype(dtype), np.float32)))
    codes = np.asarray(y).view(np.uint8).copy()
    codes[np.isnan(np.asarray(y).astype(np.float32))] = 255
    return total(codes)


def narrow():
    out = {}
    halves = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    for dtype in FLOATS:
        w = words(dtype).astype(np.float32)
        rising = np.sort(w[np.isfinite(w) & (w >= 0)])
        middle = (rising[1:] + rising[:-1]) / 2
        near = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))])
        out[dtype] = {"widened": hexed(w), "halves": narrowed(halves, dtype), "near": hexed(near),
                      "rounded": narrowed(near, dtype), "doubles": narrowed(near.astype(np.float64), dtype)}
    return out


with jax.enable_x64(True):
    rounded = narrow()
parts = {"jax": jax.__version__, "ml_dtypes": ml_dtypes.__version__,
         "values": {d: hexed(values(d)) for d in INTS + FLOATS}, "narrow": rounded, "cases": list(cases()),
         "products": list(products())}
print("{\n" + ",\n".join(json.dumps(k) + ":" + ("[\n" + ",\n".join(json.dumps(c) for c in v) + "\n]"
                         if isinstance(v, list) else json.dumps(v)) for k, v in parts.items()) + "\n}")
