"""The most memory that a process of GPT-M's training step holds (VmHWM over three steps, once two have been), less what it
held when its libraries were imported. The limit is the live set of meshlua's plan: at each step the buffers that are in
use, counted from the plan's list."""

from rows import train
from rows.row import Row

ROWS = [Row("peak memory gpt_m", "memory", dict(train.SIZES["M"]), mode="value", unit="bytes", share=1 / 1.15, vs_jax=2.0,
            vs_torch=2.0)]

jax_case, torch_case, compile_case = train.jax_case, train.torch_case, train.compile_case


def limit(row, times, info):
    """The largest sum of buffers in use: arguments always, others from their first step to their last."""
    always = sum(bytes for kind, bytes, _, _ in info["buffers"] if kind == "argument")
    changes = {}
    for kind, bytes, first, last in info["buffers"]:
        if kind != "argument":
            changes[first] = changes.get(first, 0) + bytes
            changes[last + 1] = changes.get(last + 1, 0) - bytes
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return always + most
