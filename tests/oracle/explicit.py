"""Single ops in JAX's explicit mode: how the result lies, or that the op is refused; values (by weighted sums);
and how gradients lie. Writes explicit.json.

  XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/oracle/explicit.py > tests/oracle/explicit.json
"""
import json
import math
import os
import random

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
SIZES = {"x": 4, "y": 2}
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
jax.set_mesh(mesh)


def data(shape, k):
    n = math.prod(shape)
    return np.cos(0.7 * np.arange(n, dtype=np.float64) + k).reshape(shape)


def prints(v):
    """Four weighted sums: they tell permutations and single elements apart."""
    flat = np.asarray(v, np.float64).ravel()
    i = np.arange(1, flat.size + 1)
    return [float(np.sum(flat * np.sin(0.3 * j * i))) for j in range(1, 5)]


def draw_spec(g, shape):
    free = ["x", "y"]
    out = []
    for n in shape:
        axes = []
        while free and g.random() < (0.6 if not axes else 0.3):
            a = g.choice(free)
            if n % math.prod(SIZES[b] for b in axes + [a]):
                break
            axes.append(a)
            free.remove(a)
        out.append(axes)
    return out


def to_p(spec, unreduced=(), reduced=()):
    return P(*[tuple(a) if len(a) > 1 else a[0] if a else None for a in spec], unreduced=frozenset(unreduced),
             reduced=frozenset(reduced))


def from_p(p, ndim):
    parts = [[] if e is None else [e] if isinstance(e, str) else list(e) for e in p._partitions]
    parts += [[] for _ in range(ndim - len(parts))]
    return {"spec": parts, "unreduced": sorted(p.unreduced), "reduced": sorted(p.reduced)}


