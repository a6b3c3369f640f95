"""Products of matrices: y = op(a) op(b), square and as a GPT's layers have them, forward (nn), with respect to
the input (nt) and to the weight (tn)."""

from rows.row import Row

SQUARE = [64, 128, 256, 512, 1024, 2048, 4096]
# Tokens, inputs, outputs of a layer: GPT-S (width 128, 1024 tokens) and GPT-M (width 384, 2048 tokens).
LAYERS = [("S up", 1024, 128, 512), ("S down", 1024, 512, 128), ("M out", 2048, 384, 384), ("M up", 2048, 384, 1536),
          ("M down", 2048, 1536, 384)]


def row(label, m, n, k, form, share, vs_torch):
    return Row(f"matmul {label}", "matmul", {"m": m, "n": n, "k": k, "form": form}, peers=("jax", "torch"),
               limits=("fma", "limit"), flops=2.0 * m * n * k, share=share, vs_jax=1.0, vs_torch=vs_torch,
               tags={"limit is": "both cores' FMA peak", "also": "best OpenBLAS"})


ROWS = [row(f"n={n}", n, n, n, "nn", 0.8 if n >= 1024 else 0.6 if n == 128 else 0.0, 0.9) for n in SQUARE]
for name, tokens, n_in, n_out in LAYERS:
    ROWS.append(row(f"GPT-{name} forward", tokens, n_out, n_in, "nn", 0.8, 0.9))
    ROWS.append(row(f"GPT-{name} to input", tokens, n_in, n_out, "nt", 0.8, 0.9))
    ROWS.append(row(f"GPT-{name} to weight", n_in, n_out, tokens, "tn", 0.8, 0.9))


def jax_case(p, x):
    import jax
    import numpy as np

    @jax.jit
    def product(a, b):
        return (a.T if p["form"][0] == "t" else a) @ (b.T if p["form"][1] == "t" else b)
    a, b = jax.device_put(x["a"]), jax.device_put(x["b"])
    return (lambda: product(a, b).block_until_ready()), lambda: [np.asarray(product(a, b))]


def torch_case(p, x):
    import torch
    a, b = torch.from_numpy(x["a"]), torch.from_numpy(x["b"])
    a, b = a.T if p["form"][0] == "t" else a, b.T if p["form"][1] == "t" else b
    return (lambda: a @ b), lambda: [(a @ b).numpy()]


def limit_case(p, x):
    """The fastest OpenBLAS there is, with threads of its own."""
    import os
    from rows.machine import Buffer, library
    lib = library()
    if not lib.limits_blas(os.cpu_count()):
        raise OSError("there is no OpenBLAS here")
    a, b, y = Buffer(x["a"].size, x["a"]), Buffer(x["b"].size, x["b"]), Buffer(p["m"] * p["n"])
    forms = [int(letter == "t") for letter in p["form"]]

    def run():
        lib.limits_gemm(y.pointer, a.pointer, b.pointer, p["m"], p["n"], p["k"], *forms)

    def results():
        run()
        return [y.array()]
    return run, results
