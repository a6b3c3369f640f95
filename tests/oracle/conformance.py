"""Programs drawn at random, run by JAX on 8 CPU devices: values, output shardings in explicit mode, and whether
JAX refuses them. Writes tests/oracle/conformance.json; tests/spec/conformance_spec.lua runs the same programs.

    python -m venv venv && venv/bin/pip install jax==0.10.2
    venv/bin/python tests/oracle/conformance.py

A program is a list of steps over values: the arguments first, then what each step gives. Numbers count from 0
here, as JAX counts.
"""
import json
import os
import random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, PartitionSpec as P  # noqa: E402

SEED = 20261121
rng = random.Random(SEED)
MESHES = [(("x", "y"), (4, 2)), (("x", "y"), (4, 2)), (("a", "b", "c"), (2, 2, 2))]


# ---- what a step means in JAX ----------------------------------------------------------------------------


def spec_of(entries):
    return P(*[tuple(e) if isinstance(e, list) else e for e in entries])


def softmax(s, x):
    return jax.nn.softmax(x, axis=s["axis"])


def out_of(s):
    return {"out_sharding": spec_of(s["out"])} if "out" in s else {}


def slices(s):
    return tuple(slice(a, b, c) for a, b, c in zip(s["start"], s["limit"], s["stride"]))


STEPS = {
    "neg": lambda s, x: -x,
    "exp": lambda s, x: jnp.exp(x),
    "tanh": lambda s, x: jnp.tanh(x),
    "abs": lambda s, x: jnp.abs(x),
    "square": lambda s, x: jnp.square(x),
    "add": lambda s, x, y: x + y,
    "sub": lambda s, x, y: x - y,
    "mul": lambda s, x, y: x * y,
    "maximum": lambda s, x, y: jnp.maximum(x, y),
    "where": lambda s, c, x, y: jnp.where(c > 0, x, y),
    "einsum": lambda s, x, y: jnp.einsum(s["eq"], x, y, **out_of(s)),
    "sum": lambda s, x: jnp.sum(x, axis=tuple(s["axes"]), keepdims=s["keepdims"]),
    "max": lambda s, x: jnp.max(x, axis=tuple(s["axes"]), keepdims=s["keepdims"]),
    "min": lambda s, x: jnp.min(x, axis=tuple(s["axes"]), keepdims=s["keepdims"]),
    "mean": lambda s, x: jnp.mean(x, axis=tuple(s["axes"]), keepdims=s["keepdims"]),
    "argmax": lambda s, x: jnp.argmax(x, axis=s["axis"]),
    "transpose": lambda s, x: jnp.transpose(x, s["perm"]),
    "reshape": lambda s, x: jax.lax.reshape(x, s["shape"], **out_of(s)),
    "broadcast_to": lambda s, x: jnp.broadcast_to(x, s["shape"]),
    "expand_dims": lambda s, x: jnp.expand_dims(x, s["axis"]),
    "squeeze": lambda s, x: jnp.squeeze(x, s["axis"]),
    "slice": lambda s, x: jax.lax.slice(x, s["start"], s["limit"], s["stride"]),
    "pad": lambda s, x: jax.lax.pad(x, jnp.float32(0), [(a, b, 0) for a, b in zip(s["low"], s["high"])]),
    "concat": lambda s, *xs: jax.lax.concatenate(xs, s["axis"]),
    "flip": lambda s, x: jnp.flip(x, s["axis"]),
    "cumsum": lambda s, x: jax.lax.cumsum(x, axis=s["axis"]),
    "sort": lambda s, x: jax.lax.sort(x, dimension=s["axis"]),
    "take": lambda s, x, i: x[i],
    "softmax": softmax,
    "reshard": lambda s, x: jax.reshard(x, spec_of(s["spec"])),
    "constrain": lambda s, x: jax.lax.with_sharding_constraint(x, spec_of(s["spec"])),
    # inside shard_map
    "psum": lambda s, x: jax.lax.psum(x, tuple(s["over"])),
    "pmean": lambda s, x: jax.lax.pmean(x, tuple(s["over"])),
    "pmax": lambda s, x: jax.lax.pmax(x, tuple(s["over"])),
    "all_gather": lambda s, x: jax.lax.all_gather(x, tuple(s["over"]), axis=s["axis"], tiled=s["tiled"]),
    "psum_scatter": lambda s, x: jax.lax.psum_scatter(x, tuple(s["over"]), scatter_dimension=s["axis"],
                                                      tiled=s["tiled"]),
    "ppermute": lambda s, x: jax.lax.ppermute(x, s["over"][0], [tuple(p) for p in s["pairs"]]),
    "all_to_all": lambda s, x: jax.lax.all_to_all(x, tuple(s["over"]), s["split"], s["concat"], tiled=True),
    "add_index": lambda s, x: x + jax.lax.axis_index(tuple(s["over"])).astype(x.dtype),
}


