"""Numbers of flax, optax and jax.nn for tests/spec/nn and tests/spec/optim_spec.lua.

    python tests/oracle/nn.py > tests/oracle/nn.json

Inputs come from `ramp`, which both sides compute exactly.
"""

import json
import sys

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

jax.config.update("jax_enable_x64", True)


def ramp(*shape, dtype="float64"):
    """Numbers in [-1, 1] that look irregular: (37 i mod 101 - 50) / 50."""
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0, dtype).reshape(shape)


def plain(x):
    return np.asarray(x, "float64").tolist()


def initializers():
    i = nnx.initializers
    made = {
        "uniform": (i.uniform(), (4, 6)),
        "uniform_3": (i.uniform(3.0), (4, 6)),
        "normal": (i.normal(), (4, 6)),
        "normal_002": (i.normal(0.02), (4, 6)),
        "truncated_normal": (i.truncated_normal(), (4, 6)),
        "truncated_normal_wide": (i.truncated_normal(0.5, lower=-1.0, upper=3.0), (4, 6)),
        "lecun_normal": (i.lecun_normal(), (4, 6)),
        "lecun_uniform": (i.lecun_uniform(), (4, 6)),
        "he_normal": (i.he_normal(), (4, 6)),
        "he_uniform": (i.he_uniform(), (4, 6)),
        "xavier_normal": (i.xavier_normal(), (4, 6)),
        "xavier_uniform": (i.xavier_uniform(), (4, 6)),
        "geometric": (i.variance_scaling(0.7, "fan_geo_avg", "normal"), (4, 6)),
        "fan_out": (i.variance_scaling(2.0, "fan_out", "truncated_normal"), (4, 6)),
        "receptive_field": (i.lecun_normal(), (3, 2, 4)),
        "axes": (i.variance_scaling(1.0, "fan_in", "normal", in_axis=(0, 1), out_axis=2), (2, 3, 4)),
        "embedding": (i.variance_scaling(1.0, "fan_in", "normal", out_axis=0), (6, 4)),
    }
    key = jax.random.key(42)
    return {
        dtype: {name: plain(init(key, shape, dtype)) for name, (init, shape) in made.items()}
        for dtype in ("float32", "float64", "bfloat16")
    }


def layer(make, *inputs):
    """Parameters of a layer made with nnx.Rngs(0), its result, and the gradients of sum(result * ramp)."""
    out = {}
    for dtype in ("float32", "float64"):
        model = make(nnx.Rngs(0), dtype)
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        args = [x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in inputs]

        def loss(params, args):
            y = nnx.merge(graph, params, rest, copy=True)(*args)
            return jnp.sum(y * ramp(*y.shape, dtype=dtype)), y

        grads, y = jax.grad(loss, has_aux=True)(params, args)
        out[dtype] = {"result": plain(y)}
        for name, tree in (("params", params), ("grads", grads)):
            flat = nnx.to_flat_state(tree)
            out[dtype][name] = {".".join(map(str, path)): plain(leaf[...]) for path, leaf in flat}
    return out


def layers():
    ids = jnp.asarray([[0, 3, 9], [3, 3, 1]], "int32")
    one = nnx.initializers.normal(1.0)

    def typed(fn):
        return lambda rngs, dtype: fn(rngs=rngs, param_dtype=dtype, dtype=dtype)

    def exact(q, k, v, mask=None, **_):
        """flax computes float64 attention in float32 inside."""
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v)

    def attention(rngs, dtype):
        m = nnx.MultiHeadAttention(
            2, 8, decode=False, rngs=rngs, param_dtype=dtype, dtype=dtype, bias_init=one,
            **({"attention_fn": exact} if dtype == "float64" else {}),
        )
        mask = nnx.make_causal_mask(jnp.ones((2, 5)))

        class Causal(nnx.Module):
            def __init__(self):
                self.attention = m

            def __call__(self, x):
                return self.attention(x, mask=mask)

        return Causal()

    return {
        "linear": layer(typed(lambda **k: nnx.Linear(6, 4, bias_init=one, **k)), ramp(3, 6)),
        "split": layer(typed(lambda **k: nnx.LinearGeneral(6, (2, 3), **k)), ramp(4, 6)),
        "join": layer(typed(lambda **k: nnx.LinearGeneral((2, 3), 5, axis=(-2, -1), **k)), ramp(4, 2, 3)),
        "embed": layer(typed(lambda **k: nnx.Embed(10, 4, **k)), ids),
        "layer_norm": layer(typed(lambda **k: nnx.LayerNorm(6, scale_init=one, bias_init=one, **k)), ramp(4, 6)),
        "rms_norm": layer(typed(lambda **k: nnx.RMSNorm(6, scale_init=one, **k)), ramp(4, 6)),
        "attention": layer(attention, ramp(2, 5, 8)),
    }


