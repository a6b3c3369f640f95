"""How jax.numpy's dtypes meet and convert, for tests/spec/dtype_spec.lua.

    python tests/oracle/dtypes.py > tests/oracle/dtypes.json

meet[a][b]: the dtype of a sum (of two bools: a maximum), with 64-bit types off, but on where one takes part.
with_integer[a], with_float[a]: with a Python number. casts: lists of values of one dtype as another.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np

warnings.filterwarnings("ignore")
SHORT = ["bool", "uint8", "uint32", "int32", "bfloat16", "float16", "float32"]
LONG = ["int64", "float64"]


def meet(a, b):
    with jax.enable_x64(a in LONG or b in LONG):
        x, y = jnp.zeros(1, a), jnp.zeros(1, b)
        assert str(x.dtype) == a and str(y.dtype) == b
        return str(jnp.maximum(x, y).dtype if a == b == "bool" else jnp.add(x, y).dtype)


def words(x):
    """Floats as text, so that NaN, infinities and zeros of both signs survive."""
    return [str(v) if isinstance(v, (bool, int)) else repr(float(v)) for v in x.tolist()]


FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -0.9, 0.999, 1e-8, 3.14159, 100.25, 127.9, 200.0, 255.0, -100.75,
          1024.0, 1025.0, 65504.0, 65519.0, 65520.0, 1e5, -1e5, 2049.0, 2051.0, 16777215.0, 2147483520.0,
          -2147483648.0, 3e38, -3e38, 5.96e-8, 2.98e-8, 2.99e-8, 1e-40, float("inf"), float("-inf"), float("nan")]
INSIDE = {"uint8": (-0.99, 255.99), "uint32": (-0.99, 4294967040.0), "int32": (-2147483648.0, 2147483520.0)}
INTEGERS = {"int32": [0, 1, -1, 127, 128, 255, 256, -128, -129, 2049, 2051, 16777217, 16777219, 2147483647, -2147483648],
            "uint32": [0, 1, 255, 256, 257, 16777217, 16777219, 2147483648, 4294967295, 4294967040],
            "uint8": [0, 1, 127, 128, 255], "bool": [False, True]}


def casts():
    out = []

    def add(x, to):
        out.append({"from": str(x.dtype), "to": to, "values": words(x), "results": words(x.astype(to))})

    for source in ["float32", "bfloat16", "float16"]:
        for to in SHORT:
            x = jnp.asarray(FLOATS, source)
            if to == "bool":  # XLA on a CPU takes numbers below the normal ones for zeros there
                x = jnp.asarray([v for v in FLOATS if v != 1e-40], source)
            if to in INSIDE:  # outside an integer's range XLA promises nothing
                low, high = INSIDE[to]
                x = x[(x.astype("float32") > low) & (x.astype("float32") <= high)]
            add(x, to)
    for source, values in INTEGERS.items():
        for to in SHORT:
            add(jnp.asarray(np.array(values, source)), to)
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
    "casts": casts(),
}
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
