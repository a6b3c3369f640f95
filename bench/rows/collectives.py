"""Collectives over 8 devices, and changes of layout. Bytes are those of a device's buffer, as nccl-tests count: the
argument, of an all-gather the result. What is compared is the first device's. The limit is memcpy: as many bytes as must be read and written where devices share
memory, and a replicated result is one."""

import json
import os
import subprocess
import sys

from rows.row import Row

SIZES = [("4 KiB", 1 << 12), ("256 KiB", 1 << 18), ("16 MiB", 1 << 24), ("256 MiB", 1 << 28)]
MOVED = {"all-reduce": 9, "reduce-scatter": 9, "all-gather": 2, "all-to-all": 16}  # buffers read and written
SMALL, SHOWN = 5e-6, 1 << 16
LARGEST_COPY = 1 << 28  # larger ones take as much longer

ROWS = []
for op, moved in MOVED.items():
    for label, size in SIZES:
        small = size <= 1 << 12
        ROWS.append(Row(f"{op} {label}", "collectives", {"op": op, "bytes": size, "copy": min(moved * size // 2, LARGEST_COPY)}, ("jax 8", "gloo"),
                        limits=() if small else ("copy",), constant=SMALL if small else 0.0, share=1.0 if small else 0.8,
                        vs_jax=2.0, vs_torch=3.0))
for source, target in (("S0", "S1"), ("S0", "R"), ("R", "S0")):
    shape = [4096, 4096]
    view = source == "R"  # nothing need be moved
    ROWS.append(Row(f"reshard {source} to {target} 64 MiB", "collectives",
                    {"reshard": [source, target], "shape": shape, "copy": 4 * shape[0] * shape[1]}, ("jax 8",),
                    limits=() if view else ("copy",), constant=SMALL if view else 0.0, share=1.0 if view else 0.8, vs_jax=2.0))


def limit(row, times, info):
    p = row.params
    return row.constant or times["copy"] * (MOVED[p["op"]] * p["bytes"] / 2 / p["copy"] if "op" in p else 1)


def ramp(n, start=0):
    """n of the numbers that rows/collectives.lua begins with, from one on."""
    import numpy as np
    return np.resize(np.roll(np.arange(1024, dtype=np.float32) / 1024, -start), n)


def jax_case(p, x):
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    whole, parts = P(), P("x")
    if "reshard" in p:
        specs = {"S0": P("x", None), "S1": P(None, "x"), "R": P()}
        source, target = (NamedSharding(mesh, specs[s]) for s in p["reshard"])
        a = jax.device_put(ramp(p["shape"][0] * p["shape"][1]).reshape(p["shape"]), source)
        step = jax.jit(lambda v: v, out_shardings=target)
    else:
        fn, target = {
            "all-reduce": (lambda v: jax.lax.psum(v, "x"), whole),
            "reduce-scatter": (lambda v: jax.lax.psum_scatter(v, "x", tiled=True), parts),
            "all-gather": (lambda v: jax.lax.all_gather(v, "x", tiled=True), whole),
            "all-to-all": (lambda v: jax.lax.all_to_all(v, "x", 0, 0, tiled=True), parts),
        }[p["op"]]
        a = jax.device_put(ramp(p["bytes"] // 4 * (1 if p["op"] == "all-gather" else 8)), NamedSharding(mesh, parts))
        step = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=parts, out_specs=target, check_vma=False))

    def results():  # of the first device
        y = step(a)
        if "reshard" not in p:
            y = y.addressable_shards[0].data
        return [y.reshape(-1)[:SHOWN]]
    return (lambda: jax.block_until_ready(step(a))), results


# ---- gloo: eight processes, of which the worker is rank 0 ------------------------------------------


def gloo_step(p, rank):
    """The collective on this rank's buffers; the all-reduce is in place, as gloo's is."""
    import torch
    import torch.distributed as dist
    n = p["bytes"] // 4
    if p["op"] == "all-gather":
        mine, out = torch.from_numpy(ramp(n // 8, rank * (n // 8))), torch.zeros(n)
        return (lambda: dist.all_gather_into_tensor(out, mine)), out
    mine = torch.from_numpy(ramp(n, rank * n))
    if p["op"] == "all-reduce":
        return (lambda: dist.all_reduce(mine)), mine
    out = torch.zeros(n // 8 if p["op"] == "reduce-scatter" else n)
    call = dist.reduce_scatter_tensor if p["op"] == "reduce-scatter" else dist.all_to_all_single
    return (lambda: call(out, mine)), out


def join(rank, store):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=8)


class Gloo:
    """The other seven ranks, and the group."""

    only = None

    def __init__(self):
        import tempfile
        store = os.path.join(tempfile.mkdtemp(prefix="gloo-"), "store")
        self.ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), str(rank), store], stdin=subprocess.PIPE,
                                       env=dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(__file__))))
                      for rank in range(1, 8)]
        join(0, store)

    def tell(self, **request):
        for rank in self.ranks:
            rank.stdin.write(json.dumps(request).encode() + b"\n")
            rank.stdin.flush()


def gloo_case(p, x):
    Gloo.only = Gloo.only or Gloo()
    Gloo.only.tell(params=p)
    run, out = gloo_step(p, 0)
    run.announce = lambda times: Gloo.only.tell(times=times)  # each call is one of all ranks

    def results():
        run.announce(1)
        run()
        return [out.numpy()[:SHOWN]]
    return run, results


def rank_main(rank, store):
    join(rank, store)
    run = None
    for line in sys.stdin:
        request = json.loads(line)
        if "params" in request:
            run = None
            run, _ = gloo_step(request["params"], rank)
        for _ in range(request.get("times", 0)):
            run()


if __name__ == "__main__":
    rank_main(int(sys.argv[1]), sys.argv[2])