def run_steps(steps, values):
    values = list(values)
    for s in steps:
        values.append(STEPS[s["op"]](s, *[values[i] for i in s["in"]]))
    return values[-1]


# ---- arguments ---------------------------------------------------------------------------------------------


def argument(a):
    n = int(np.prod(a["shape"]))
    if "rows" in a:  # ids
        return (np.arange(n) * 5 % a["rows"]).astype(np.int32).reshape(a["shape"])
    return ((np.arange(n) * (37 + 6 * a["salt"]) % 17 - 8) / 4).astype(np.float32).reshape(a["shape"])


def weights(shape):
    n = int(np.prod(shape))
    return ((np.arange(n) * 5 % 7 - 3) / 2).astype(np.float32).reshape(shape)


# ---- one case, run by JAX ----------------------------------------------------------------------------------


def in_mode(case):
    names, sizes = case["mesh"]["names"], case["mesh"]["sizes"]
    kind = AxisType.Explicit if case["mode"] == "explicit" else AxisType.Auto
    mesh = jax.make_mesh(tuple(sizes), tuple(names), axis_types=(kind,) * len(names))
    with jax.set_mesh(mesh):
        args = [jax.device_put(argument(a), spec_of(a["spec"])) for a in case["args"]]
        steps, transform = case["steps"], case.get("transform")
        if case["mode"] == "shard_map":
            def fn(*xs):
                return jax.shard_map(lambda *b: run_steps(steps, b),
                                     in_specs=tuple(spec_of(s) for s in case["in_specs"]),
                                     out_specs=spec_of(case["out_spec"]))(*xs)
        else:
            def fn(*xs):
                return run_steps(steps, xs)
        if transform == "vmap":
            inner = fn
            fn = jax.vmap(inner, in_axes=tuple(case["in_axes"]), out_axes=case["out_axis"])
        if transform == "scan":
            def fn(c, xs):
                return jax.lax.scan(lambda a, b: (run_steps(steps, (a, b)), run_steps(steps, (b, a))), c, xs)[
                    case["result"]]
        if transform == "cond":
            def fn(p, x):
                return jax.lax.cond(p.sum() > 0, lambda v: run_steps(steps, (v,)), lambda v: v * 2, x)
        if transform == "grad":
            value = fn

            def loss(*xs):
                y = value(*xs)
                w = weights(y.shape)
                if case["mode"] == "explicit":
                    w = jax.reshard(jnp.asarray(w), jax.typeof(y).sharding.spec)
                return jnp.sum(y * w)
            fn = jax.grad(loss)
        out = jax.jit(fn)(*args)
        spec = None
        if case["mode"] == "explicit":
            spec = [list(e) if isinstance(e, tuple) else e for e in jax.typeof(out).sharding.spec]
            spec += [None] * (out.ndim - len(spec))
        return {"shape": list(out.shape), "values": [float("%.7g" % v) for v in np.asarray(out).ravel()],
                "spec": spec}


# ---- drawing -----------------------------------------------------------------------------------------------


def pick_spec(names, shape, sizes, chance=0.5):
    free, spec = list(names), []
    rng.shuffle(free)
    for d in shape:
        entry = None
        if free and rng.random() < chance:
            entry = free.pop()
            if free and rng.random() < 0.1:
                entry = [entry, free.pop()]
            axes = entry if isinstance(entry, list) else [entry]
            if d % int(np.prod([sizes[a] for a in axes])) != 0:
                entry = None  # placing it would already be refused
        spec.append(entry)
    return spec


def dims(rank):
    return [rng.choice([4, 8, 8, 2]) for _ in range(rank)]


