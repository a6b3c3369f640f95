"""Numbers of jax.numpy.linalg and jax.lax.linalg for tests/spec/linalg_spec.lua: values, and gradients of the sum of
their product with `ramp`, of functions that do not see signs of vectors.

    python tests/oracle/linalg.py > tests/oracle/linalg.json

Inputs come from `ramp`, which both sides compute exactly.
"""

import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
LA = jnp.linalg


def ramp(*shape, dtype="float64"):
    """Numbers in [-1, 1] that look irregular: (37 i mod 101 - 50) / 50."""
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0, dtype).reshape(shape)


def definite(x):
    return x @ jnp.swapaxes(x, -1, -2) + 0.5 * jnp.eye(x.shape[-2], dtype=x.dtype)


def signed_qr(x, mode):
    q, r = LA.qr(x, mode)
    s = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    k = s.shape[-1]
    return q[..., :k] * s[..., None, :], r[..., :k, :] * s[..., :, None]


def eigh(x):
    w, v = LA.eigh(x)
    return w, v * v


def svd(x, full):
    u, s, vt = LA.svd(x, full_matrices=full)
    return u * u, s, vt * vt


def triangular(left, lower, transpose, unit):
    return lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit)


def singular(x):
    """The last row is the first."""
    return x.at[..., -1, :].set(x[..., 0, :])


FUNCTIONS = {
    "cholesky": lambda x: LA.cholesky(definite(x)),
    "cholesky upper": lambda x: LA.cholesky(definite(x), upper=True),
    "cholesky indefinite": lambda x: LA.cholesky(x),
    "solve": LA.solve,
    "solve singular": lambda a, b: LA.solve(jnp.zeros_like(a), b),
    "inv": LA.inv,
    "det": LA.det,
    "det singular": lambda x: LA.det(singular(x)),
    "slogdet": LA.slogdet,
    "slogdet singular": lambda x: LA.slogdet(jnp.zeros_like(x)),
    "lu": lax.linalg.lu,
    "qr": lambda x: signed_qr(x, "reduced"),
    "qr complete": lambda x: signed_qr(x, "complete"),
    "eigh": eigh,
    "svd": lambda x: svd(x, False),
    "svd full": lambda x: svd(x, True),
    "svdvals": lambda x: LA.svd(x, compute_uv=False),
    **{"triangular_solve " + word: triangular(*[bit == "1" for bit in word])
       for word in (f"{n:04b}" for n in range(16))},
}

NO_GRADIENT = {"cholesky indefinite", "solve singular", "det singular", "slogdet singular", "qr complete", "svd full"}
SQUARE = [[(1, 1)], [(4, 4)], [(2, 4, 4)], [(2, 0, 0)]]
ANY = SQUARE + [[(4, 2)], [(2, 4)], [(2, 3, 5)], [(3, 0)]]
SHAPES = {
    **{name: SQUARE for name in FUNCTIONS},
    **{name: SQUARE[1:2] for name in FUNCTIONS if "singular" in name},
    **{name: ANY for name in ("lu", "qr", "qr complete", "svd", "svd full", "svdvals")},
    **{name: [[(2, 3, 3), (2, 3, 3)]] for name in FUNCTIONS if "triangular" in name},
    "solve": [[(3, 3), (3, 2)], [(2, 3, 3), (3,)], [(2, 3, 3), (2, 3, 2)], [(0, 0), (0, 2)], [(2, 3, 3), (2, 3, 0)]],
    "solve singular": [[(2, 2), (2, 1)]],
    "triangular_solve 1000": [[(3, 3), (3, 2)], [(0, 0), (0, 2)]],
    "triangular_solve 0100": [[(3, 3), (2, 3)]],
}


def plain(x):
    words = {math.inf: "inf", -math.inf: "-inf"}
    digits = 17 if x.dtype == jnp.float64 else 9
    return [words.get(v, "nan" if v != v else float(f"{v:.{digits}g}"))
            for v in np.asarray(x, "float64").ravel().tolist()]


def case(name, shapes, dtype):
    fn = FUNCTIONS[name]
    inputs = [ramp(*s, dtype=dtype) for s in shapes]
    if name.startswith("triangular") or name in ("solve", "inv", "det", "slogdet"):
        inputs[0] = inputs[0] + 2 * jnp.eye(shapes[0][-1], dtype=dtype)
    results = fn(*inputs)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    out = {"name": name, "shapes": shapes, "dtype": dtype,
           "results": [{"shape": list(y.shape), "dtype": str(y.dtype), "values": plain(y)} for y in results]}
    wide = name == "qr" and shapes[0][-1] > shapes[0][-2]
    if dtype == "float64" and name not in NO_GRADIENT and not wide and all(0 not in s for s in shapes):
        def total(*a):
            ys = fn(*a)
            ys = ys if isinstance(ys, (tuple, list)) else [ys]
            return sum(jnp.sum(y * ramp(*y.shape)) for y in ys if y.dtype == jnp.float64)
        out["gradients"] = [plain(g) for g in jax.grad(total, tuple(range(len(inputs))))(*inputs)]
    return out


def normal(mean, cov, shape, dtype):
    x = jax.random.multivariate_normal(jax.random.key(7), ramp(*mean, dtype=dtype), definite(ramp(*cov, dtype=dtype)),
                                       shape, dtype=dtype)
    return {"mean": mean, "cov": cov, "asked": shape, "dtype": dtype, "shape": list(x.shape), "values": plain(x)}


if __name__ == "__main__":
    jax.config.update("jax_threefry_partitionable", True)
    json.dump({
        "jax": jax.__version__,
        "cases": [case(name, shapes, dtype) for name in FUNCTIONS for shapes in SHAPES[name]
                  for dtype in ("float64", "float32")
                  if dtype == "float64" or (len(shapes[0]) == 3 and "triang" not in name)],
        "normal": [normal((3,), (3, 3), None, "float64"), normal((3,), (3, 3), (5,), "float32"),
                   normal((2, 3), (3, 3), None, "float32"), normal((3,), (2, 3, 3), (4, 2), "float64")],
    }, sys.stdout, separators=(",", ":"))
    print()
