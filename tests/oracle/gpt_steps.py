"""Ten training steps of models/gpt.lua, small, in JAX: losses and gradient norms in float64 and float32.

    python tests/oracle/gpt_steps.py > tests/oracle/gpt_steps.json

The same key, initialisers, batches, schedule, clipping and AdamW as tests/spec/oracle_spec.lua.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

CONFIG = dict(
    layers=2, width=32, heads=4, seq=16, vocab=64, batch=8, steps=10,
    lr=3e-3, min_lr=3e-4, warmup=3, beta1=0.9, beta2=0.99, weight_decay=0.1, clip=1.0,
)
SEED = 1234


def batch(step):
    """Tokens [batch, seq + 1] of a sequence that can be learnt in part."""
    b, t = np.meshgrid(np.arange(CONFIG["batch"]), np.arange(CONFIG["seq"] + 1), indexing="ij")
    tokens = (5 * b + 3 * t + (b * t * t) % 7 + 11 * step) % CONFIG["vocab"]
    return jnp.asarray(tokens[:, :-1], "int32"), jnp.asarray(tokens[:, 1:], "int32")


def init(dtype):
    """Every parameter from the next key of one stream, in the order in which the layers are made."""
    c, count = CONFIG, 0
    width, heads = c["width"], c["heads"]

    def draw(shape, stddev):
        nonlocal count
        key = jax.random.fold_in(jax.random.key(SEED), count)
        count += 1
        if stddev is None:
            return jnp.zeros(shape, dtype)
        return jax.random.normal(key, shape, dtype) * jnp.asarray(stddev, dtype)

    def linear(n_in, n_out, scale=1.0):
        stddev = np.sqrt(scale / np.prod(n_in))
        return {"kernel": draw((*n_in, *n_out), stddev), "bias": draw(n_out, None)}

    def norm():
        return {"scale": draw((width,), None) + 1, "bias": draw((width,), None)}

    def block():
        head = (heads, width // heads)
        residual = 1 / (2 * c["layers"])
        return {
            "ln_1": norm(),
            "query": linear((width,), head),
            "key": linear((width,), head),
            "value": linear((width,), head),
            "out": linear(head, (width,), residual),
            "ln_2": norm(),
            "up": linear((width,), (4 * width,)),
            "down": linear((4 * width,), (width,), residual),
        }

    return {
        "wte": {"embedding": draw((c["vocab"], width), 0.02)},
        "wpe": {"embedding": draw((c["seq"], width), 0.02)},
        "h": [block() for _ in range(c["layers"])],
        "ln_f": norm(),
    }


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * p["scale"] + p["bias"]


def attention(p, x):
    q, k, v = (jnp.einsum("btc,chd->bthd", x, p[n]["kernel"]) + p[n]["bias"] for n in ("query", "key", "value"))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
    t = x.shape[1]
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    y = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
    return jnp.einsum("bthd,hdc->btc", y, p["out"]["kernel"]) + p["out"]["bias"]


def logits(params, ids):
    x = params["wte"]["embedding"][ids] + params["wpe"]["embedding"][: ids.shape[1]]
    for p in params["h"]:
        x = x + attention(p, layer_norm(p["ln_1"], x))
        y = jax.nn.gelu(layer_norm(p["ln_2"], x) @ p["up"]["kernel"] + p["up"]["bias"])
        x = x + y @ p["down"]["kernel"] + p["down"]["bias"]
    return layer_norm(params["ln_f"], x) @ params["wte"]["embedding"].T


def loss(params, ids, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, ids), labels).mean()


def is_matrix(path, _):
    return path[-1].key in ("kernel", "embedding")


def train(dtype):
    c = CONFIG
    params = init(dtype)
    lr = optax.warmup_cosine_decay_schedule(0.0, c["lr"], c["warmup"], c["steps"], c["min_lr"])
    tx = optax.chain(
        optax.clip_by_global_norm(c["clip"]),
        optax.adamw(
            # An int32 count would make the rate float32, also in a float64 run.
            lambda count: lr(jnp.asarray(count, dtype)), b1=c["beta1"], b2=c["beta2"], weight_decay=c["weight_decay"],
            mask=jax.tree_util.tree_map_with_path(is_matrix, params),
        ),
    )
    state = tx.init(params)

    @jax.jit
    def step(params, state, ids, labels):
        value, grads = jax.value_and_grad(loss)(params, ids, labels)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value, optax.global_norm(grads)

    out = {"loss": [], "grad_norm": []}
    for i in range(c["steps"]):
        params, state, value, norm = step(params, state, *batch(i))
        out["loss"].append(float(value))
        out["grad_norm"].append(float(norm))
    out["final_norm"] = float(optax.global_norm(params))
    return out


def main():
    made = {"config": CONFIG, "seed": SEED, "jax": jax.__version__, "optax": optax.__version__}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            made[dtype] = train(dtype)
    print(json.dumps(made, indent=1))


main()
