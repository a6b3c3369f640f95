"""AdamW's update of parameters from gradients: those of GPT-M (about 100 tensors), and one large tensor."""

from rows.row import Row

SETTINGS = {"b1": 0.9, "b2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
GPT_M = {"layers": 6, "width": 384, "heads": 8, "seq": 256, "vocab": 256}

ROWS = [Row(f"adamw {label}", "adamw", params, limits=("limit",), share=0.9, vs_jax=1.2, vs_torch=1.2)
        for label, params in (("gpt_m", GPT_M), ("one tensor", {"n": 1 << 24}))]


def parts(x):
    """Parameters and gradients, in the order of their names."""
    names = sorted(name[2:] for name in x if name.startswith("p "))
    return [x["p " + name] for name in names], [x["g " + name] for name in names]


def jax_case(p, x):
    import jax
    import optax
    params, grads = parts(x)
    tx = optax.adamw(1e-3, **SETTINGS)

    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state
    step = jax.jit(step, donate_argnums=(0, 1))
    params, grads = [jax.device_put(a) for a in params], [jax.device_put(a) for a in grads]
    held = [params, jax.jit(tx.init)(params)]

    def run():
        held[:] = step(*held, grads)
        jax.block_until_ready(held)

    def results():
        run()
        run()
        return list(held[0])
    return run, results


def torch_case(p, x, compiled=False):
    import torch
    params, grads = parts(x)
    params = [torch.from_numpy(a.copy()).requires_grad_() for a in params]
    for w, g in zip(params, grads):
        w.grad = torch.from_numpy(g)
    opt = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, fused=not compiled)
    run = torch.compile(opt.step) if compiled else opt.step

    def results():
        run()
        run()
        return [w.detach().numpy().copy() for w in params]
    return run, results


def compile_case(p, x):
    """The unfused update, compiled: what torch.compile makes one loop of."""
    return torch_case(p, x, True)


def limit_case(p, x):
    """One loop over all numbers, as if the parameters lay behind each other."""
    import ctypes

    import numpy as np
    from rows.machine import Buffer, library
    params, grads = parts(x)
    params, grads = (np.concatenate([a.reshape(-1) for a in arrays]) for arrays in (params, grads))
    n, f = params.size, ctypes.c_float
    w, g = Buffer(n, params), Buffer(n, grads)
    mu, nu = Buffer(n, np.zeros(n, np.float32)), Buffer(n, np.zeros(n, np.float32))
    count, lib = [0], library()

    def run():
        count[0] += 1
        lib.limits_adamw(w.pointer, g.pointer, mu.pointer, nu.pointer, ctypes.c_int64(n), f(1e-3), f(0.9), f(0.99), f(1e-8),
                         f(0.1), ctypes.c_int64(count[0]))

    def results():
        run()
        run()
        ends = np.cumsum([a.size for a in parts(x)[0]])
        return np.split(w.array(), ends[:-1])
    return run, results
