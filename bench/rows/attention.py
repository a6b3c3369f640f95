"""Causal attention, forward and backward: the result, and gradients of q, k and v."""

from rows.row import Row


def flops_of(p):
    """The causal half: 2 B H T^2 D forward, 2.5 times that backward."""
    return 3.5 * 2.0 * p["batch"] * p["heads"] * p["seq"] ** 2 * p["head"]


ROWS = []
for seq, batch in ((256, 8), (1024, 2)):
    sizes = {"seq": seq, "batch": batch, "heads": 6, "head": 64}
    ROWS.append(Row(f"attention f+b T={seq}", "attention", sizes, limits=("fma",), flops=flops_of(sizes), share=0.5,
                    vs_jax=2.0, vs_torch=1.1))


def jax_case(p, x):
    import jax

    @jax.jit
    def step(q, k, v, dy):
        y, pullback = jax.vjp(lambda *a: jax.nn.dot_product_attention(*a, is_causal=True), q, k, v)
        return y, *pullback(dy)
    args = [jax.device_put(x[name]) for name in ("q", "k", "v", "dy")]
    return (lambda: jax.block_until_ready(step(*args))), lambda: list(step(*args))


def torch_case(p, x, compiled=False):
    import torch
    from torch.nn import functional as F

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    fn = torch.compile(attention) if compiled else attention
    # [batch, heads, length, head size], as views: so does a layer that has its projections in one product.
    q, k, v, dy = (torch.from_numpy(x[name]).transpose(1, 2) for name in ("q", "k", "v", "dy"))
    for a in (q, k, v):
        a.requires_grad_()

    def run():
        y = fn(q, k, v)
        return [y, *torch.autograd.grad(y, (q, k, v), dy)]
    return run, lambda: [a.detach().transpose(1, 2).numpy() for a in run()]


def compile_case(p, x):
    return torch_case(p, x, True)