def dropout():
    with jax.enable_x64(False):
        layer = nnx.Dropout(0.4, rngs=nnx.Rngs(0))
        x = ramp(5, 7, dtype="float32")
        return [plain(layer(x)), plain(layer(x))]


def masked_attention():
    """Attention where a mask lets look, its probabilities after dropout: the result, and the gradients of
    sum(result * ramp) with respect to query, key and value. The last query of the last case looks nowhere, which
    gives flax's mean of the values: here zeros."""
    t, s = jnp.arange(5)[:, None], jnp.arange(6)[None, :]
    band, ahead = jnp.abs(t - s) <= 1, s <= t
    some = ((t * 5 + s * 3) % 4 != 0) & (t < 4)
    cases = {
        "mask": (4, band, 0.0),
        "groups": (2, band, 0.0),
        "dropout": (4, None, 0.4),
        "both": (4, ahead, 0.25),
        "nowhere": (4, some, 0.0),
    }
    out = {}
    with jax.enable_x64(False):
        for name, (heads, mask, rate) in cases.items():
            q, k = ramp(2, 5, 4, 3, dtype="float32"), ramp(2, 6, heads, 3, dtype="float32")
            v = ramp(3, heads, 6, 2, dtype="float32").transpose(3, 2, 1, 0)

            def loss(q, k, v):
                y = nnx.dot_product_attention(
                    q, k, v, mask=mask, dropout_rng=jax.random.key(7), dropout_rate=rate,
                    broadcast_dropout=False, deterministic=rate == 0,
                )
                if mask is not None:
                    y = jnp.where(mask.any(-1)[None, :, None, None], y, 0)
                return jnp.sum(y * ramp(*y.shape, dtype="float32")), y

            grads, y = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)
            out[name] = {"result": plain(y), "grads": [plain(g) for g in grads]}
    return out


def streams():
    """Keys of named streams: each the next one of its own."""
    rngs = nnx.Rngs(0, params=1, dropout=2)
    order = ["params", "params", "dropout", "other", "default", "params"]
    return [[name, plain(jax.random.key_data(getattr(rngs, name)()))] for name in order]


def activations():
    x = ramp(32) * 4
    made = {
        "gelu": jax.nn.gelu,
        "gelu_exact": lambda x: jax.nn.gelu(x, approximate=False),
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "softplus": jax.nn.softplus,
        "log_sigmoid": jax.nn.log_sigmoid,
        "elu": jax.nn.elu,
        "elu_half": lambda x: jax.nn.elu(x, 0.5),
        "leaky_relu": jax.nn.leaky_relu,
        "leaky_relu_fifth": lambda x: jax.nn.leaky_relu(x, 0.2),
        "tanh": jnp.tanh,
        "sigmoid": jax.nn.sigmoid,
    }
    grad = lambda f: jax.grad(lambda x: f(x).sum())(x)
    return {name: {"value": plain(f(x)), "grad": plain(grad(f))} for name, f in made.items()}


