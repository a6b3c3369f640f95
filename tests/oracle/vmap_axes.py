"""Collectives over the examples of a vmap, by JAX. Writes tests/oracle/vmap_axes.json, which
tests/spec/transform/vmap_axes_spec.lua compares; the programs there have the same names.

    python -m venv venv && venv/bin/pip install jax==0.10.2
    venv/bin/python tests/oracle/vmap_axes.py
"""
import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)
X = jnp.sin(jnp.arange(16.0).reshape(4, 4))


def listed(v):
    return {"shape": list(v.shape), "values": [float(f"{x:.12g}") for x in np.asarray(v).ravel()]}


def norm(x):
    m = lax.pmean(x, "i")
    return (x - m) / jnp.sqrt(lax.pmean((x - m) ** 2, "i") + 1e-5)


def looped(x):
    def body(c, _):
        c = jnp.tanh(c + lax.pmean(c, "i") * x)
        return c, lax.psum(c, "i")
    c, ys = lax.scan(body, x, None, length=3)
    return c + ys.sum(0)


PROGRAMS = {
    "psum": lambda x: lax.psum(x, "i") * x,
    "psum_same": lambda x: lax.psum(2.0, "i") + x,
    "norm": norm,
    "pmax": lambda x: lax.pmax(x, "i") - lax.pmin(x, "i") + x,
    "all_gather": lambda x: lax.all_gather(x, "i", axis=1) * x[:, None],
    "all_gather_tiled": lambda x: lax.all_gather(x, "i", tiled=True) * x[0],
    "psum_scatter": lambda x: lax.psum_scatter(jnp.outer(x[:4], x), "i"),
    "psum_scatter_tiled": lambda x: lax.psum_scatter(jnp.outer(x, x[:4]), "i", scatter_dimension=1, tiled=True),
    "all_to_all": lambda x: lax.all_to_all(jnp.outer(x, x[:4]), "i", 1, 0),
    "all_to_all_tiled": lambda x: lax.all_to_all(jnp.outer(x, x[:4]), "i", 1, 0, tiled=True),
    "ppermute": lambda x: lax.ppermute(x * x, "i", [(0, 1), (1, 3), (3, 2), (2, 0)]) + x,
    "axis_index": lambda x: x * lax.axis_index("i") + lax.psum(1, "i"),
    "looped": looped,
    "branched": lambda x: lax.cond(lax.axis_index("i") > 1, lambda v: v * 2, lambda v: v * v, lax.psum(x, "i")),
}

out = {"jax": jax.__version__}
for name, f in PROGRAMS.items():
    y = jax.vmap(f, axis_name="i")(X)

    def one(x, f=f):
        y = f(x)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size * 1.0)).reshape(y.shape))
    case = {"y": y}
    if name not in ("pmax", "all_to_all", "all_to_all_tiled"):  # what JAX 0.10.2 cannot transpose
        case["inside"] = jax.vmap(jax.grad(one), axis_name="i")(X)
        case["outside"] = jax.grad(lambda x: jax.vmap(one, axis_name="i")(x).sum())(X)
        case["tangent"] = jax.jvp(jax.vmap(f, axis_name="i"), (X,), (X * X,))[1]
    out[name] = {k: listed(v) for k, v in case.items()}

# two vmaps, one inside the other, in each order of the sums
nested = jax.vmap(jax.vmap(lambda x: lax.psum(x, "i") * lax.pmean(x, "j") + x * lax.axis_index("j"), axis_name="j"),
                  axis_name="i")(X)
out["nested"] = {"y": listed(nested)}
with open(os.path.join(os.path.dirname(__file__), "vmap_axes.json"), "w") as f:
    f.write("{" + ",\n".join(json.dumps(name) + ": " + json.dumps(case) for name, case in out.items()) + "}\n")
