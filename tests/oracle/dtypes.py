"""How jax.numpy's dtypes meet and convert, for tests/spec/dtype_spec.lua.

    python tests/oracle/dtypes.py > tests/oracle/dtypes.json

divisions[a]: the x of x op y for y among them, too; by rows of x.
meet[a][b]: the dtype of a sum (of two bools: a maximum), with 64-bit types off, but on where one takes part; null where
JAX refuses.
with_integer[a], with_float[a]: with a Python number. casts: lists of values of one dtype as another.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np

warnings.filterwarnings("ignore")
SHORT = ["bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "float8_e4m3fn", "float8_e5m2", "bfloat16",
         "float16", "float32"]
LONG = ["uint64", "int64", "float64"]
OWN = [d for d in SHORT if "float8" in d or d == "bfloat16"]  # numpy has none of them


def meet(a, b):
    with jax.enable_x64(a in LONG or b in LONG):
        x, y = jnp.zeros(1, a), jnp.zeros(1, b)
        assert str(x.dtype) == a and str(y.dtype) == b
        try:
            return str(jnp.maximum(x, y).dtype if a == b == "bool" else jnp.add(x, y).dtype)
        except ValueError:
            return None


def words(x):
    """Floats as text, so that NaN, infinities and zeros of both signs survive."""
    return [str(v) if isinstance(v, (bool, int)) else repr(float(v)) for v in x.tolist()]


FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -0.9, 0.999, 1e-8, 3.14159, 100.25, 127.9, 200.0, -100.75, -1.0,
          254.5, 255.0, 255.5, 256.0, 257.0, 300.0, -255.0, -256.0, 512.0, 1025.0, 65504.0, 65519.0, 65519.99999999,
          65520.0, 65536.0, 1e5, -1e5, 2049.0, 2051.0, 16777215.0, 2147483520.0, 2147483647.0, 2147483648.0,
          2147483649.0, -2147483648.0, -2147483649.0, -2147483904.0, 4294967040.0, 4294967295.0, 4294967296.0,
          4294967551.0, 2.0**53 + 2, 9223371487098961920.0, 2.0**63, -2.0**63, -2.0**63 - 2048, 2.0**64, 1e20, -1e20,
          3e38, -3e38, 3.3895e38, 3.3961775e38, 3.4028235e38, 3.4028236e38, 1e39, -1e39, 1.79e308, 5.96e-8, 2.98e-8,
          2.99e-8, 1e-40, 1e-46, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50,
          float("inf"), float("-inf"), float("nan")]
INTEGERS = [0, 1, -1, 127, 128, 200, 255, 256, 257, -128, -129, -255, -256, -257, 2049, 2051, 65519, 65520, 65536,
            16777217, 16777219, 0x1010001, 2**31 - 1, 2**31, 2**31 + 1, -2**31, -2**31 - 1, 4294967040, 2**32 - 1,
            2**32, 2**32 + 1, -2**32, 2**53 + 1, 2**60 + 2**36, 2**60 + 2**36 + 1, 2**63 - 1, -2**63, -2**63 + 1]


def casts():
    """Every dtype as every other; numbers that the target lacks among them."""
    out = []
    for source in SHORT + LONG:
        values = FLOATS if "float" in source else INTEGERS
        x = jnp.asarray(np.array(values).astype(source)) if source not in OWN else jnp.asarray(values, source)
        if "float" not in source:
            x = jnp.asarray(np.unique(np.asarray(x)))
        elif source != "float16" and "float8" not in source:  # XLA on a CPU takes float32 below the normal numbers for zero
            v = np.asarray(x)
            x = jnp.asarray(v[(v == 0) | ~(abs(v) < 2.0**-126)])
        for to in SHORT + LONG:
            out.append({"from": source, "to": to, "values": words(x), "results": words(x.astype(to))})
    return out


def divisions():
    """Integers divided by each other, by zero and the lowest by -1 among them."""
    fns = {"rem": jax.lax.rem, "mod": jnp.mod, "floor_divide": jnp.floor_divide}
    out = {}
    for dtype in ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"]:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        values = [0, 1, 2, 3, 7, 100, high - 1, high] + ([-1, -2, -3, -7, -100, low + 1, low] if low else [])
        x, y = jnp.broadcast_arrays(jnp.array(values, dtype)[:, None], jnp.array(values, dtype)[None, :])
        out[dtype] = {"x": values} | {name: fn(x, y).tolist() for name, fn in fns.items()}
    return out


def with_number(number):
    return {a: str((jnp.zeros(1, a) + number).dtype) for a in SHORT}


def functions():
    """The dtypes of results; null where jax.numpy does not take the dtype."""
    fns = {"sin": jnp.sin, "exp": jnp.exp, "sqrt": jnp.sqrt, "sigmoid": jax.nn.sigmoid, "mean": jnp.mean,
           "var": jnp.var, "std": jnp.std, "softmax": jax.nn.softmax, "logsumexp": jax.nn.logsumexp,
           "div": lambda x: x / x, "argmax": jnp.argmax, "isfinite": jnp.isfinite, "eq": lambda x: x == x,
           "tanh": jnp.tanh, "log": jnp.log}

    def result(fn, dtype):
        try:
            return str(fn(jnp.ones(2, dtype)).dtype)
        except TypeError:
            return None

    return {name: {a: result(fn, a) for a in SHORT} for name, fn in fns.items()}


parts = {
    "jax": jax.__version__,
    "meet": {a: {b: meet(a, b) for b in SHORT + LONG} for a in SHORT + LONG},
    "with_integer": with_number(1),
    "with_float": with_number(1.0),
    "functions": functions(),
}
with jax.enable_x64(True):
    parts["casts"], parts["divisions"] = casts(), divisions()
lines = []
for name, part in parts.items():  # one line per entry of a part
    if isinstance(part, dict):
        rows = ",\n".join(json.dumps(k) + ":" + json.dumps(v) for k, v in part.items())
        lines.append('"%s":{\n%s\n}' % (name, rows))
    elif isinstance(part, list):
        lines.append('"%s":[\n%s\n]' % (name, ",\n".join(json.dumps(v) for v in part)))
    else:
        lines.append('"%s":%s' % (name, json.dumps(part)))
print("{\n%s\n}" % ",\n".join(lines))
