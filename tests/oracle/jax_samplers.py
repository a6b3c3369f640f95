"""Draws of jax.random for tests/spec/samplers_spec.lua: those of distributions with parameters.

    python tests/oracle/jax_samplers.py > tests/oracle/jax_samplers.json

A case has the call's arguments, and all elements of the result as hexadecimal words in row-major order.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_threefry_partitionable", True)
WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
r, cases = jax.random, []


def add(fn, seed, args, draw, dtype="float32"):
    """args: what the script gives behind the key, tables as tensors of the dtype."""
    with jax.enable_x64(dtype == "float64"):
        x = np.asarray(draw(r.key(seed)))
    size = x.dtype.itemsize
    words = np.ascontiguousarray(x).reshape(-1).view(WORDS[size])
    cases.append({"fn": fn, "seed": seed, "args": args, "of": dtype, "dtype": str(x.dtype), "shape": list(x.shape),
                  "words": "".join("%0*x" % (2 * size, w) for w in words.tolist())})


for dtype, n in (("float32", 600), ("float64", 100), ("bfloat16", 100)):
    add("exponential", 1, [], lambda k: r.exponential(k, (n,), dtype), dtype)
    add("laplace", 2, [], lambda k: r.laplace(k, (n,), dtype), dtype)

shapes = [0.01, 0.3, 0.999, 1.0, 1.7, 5.0, 40.0, 1000.0]
for dtype, n in (("float32", 250), ("float64", 20)):
    a, b = np.asarray(shapes, dtype), np.asarray(shapes[::-1], dtype)
    for fn in ("gamma", "loggamma"):
        add(fn, 3, [shapes, [n, 8]], lambda k: getattr(r, fn)(k, jnp.asarray(a), (n, 8), dtype), dtype)
    add("beta", 4, [shapes, shapes[::-1], [n // 2, 8]],
        lambda k: r.beta(k, jnp.asarray(a), jnp.asarray(b), (n // 2, 8), dtype), dtype)
    add("dirichlet", 5, [shapes, [n // 2]], lambda k: r.dirichlet(k, jnp.asarray(a), (n // 2,), dtype), dtype)
add("gamma", 6, [2.5], lambda k: r.gamma(k, 2.5))

rates = [0.0, 0.5, 3.0, 9.99, 10.0, 17.5, 60.0, 200.0]
add("poisson", 7, [rates, [400, 8]], lambda k: r.poisson(k, jnp.asarray(rates), (400, 8)))
add("poisson", 8, [4.0], lambda k: r.poisson(k, 4.0))

rows = jnp.arange(24.0).reshape(6, 4)
p = [0.1, 0.0, 0.4, 0.2, 0.25, 0.05]
add("choice", 9, [1000, [40, 5]], lambda k: r.choice(k, 1000, (40, 5)))
add("choice", 10, ["rows", [7]], lambda k: r.choice(k, rows, (7,)))
add("choice", 11, ["rows", [2, 2], False], lambda k: r.choice(k, rows, (2, 2), False))
add("choice", 12, ["rows", [2], False, "none", 2], lambda k: r.choice(k, rows, (2,), False, None, 1))
add("choice", 13, [6, [600], True, p], lambda k: r.choice(k, 6, (600,), True, jnp.asarray(p)))
add("choice", 14, [6, [4], False, p], lambda k: r.choice(k, 6, (4,), False, jnp.asarray(p)))
add("choice", 15, ["rows", [3, 2], True, p, 1], lambda k: r.choice(k, rows, (3, 2), True, jnp.asarray(p), 0))
add("choice", 16, [6], lambda k: r.choice(k, 6))

print('{"jax":"%s","cases":[\n%s\n]}' % (
    jax.__version__, ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)))
