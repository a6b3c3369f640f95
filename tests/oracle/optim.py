"""Numbers of optax (and flax's EMA) for tests/spec/optimizers_spec.lua: what Params are after 20 steps, in float64.

    python tests/oracle/optim.py > tests/oracle/optim.json

Inputs come from `ramp`, which both sides compute exactly. Where optax computes a factor in float32 whatever the Params
are (counts of schedules, adafactor's decay), it is told to in float64.
"""

import json
import sys

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from optax import contrib

jax.config.update("jax_enable_x64", True)

SHAPES = {"b": (3,), "t": (2, 3, 4), "v": (5, 3), "w": (3, 4)}


def ramp(*shape):
    """Numbers in [-1, 1] that look irregular: (37 i mod 101 - 50) / 50."""
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0, "float64").reshape(shape)


def plain(x):
    return np.asarray(x, "float64").ravel().tolist()


def wide(schedule):
    return lambda count: schedule(jnp.asarray(count, "float64"))


SCHEDULES = {
    "polynomial": optax.polynomial_schedule(0.5, 0.1, 2.0, 9, 2),
    "exponential": optax.exponential_decay(0.3, 4, 0.5),
    "exponential_stairs": optax.exponential_decay(0.3, 3, 0.5, 2, True, 0.05),
    "exponential_up": optax.exponential_decay(0.1, 3, 1.5, end_value=0.4),
    "piecewise_constant": optax.piecewise_constant_schedule(0.4, {3: 0.5, 7: 0.1, 12: 3.0}),
    "piecewise_linear": optax.piecewise_interpolate_schedule("linear", 0.4, {3: 0.5, 7: 0.1, 12: 3.0}),
    "piecewise_cosine": optax.piecewise_interpolate_schedule("cosine", 0.4, {3: 0.5, 7: 0.1, 12: 3.0}),
    "cosine_onecycle": optax.cosine_onecycle_schedule(14, 0.5),
    "linear_onecycle": optax.linear_onecycle_schedule(14, 0.5, 0.2, 0.7, 10.0, 100.0),
    # Twins of what optax has no name for.
    "inverse_sqrt": lambda c: jnp.where(c < 4, 0.5 * c / 4, 0.5 * jnp.sqrt(4 / jnp.maximum(c, 4))),
    "wsd": optax.join_schedules(
        [optax.linear_schedule(0.0, 0.5, 3), optax.constant_schedule(0.5), optax.linear_schedule(0.5, 0.1, 6)],
        [3, 8]),
    "wsd_cosine": optax.join_schedules(
        [optax.constant_schedule(0.5), optax.cosine_decay_schedule(0.5, 6, 0.2)], [5]),
    "wsd_sqrt": optax.join_schedules(
        [optax.linear_schedule(0.0, 0.5, 3), optax.constant_schedule(0.5),
         lambda c: 0.5 * (1 - jnp.sqrt(jnp.clip(c, 0, 6) / 6))], [3, 8]),
}


def schedules():
    return {name: [float(wide(fn)(count)) for count in range(16)] for name, fn in SCHEDULES.items()}


LR = wide(optax.warmup_cosine_decay_schedule(0.0, 1e-1, 4, 18, 1e-3))


def exact_decay(step, exponent):
    return 1.0 - jnp.asarray(step + 1, "float64") ** (-exponent)


def adafactor(lr=None, momentum=None, scaled=True, decay=None, clip=1.0, **factors):
    """optax.adafactor, whose alias gives no way to its decay's dtype."""
    parts = [optax.scale_by_factored_rms(decay_rate_fn=exact_decay, **factors)]
    parts += [optax.clip_by_block_rms(clip)] if clip else []
    parts += [optax.scale_by_learning_rate(lr, flip_sign=False)] if lr is not None else []
    parts += [optax.scale_by_param_block_rms()] if scaled else []
    parts += [optax.ema(momentum, debias=False, accumulator_dtype="float64")] if momentum else []
    parts += [optax.add_decayed_weights(decay)] if decay else []
    return optax.chain(*parts, optax.scale(-1))


def labels(params):
    return {name: {"b": "plain", "t": "frozen"}.get(name, "big") for name in params}


