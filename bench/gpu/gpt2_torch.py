"""gpt2_torch.py BATCH [STEPS] [KEY=VALUE ...]: the peer of gpt2.lua: the same model, batch, precision and optimizer
through torch.compile (default mode), cuDNN's attention where there is a GPU, fused AdamW. Prints the same line."""
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

config = {"layers": 12, "width": 768, "heads": 12, "seq": 1024, "vocab": 50304}
batch, steps = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
for word in sys.argv[3:]:
    key, value = word.split("=")
    config[key] = int(value)
L, C, H, T, V = (config[k] for k in ("layers", "width", "heads", "seq", "vocab"))
started = float(os.environ.get("STARTED", time.time()))
device = "cuda" if torch.cuda.is_available() else "cpu"
backends = [SDPBackend.CUDNN_ATTENTION] if device == "cuda" else [SDPBackend.MATH]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, H, C // H).transpose(1, 2) for z in self.qkv(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, C))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = nn.ModuleList([Block() for _ in range(L)])
        self.ln_f = nn.LayerNorm(C)
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None
        for block in self.h:
            for p in (block.out.weight, block.down.weight):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * L))

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe.weight
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, V).float(), labels.view(-1))


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = GPT().to(device)
optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                               {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}],
                              lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")
compiled = torch.compile(model)
tokens = torch.randint(0, V, (batch, T + 1), device=device)
ids, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def step():
    with torch.autocast(device, torch.bfloat16), sdpa_kernel(backends):
        loss = compiled(ids, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


first_loss = step().item()
first = time.time() - started
for _ in range(5):
    step()
wait()
before, host = time.perf_counter(), 0.0
for _ in range(steps):
    called = time.perf_counter()
    loss = step()
    host += time.perf_counter() - called
last_loss = loss.item()
wait()
seconds = (time.perf_counter() - before) / steps
peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
print(f"first={first:.2f} ms={1e3 * seconds:.2f} tokens={batch * T / seconds:.0f} peak={peak} "
      f"host={1e6 * host / steps:.1f} loss={first_loss:.4f},{last_loss:.4f}")
