"""Numbers of flax, jax and optax for tests/spec/nn/more_layers_spec.lua, in float64: layers made with nnx.Rngs(0) (their
parameters, results and gradients of sum(result * ramp)), cells over time, activations, losses, initialisers.

    python tests/oracle/layers.py > tests/oracle/layers.json

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


def ramp(*shape):
    """Numbers in [-1, 1] that look irregular: (37 i mod 101 - 50) / 50."""
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0, "float64").reshape(shape)


def plain(x):
    return [float("%.16g" % v) for v in np.asarray(x, "float64").ravel()]


def weighted(y):
    return sum(jnp.sum(leaf * ramp(*leaf.shape)) for leaf in jax.tree.leaves(y))


def layer(make, call, *inputs):
    """call(model, *inputs) -> a tree of results."""
    model = make(nnx.Rngs(0))
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, inputs):
        y = call(nnx.merge(graph, params, rest, copy=True), *inputs)
        return weighted(y), y

    (grads, dx), y = jax.grad(loss, argnums=(0, 1), has_aux=True)(params, inputs)
    flat = lambda tree: {".".join(map(str, path)): plain(leaf[...]) for path, leaf in nnx.to_flat_state(tree)}
    return {"params": flat(params), "grads": flat(grads), "dx": plain(dx[0]),
            "result": [plain(leaf) for leaf in jax.tree.leaves(y)]}


KIND = dict(param_dtype="float64", dtype="float64")
ONE = nnx.initializers.normal(1.0)
AFFINE = dict(scale_init=ONE, bias_init=ONE, **KIND)
LENGTHS = jnp.asarray([4, 1, 3, 1])


def valid(y, lengths):
    """[batch, time, features] with zeros behind each row's end."""
    return jnp.where(jnp.arange(y.shape[1])[None, :, None] < lengths[:, None, None], y, 0.0)


def rnn(make, lengths=None, **how):
    def call(m, x):
        carry, y = m(x, seq_lengths=lengths, return_carry=True)
        return (y if lengths is None else valid(y, lengths)), carry

    x = ramp(4, 4, 3)
    return layer(lambda r: nnx.RNN(make(r), **how), call, x)


def layers():
    plainly = lambda m, x: m(x)
    lstm = lambda r: nnx.OptimizedLSTMCell(3, 2, rngs=r, bias_init=ONE, **KIND)
    gru = lambda r: nnx.GRUCell(3, 2, rngs=r, bias_init=ONE, **KIND)
    simple = lambda r: nnx.SimpleCell(3, 2, rngs=r, bias_init=ONE, **KIND)

    def both(m, x):
        carry, y = m(x, seq_lengths=LENGTHS, return_carry=True)
        return valid(y, LENGTHS), carry

    def transposed(*window, **how):
        return layer(lambda r: nnx.ConvTranspose(2, 3, window, bias_init=ONE, rngs=r, **how, **KIND), plainly,
                     ramp(2, *[5, 4][:len(window)], 2))

    return {
        "group_norm": layer(lambda r: nnx.GroupNorm(6, 3, rngs=r, **AFFINE), plainly, ramp(2, 3, 2, 6)),
        "group_size": layer(
            lambda r: nnx.GroupNorm(6, None, 3, epsilon=1e-3, use_bias=False, rngs=r, scale_init=ONE, **KIND),
            plainly, ramp(3, 6)),
        "instance_norm": layer(lambda r: nnx.InstanceNorm(3, rngs=r, **AFFINE), plainly, ramp(2, 4, 3)),
        "layer_norm": layer(
            lambda r: nnx.LayerNorm(12, reduction_axes=(-2, -1), feature_axes=(-2, -1), rngs=r, **AFFINE), plainly,
            ramp(3, 4, 3)),
        "rms_norm": layer(
            lambda r: nnx.RMSNorm(12, reduction_axes=(-2, -1), feature_axes=(-2, -1), rngs=r, scale_init=ONE, **KIND),
            plainly, ramp(3, 4, 3)),
        "transpose": transposed(3, 3),
        "transpose_strides": transposed(3, 2, strides=(2, 3)),
        "transpose_valid": transposed(2, 3, strides=(3, 2), padding="VALID"),
        "transpose_dilated": transposed(3, strides=2, kernel_dilation=2, padding="VALID"),
        "transpose_pads": transposed(3, strides=2, padding=((2, 1),)),
        "conv_groups": layer(
            lambda r: nnx.Conv(4, 6, (3,), feature_group_count=2, bias_init=ONE, rngs=r, **KIND), plainly, ramp(2, 5, 4)),
        "lstm_cell": layer(lstm, lambda m, x: m((ramp(4, 2), ramp(2, 4).T), x), ramp(4, 3)),
        "gru_cell": layer(gru, lambda m, x: m(ramp(4, 2), x), ramp(4, 3)),
        "simple_cell": layer(simple, lambda m, x: m(ramp(4, 2), x), ramp(4, 3)),
        "lstm": rnn(lstm),
        "lstm_lengths": rnn(lstm, LENGTHS),
        "gru": rnn(gru),
        "gru_reverse": rnn(gru, reverse=True),
        "gru_reverse_lengths": rnn(gru, LENGTHS, reverse=True),
        "gru_kept_lengths": rnn(gru, LENGTHS, reverse=True, keep_order=True),
        "bidirectional": layer(lambda r: nnx.Bidirectional(nnx.RNN(lstm(r)), nnx.RNN(gru(r))), both, ramp(4, 4, 3)),
    }