OPTIMIZERS = {
    "lion": optax.lion(0.01),
    "lion_numbers": optax.lion(LR, b1=0.8, b2=0.9, weight_decay=0.1, mask={"b": False, "t": True, "v": True, "w": True}),
    "rmsprop": optax.rmsprop(0.01),
    "rmsprop_centered": optax.rmsprop(LR, decay=0.8, eps=1e-3, centered=True, momentum=0.9, nesterov=True),
    "rmsprop_outside": optax.rmsprop(
        0.01, initial_scale=0.5, eps_in_sqrt=False, momentum=0.5, bias_correction=True),
    "adagrad": optax.adagrad(0.1),
    "adagrad_numbers": optax.adagrad(LR, initial_accumulator_value=0.0, eps=1e-3),
    "lamb": optax.lamb(0.01),
    "lamb_numbers": optax.lamb(LR, b1=0.8, b2=0.95, eps=1e-3, eps_root=1e-2, weight_decay=0.1),
    "lars": optax.lars(0.5, weight_decay=0.01, nesterov=True),
    "adafactor": adafactor(),
    "adafactor_factored": adafactor(LR, min_dim_size_to_factor=3),
    "adafactor_numbers": adafactor(
        0.05, momentum=0.9, scaled=False, decay=0.01, clip=None, min_dim_size_to_factor=2, decay_rate=0.6, epsilon=1e-6),
    "muon": contrib.muon(0.02),
    "muon_numbers": contrib.muon(
        LR, ns_steps=3, ns_coeffs=(2.0, -1.5, 0.5), beta=0.9, nesterov=False, weight_decay=0.1, consistent_rms=0.2,
        adam_b1=0.8, adam_b2=0.95, adam_weight_decay=0.2, adam_learning_rate=0.03),
    "muon_dion": contrib.muon(0.02, ns_coeffs="dion"),
    "nesterov": optax.sgd(LR, momentum=0.9, nesterov=True),
    "ema": optax.chain(optax.ema(0.9), optax.scale(-0.1)),
    "parts": optax.chain(
        optax.scale_by_lion(), optax.scale_by_rms(), optax.scale_by_rss(), optax.scale_by_trust_ratio(0.1, 0.5, 1e-3),
        optax.scale_by_param_block_rms(0.3), optax.clip_by_block_rms(0.2), optax.scale(-0.5)),
    "masked": optax.chain(
        optax.masked(optax.trace(0.9), {"b": False, "t": False, "v": True, "w": True}), optax.scale(-0.02)),
    "multi": optax.partition(
        {"big": optax.adamw(0.01), "plain": optax.sgd(0.1, momentum=0.5), "frozen": optax.set_to_zero()}, labels),
    "multi_steps": optax.MultiSteps(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(LR)), 3, accumulator_dtype="float64"),
    "multi_steps_growing": optax.MultiSteps(
        optax.lion(0.05), lambda n: 1 + n // 2, use_grad_mean=False, accumulator_dtype="float64"),
}


def optimizers():
    out = {}
    for name, tx in OPTIMIZERS.items():
        params = {key: ramp(*shape) for key, shape in SHAPES.items()}
        state = tx.init(params)

        @jax.jit
        def step(params, state, scale):
            grads = {key: ramp(7, *p.shape)[3] * scale + 0.1 * p for key, p in params.items()}
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        for i in range(20):
            params, state = step(params, state, 0.3 + i % 3)
        out[name] = {key: plain(p) for key, p in params.items()}
    return out


def ema():
    """Means of Params that go where they like."""

    class Model(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(ramp(3, 4))

    model = Model()
    mean = nnx.EMA(model, decay=0.9)
    for i in range(20):
        model.w[...] = ramp(i + 1, 3, 4)[i] + model.w[...] * 0.5
        mean.update(model)
    return plain(mean.apply_to(model).w[...])


def lora():
    """y = x W + b + 2 x A B, of which A and B are trained."""
    x, y, w, b = ramp(8, 5), ramp(6, 8).T, ramp(5, 6), ramp(6)
    params = {"lora_a": ramp(2, 5).T, "lora_b": ramp(2, 6) * 0.1}
    tx = optax.adamw(0.05)
    state = tx.init(params)

    def loss(p):
        return jnp.mean((x @ w + b + 2.0 * (x @ p["lora_a"] @ p["lora_b"]) - y) ** 2)

    for _ in range(20):
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    return {key: plain(p) for key, p in params.items()}


def main():
    made = {part.__name__: part() for part in (schedules, optimizers, ema, lora)}
    made["made_with"] = {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__}
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(text.replace('],"', '],\n"') + "\n")


main()