class Draw:
    def __init__(self, family, mode):
        names, sizes = rng.choice(MESHES)
        self.names, self.sizes = list(names), dict(zip(names, sizes))
        self.case = {"family": family, "mode": mode, "mesh": {"names": list(names), "sizes": list(sizes)},
                     "args": [], "steps": []}

    def arg(self, shape, spec=None, **more):
        if spec is None:
            spec = pick_spec(self.names, shape, self.sizes)
        self.case["args"].append({"shape": shape, "spec": spec, "salt": len(self.case["args"]), **more})
        return len(self.case["args"]) - 1

    def step(self, op, ins, **attrs):
        self.case["steps"].append({"op": op, "in": ins, **attrs})
        return len(self.case["args"]) + len(self.case["steps"]) - 1


def draw_unary(mode):
    d = Draw("unary", mode)
    d.step(rng.choice(["neg", "exp", "tanh", "abs", "square"]), [d.arg(dims(rng.randint(0, 3)))])
    return d.case


def draw_binary(mode):
    d = Draw("binary", mode)
    shape = dims(rng.randint(1, 3))
    other = [1 if rng.random() < 0.25 else n for n in shape]
    a = d.arg(shape)
    b = d.arg(other, None if rng.random() < 0.5 else
              [e if n > 1 else None for e, n in zip(d.case["args"][0]["spec"], other)])
    d.step(rng.choice(["add", "sub", "mul", "maximum"]), [a, b])
    return d.case


def draw_where(mode):
    d = Draw("where", mode)
    shape = dims(2)
    spec = pick_spec(d.names, shape, d.sizes)
    ins = [d.arg(shape, spec if rng.random() < 0.8 else None) for _ in range(3)]
    d.step("where", ins)
    return d.case


EQUATIONS = ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "btc,cd->btd", "ij,ij->", "ij,j->i", "i,j->ij"]


def draw_einsum(mode):
    d = Draw("einsum", mode)
    eq = rng.choice(EQUATIONS)
    left, right = eq.split("->")[0].split(",")
    size = {c: rng.choice([4, 8]) for c in left + right}
    ins = [d.arg([size[c] for c in side]) for side in (left, right)]
    more = {}
    if mode == "explicit" and rng.random() < 0.25:
        more["out"] = pick_spec(d.names, [size[c] for c in eq.split("->")[1]], d.sizes)
    d.step("einsum", ins, eq=eq, **more)
    return d.case


def draw_reduce(mode):
    d = Draw("reduce", mode)
    shape = dims(rng.randint(1, 3))
    axes = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape))))
    d.step(rng.choice(["sum", "max", "min", "mean"]), [d.arg(shape)], axes=axes, keepdims=rng.random() < 0.4)
    return d.case