def run(c, out, *v):
    op, k = c["op"], {"out_sharding": out} if out is not None else {}
    if op in ("exp", "neg", "tanh"):
        return {"exp": jnp.exp, "neg": jnp.negative, "tanh": jnp.tanh}[op](v[0])
    if op in ("add", "sub", "mul"):
        return {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply}[op](*v)
    if op == "where":
        return jnp.where(v[0] > 0, v[1], v[2])
    if op == "matmul":
        return jnp.matmul(*v, **k)
    if op == "einsum":
        return jnp.einsum(c["by"], *v, **k)
    if op in ("sum", "max", "mean"):
        return getattr(jnp, op)(v[0], axis=tuple(a - 1 for a in c["by"]))
    if op == "argmax":
        return jnp.argmax(v[0], axis=c["by"] - 1).astype(jnp.float64)
    if op == "transpose":
        return jnp.transpose(v[0], [a - 1 for a in c["by"]])
    if op == "reshape":
        return jnp.reshape(v[0], c["by"], **k)
    if op == "broadcast":
        return jnp.broadcast_to(v[0], c["by"])
    if op == "expand_dims":
        return jnp.expand_dims(v[0], c["by"] - 1)
    if op == "concat":
        return jnp.concatenate(v, axis=c["by"] - 1)
    if op == "sort":
        return jnp.sort(v[0], axis=c["by"] - 1)
    if op == "cumsum":
        return jnp.cumsum(v[0], axis=c["by"] - 1)
    if op == "softmax":
        return jax.nn.softmax(v[0], axis=-1)
    if op == "reshard":
        return jax.sharding.reshard(v[0], out)
    if op == "slice":
        return jax.lax.slice(v[0], *zip(*c["by"]))
    if op == "pad":
        return jnp.pad(v[0], c["by"])
    if op == "update":
        return jax.lax.dynamic_update_slice(v[0], v[1], c["by"])
    if op == "conv":
        return jax.lax.conv_general_dilated(v[0], v[1], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    raise ValueError(op)


def draw(g):
    family = g.choice(["unary", "binary", "binary", "where", "matmul", "matmul", "matmul", "batched", "einsum",
                       "reduce", "reduce", "argmax", "transpose", "reshape", "reshape", "reshape", "broadcast",
                       "concat", "along", "softmax", "reshard", "unreduced", "gradient", "gradient"])
    shape = [g.choice([4, 8]) for _ in range(g.choice([1, 2, 2, 3]))]
    c = {"family": family, "of": [shape]}
    if family == "unary":
        c["op"] = g.choice(["exp", "neg", "tanh"])
    elif family in ("binary", "unreduced"):
        c["op"] = g.choice(["add", "sub", "mul"]) if family == "binary" else g.choice(["add", "sub", "neg", "exp"])
        other = [1 if g.random() < 0.15 else n for n in shape]
        if c["op"] not in ("neg", "exp"):
            c["of"].append(shape if family == "unreduced" else other[g.choice([0, 0, 0, 1]):])
    elif family == "where":
        c.update(op="where", of=[shape] * 3)
    elif family in ("matmul", "gradient"):
        m, k, n = (g.choice([4, 8]) for _ in range(3))
        c.update(op="matmul", of=[[m, k], [k, n]])
    elif family == "batched":
        b, m, k, n = (g.choice([4, 8]) for _ in range(4))
        c.update(op="matmul", of=[[b, m, k], [b, k, n]])
    elif family == "einsum":
        d = {l: g.choice([4, 8]) for l in "abcd"}
        c.update(op="einsum", by="abc,cd->dab", of=[[d["a"], d["b"], d["c"]], [d["c"], d["d"]]])
    elif family == "reduce":
        axes = sorted(g.sample(range(1, len(shape) + 1), g.randint(1, len(shape))))
        c.update(op=g.choice(["sum", "max", "mean"]), by=axes)
    elif family == "argmax":
        c.update(op="argmax", by=g.randint(1, len(shape)))
    elif family == "transpose":
        c.update(op="transpose", by=g.sample(range(1, len(shape) + 1), len(shape)))
    elif family == "reshape":
        n = math.prod(shape)
        to = g.choice([[n], [4, n // 4], [n // 4, 4], [2, 2, n // 4], [n // 2, 2], shape + [1], [1] + shape])
        c.update(op="reshape", by=to)
    elif family == "broadcast":
        c.update(op=g.choice(["broadcast", "expand_dims"]))
        c["by"] = [3] + shape if c["op"] == "broadcast" else g.randint(1, len(shape) + 1)
    elif family == "concat":
        c.update(op="concat", by=g.randint(1, len(shape)), of=[shape, shape])
    elif family == "along":
        c.update(op=g.choice(["sort", "cumsum"]), by=g.randint(1, len(shape)))
    elif family == "softmax":
        c.update(op="softmax")
    elif family == "reshard":
        c.update(op="reshard")
    c["specs"] = [draw_spec(g, s) for s in c["of"]]
    c["marks"] = [{} for _ in c["of"]]
    if family == "unreduced":
        free = [a for a in "xy" if all(a not in e for s in c["specs"] for e in s)]
        for i in range(len(c["of"])):
            if free and (i == 0 or g.random() < 0.8):
                c["specs"][i] = c["specs"][0]
                c["marks"][i] = {"unreduced": [free[0]]}
    if family == "gradient":
        used = [a for e in c["specs"][1] for a in e]
        free = [a for a in "xy" if a not in used]
        if free and g.random() < 0.6:
            c["marks"][1] = {"reduced": [g.choice(free)]}
    return c


def draw_resizing(g):
    """Ops that change the size of a dim, and convolutions."""
    shape = [g.choice([8, 16]) for _ in range(g.choice([1, 2, 2]))]
    op = g.choice(["slice", "slice", "pad", "update", "conv"])
    c = {"family": op, "op": op, "of": [shape]}
    if op == "slice":
        c["by"] = [g.choice([(0, n, 1), (0, n // 2, 1), (n // 4, n, 1), (3, 7, 1), (0, n, 2), (1, n - 3, 1)])
                   for n in shape]
    elif op == "pad":
        c["by"] = [g.choice([(0, 0), (4, 4), (0, 8), (1, 0), (2, 2)]) for _ in shape]
    elif op == "update":
        c["by"] = [g.randint(0, 3) for _ in shape]
        c["of"].append([g.choice([n, n // 2, n // 2]) for n in shape])
    else:
        c["of"] = [[4, 8, 8], [3, 8, 4]]
    c["specs"] = [draw_spec(g, s) for s in c["of"]]
    if op == "update" and g.random() < 0.6:
        c["specs"][1] = c["specs"][0]
    if op == "conv":
        c["specs"][g.choice([0, 1, 1])] = [[], [], []]
    c["marks"] = [{} for _ in c["of"]]
    return c


def add_out(g, c, shape):
    """An out_sharding for ops that take one."""
    if c["op"] in ("matmul", "einsum", "reshape", "reshard") and c["family"] != "gradient":
        if c["op"] == "reshard" or g.random() < 0.5:
            c["out"] = draw_spec(g, shape)
            both = [a for e in c["specs"][0] for a in e if any(a in f for f in c["specs"][-1])]
            free = [a for a in both if all(a not in e for e in c["out"])]
            if c["op"] in ("matmul", "reshard") and free and g.random() < 0.4:
                c["out_unreduced"] = [free[0]]


def solve(c):
    plain = [data(s, i) for i, s in enumerate(c["of"])]
    out = to_p(c["out"], c.get("out_unreduced", ())) if "out" in c else None
    try:
        put = [jax.sharding.reshard(jax.device_put(v, NamedSharding(mesh, to_p(s))),
                                    to_p(s, m.get("unreduced", ()), m.get("reduced", ())))
               for v, s, m in zip(plain, c["specs"], c["marks"])]
        if c["family"] == "gradient":
            def loss(*v):
                y = run(c, None, *v)
                return jnp.sum(y * y)
            grads = jax.jit(jax.grad(loss, argnums=(0, 1)))(*put)
            c["results"] = [from_p(v.sharding.spec, v.ndim) for v in grads]
            grads = [jax.sharding.reshard(v, P()) for v in grads]
            c["values"] = [prints(v) for v in grads]
        else:
            y = jax.jit(lambda *v: run(c, out, *v))(*put)
            c["results"] = [from_p(jax.typeof(y).sharding.spec, y.ndim)]
            c["values"] = [prints(jax.sharding.reshard(y, P()))]
    except Exception as e:
        c["error"] = type(e).__name__
    return c


def shape_of(c):
    v = [np.zeros(s) for s in c["of"]]
    by = c.get("by")
    return {"matmul": lambda: np.matmul(*v).shape, "einsum": lambda: np.einsum(by, *v).shape,
            "reshape": lambda: by, "reshard": lambda: c["of"][0]}.get(c["op"], lambda: [])()


def main():
    cases, g = [], random.Random(20261121)
    while len(cases) < 240:
        c = draw(g)
        add_out(g, c, list(shape_of(c)))
        cases.append(solve(c))
    g = random.Random(20261122)
    cases += [solve(draw_resizing(g)) for _ in range(80)]
    print(json.dumps({"jax": jax.__version__, "cases": cases}, indent=None, separators=(",", ":")).replace(
        '{"family"', '\n{"family"'))


main()
