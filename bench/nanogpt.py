"""nanoGPT's run for a processor, by meshlua and by PyTorch, one after the other: 4 layers of 4 heads, width 128,
context 64, batch 12, 2,000 steps, no dropout (the README of nanoGPT: validation 1.88 on tiny Shakespeare in about three
minutes). The text here is the King James Bible, a byte a token, the last tenth held out; the validation loss is that of
the whole of it, in windows of 64.

    python bench/nanogpt.py [--rounds=1] [--steps=2000] [--compile]     PROGRAM=build/meshlua
"""
import math
import os
import re
import subprocess
import sys
import tempfile
import time

SHAPE = dict(layers=4, heads=4, width=128, seq=64, batch=12, lr=1e-3, min_lr=1e-4, warmup=100, beta2=0.99,
             weight_decay=0.1, clip=1.0)


def option(name, default):
    for word in sys.argv[1:]:
        if word.startswith(f"--{name}="):
            return type(default)(word.split("=", 1)[1])
    return default


STEPS = option("steps", 2000)


def model_of(torch):
    from torch import nn
    import torch.nn.functional as F
    width, heads, layers, seq = (SHAPE[k] for k in ("width", "heads", "layers", "seq"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(seq, width)
            self.h, self.ln_f = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width, bias=False)
            for name, p in self.named_parameters():
                if p.dim() == 2:  # as models/gpt.lua; nanoGPT has 0.02 everywhere, and ends 0.1 higher
                    std = 0.02 if name.startswith("w") else 1 / math.sqrt(p.shape[1])
                    residual = name.endswith(("out.weight", "down.weight"))
                    nn.init.normal_(p, std=std / (math.sqrt(2 * layers) if residual else 1))

        def forward(self, ids, labels):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.h:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.view(-1, 256), labels.reshape(-1))

    return GPT()


def rate(step):
    """Of an update, from 0: linear up to lr, then a cosine down to min_lr."""
    if step < SHAPE["warmup"]:
        return SHAPE["lr"] * (step + 1) / (SHAPE["warmup"] + 1)
    part = (step - SHAPE["warmup"]) / max(1, STEPS - SHAPE["warmup"])
    return SHAPE["min_lr"] + 0.5 * (1 + math.cos(math.pi * part)) * (SHAPE["lr"] - SHAPE["min_lr"])


def torch_arm(path):
    import torch
    torch.set_num_threads(2)
    torch.manual_seed(1337)
    data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).long()
    cut, seq, batch = len(data) - len(data) // 10, SHAPE["seq"], SHAPE["batch"]
    model = model_of(torch)
    step_of = torch.compile(model) if "--compile" in sys.argv else model
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": SHAPE["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=SHAPE["lr"], betas=(0.9, SHAPE["beta2"]), fused=True)
    begun = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        starts = torch.randint(cut - seq - 1, (batch,))
        windows = torch.stack([data[i:i + seq + 1] for i in starts])
        loss = step_of(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SHAPE["clip"])
        optimizer.step()
        loss.item()
    seconds = time.perf_counter() - begun
    total = n = 0
    with torch.no_grad():
        valid = data[cut:]
        count = (len(valid) - 1) // seq
        for first in range(0, count, 256):
            rows = range(first, min(count, first + 256))
            ids = torch.stack([valid[i * seq:i * seq + seq + 1] for i in rows])
            total += model(ids[:, :-1], ids[:, 1:]).item() * len(rows)
            n += len(rows)
    print(f"seconds {seconds:.1f} loss {total / n:.4f}")


def meshlua_arm(path):
    words = [os.environ.get("PROGRAM", "build/meshlua"), "train", "gpt", "--mesh=none", "--rules=dp", "--sample=0",
             "--eval-batches=all", f"--steps={STEPS}", f"--data={path}", "--log-every=1000000"]
    words += [f"--{key}={value}" for key, value in SHAPE.items()]
    with tempfile.TemporaryDirectory() as folder:
        words.append(f"--metrics={folder}/rows.jsonl")
        out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        rows = open(f"{folder}/rows.jsonl").read()
    seconds = sum(float(ms) for ms in re.findall(r'"ms":([\d.]+)', rows)) / 1e3
    return seconds, float(re.search(r"validation loss ([\d.]+)", out)[1])


def main():
    if "--arm" in sys.argv:
        return torch_arm(sys.argv[-1])
    with tempfile.NamedTemporaryFile(suffix=".txt") as text:
        subprocess.run("bible -f gen1:1-rev22:21 </dev/null", shell=True, check=True, stdout=text)
        for round_ in range(option("rounds", 1)):
            ours = meshlua_arm(text.name)
            flags = [word for word in sys.argv[1:] if not word.startswith("--rounds")]
            out = subprocess.run([sys.executable, __file__, *flags, "--arm", text.name], check=True,
                                 capture_output=True, text=True).stdout
            theirs = [float(x) for x in re.match(r"seconds (\S+) loss (\S+)", out).groups()]
            print(f"{STEPS} steps: meshlua {ours[0]:.1f} s, loss {ours[1]:.4f}; torch {theirs[0]:.1f} s, "
                  f"loss {theirs[1]:.4f}; R {theirs[0] / ours[0]:.2f}, difference {ours[1] - theirs[1]:+.4f}",
                  flush=True)


if __name__ == "__main__":
    main()
