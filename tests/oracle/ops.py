"""Numbers of jax.lax and flax for tests/spec/op/oracle_spec.lua: convolutions and windows with their
gradients, slices whose place is computed, cumulative ops, top_k, scatter; layers that are made of them.

    python tests/oracle/ops.py > tests/oracle/ops.json

Inputs come from `ramp`, which both sides compute exactly. Numbers are float64.
"""

import itertools
import json
import sys

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

jax.config.update("jax_enable_x64", True)


def ramp(*shape, dtype="float64"):
    """Numbers in [-1, 1] that look irregular: (37 i mod 101 - 50) / 50."""
    n = int(np.prod(shape))
    return jnp.asarray(((37 * np.arange(n)) % 101 - 50) / 50.0, dtype).reshape(shape)


def plain(x):
    return np.round(np.asarray(x, "float64"), 14).tolist()


def gradients(fn, *args):
    """Of sum(fn(args) * ramp), by each argument."""
    y = fn(*args)
    grads = jax.grad(lambda *a: jnp.sum(fn(*a) * ramp(*y.shape)), tuple(range(len(args))))(*args)
    return y, [plain(g) for g in grads]


def convolutions():
    """Every combination of strides, pads, dilations of both and groups, in one and two spatial dims."""
    out = []
    one = {
        "strides": [(1,), (2,)],
        "padding": ["SAME", "VALID", ((2, -1),)],
        "input_dilation": [(1,), (2,)],
        "kernel_dilation": [(1,), (2,)],
        "groups": [1, 2],
    }
    two = {
        "strides": [(1, 1), (2, 3)],
        "padding": ["SAME", "VALID", ((1, 2), (0, 1))],
        "input_dilation": [(1, 1), (2, 1)],
        "kernel_dilation": [(1, 1), (1, 2)],
        "groups": [1, 2],
    }
    shapes = {1: ((2, 7), (3,)), 2: ((1, 4, 5), (3, 2))}
    numbers = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}
    for n, table in ((1, one), (2, two)):
        for chosen in itertools.product(*table.values()):
            o = dict(zip(table, chosen))
            pads = o["padding"]
            if isinstance(pads, str) and any(d != 1 for d in o["input_dilation"]):
                if pads == "SAME":
                    continue
                pads = [(0, 0)] * n  # JAX takes no word here
            x, w = ramp(*shapes[n][0], 2), ramp(*shapes[n][1], 2 // o["groups"], 2)

            def fn(x, w):
                return lax.conv_general_dilated(
                    x, w, o["strides"], pads, o["input_dilation"], o["kernel_dilation"],
                    numbers[n], o["groups"],
                )

            y, grads = gradients(fn, x, w)
            out.append(dict(o, x=x.shape, w=w.shape, y=plain(y), dx=grads[0], dw=grads[1]))
    return out


def windows():
    out = []
    for shape, window, strides, padding in (
        ((2, 9), (1, 3), (1, 2), "VALID"),
        ((2, 9), (1, 3), (1, 2), "SAME"),
        ((1, 4, 6, 2), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        ((1, 5, 4, 2), (1, 3, 3, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (2, 1), (0, 0))),
        ((1, 5, 5, 2), (1, 3, 2, 1), (1, 1, 1, 1), "SAME"),
    ):
        for kind, init, combine in (("max", -np.inf, lax.max), ("sum", 0.0, lax.add)):
            for rounded in (False, True):  # few numbers: ties
                x = ramp(*shape)
                x = jnp.round(x) if rounded else x
                y, grads = gradients(
                    lambda x: lax.reduce_window(x, init, combine, window, strides, padding), x
                )
                out.append({
                    "kind": kind, "x": shape, "window": window, "strides": strides, "padding": padding,
                    "rounded": rounded, "y": plain(y), "dx": grads[0],
                })
    return out


def slices():
    out = []
    for starts, sizes in (((1, 2), (2, 3)), ((-2, 20), (3, 4)), ((7, 0), (5, 6)), ((3, 1), (1, 6))):
        x, u = ramp(5, 6), 2 * ramp(*sizes)
        y, grads = gradients(lambda x: lax.dynamic_slice(x, starts, sizes), x)
        z, both = gradients(lambda x, u: lax.dynamic_update_slice(x, u, starts), x, u)
        out.append({
            "starts": starts, "sizes": sizes, "slice": plain(y), "dslice": grads[0],
            "update": plain(z), "dx": both[0], "du": both[1],
        })
    return out


def cumulative():
    out = {}
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        for axis, reverse in ((0, False), (1, True)):
            y, grads = gradients(lambda x: getattr(lax, name)(x, axis, reverse=reverse), ramp(4, 7))
            out[f"{name} {axis + 1} {str(reverse).lower()}"] = {"y": plain(y), "dx": grads[0]}
    return out


def top():
    x = ramp(3, 8)
    ties = jnp.asarray([[1, 3, 3, 2, 3, 0, 2, 2]], "float64")
    y, grads = gradients(lambda x: lax.top_k(x, 3)[0], x)
    return {
        "values": plain(y), "ids": plain(lax.top_k(x, 3)[1]), "dx": grads[0],
        "tied": plain(lax.top_k(ties, 6)[1]),
        "nan": plain(lax.top_k(jnp.asarray([1, np.nan, 5, np.nan, -np.inf]), 5)[1]),
        "argsort": plain(jnp.argsort(ties, axis=1, stable=True)),
        "argsort_down": plain(jnp.argsort(ties, axis=1, stable=True, descending=True)),
    }


def scatter():
    x, u, ids = ramp(6, 4), 2 * ramp(2, 2, 4), jnp.asarray([[0, 5], [3, 2]])
    y, grads = gradients(lambda x, u: x.at[ids].set(u), x, u)
    z, other = gradients(lambda x, u: x.at[:, ids[0, :1]].set(u), x, 2 * ramp(6, 1))
    return {"y": plain(y), "dx": grads[0], "du": grads[1], "column": plain(z), "dcolumn": other[1]}


def layers():
    one = nnx.initializers.normal(1.0)
    x = ramp(2, 5, 4, 4)

    def made(layer, x):
        graph, params, rest = nnx.split(layer, nnx.Param, ...)

        def loss(params, x):
            y = nnx.merge(graph, params, rest, copy=True)(x)
            return jnp.sum(y * ramp(*y.shape)), y

        (grads, dx), y = jax.grad(loss, (0, 1), has_aux=True)(params, x)
        out = {"result": plain(y), "dx": plain(dx)}
        for name, tree in (("params", params), ("grads", grads)):
            flat = nnx.to_flat_state(tree)
            out[name] = {".".join(map(str, path)): plain(leaf[...]) for path, leaf in flat}
        return out

    f64 = {"param_dtype": "float64", "dtype": "float64"}
    norm = nnx.BatchNorm(
        4, momentum=0.9, scale_init=one, bias_init=one, rngs=nnx.Rngs(0), use_fast_variance=False, **f64
    )
    training = made(norm, x)
    norm(x)
    norm(2 * x)
    training["mean"], training["var"] = plain(norm.mean[...]), plain(norm.var[...])
    norm.use_running_average = True
    training["evaluation"] = plain(norm(x))
    return {
        "conv": made(nnx.Conv(4, 6, (3, 3), bias_init=one, rngs=nnx.Rngs(0), **f64), x),
        "conv_more": made(
            nnx.Conv(
                4, 6, (3, 2), strides=(2, 1), padding="VALID", kernel_dilation=(1, 2),
                feature_group_count=2, use_bias=False, rngs=nnx.Rngs(0), **f64,
            ),
            x,
        ),
        "batch_norm": training,
        "max_pool": plain(nnx.max_pool(x, (2, 3), strides=(2, 1), padding="SAME")),
        "avg_pool": plain(nnx.avg_pool(x, (2, 3), strides=(2, 1), padding="SAME")),
        "avg_pool_inside": plain(
            nnx.avg_pool(x, (2, 3), strides=(2, 1), padding="SAME", count_include_pad=False)
        ),
    }


def main():
    parts = [convolutions, windows, slices, cumulative, top, scatter, layers]
    made = {part.__name__: part() for part in parts}
    made["made_with"] = {"jax": jax.__version__, "flax": flax.__version__}
    text = json.dumps(made, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(text.replace('},"', '},\n"').replace("},{", "},\n{") + "\n")


main()
