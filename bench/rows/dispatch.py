"""What a call costs beside its work: a jitted function with an empty body and a model of 1, 10 or 100 tensors, and one
eager operation. torch.compile finds nothing to compile in an empty body, and runs it as Python: its body reads the first
tensor."""

from rows.row import Row

ROWS = []
for n in (1, 10, 100):
    ROWS.append(Row(f"call {n} leaves", "dispatch", {"leaves": n}, ("jax", "torch.compile"), constant=1e-6 + 60e-9 * n,
                    share=1.0, vs_jax=5.0, vs_torch=5.0))
    ROWS.append(Row(f"call {n} leaves, bound", "dispatch", {"leaves": n, "bound": True}, ("jax", "torch.compile"),
                    constant=1e-6 + 10e-9 * n, share=1.0, vs_jax=5.0, vs_torch=5.0))
ROWS.append(Row("eager add of 16 numbers", "dispatch", {"eager": True}, ("jax", "torch"), constant=0.5e-6, share=1.0,
                vs_jax=10.0, vs_torch=3.0))


def jax_case(p, x):
    import jax
    import jax.numpy as jnp
    if "eager" in p:
        a, b = jax.device_put(x["x"]), jax.device_put(x["y"])
        return (lambda: (a + b).block_until_ready()), lambda: [a + b]
    model = {f"p{i:03}": jnp.zeros(1) for i in range(p["leaves"])}
    step = jax.jit(lambda model: None)
    return (lambda: step(model)), None


def torch_case(p, x):
    import torch
    a, b = torch.from_numpy(x["x"]), torch.from_numpy(x["y"])
    return (lambda: a + b), lambda: [(a + b).numpy()]


def compile_case(p, x):
    import torch
    model = {f"p{i:03}": torch.zeros(1) for i in range(p["leaves"])}
    step = torch.compile(lambda model: model["p000"] + 1)

    def run():
        with torch.no_grad():
            return step(model)
    return run, None
