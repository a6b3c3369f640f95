"""Until a training step of GPT-2 124M can run on a mesh of 8 devices (data:4,model:2): trace, differentiation, partitioning
and plan; of JAX lower().compile(); of torch.compile, which has no such mesh, the first step on one device less the second.
Each in a fresh process that has imported its libraries and made the parameters; nothing is cached."""

import os
import tempfile

from rows.row import Row

GPT2 = {"layers": 12, "width": 768, "heads": 12, "seq": 1024, "batch": 8, "vocab": 50257}

ROWS = [Row("trace and plan gpt2_124m, 8 devices", "compile", GPT2, ("jax 8", "torch.compile"), mode="fresh", constant=50e-3,
            share=1.0, vs_jax=20.0, vs_torch=50.0, patience=600)]


def inputs_of(p):
    """Parameters as rows/train.lua gives them, all alike: they are not looked at."""
    import numpy as np
    width, heads = p["width"], p["heads"]
    size = width // heads

    def make(*shape):
        return np.full(shape, 0.01, np.float32)
    x = {"wte.embedding": make(p["vocab"], width), "wpe": make(p["seq"], width), "ln_f.scale": make(width),
         "ln_f.bias": make(width)}
    for i in range(1, p["layers"] + 1):
        x.update({f"h.{i}.attn.{n}.kernel": make(width, heads, size) for n in ("query", "key", "value")})
        x.update({f"h.{i}.attn.{n}.bias": make(heads, size) for n in ("query", "key", "value")})
        x.update({f"h.{i}.ln_{n}.{part}": make(width) for n in (1, 2) for part in ("scale", "bias")})
        x.update({f"h.{i}.attn.out.kernel": make(heads, size, width), f"h.{i}.attn.out.bias": make(width),
                  f"h.{i}.mlp.up.kernel": make(width, 4 * width), f"h.{i}.mlp.up.bias": make(4 * width),
                  f"h.{i}.mlp.down.kernel": make(4 * width, width), f"h.{i}.mlp.down.bias": make(width)})
    x["ids"] = x["labels"] = np.zeros((p["batch"], p["seq"]), np.int32)
    return x


def jax_case(p, x):
    from rows.train import jax_step
    step, *args = jax_step(dict(p, mesh="data:4,model:2"), inputs_of(p))
    return (lambda: step.lower(*args).compile()), None


def compile_case(p, x):
    import time

    import torch
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-")
    from rows.train import torch_step
    p = dict(p, batch=1, seq=64)  # a step must run, too: a small one
    step = torch_step(p, inputs_of(p), True)

    def run():
        torch._dynamo.reset()
        start = time.perf_counter()
        step()
        first, start = time.perf_counter() - start, time.perf_counter()
        step()
        return first - (time.perf_counter() - start)
    run.gives_seconds = True
    return run, None