def draw_movement(mode):
    d = Draw("movement", mode)
    kind = rng.choice(["transpose", "broadcast_to", "expand_dims", "squeeze", "flip", "slice", "pad"])
    rank = rng.randint(1, 3)
    shape = dims(rank)
    if kind == "squeeze":
        at = rng.randrange(rank)
        shape[at] = 1
        d.step(kind, [d.arg(shape)], axis=at)
    elif kind == "transpose":
        d.step(kind, [d.arg(shape)], perm=rng.sample(range(rank), rank))
    elif kind == "broadcast_to":
        d.step(kind, [d.arg(shape)], shape=dims(1) + shape)
    elif kind == "expand_dims":
        d.step(kind, [d.arg(shape)], axis=rng.randint(0, rank))
    elif kind == "flip":
        d.step(kind, [d.arg(shape)], axis=rng.randrange(rank))
    elif kind == "slice":
        start = [rng.choice([0, 0, n // 2]) for n in shape]
        d.step(kind, [d.arg(shape)], start=start, limit=shape, stride=[1] * rank)
    else:
        d.step(kind, [d.arg(shape)], low=[0] * rank, high=[rng.choice([0, 0, n]) for n in shape])
    return d.case


def draw_reshape(mode):
    d = Draw("reshape", mode)
    pairs = [([8, 4], [32]), ([32], [8, 4]), ([8, 8], [8, 4, 2]), ([8, 4, 2], [8, 8]), ([4, 8], [4, 8, 1]),
             ([4, 1, 8], [4, 8]), ([16, 4], [4, 4, 4]), ([4, 4, 4], [16, 4]), ([8, 4], [4, 8])]
    shape, to = rng.choice(pairs)
    more = {"out": pick_spec(d.names, to, d.sizes)} if mode == "explicit" and rng.random() < 0.2 else {}
    d.step("reshape", [d.arg(shape)], shape=to, **more)
    return d.case


def draw_concat(mode):
    d = Draw("concat", mode)
    shape = dims(2)
    spec = pick_spec(d.names, shape, d.sizes)
    ins = [d.arg(shape, spec if rng.random() < 0.85 else None) for _ in range(2)]
    d.step("concat", ins, axis=rng.randrange(2))
    return d.case


def draw_along(mode):
    d = Draw("along an axis", mode)
    shape = dims(rng.randint(1, 3))
    op = rng.choice(["cumsum", "sort", "argmax", "softmax"])
    d.step(op, [d.arg(shape)], axis=rng.randrange(len(shape)))
    return d.case


def draw_take(mode):
    d = Draw("take", mode)
    shape = dims(2)
    table = d.arg(shape, [None, rng.choice([None] + d.names)] if rng.random() < 0.8 else None)
    if d.case["args"][0]["spec"][1] and shape[1] % d.sizes[d.case["args"][0]["spec"][1]]:
        d.case["args"][0]["spec"] = [None, None]
    ids = d.arg(dims(rng.randint(1, 2)), None if rng.random() < 0.1 else [], rows=shape[0])
    d.case["args"][1]["spec"] = d.case["args"][1]["spec"] or [None] * len(d.case["args"][1]["shape"])
    d.step("take", [table, ids])
    return d.case


def draw_reshard(mode):
    d = Draw("reshard", mode)
    shape = dims(rng.randint(1, 3))
    a = d.arg(shape)
    d.step("reshard" if mode == "explicit" else "constrain", [a], spec=pick_spec(d.names, shape, d.sizes, 0.7))
    return d.case


def draw_program(mode):
    d = Draw("program", mode)
    shape = dims(2)
    a, b = d.arg(shape), d.arg(shape)
    if rng.random() < 0.7:
        d.case["args"][1]["spec"] = d.case["args"][0]["spec"]
    v = d.step(rng.choice(["add", "mul"]), [a, b])
    v = d.step(rng.choice(["tanh", "neg", "square"]), [v])
    if rng.random() < 0.5:
        v = d.step("transpose", [v], perm=[1, 0])
        v = d.step("einsum", [v, a], eq="ij,jk->ik")
    if rng.random() < 0.5:
        d.step("sum", [v], axes=[rng.randrange(2)], keepdims=False)
    return d.case


def blocks(d, shape, spec):
    return [n // int(np.prod([d.sizes[a] for a in (e if isinstance(e, list) else [e] if e else [])]))
            for n, e in zip(shape, spec)]


def draw_shard_map(mode):
    d = Draw("shard_map", mode)
    shape = [8, 8]
    d.arg(shape)
    specs = [pick_spec(d.names, shape, d.sizes, 0.8)]
    d.case["in_specs"] = specs
    over = [rng.choice(d.names)]
    if rng.random() < 0.15:
        over = rng.sample(d.names, 2)
    n = int(np.prod([d.sizes[a] for a in over]))
    v, local = 0, blocks(d, shape, specs[0])
    op = rng.choice(["psum", "pmean", "pmax", "all_gather", "psum_scatter", "ppermute", "all_to_all",
                     "add_index", "none"])
    if rng.random() < 0.5:
        v = d.step(rng.choice(["square", "neg", "tanh"]), [v])
    if op in ("psum", "pmean", "pmax", "add_index"):
        v = d.step(op, [v], over=over)
    elif op == "all_gather":
        tiled = rng.random() < 0.7
        v = d.step(op, [v], over=over, axis=rng.randrange(2), tiled=tiled)
    elif op == "psum_scatter":
        v = d.step(op, [v], over=over, axis=rng.randrange(2), tiled=True)
    elif op == "ppermute":
        m = d.sizes[over[0]]
        pairs = [[i, (i + 1) % m] for i in range(m)]
        if rng.random() < 0.3:
            pairs = pairs[:-1]
        if rng.random() < 0.15:
            pairs[0][1] = pairs[-1][1]
        v = d.step(op, [v], over=over[:1], pairs=pairs)
    elif op == "all_to_all":
        v = d.step(op, [v], over=over, split=rng.randrange(2), concat=rng.randrange(2))
    if rng.random() < 0.4:
        v = d.step("einsum", [v, v], eq="ij,kj->ik") if rng.random() < 0.5 else d.step("add", [v, v])
    if not d.case["steps"]:
        d.step("neg", [0])
    # Where things lie afterwards: as they came, or spread anew; a fifth of them is wrong.
    rank = 3 if any(s.get("tiled") is False for s in d.case["steps"]) else 2
    out = list(specs[0]) + [None] * (rank - 2) if rng.random() < 0.6 else pick_spec(d.names, [8] * rank, d.sizes, 0.7)
    d.case["out_spec"] = out
    return d.case


def draw_transform(mode):
    kind = rng.choice(["grad", "grad", "vmap", "scan", "cond"])
    if kind == "grad":
        case = rng.choice([draw_einsum, draw_reduce, draw_binary, draw_reshape, draw_program, draw_shard_map]
                          if mode != "explicit" else
                          [draw_einsum, draw_reduce, draw_binary, draw_reshape, draw_program])(mode)
        if "in_specs" in case:
            case["mode"] = "shard_map"
    elif kind == "vmap":
        d = Draw("vmap", mode)
        size = rng.choice([4, 8])
        axes = [rng.choice([0, 1, None]) for _ in range(2)]
        if axes == [None, None]:
            axes[0] = 0
        shapes = [[4, 8] if a is None else [size, 4, 8] if a == 0 else [4, size, 8] for a in axes]
        specs = [[None] * len(s) for s in shapes] if mode == "explicit" else [None, None]
        ins = [d.arg(s, e) for s, e in zip(shapes, specs)]
        d.step(rng.choice(["add", "mul"]), ins) if rng.random() < 0.5 else d.step("einsum", ins, eq="ij,kj->ik")
        d.case["in_axes"], d.case["out_axis"] = axes, rng.choice([0, 1])
        case = d.case
    elif kind == "scan":
        d = Draw("scan", mode)
        shape = dims(2)
        spec = pick_spec(d.names, shape, d.sizes)
        c = d.arg(shape, spec)
        x = d.arg([3] + shape, [None] + spec)
        v = d.step(rng.choice(["mul", "add", "maximum"]), [c, x])
        d.step("tanh", [v])
        d.case["result"] = rng.choice([0, 1])
        case = d.case
    else:
        d = Draw("cond", mode)
        shape = dims(2)
        d.arg([2], [None])
        d.arg(shape)
        case = d.case
        case["steps"] = [{"op": rng.choice(["neg", "square", "tanh"]), "in": [0]}]
    case["transform"] = kind
    case["family"] = kind
    return case


PLAN = [
    (draw_unary, "explicit", 14), (draw_binary, "explicit", 45), (draw_where, "explicit", 12),
    (draw_einsum, "explicit", 60), (draw_reduce, "explicit", 35), (draw_movement, "explicit", 55),
    (draw_reshape, "explicit", 30), (draw_concat, "explicit", 14), (draw_along, "explicit", 30),
    (draw_take, "explicit", 14), (draw_reshard, "explicit", 16), (draw_program, "explicit", 16),
    (draw_binary, "auto", 6), (draw_einsum, "auto", 14), (draw_reduce, "auto", 8), (draw_movement, "auto", 10),
    (draw_along, "auto", 8), (draw_take, "auto", 6), (draw_reshard, "auto", 8), (draw_program, "auto", 10),
    (draw_shard_map, "shard_map", 90), (draw_transform, "auto", 40), (draw_transform, "explicit", 30),
]


def main():
    cases = []
    for draw, mode, count in PLAN:
        for _ in range(count):
            case = draw(mode)
            case["id"] = len(cases) + 1
            try:
                case["jax"] = in_mode(case)
            except Exception as e:  # JAX refuses it
                case["error"] = "%s: %s" % (type(e).__name__, " ".join(str(e).split())[:160])
            cases.append(case)
    with open("tests/oracle/conformance.json", "w") as f:
        f.write('{"jax": "%s", "seed": %d, "cases": [\n' % (jax.__version__, SEED))
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")
    errors = [c for c in cases if "error" in c]
    print(len(cases), "cases,", len(errors), "refused")
    for c in errors:
        print(c["id"], c["family"], c["mode"], c["error"][:110])


main()
