"""Elementwise and row-wise operations, forward and with their gradients (the result, then gradients with respect to
x and to what is added or scaled with): gelu(x + bias) + residual; layer norm, RMS norm, softmax; the mean of the softmax
cross-entropy. The limit is limits.c's loop, forward and backward apart."""

from rows.row import Row

# In the caches (a GPT-M layer's), and of memory's size.
SHAPES = {"gelu": [(2048, 1536), (16384, 1024)], "layer norm": [(2048, 384), (16384, 1024)],
          "rms norm": [(2048, 384), (16384, 1024)], "softmax": [(2048, 256), (16384, 1024)],
          "cross entropy": [(2048, 256), (1024, 50304)]}

ROWS = [Row(f"fused {op} {'f+b' if backward else 'f'} {rows}x{cols}", "fused",
            {"op": op, "rows": rows, "cols": cols, "backward": backward}, limits=("limit",), share=0.9, vs_jax=1.2,
            vs_torch=1.2, tolerance=2e-5)
        for op, shapes in SHAPES.items() for rows, cols in shapes for backward in (False, True)]

NAMES = {"gelu": (["x", "bias", "residual"], 2), "layer norm": (["x", "scale", "bias"], 3), "rms norm": (["x", "scale"], 2),
         "softmax": (["x"], 1)}


def jax_functions():
    import jax
    import jax.numpy as jnp
    import optax

    def layer_norm(x, scale, bias):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    return {
        "gelu": lambda x, bias, residual: jax.nn.gelu(x + bias) + residual,
        "layer norm": layer_norm,
        "rms norm": lambda x, scale: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * scale,
        "softmax": jax.nn.softmax,
        "cross entropy": lambda x, labels: optax.softmax_cross_entropy_with_integer_labels(x, labels).mean(),
    }


def jax_case(p, x):
    import jax
    fn = jax_functions()[p["op"]]
    if p["op"] == "cross entropy":
        args = [jax.device_put(x["x"]), jax.device_put(x["labels"])]
        step = jax.jit(jax.value_and_grad(fn) if p["backward"] else fn)
    else:
        names, n = NAMES[p["op"]]
        args = [jax.device_put(x[name]) for name in names]
        step = jax.jit(fn)
        if p["backward"]:
            args.insert(0, jax.device_put(x["dy"]))

            @jax.jit
            def step(dy, *args):
                y, pullback = jax.vjp(lambda *own: fn(*own, *args[n:]), *args[:n])
                return y, *pullback(dy)

    def results():
        out = step(*args)
        return list(out) if isinstance(out, tuple) else [out]
    return (lambda: jax.block_until_ready(step(*args))), results


def torch_functions():
    import torch
    from torch.nn import functional as F
    return {
        "gelu": lambda x, bias, residual: F.gelu(x + bias, approximate="tanh") + residual,
        "layer norm": lambda x, scale, bias: F.layer_norm(x, (x.shape[-1],), scale, bias, 1e-5),
        "rms norm": lambda x, scale: F.rms_norm(x, (x.shape[-1],), scale, 1e-5),
        "softmax": lambda x: torch.softmax(x, -1),
        "cross entropy": F.cross_entropy,
    }


def torch_case(p, x, compiled=False):
    import torch
    fn = torch_functions()[p["op"]]
    names, n = NAMES.get(p["op"], (["x", "labels"], 1))
    args = [torch.from_numpy(x[name]) for name in names]
    if p["op"] == "cross entropy":
        args[1] = args[1].long()
    dy = torch.from_numpy(x["dy"]) if "dy" in x else None
    if p["backward"]:
        for a in args[:n]:
            a.requires_grad_()
    if compiled:
        fn = torch.compile(fn)

    def step():
        y = fn(*args)
        if not p["backward"]:
            return [y]
        return [y, *torch.autograd.grad(y, args[:n], dy)]
    return step, lambda: [r.detach().numpy() for r in step()]


def compile_case(p, x):
    return torch_case(p, x, True)


def limit_case(p, x):
    from rows.machine import Buffer, call
    rows, cols, back = p["rows"], p["cols"], p["backward"]
    if p["op"] == "cross entropy":
        return cross_entropy_limit(p, x)
    b = {name: Buffer(a.size, a) for name, a in x.items()}
    y, dx = Buffer(rows * cols), Buffer(rows * cols) if back else None
    one, two = Buffer(cols), Buffer(cols)
    if p["op"] == "gelu":
        forward = call("limits_gelu", y, b["x"], b["bias"], b["residual"], rows, cols)
        backward = back and call("limits_gelu_back", dx, one, b["x"], b["bias"], b["dy"], rows, cols)
        outs = [dx, one]
    elif p["op"] == "softmax":
        forward = call("limits_softmax", y, b["x"], rows, cols)
        backward = back and call("limits_softmax_back", dx, y, b["dy"], rows, cols)
        outs = [dx]
    else:
        bias, dbias = (b["bias"], two) if p["op"] == "layer norm" else (None, None)
        forward = call("limits_norm", y, b["x"], b["scale"], bias, rows, cols)
        backward = back and call("limits_norm_back", dx, one, dbias, b["x"], b["scale"], b["dy"], rows, cols)
        outs = [dx, one, two] if dbias else [dx, one]

    def run():
        forward()
        if back:
            backward()

    def results():
        run()
        return [a.array() for a in ([y, *outs] if back else [y])]
    return run, results


def cross_entropy_limit(p, x):
    from rows.machine import Buffer, call
    dx = Buffer(p["rows"] * p["cols"]) if p["backward"] else None
    loss = call("limits_cross_entropy", dx, Buffer(x["x"].size, x["x"]), Buffer(x["labels"].size, x["labels"]), p["rows"],
                p["cols"])

    def results():
        value = loss()
        return [value, dx.array()] if dx else [value]
    return loss, results