def weight_norm():
    """w = scale * v / |v|, the columns of v."""
    x, v, scale = ramp(4, 5), ramp(3, 5).T, ramp(3) + 2

    def f(x, v, scale):
        y = x @ (v * jax.lax.rsqrt((v * v).sum(0, keepdims=True) + 1e-12) * scale)
        return weighted(y), y

    grads, y = jax.grad(f, argnums=(0, 1, 2), has_aux=True)(x, v, scale)
    return {"result": plain(y), "grads": [plain(g) for g in grads]}


def initializers():
    i = jax.nn.initializers
    made = {
        "square": (i.orthogonal(), (5, 5)),
        "tall": (i.orthogonal(2.0), (6, 4)),
        "wide": (i.orthogonal(), (4, 6)),
        "columns": (i.orthogonal(0.5, 0), (3, 2, 4)),
        "delta": (i.delta_orthogonal(), (3, 2, 4)),
        "delta_2d": (i.delta_orthogonal(), (2, 3, 3, 3)),
    }
    key = jax.random.key(42)
    return {name: plain(init(key, shape, "float64")) for name, (init, shape) in made.items()}


def activations():
    n = jax.nn
    x = jnp.concatenate([ramp(24) * 4, jnp.asarray([-3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 8.0, -8.0])])
    made = {name: getattr(n, name) for name in (
        "celu", "selu", "mish", "soft_sign", "hard_tanh", "relu6", "hard_sigmoid", "hard_silu", "hard_swish", "swish",
        "squareplus", "sparse_plus", "sparse_sigmoid", "glu", "standardize")}
    made["celu_half"] = lambda x: n.celu(x, 0.5)
    made["squareplus_one"] = lambda x: n.squareplus(x, 1.0)
    made["glu_first"] = lambda x: n.glu(x.reshape(4, 8), 0)
    made["standardize_all"] = lambda x: n.standardize(x.reshape(4, 8), (0, 1), epsilon=1e-2)
    return {name: {"value": plain(f(x)), "grad": plain(jax.grad(lambda x: weighted(f(x)))(x))} for name, f in made.items()}


def losses():
    o, x, y = optax.losses, 3 * ramp(4, 5), ramp(5, 4).T
    p, signs = jax.nn.softmax(2 * y), jnp.sign(y + 0.01)
    ids = jnp.asarray([0, 4, 2, 2])
    holed, hole = p.at[0, 0].set(0.0), x.at[0, 0].set(-jnp.inf)
    made = {
        "softmax_cross_entropy": lambda x: o.softmax_cross_entropy(x, p),
        "safe_softmax_cross_entropy": lambda x: o.safe_softmax_cross_entropy(x, holed),
        "poly_loss_cross_entropy": lambda x: o.poly_loss_cross_entropy(x, p),
        "poly_loss_one": lambda x: o.poly_loss_cross_entropy(x, p, epsilon=1.0),
        "smooth_labels": lambda x: o.smooth_labels(x, 0.1),
        "sigmoid_focal_loss": lambda x: o.sigmoid_focal_loss(x, (y + 1) / 2),
        "sigmoid_focal_numbers": lambda x: o.sigmoid_focal_loss(x, (signs + 1) / 2, alpha=0.25, gamma=1.5),
        "hinge_loss": lambda x: o.hinge_loss(x, signs),
        "perceptron_loss": lambda x: o.perceptron_loss(x, signs),
        "multiclass_hinge_loss": lambda x: o.multiclass_hinge_loss(x, ids),
        "multiclass_perceptron_loss": lambda x: o.multiclass_perceptron_loss(x, ids),
        "kl_divergence_with_log_targets": lambda x: o.kl_divergence_with_log_targets(jax.nn.log_softmax(x), jnp.log(p)),
        "generalized_kl_divergence": lambda x: o.generalized_kl_divergence(x, holed),
        "squared_error": lambda x: o.squared_error(x, y),
        "l2_loss": lambda x: o.l2_loss(x, y),
        "log_cosh": lambda x: o.log_cosh(x, y),
        "cosine_similarity": lambda x: o.cosine_similarity(x, y),
        "cosine_distance": lambda x: o.cosine_distance(x, y, epsilon=12.0),
    }
    out = {name: {"value": plain(f(x)), "grad": plain(jax.grad(lambda x: weighted(f(x)))(x))} for name, f in made.items()}
    out["safe_hole"] = {"value": plain(o.safe_softmax_cross_entropy(hole, holed))}
    return out


def main():
    made = {part.__name__: part() for part in (layers, weight_norm, initializers, activations, losses)}
    made["made_with"] = {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__}
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(text.replace('},"', '},\n"') + "\n")


main()