def losses():
    x, y = 3 * ramp(4, 5), ramp(5, 4).T
    labels = jnp.asarray([0, 4, 2, 2])
    p = jax.nn.softmax(2 * y)
    return {
        "softmax_cross_entropy_with_integer_labels": plain(
            optax.softmax_cross_entropy_with_integer_labels(x, labels)
        ),
        "mse": plain(jnp.mean(optax.squared_error(x, y))),
        "huber": plain(optax.huber_loss(x, y)),
        "huber_half": plain(optax.huber_loss(x, y, delta=0.5)),
        "sigmoid_binary_cross_entropy": plain(optax.sigmoid_binary_cross_entropy(x, (y + 1) / 2)),
        "kl": plain(optax.kl_divergence(jax.nn.log_softmax(x), p.at[0, 0].set(0.0))),
    }


def schedules():
    made = {
        "constant": optax.constant_schedule(0.25),
        "linear": optax.linear_schedule(0.5, 0.1, 7),
        "linear_late": optax.linear_schedule(0.0, 2.0, 5, 3),
        "cosine": optax.cosine_decay_schedule(0.3, 9),
        "cosine_alpha": optax.cosine_decay_schedule(0.3, 9, 0.1, 2.0),
        "warmup_cosine": optax.warmup_cosine_decay_schedule(0.0, 1e-3, 4, 12, 1e-4),
        "warmup_cosine_from": optax.warmup_cosine_decay_schedule(1e-4, 1e-3, 3, 10),
        "join": optax.join_schedules(
            [optax.constant_schedule(1.0), optax.linear_schedule(2.0, 0.0, 4)], [5]
        ),
    }
    return {
        name: [float(fn(jnp.asarray(count, "float64"))) for count in range(15)]
        for name, fn in made.items()
    }


def optimizers():
    """Six updates of {b: [3], w: [3, 4]} with gradients ramp(step) and the norm of each."""
    mask = {"b": False, "w": True}
    warmup_cosine = optax.warmup_cosine_decay_schedule(0.0, 1e-1, 2, 6, 1e-3)
    lr = lambda count: warmup_cosine(jnp.asarray(count, "float64"))  # an int32 count gives float32
    made = {
        "sgd": optax.sgd(0.1),
        "momentum": optax.sgd(0.1, momentum=0.9),
        "nesterov": optax.sgd(lr, momentum=0.9, nesterov=True),
        "adam": optax.adam(0.1),
        "adam_numbers": optax.adam(lr, b1=0.8, b2=0.95, eps=1e-3, eps_root=1e-2),
        "nadam": optax.adam(0.1, nesterov=True),
        "adamw": optax.adamw(0.1),
        "adamw_mask": optax.adamw(lr, weight_decay=0.3, mask=mask),
        "adamw_clip": optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(lr, b2=0.99, weight_decay=0.3, mask=mask)
        ),
        "parts": optax.chain(
            optax.clip(0.5),
            optax.clip_by_global_norm(1.5),
            optax.trace(0.5),
            optax.add_decayed_weights(0.1),
            optax.scale_by_schedule(lambda count: 1.0 / (1.0 + count)),
            optax.scale(-0.2),
        ),
    }
    out = {}
    for name, tx in made.items():
        params = {"b": ramp(3), "w": ramp(3, 4) * 0.5}
        state, norms = tx.init(params), []
        for step in range(6):
            scale = 0.3 + step % 3
            grads = {"b": ramp(5)[:3] * scale, "w": ramp(4, 3).T * scale}
            updates, state = tx.update(grads, state, params)
            params = optax.apply_updates(params, updates)
            norms.append(float(optax.global_norm(grads)))
        out[name] = {"b": plain(params["b"]), "w": plain(params["w"]), "norms": norms}
    return out


def main():
    parts = [initializers, layers, dropout, masked_attention, streams, activations, losses, schedules, optimizers]
    made = {part.__name__: part() for part in parts}
    made["made_with"] = {
        "jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__
    }
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(text.replace('},"', '},\n"') + "\n")


main()
