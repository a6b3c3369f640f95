"""Where JAX puts the shards of tensors, for tests/spec/layout/placement_spec.lua.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/oracle/placement.py \
        > tests/oracle/placement.json

Meshes, specs and shapes are drawn by a seeded generator. A spec is a list of lists of axis names, an index a
list of [first, last] pairs, from 1 and inclusive as meshlua writes them. An error is its kind alone.
"""

import json
import random

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

SEED, PLACES, PAIRS = 20, 400, 300
draw = random.Random(SEED)

MESHES = [
    {"sizes": [4, 2], "names": ["data", "model"]},
    {"sizes": [2, 4], "names": ["data", "model"]},
    {"sizes": [8], "names": ["x"]},
    {"sizes": [2, 2, 2], "names": ["a", "b", "c"]},
    {"sizes": [8, 1], "names": ["x", "one"]},
    {"sizes": [1, 4], "names": ["one", "x"], "devices": [7, 5, 3, 1]},
    {"sizes": [2, 3], "names": ["x", "y"], "devices": [5, 0, 3, 2, 1, 4]},
    {"sizes": [8], "names": ["y"], "devices": [7, 6, 5, 4, 3, 2, 1, 0]},
    {"sizes": [1], "names": ["x"], "devices": [0]},
]
for entry in MESHES:
    entry.setdefault("devices", list(range(int(np.prod(entry["sizes"])))))


def mesh_of(m):
    devices = np.array([jax.devices()[i] for i in m["devices"]]).reshape(m["sizes"])
    return Mesh(devices, m["names"])


def draw_spec(names, rank):
    """Mostly legal; now and then an axis twice, an unknown one, or an entry too many."""
    pool = list(names)
    draw.shuffle(pool)
    spec = []
    for _ in range(draw.randint(0, rank)):
        take = draw.choice([0, 1, 1, 2])
        spec.append([pool.pop() for _ in range(min(take, len(pool)))])
    wrong = draw.random()
    if wrong < 0.04:
        spec.append([draw.choice(names)])
    elif wrong < 0.08 and spec:
        draw.choice(spec).append(draw.choice(names))
    elif wrong < 0.10 and spec:
        draw.choice(spec).append("nowhere")
    return spec


def partition_spec(spec):
    return PartitionSpec(*[tuple(entry) or None for entry in spec])


def index_of(slices, shape):
    return [[s.indices(n)[0] + 1, s.indices(n)[1]] for s, n in zip(slices, shape)]


def place(m, spec, shape):
    """What JAX says of one array, or the kind of its error."""
    try:
        sharding = NamedSharding(mesh_of(m), partition_spec(spec))
    except Exception as e:  # kinds differ between versions: their names are kept for the reader
        return {"error": "spec", "jax": type(e).__name__}
    if len(spec) > len(shape):  # shard_shape alone does not ask
        try:
            jax.device_put(np.zeros(shape), sharding)
        except ValueError as e:
            return {"error": "rank", "jax": type(e).__name__}
        raise SystemExit(f"no error for {spec} of rank {len(shape)}")
    try:
        local = sharding.shard_shape(tuple(shape))
    except ValueError as e:
        return {"error": "indivisible", "jax": type(e).__name__}
    array = jax.device_put(np.arange(np.prod(shape), dtype="int32").reshape(shape), sharding)
    indices = sharding.devices_indices_map(tuple(shape))
    shards = {s.device.id: s for s in array.addressable_shards}
    return {
        "shard_shape": list(local),
        "replicated": sharding.is_fully_replicated,
        "free": [n for n in m["names"] if n not in [a for e in spec for a in e]],
        "devices": [
            [d.id, index_of(s, shape), shards[d.id].replica_id, int(np.asarray(shards[d.id].data).sum())]
            for d, s in indices.items()
        ],
    }


def places():
    cases = []
    for _ in range(PLACES):
        m = draw.randrange(len(MESHES))
        rank = draw.randint(0, 3)
        spec = draw_spec(MESHES[m]["names"], rank)
        shape = [draw.choice([1, 2, 3, 4, 6, 8, 8, 16, 16, 24]) for _ in range(rank)]
        cases.append({"mesh": m, "spec": spec, "shape": shape, "is": place(MESHES[m], spec, shape)})
    return cases


def legal_sharding(ndim):
    while True:
        m = draw.randrange(len(MESHES) + 1)
        if m == len(MESHES):
            return [None, None], SingleDeviceSharding(jax.devices()[0])
        spec = draw_spec(MESHES[m]["names"], ndim)
        try:
            sharding = NamedSharding(mesh_of(MESHES[m]), partition_spec(spec))
        except Exception:
            continue
        if len(spec) <= ndim:
            return [m, spec], sharding


def pairs():
    cases, alike = [], 0
    while len(cases) < PAIRS:
        ndim = draw.randint(1, 3)
        (a, left), (b, right) = legal_sharding(ndim), legal_sharding(ndim)
        same = left.is_equivalent_to(right, ndim)
        if not same and len(cases) - alike > PAIRS // 2:
            continue  # half of them at least are alike
        alike += same
        cases.append({"a": a, "b": b, "ndim": ndim, "same": same})
    return cases


def main():
    print('{"jax": "%s", "seed": %d,' % (jax.__version__, SEED))
    for name, cases in [("meshes", MESHES), ("places", places()), ("pairs", pairs())]:
        print('"%s": [' % name)
        print(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        print("]," if name != "pairs" else "]}")


main()
