"""Derivatives of small programs in float64, by JAX. Writes tests/oracle/forward.json, which
tests/spec/transform/forward_spec.lua compares; the programs there have the same names.

    python -m venv venv && venv/bin/pip install jax==0.10.2
    venv/bin/python tests/oracle/forward.py
"""
import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)
X = jnp.array([0.3, -0.7, 1.2])
T = jnp.array([1.0, 2.0, -0.5])


@jax.custom_jvp
def softplus(x):
    return jnp.log(1 + jnp.exp(x))


softplus.defjvp(lambda p, t: (softplus(p[0]), 2 * t[0] * jax.nn.sigmoid(p[0])))


def recurrent(x):
    def body(c, xi):
        c = jnp.sin(c * xi) + jnp.sum(x)
        return c, c * c
    c, ys = lax.scan(body, jnp.sum(x), x, reverse=True)
    return ys + c


def loop(x):
    def body(c):
        i, v = c
        return i + 1, jnp.cos(v * x)
    return lax.while_loop(lambda c: jnp.sum(c[1]) + c[0] < 6, body, (0, x))[1]


PROGRAMS = {
    "mlp": lambda x: jnp.tanh(jnp.outer(x, x) @ x) * x,
    "softmax": lambda x: jax.nn.softmax(jnp.sin(x) * x) * jnp.exp(x * x),
    "logsumexp": lambda x: jax.nn.logsumexp(x * x),
    "sort": lambda x: jnp.sort(x)[::-1] * x,
    "cumprod": lambda x: jnp.cumprod(x + 2) / x,
    "max": lambda x: jnp.max(jnp.outer(x, x), axis=1) + jnp.prod(x),
    "recurrent": recurrent,
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, v: jnp.sin(v * x) + i * x, x),
    "cond": lambda x: lax.cond(jnp.sum(x) > 0, lambda v: jnp.sin(v) * x, lambda v: v, x),
    "nested": lambda x: lax.fori_loop(0, 3, lambda i, v: lax.cond(
        i == 1, lambda w: recurrent(w * 0.1), lambda w: w * x, v), x),
    "stopped": lambda x: lax.stop_gradient(x) * jnp.floor(x) * x,
    "custom": lambda x: softplus(x * 2) * x,
    "custom_in_loop": lambda x: lax.fori_loop(0, 3, lambda i, v: softplus(v) * x, x),
    "vmapped": lambda x: jax.vmap(lambda s: jnp.sin(s * x) * softplus(s))(x).sum(0),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.exp(x) * jnp.sin(x * x[::-1]))),
}
FORWARD_ONLY = {"while": loop}

out = {"jax": jax.__version__}
for name, f in {**PROGRAMS, **FORWARD_ONLY}.items():
    y, dy = jax.jvp(f, (X,), (T,))
    case = {"y": y, "dy": dy, "jacobian": jax.jacfwd(f)(X)}
    weight = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
    second = jax.jacfwd(jax.jacfwd(lambda x, f=f, weight=weight: jnp.sum(f(x) * weight)))(X)
    case["hessian"] = second
    out[name] = {k: np.asarray(v).ravel().tolist() for k, v in case.items()}
with open(os.path.join(os.path.dirname(__file__), "forward.json"), "w") as f:
    f.write("{" + ",\n".join(json.dumps(name) + ": " + json.dumps(case) for name, case in out.items()) + "}\n")
