"""gpt2_jax.py BATCH [STEPS] [KEY=VALUE ...]: the peer of gpt2.lua: the same model, batch, precision and optimizer under
jax.jit with donated state, layers unrolled, cuDNN's attention where there is a GPU. Prints the same line."""
import math
import os
import sys
import time

import jax
import jax.numpy as jnp

config = {"layers": 12, "width": 768, "heads": 12, "seq": 1024, "vocab": 50304}
batch, steps = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
for word in sys.argv[3:]:
    key, value = word.split("=")
    config[key] = int(value)
L, C, H, T, V = (config[k] for k in ("layers", "width", "heads", "seq", "vocab"))
started = float(os.environ.get("STARTED", time.time()))
attention = "cudnn" if jax.default_backend() == "gpu" else "xla"
B1, B2, EPS, RATE, DECAY = 0.9, 0.95, 1e-8, 3e-4, 0.1


def init(key):
    keys = iter(jax.random.split(key, 4 * L + 2))

    def normal(*shape, std=0.02):
        return std * jax.random.normal(next(keys), shape)

    def block():
        residual = 0.02 / math.sqrt(2 * L)
        return {"ln_1": norm(), "ln_2": norm(), "qkv": {"w": normal(C, 3 * C), "b": jnp.zeros(3 * C)},
                "out": {"w": normal(C, C, std=residual), "b": jnp.zeros(C)},
                "up": {"w": normal(C, 4 * C), "b": jnp.zeros(4 * C)},
                "down": {"w": normal(4 * C, C, std=residual), "b": jnp.zeros(C)}}

    def norm():
        return {"scale": jnp.ones(C), "bias": jnp.zeros(C)}

    return {"wte": normal(V, C), "wpe": normal(T, C), "h": [block() for _ in range(L)], "ln_f": norm()}


def layer_norm(p, x):
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    x = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x * p["scale"] + p["bias"]).astype(jnp.bfloat16)


def linear(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def block(p, x):
    b, t, _ = x.shape
    q, k, v = (z.reshape(b, t, H, C // H) for z in jnp.split(linear(p["qkv"], layer_norm(p["ln_1"], x)), 3, axis=-1))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
    x = x + linear(p["out"], y.reshape(b, t, C))
    return x + linear(p["down"], jax.nn.gelu(linear(p["up"], layer_norm(p["ln_2"], x)), approximate=True))


def loss_of(p, ids, labels):
    x = (p["wte"][ids] + p["wpe"]).astype(jnp.bfloat16)
    for layer in p["h"]:
        x = block(layer, x)
    logits = (layer_norm(p["ln_f"], x) @ p["wte"].astype(jnp.bfloat16).T).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def train_step(state, ids, labels):
    p, mu, nu, n = state
    loss, grads = jax.value_and_grad(loss_of)(p, ids, labels)
    n = n + 1
    mu = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, mu, grads)
    nu = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, nu, grads)

    def update(x, m, v):
        change = (m / (1 - B1 ** n)) / (jnp.sqrt(v / (1 - B2 ** n)) + EPS)
        return x - RATE * (change + (DECAY * x if x.ndim > 1 else 0))

    return (jax.tree.map(update, p, mu, nu), mu, nu, n), loss


params = jax.jit(init)(jax.random.key(0))
state = (params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.float32(0))
step = jax.jit(train_step, donate_argnums=0)
tokens = jax.random.randint(jax.random.key(1), (batch, T + 1), 0, V)
ids, labels = tokens[:, :-1], tokens[:, 1:]
state, loss = step(state, ids, labels)
first_loss = float(loss)
first = time.time() - started
for _ in range(5):
    state, loss = step(state, ids, labels)
jax.block_until_ready(state)
before, host = time.perf_counter(), 0.0
for _ in range(steps):
    called = time.perf_counter()
    state, loss = step(state, ids, labels)
    host += time.perf_counter() - called
last_loss = float(loss)
jax.block_until_ready(state)
seconds = (time.perf_counter() - before) / steps
stats = jax.local_devices()[0].memory_stats() or {}
print(f"first={first:.2f} ms={1e3 * seconds:.2f} tokens={batch * T / seconds:.0f} "
      f"peak={stats.get('peak_bytes_in_use', 0)} host={1e6 * host / steps:.1f} "
      f"loss={first_loss:.4f},{last_loss:.4f}")
