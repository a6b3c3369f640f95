"""Numbers of jax.nn.dot_product_attention for tests/spec/nn/attention_oracle_spec.lua.

    python tests/oracle/attention.py > tests/oracle/attention.json

Cases are drawn from options, dtypes and shapes with a fixed seed. Inputs come from `ramp`, which both sides compute
exactly; whole numbers stand in the case. What JAX has no word for (offsets, segments) goes into its mask, the soft
cap is written out. JAX gives a query that sees nothing the mean of the values: here it gets zeros.
"""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

# batch, queries, keys, heads, key heads, depth
SHAPES = [
    (2, 3, 5, 2, 2, 4), (2, 3, 5, 4, 2, 3), (1, 6, 6, 2, 1, 2), (2, 5, 3, 2, 2, 2), (2, 1, 7, 4, 1, 2),
    (1, 1, 1, 1, 1, 1), (3, 4, 1, 1, 1, 2), (1, 9, 17, 1, 1, 2), (0, 3, 4, 2, 2, 2), (2, 0, 4, 2, 1, 2),
    (2, 3, 0, 2, 2, 2), (2, 3, 4, 2, 2, 0),
]
DTYPES = [("float32", "float32")] * 3 + [("float64", "float64"), ("bfloat16", "bfloat16"), ("float16", "float16"),
                                         ("bfloat16", "float32"), ("float32", "bfloat16")]


def ramp(shape, by, dtype):
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0 * by, dtype).reshape(shape)


def drawn(rng, B, T, S):
    o = {}
    if rng.random() < 0.4:
        o["causal"] = True
    if rng.random() < 0.3:
        o["window"] = [rng.choice([0, 1, 2, 5, False]), rng.choice([0, 1, 3, False])]
    if rng.random() < 0.3:
        o["lengths"] = [rng.randint(0, S + 1) for _ in range(B)]
    if rng.random() < 0.2:
        o["query_lengths"] = [rng.randint(0, T + 1) for _ in range(B)]
    kind = rng.random()
    if kind < 0.2:
        o["offset"] = rng.randint(-1, S)
    elif kind < 0.4:
        o["offset"] = [rng.randint(-1, S) for _ in range(B)]
    elif kind < 0.7 or (S < T and "causal" in o):
        o["offset"] = 0
    if rng.random() < 0.25:
        o["segments"] = [[sorted(rng.randint(0, 2) for _ in range(n)) for _ in range(B)] for n in (T, S)]
    if rng.random() < 0.3:
        o["mask"] = [rng.choice([1, B]) if B else B, 1]
    if rng.random() < 0.35:
        o["bias"] = [rng.choice([1, B]) if B else B, rng.choice([1, 0])]
    if rng.random() < 0.25:
        o["soft_cap"] = rng.choice([0.5, 1.0, 30.0])
    return o


def broadcast_of(form, H, T, S):
    return (form[0], H if form[1] == 0 else 1, T, S)


def seen(o, B, T, S, H):
    """What JAX has no word for, as a mask."""
    t, s = jnp.arange(T)[:, None], jnp.arange(S)[None, :]
    place = jnp.broadcast_to(jnp.asarray(o.get("offset", S - T), "int32"), (B,))[:, None, None, None] + t
    see = jnp.ones((B, 1, T, S), bool)
    if o.get("causal"):
        see = see & (s <= place)
    left, right = o.get("window", [False, False])
    if left is not False:
        see = see & (place - left <= s)
    if right is not False:
        see = see & (s <= place + right)
    if "segments" in o:
        q, k = (jnp.asarray(x, "int32").reshape(B, n) for x, n in zip(o["segments"], (T, S)))
        see = see & (q[:, None, :, None] == k[:, None, None, :])
    if "mask" in o:
        shape = broadcast_of(o["mask"], H, T, S)
        see = see & ((5 * np.arange(int(np.prod(shape))) // 3 % 4 != 0).reshape(shape))
    return see


def attention(q, k, v, bias, o):
    B, T, H, D = q.shape
    S = k.shape[1]
    acc = "float64" if q.dtype == jnp.float64 else "float32"
    see = seen(o, B, T, S, H)
    lengths = {to: jnp.asarray(o[name], "int32") for name, to in
               (("lengths", "key_value_seq_lengths"), ("query_lengths", "query_seq_lengths")) if name in o}
    scale = 1 / np.sqrt(D) if D else 1.0
    wide = [x.astype(acc) for x in (q, k, v)]
    if S == 0:
        return jnp.zeros_like(q)
    if "soft_cap" in o:
        parts = [jnp.repeat(x, H // x.shape[2], 2) for x in wide]
        scores = jnp.einsum("bthd,bshd->bhts", parts[0], parts[1]) * scale
        scores = o["soft_cap"] * jnp.tanh(scores / o["soft_cap"])
        if bias is not None:
            scores = scores + bias
        for name, axis in (("key_value_seq_lengths", 3), ("query_seq_lengths", 2)):
            if name in lengths:
                at = jax.lax.broadcasted_iota("int32", (B, 1, T, S), axis)
                see = see & (at < lengths[name][:, None, None, None])
        p = jax.nn.softmax(jnp.where(see, scores, -1e30), -1)
        y = jnp.einsum("bhts,bshd->bthd", p, parts[2])
        return jnp.where(see.any(-1).transpose(0, 2, 1)[..., None], y, 0).astype(q.dtype)
    y = jax.nn.dot_product_attention(*wide, bias, see, scale=scale, **lengths)
    if "key_value_seq_lengths" in lengths:
        at = jax.lax.broadcasted_iota("int32", (B, 1, T, S), 3)
        see = see & (at < lengths["key_value_seq_lengths"][:, None, None, None])
    return jnp.where(see.any(-1).transpose(0, 2, 1)[..., None], y, 0).astype(q.dtype)


def plain(x):
    return [float(f"{n:.7g}") for n in np.asarray(x, "float64").ravel()]


def dots(x):
    """Three numbers of a gradient: its sum, and with two ramps."""
    x = np.asarray(x, "float64").ravel()
    i = np.arange(x.size)
    return plain([x.sum(), (x * ((37 * i) % 101 - 50) / 50).sum(), (x * ((59 * i) % 97 - 48) / 48).sum()])


def case(rng):
    B, T, S, H, G, D = rng.choice(SHAPES)
    dtype, keys = rng.choice(DTYPES)
    o = drawn(rng, B, T, S)
    q, k = ramp((B, T, H, D), 1.0, dtype), ramp((B, S, G, D), 1.3, keys)
    v = ramp((B, S, G, D), 0.7, keys)
    args = [q, k, v]
    if "bias" in o:
        args.append(ramp(broadcast_of(o["bias"], H, T, S), 2.0, "float64" if dtype == "float64" else "float32"))

    def loss(*args):
        y = attention(*args[:3], args[3] if len(args) > 3 else None, o)
        return jnp.sum(y.astype("float64") * ramp(y.shape, 1.0, "float64")), y

    grads, y = jax.grad(loss, argnums=tuple(range(len(args))), has_aux=True)(*args)
    return {"shape": [B, T, S, H, G, D], "dtype": dtype, "keys": keys, "options": o, "y": plain(y),
            "grads": [dots(g) for g in grads]}


def main():
    rng = random.Random(3)
    print("[" + ",\n".join(json.dumps(case(rng), separators=(",", ":")) for _ in range(320)) + "]")


main()
