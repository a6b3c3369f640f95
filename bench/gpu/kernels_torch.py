"""kernels_torch.py: what the GPU can do by PyTorch's measure: a copy, products, cuDNN's attention; the lines of
kernels.lua."""
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

assert torch.cuda.is_available(), "there is no GPU"
torch.manual_seed(0)


def seconds(fn):
    for _ in range(4):
        fn()
    torch.cuda.synchronize()
    n = 1
    while True:
        before = time.perf_counter()
        for _ in range(n):
            fn()
        torch.cuda.synchronize()
        spent = time.perf_counter() - before
        if spent > 0.2 or n >= 4096:
            return spent / n
        n *= 2


def report(name, unit, work, fn):
    s = seconds(fn)
    print(f"{name} ms={1e3 * s:.4f} rate={work / s / (1e9 if unit == 'GB/s' else 1e12):.1f} unit={unit}", flush=True)


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


rows, width, vocab = 65536, 768, 50304
x = normal(rows, 4 * width, dtype=torch.float32)
y = torch.empty_like(x)
report("copy", "GB/s", 8 * x.numel(), lambda: y.copy_(x))
del x, y
for m, k, n in ((rows, width, 3 * width), (rows, width, 4 * width), (rows, 4 * width, width),
                (rows // 2, width, vocab), (8192, 8192, 8192)):
    a, b = normal(m, k), normal(k, n)
    report(f"matmul {m}x{k}x{n}", "TFLOP/s", 2.0 * m * k * n, lambda: a @ b)
    del a, b
b, t, h, d = 64, 1024, 12, 64
q, k, v, dy = (normal(b, h, t, d).requires_grad_() for _ in range(4))
operations = 2.0 * b * h * t * t * d


def forward():
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def both():
    torch.autograd.grad(forward(), (q, k, v), dy)


report("attention", "TFLOP/s", operations, forward)
report("attention, both", "TFLOP/s", 3.5 * operations, both)
