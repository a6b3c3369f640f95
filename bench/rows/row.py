"""What a row is: something to do, who does it, and what is wanted of it."""

import importlib
from dataclasses import dataclass, field

from rows import machine

PEERS = ("jax", "torch", "torch.compile")


@dataclass
class Row:
    name: str
    family: str                     # rows/FAMILY.lua and rows/FAMILY.py
    params: dict
    peers: tuple = PEERS
    limits: tuple = ()              # arms that the limit is computed from: limit, fma, copy, "one device"
    flops: float = 0.0              # of one run
    tolerance: float = 1e-5         # largest difference of results, over their largest number
    share: float = 0.0              # wanted: limit / time at least
    vs_jax: float = 0.0             # wanted: time of the best JAX arm / time, at least
    vs_torch: float = 0.0
    patience: int = 300             # seconds that making a case may take
    unit: str = "s"                 # of the number; less is better
    constant: float = 0.0           # a limit that is a number
    # turns: arms in living processes take turns. fresh: the first run of a process is timed; value: what a fresh
    # process says of itself; process: the whole process.
    mode: str = "turns"
    tags: dict = field(default_factory=dict)

    @property
    def arms(self):
        return ("meshlua", *self.limits, *self.peers)

    def limit_of(self, times, info):
        """The limit, from the medians of arms and what meshlua's case said. KeyError: what it needs is not there."""
        family = importlib.import_module("rows." + self.family)
        if hasattr(family, "limit"):
            return family.limit(self, times, info)
        if self.constant:
            return self.constant
        if self.flops and "fma" in self.limits:
            return self.flops * times["fma"] / machine.FMA_FLOPS
        return times["limit"]
