"""Numbers of jax.random for tests/spec/random_spec.lua.

    python tests/oracle/jax_random.py > tests/oracle/jax_random.json

Each case has the bits of up to 64 elements, spread evenly over the result from its first to its last one (of
more than 64, numbers i * (n - 1) // 63), and a hash of all: FNV-1a of 64 bits over whole elements, as unsigned
words in row-major order.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_threefry_partitionable", True)

WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
cases = []


def fnv1a(words):
    h = 0xCBF29CE484222325
    for w in words.tolist():
        h = ((h ^ w) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def add(fn, x, seed, **args):
    """One case: jax.random.<fn> of key(seed) gave x."""
    x = np.asarray(x)
    words = np.ascontiguousarray(x).reshape(-1).view(WORDS[x.dtype.itemsize])
    n = words.size
    places = [i * (n - 1) // 63 for i in range(64)] if n > 64 else list(range(n))
    cases.append({
        "fn": fn, "seed": seed, "dtype": str(x.dtype), "shape": list(x.shape), "args": args,
        # As text: a double does not hold 64 bits.
        "samples": ["%x" % w for w in words[places].tolist()],
        "hash": fnv1a(words),
    })


def float_cases():
    r = jax.random
    for dtype, shapes in {
        "float32": [(), (1,), (7,), (3, 5), (64, 24), (8, 3, 16), (999,), (1024, 1024)],
        "float16": [(), (1000,), (64, 24)],
        "bfloat16": [(), (1000,), (64, 24)],
        "float64": [(), (1000,), (64, 24)],
    }.items():
        with jax.enable_x64(dtype == "float64"):
            for i, shape in enumerate(shapes):
                add("uniform", r.uniform(r.key(i), shape, dtype), i)
                add("normal", r.normal(r.key(i), shape, dtype), i)
            shape = shapes[-2] if dtype == "float32" else shapes[-1]
            for low, high in [(-1.0, 1.0), (0.25, 0.75), (5.0, 6.0), (-0.1, 0.3), (-3.0, 100.0)]:
                add("uniform", r.uniform(r.key(11), shape, dtype, low, high), 11, low=low, high=high)
            for low, high in [(-2.0, 2.0), (0.5, 1.5), (-0.25, 3.0)]:
                x = r.truncated_normal(r.key(12), low, high, shape, dtype)
                add("truncated_normal", x, 12, low=low, high=high)
            add("gumbel", r.gumbel(r.key(13), shape, dtype), 13)


def word_cases():
    r = jax.random
    for i, shape in enumerate([(), (1,), (7,), (3, 5), (64, 24), (8, 3, 16), (999,), (1024, 1024)]):
        add("bits", r.bits(r.key(i), shape), i)
    add("bits", r.bits(r.key(3), (64, 24), "uint8"), 3, width=8)
    with jax.enable_x64(True):
        add("bits", r.bits(r.key(3), (64, 24), "uint64"), 3, width=64)
    ranges = [(0, 10), (-5, 1000003), (0, 65536), (-7, -6), (0, 2**31 - 1), (-2**31, 2**31 - 1)]
    for i, (low, high) in enumerate(ranges):
        add("randint", r.randint(r.key(i), (64, 24), low, high), i, low=low, high=high)
    add("randint", r.randint(r.key(9), (), -3, 3), 9, low=-3, high=3)
    add("randint", r.randint(r.key(9), (1024, 1024), -1000, 1000), 9, low=-1000, high=1000)
    for i, (low, high) in enumerate([(0, 256), (0, 10), (5, 200), (1, 256), (0, 255), (17, 18), (100, 228)]):
        add("randint", r.randint(r.key(9 + i), (1000,), low, high, "uint8"), 9 + i, low=low, high=high, dtype="uint8")
    with jax.enable_x64(True):  # for bounds that int32 does not hold
        wide = {
            "uint32": [(0, 10), (5, 4000000000), (0, 2**32 - 1), (0, 2**32), (2**31, 2**31 + 7)],
            "int32": [(-2**31, 2**31), (-3, 1000)],
            "int64": [(0, 10), (-5, 1000003), (0, 2**32), (-2**40, 2**40 + 1), (0, 2**62 + 12345), (-2**62, 2**62),
                      (0, 2**63 - 1), (-2**63, 2**63 - 1), (-2**62 - 9, 2**62 + 5), (2**62, 2**62 + 1)],
        }
        for dtype, ranges in wide.items():
            for i, (low, high) in enumerate(ranges):
                x = r.randint(r.key(9 + i), (1000,), low, high, dtype)
                add("randint", x, 9 + i, low=low, high=high, dtype=dtype)
    for p in [0.0, 0.1, 0.5, 0.9, 1.0]:
        add("bernoulli", r.bernoulli(r.key(4), p, (64, 24)), 4, p=p)
    for dtype in ["float32", "bfloat16", "float16"]:
        p = (jnp.arange(64) / 64).astype(dtype)
        add("bernoulli", r.bernoulli(r.key(4), p), 4, p_dtype=dtype)


def key_cases():
    r = jax.random
    with jax.enable_x64(True):  # so that a seed has its 64 bits
        for seed in [0, 1, 42, 2**31 - 1, 2**32 - 1, 2**40 + 5, -1, -2**40]:
            add("key", r.key_data(r.key(seed)), seed)
    for n in [1, 2, 3, 1000]:
        add("split", r.key_data(r.split(r.key(7), n)), 7, n=n)
    for data in [0, 1, 12345, 2**31 - 1, 2**32 - 1]:
        add("fold_in", r.key_data(r.fold_in(r.key(7), data)), 7, data=data)


def order_cases():
    r = jax.random
    for n in [1, 2, 10, 1000, 65537, 2**20]:
        add("permutation", r.permutation(r.key(n), n), n, n=n)
    add("permutation", r.permutation(r.key(5), jnp.arange(60.0).reshape(20, 3)), 5, rows=[20, 3])
    logits = jnp.sin(jnp.arange(60.0)).reshape(3, 4, 5)
    for axis in [0, 1, 2]:
        add("categorical", r.categorical(r.key(6), logits, axis), 6, axis=axis)
    add("categorical", r.categorical(r.key(6), logits[0, 0], shape=(4096,)), 6, shape=[4096])
    add("categorical", r.categorical(r.key(6), logits, 1, (100, 3, 5)), 6, axis=1, shape=[100, 3, 5])


float_cases()
word_cases()
key_cases()
order_cases()
lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
print('{"jax":"%s","threefry_partitionable":true,"cases":[\n%s\n]}' % (jax.__version__, lines))
