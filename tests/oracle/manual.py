"""Random functions of blocks in JAX's shard_map: what values are (by weighted sums), their types inside (shape
and the axes they vary over), their gradients, and which out_specs are refused. Writes manual.json.

  XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/oracle/manual.py > tests/oracle/manual.json
"""
import json
import math
import os
import random

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)

MESHES = [((8,), ("x",)), ((4, 2), ("x", "y")), ((2, 2, 2), ("x", "y", "z")), ((2, 3), ("x", "y"))]
SIZES = [1, 2, 3, 4, 6]
UNARY = {"tanh": jnp.tanh, "sin": jnp.sin, "square": jnp.square, "sigmoid": jax.nn.sigmoid}
BINARY = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply}


def data(shape, k):
    n = math.prod(shape)
    return np.cos(0.7 * np.arange(n, dtype=np.float64) + k).reshape(shape)


def prints(x):
    """Four weighted sums: they tell permutations and single elements apart."""
    flat = np.asarray(x, np.float64).ravel()
    i = np.arange(1, flat.size + 1)
    return [float(np.sum(flat * np.sin(0.3 * j * i))) for j in range(1, 5)]


def apply(step, values):
    """One step of a program, inside shard_map."""
    op, x = step["op"], values[step["in"][0]]
    axes = tuple(step.get("axes", ()))
    if op in UNARY:
        return UNARY[op](x)
    if op in BINARY:
        return BINARY[op](x, values[step["in"][1]])
    if op == "scale":
        return x * step["by"]
    if op == "mean":
        return x.mean(step["dim"] - 1, keepdims=True)
    if op == "transpose":
        return x.T
    if op == "flatten":
        return x.reshape(-1)
    if op == "product":
        return x @ x.T
    if op == "place":
        return x * (lax.axis_index(axes) + 1)
    if op == "psum":
        return lax.psum(x, axes)
    if op == "pmean":
        return lax.pmean(x, axes)
    if op == "pmax":
        return lax.pmax(lax.stop_gradient(x), axes)
    if op == "pcast":
        return lax.pcast(x, axes, to="varying")
    if op == "all_gather":
        return lax.all_gather(x, axes, axis=step["dim"] - 1, tiled=step["tiled"])
    if op == "psum_scatter":
        return lax.psum_scatter(x, axes, scatter_dimension=step["dim"] - 1, tiled=step["tiled"])
    if op == "ppermute":
        return lax.ppermute(x, axes, [tuple(p) for p in step["perm"]])
    if op == "all_to_all":
        return lax.all_to_all(x, axes, step["split"] - 1, step["concat"] - 1, tiled=step["tiled"])
    raise ValueError(op)


