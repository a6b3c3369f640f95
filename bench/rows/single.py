"""Single operations: rows and elements by id, sums of rows by id, sorting, cumulative sums, a step of an LSTM of so many
features, a transposed convolution; f+b: with the gradients, the cotangent is the result."""

from rows.row import Row

VOCABULARY = {"rows": 50257, "cols": 768, "n": 8192}


def row(label, op, tolerance=1e-5, **params):
    return Row(label, "single", {"op": op, **params}, vs_jax=1.2, vs_torch=1.2, tolerance=tolerance)


ROWS = [
    row("gather 8192 of 50257x768", "gather", **VOCABULARY),
    row("gather along 4096x1024", "along", rows=4096, cols=1024),
    row("scatter-add 8192 into 50257x768", "scatter", **VOCABULARY),
    row("scatter-add 65536 into 256x128", "scatter", rows=256, cols=128, n=65536),
    row("scatter-add 1000000 into 1000", "scatter", rows=1000, n=1000000),
    row("sort 1000000", "sort", shape=[1000000]),
    row("sort 4096x256", "sort", shape=[4096, 256]),
    row("cumsum 4096x1024", "cumsum", shape=[4096, 1024], axis=2),
    row("cumsum 4096x1024, first axis", "cumsum", shape=[4096, 1024], axis=1),
]
for backward in (False, True):
    way = "f+b" if backward else "f"
    ROWS.append(row(f"LSTM step {way} 64x256", "lstm", batch=64, n=256, backward=backward))
    ROWS.append(row(f"ConvTranspose {way} 8x32x32x64", "transposed", 2e-5, batch=8, size=32, features=64, backward=backward))


def names_of(p):
    return {"lstm": ["x", "c", "h", "w_x", "w_h", "bias"], "transposed": ["x", "kernel"],
            "sort": ["x"], "cumsum": ["x"]}.get(p["op"], ["x", "ids"])


def jax_functions(p):
    import jax
    import jax.numpy as jnp

    def lstm(x, c, h, w_x, w_h, bias):
        i, f, g, o = jnp.split(x @ w_x + h @ w_h + bias, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def scatter(x, ids):
        return jnp.zeros((p["rows"], *x.shape[1:]), x.dtype).at[ids].add(x)

    return {
        "gather": lambda x, ids: x[ids],
        "along": lambda x, ids: jnp.take_along_axis(x, ids, 1),
        "scatter": scatter,
        "sort": jnp.sort,
        "cumsum": lambda x: jnp.cumsum(x, p["axis"] - 1),
        "lstm": lstm,
        "transposed": lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 1), ((2, 2), (2, 2)), lhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")),
    }


def jax_case(p, x):
    import jax
    fn = jax_functions(p)[p["op"]]
    args = [jax.device_put(x[name]) for name in names_of(p)]

    def both(*args):
        y, pullback = jax.vjp(lambda *own: fn(*own)[0] if p["op"] == "lstm" else fn(*own), *args)
        return y, *pullback(y)
    step = jax.jit(both if p.get("backward") else fn)

    def results():
        y = step(*args)
        return list(y) if isinstance(y, tuple) else [y]
    return (lambda: jax.block_until_ready(step(*args))), results


def torch_functions(p):
    import torch

    def lstm(x, c, h, w_x, w_h, bias):
        return torch.lstm_cell(x, (h, c), w_x, w_h, bias, torch.zeros_like(bias))

    def scatter(x, ids):
        return torch.zeros(p["rows"], *x.shape[1:]).index_add_(0, ids, x)

    return {
        "gather": lambda x, ids: torch.index_select(x, 0, ids),
        "along": lambda x, ids: torch.gather(x, 1, ids),
        "scatter": scatter,
        "sort": lambda x: torch.sort(x)[0],
        "cumsum": lambda x: torch.cumsum(x, p["axis"] - 1),
        "lstm": lstm,
        "transposed": lambda x, w: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1),
    }


def torch_case(p, x, compiled=False):
    """In torch's own layouts: gates by features, channels before places, ids of int64."""
    import torch
    fn = torch_functions(p)[p["op"]]
    args = [torch.from_numpy(x[name]) for name in names_of(p)]
    turn = list(args)
    if p["op"] == "lstm":
        turn[3:5] = [w.T.contiguous() for w in args[3:5]]
    if p["op"] == "transposed":
        turn = [args[0].permute(0, 3, 1, 2).contiguous(), args[1].flip(0, 1).permute(2, 3, 0, 1).contiguous()]
    if "ids" in x:
        turn[1] = args[1].long()
    if p.get("backward"):
        for a in turn:
            a.requires_grad_()
    if compiled:
        fn = torch.compile(fn)

    def step():
        y = fn(*turn)
        y = y if isinstance(y, tuple) else (y,)
        if p.get("backward"):
            return [y[0], *torch.autograd.grad(y[0], turn, y[0].detach())]
        return list(y)

    def results():
        out = [r.detach() for r in step()]
        if p["op"] == "lstm" and p.get("backward"):
            out[4:6] = [w.T for w in out[4:6]]
        if p["op"] == "transposed":
            out[:2] = [r.permute(0, 2, 3, 1) for r in out[:2]]
            out[2:] = [w.permute(2, 3, 0, 1).flip(0, 1) for w in out[2:]]
        return [r.contiguous().numpy() for r in out]
    return step, results


def compile_case(p, x):
    return torch_case(p, x, True)