def to_p(entries):
    return P(*[tuple(e) if e else None for e in entries])


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        sizes, names = self.r.choice(MESHES)
        self.size = dict(zip(names, sizes))
        self.program = {"seed": seed, "sizes": list(sizes), "names": list(names), "inputs": [], "steps": [],
                        "types": [], "outs": []}
        self.pool = []  # (shape, vary)

    def spec(self, rank, must, percent):
        entries = [[] for _ in range(rank)]
        for name in self.size:
            if rank and (name in must or self.r.randrange(100) < percent):
                entries[self.r.randrange(rank)].append(name)
        return entries

    def step(self, op, inputs, shape, vary, **more):
        self.program["steps"].append({"op": op, "in": inputs, **more})
        self.pool.append((tuple(shape), frozenset(vary)))
        return len(self.pool) - 1

    def axes(self):
        names = list(self.size)
        self.r.shuffle(names)
        axes = names[: self.r.choice([1, 1, 1, 2, 3])]
        return axes, math.prod(self.size[a] for a in axes)

    def add(self):
        i = self.r.randrange(len(self.pool))
        shape, vary = self.pool[i]
        op = self.r.choice(list(UNARY) + list(BINARY) * 2 + ["scale", "mean", "transpose", "flatten", "product",
                           "place", "psum", "psum", "pmean", "pmax", "pcast", "all_gather", "psum_scatter",
                           "ppermute", "all_to_all"])
        if op in UNARY:
            return self.step(op, [i], shape, vary)
        if op in BINARY:
            same = [k for k, (s, _) in enumerate(self.pool) if s == shape]
            k = self.r.choice(same)
            return self.step(op, [i, k], shape, vary | self.pool[k][1])
        if op == "scale":
            return self.step(op, [i], shape, vary, by=self.r.choice([0.5, -1.25, 2.0]))
        if op == "mean" and shape:
            d = self.r.randrange(len(shape))
            return self.step(op, [i], shape[:d] + (1,) + shape[d + 1:], vary, dim=d + 1)
        if op == "transpose":
            return self.step(op, [i], shape[::-1], vary)
        if op == "flatten":
            return self.step(op, [i], (math.prod(shape),), vary)
        if op == "product" and len(shape) == 2:
            return self.step(op, [i], (shape[0], shape[0]), vary)
        axes, n = self.axes()
        if op == "place":
            return self.step(op, [i], shape, vary | set(axes), axes=axes)
        if op == "pcast":
            axes = [a for a in axes if a not in vary]
            return axes and self.step(op, [i], shape, vary | set(axes), axes=axes)
        missing = [a for a in axes if a not in vary]
        if missing:  # JAX wants it to be said
            i = self.step("pcast", [i], shape, vary | set(missing), axes=missing)
            vary = self.pool[i][1]
        if op in ("psum", "pmean", "pmax"):
            return self.step(op, [i], shape, vary - set(axes), axes=axes)
        if op == "ppermute":
            places = list(range(n))
            perm = [[a, b] for a, b in zip(self.r.sample(places, n), self.r.sample(places, n))]
            return self.step(op, [i], shape, vary, axes=axes, perm=perm[: self.r.randrange(n + 1)])
        if op == "all_gather" and math.prod(shape) * n <= 256 and len(shape) < 4:
            tiled = bool(shape) and self.r.random() < 0.6
            d = self.r.randrange(len(shape) + (0 if tiled else 1))
            new = shape[:d] + (shape[d] * n,) + shape[d + 1:] if tiled else shape[:d] + (n,) + shape[d:]
            return self.step(op, [i], new, vary, axes=axes, dim=d + 1, tiled=tiled)
        fits = [d for d, s in enumerate(shape) if s % n == 0]
        if op == "psum_scatter" and fits:
            d = self.r.choice(fits)
            tiled = shape[d] != n
            new = shape[:d] + ((shape[d] // n,) if tiled else ()) + shape[d + 1:]
            return self.step(op, [i], new, vary, axes=axes, dim=d + 1, tiled=tiled)
        if op == "all_to_all" and fits:
            d = self.r.choice(fits)
            tiled = shape[d] != n or self.r.random() < 0.5
            c = self.r.randrange(len(shape))
            new = list(shape)
            if tiled:
                new[d] //= n
                new[c] *= n
            else:
                del new[d]
                new.insert(c, n)
            return self.step(op, [i], new, vary, axes=axes, split=d + 1, concat=c + 1, tiled=tiled)
        return None

    def make(self):
        for k in range(self.r.randint(1, 3)):
            local = [self.r.choice(SIZES) for _ in range(self.r.randint(1, 3))]
            spec = self.spec(len(local), [], 45)
            whole = [n * math.prod(self.size[a] for a in e) for n, e in zip(local, spec)]
            self.program["inputs"].append({"shape": whole, "spec": spec})
            self.pool.append((tuple(local), frozenset(a for e in spec for a in e)))
        wanted = self.r.randint(2, 8)
        while len(self.program["steps"]) < wanted:
            self.add()
        bad = self.r.random() < 0.2  # an axis may be left out of an out_spec
        first = len(self.program["inputs"])
        for v in range(first, len(self.pool)):
            shape, vary = self.pool[v]
            if vary and not shape:
                continue
            must = set(vary)
            if bad and must and self.r.random() < 0.4:
                must.discard(self.r.choice(sorted(must)))
                self.program["outs"].append({"value": v, "spec": self.spec(len(shape), must, 0)})
            else:
                self.program["outs"].append({"value": v, "spec": self.spec(len(shape), must, 15)})
        return self.program


def run(program):
    mesh = jax.make_mesh(tuple(program["sizes"]), tuple(program["names"]),
                         axis_types=(jax.sharding.AxisType.Auto,) * len(program["sizes"]),
                         devices=jax.devices()[: math.prod(program["sizes"])])
    args = [data(x["shape"], k) for k, x in enumerate(program["inputs"])]
    types = []

    def body(*blocks):
        types.clear()
        values = list(blocks)
        for step in program["steps"]:
            values.append(apply(step, values))
        for v in values:
            types.append(str(jax.typeof(v)))
        return tuple(values[o["value"]] for o in program["outs"])

    f = jax.shard_map(body, mesh=mesh, in_specs=tuple(to_p(x["spec"]) for x in program["inputs"]),
                      out_specs=tuple(to_p(o["spec"]) for o in program["outs"]))
    try:
        out = jax.jit(f)(*args)
    except ValueError as e:
        if "can't be statically inferred" not in str(e):
            raise
        program["types"], program["refused"] = types, True
        return

    def loss(*xs):
        return sum(jnp.mean(y * np.sin(0.3 * np.arange(y.size) + k + 1).reshape(y.shape))
                   for k, y in enumerate(f(*xs)))

    grads = jax.jit(jax.grad(loss, argnums=tuple(range(len(args)))))(*args)
    program["types"] = types
    program["values"] = [prints(y) for y in out]
    program["shapes"] = [list(y.shape) for y in out]
    program["grads"] = [prints(g) for g in grads]


def main():
    programs = []
    seed = 0
    while len(programs) < 120:
        seed += 1
        program = Maker(seed).make()
        if not program["outs"]:
            continue
        run(program)
        programs.append(program)
    head = {"jax": jax.__version__, "script": "tests/oracle/manual.py"}
    lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in programs)
    print(json.dumps(head)[:-1] + ', "programs": [\n' + lines + "\n]}")


main()
