"""A training step of GPT-2's architecture: loss, gradients, clipping by the global norm, AdamW; on one device, and
on eight virtual ones. All arms start from meshlua's parameters and must have its losses for three steps. The peers
have q, k and v in one product, as their users write it."""

from rows.row import PEERS, Row

SIZES = {
    "S": {"layers": 4, "width": 128, "heads": 8, "seq": 64, "batch": 16, "vocab": 256},
    "M": {"layers": 6, "width": 384, "heads": 8, "seq": 256, "batch": 8, "vocab": 256},
}
LAYOUTS = [("data:8", "dp", 1 / 1.05), ("data:4,model:2", "tp", 1 / 1.10), ("model:8", "tp", 1 / 1.10)]
COPY = 64 << 20


def flops_of(p):
    """Six for each parameter of a product and token; attention's causal half, 2 T D a head forward, times 3.5."""
    per_token = p["layers"] * 12 * p["width"] ** 2 + p["vocab"] * p["width"]
    attention = p["layers"] * 2.0 * p["batch"] * p["seq"] ** 2 * p["width"] * 3.5
    return 6.0 * p["batch"] * p["seq"] * per_token + attention


ROWS = []
for size, params in SIZES.items():
    ROWS.append(Row(f"train gpt_{size.lower()}", "train", dict(params, copy=COPY), PEERS, limits=("fma", "copy"),
                    flops=flops_of(params), tolerance=1e-4, share=0.6, vs_jax=1.3, vs_torch=1.3,
                    tags={"limit is": "sum of limits of the plan's steps"}))
    for mesh, rules, share in LAYOUTS:
        ROWS.append(Row(f"train gpt_{size.lower()} {mesh}", "train", dict(params, mesh=mesh, rules=rules), ("jax 8",),
                        limits=("one device",), flops=flops_of(params), tolerance=1e-4, share=share, vs_jax=2.0,
                        tags={"limit is": "meshlua on one device"}))


def limit(row, times, info):
    """Over the plan's steps, the larger of FLOPs at the measured peak and bytes at the measured bandwidth of a copy
    of COPY bytes, which like a step's values do not fit in the second-level caches."""
    from rows.machine import FMA_FLOPS
    if "one device" in times:
        return times["one device"]
    peak, bandwidth = FMA_FLOPS / times["fma"], 2 * COPY / times["copy"]
    return sum(max(f / peak, b / bandwidth) for f, b in zip(info["flops"], info["bytes"]))


# ---- JAX -----------------------------------------------------------------------------------------


def jax_params(p, x):
    """Parameters as a tree, and how each is laid out over `model`."""
    import numpy as np
    from jax.sharding import PartitionSpec as P

    def layer(i):
        at = lambda name: x[f"h.{i}.{name}"]  # noqa: E731
        qkv = [at(f"attn.{n}.kernel") for n in ("query", "key", "value")]
        qkv_bias = [at(f"attn.{n}.bias") for n in ("query", "key", "value")]
        return {
            "ln_1": {"scale": at("ln_1.scale"), "bias": at("ln_1.bias")},
            "qkv": {"kernel": np.stack(qkv, 1), "bias": np.stack(qkv_bias, 0)},
            "out": {"kernel": at("attn.out.kernel"), "bias": at("attn.out.bias")},
            "ln_2": {"scale": at("ln_2.scale"), "bias": at("ln_2.bias")},
            "up": {"kernel": at("mlp.up.kernel"), "bias": at("mlp.up.bias")},
            "down": {"kernel": at("mlp.down.kernel"), "bias": at("mlp.down.bias")},
        }
    norm = {"scale": P(), "bias": P()}
    spec = {"ln_1": norm, "ln_2": norm,
            "qkv": {"kernel": P(None, None, "model"), "bias": P(None, "model")},
            "out": {"kernel": P("model"), "bias": P()},
            "up": {"kernel": P(None, "model"), "bias": P("model")},
            "down": {"kernel": P("model"), "bias": P()}}
    params = {"wte": {"embedding": x["wte.embedding"]}, "wpe": {"embedding": x["wpe"]},
              "ln_f": {"scale": x["ln_f.scale"], "bias": x["ln_f.bias"]},
              "h": [layer(i + 1) for i in range(p["layers"])]}
    specs = {"wte": {"embedding": P()}, "wpe": {"embedding": P()}, "ln_f": norm, "h": [spec] * p["layers"]}
    return params, specs


def jax_loss(p):
    import jax
    import jax.numpy as jnp
    import optax

    def layer_norm(w, x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w["scale"] + w["bias"]

    def block(w, x):
        qkv = jnp.einsum("btc,cshd->btshd", layer_norm(w["ln_1"], x), w["qkv"]["kernel"]) + w["qkv"]["bias"]
        y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + jnp.einsum("bthd,hdc->btc", y, w["out"]["kernel"]) + w["out"]["bias"]
        y = jax.nn.gelu(layer_norm(w["ln_2"], x) @ w["up"]["kernel"] + w["up"]["bias"])
        return x + y @ w["down"]["kernel"] + w["down"]["bias"]

    def loss(params, ids, labels):
        x = params["wte"]["embedding"][ids] + params["wpe"]["embedding"][:ids.shape[1]]
        for w in params["h"]:
            x = block(w, x)
        logits = layer_norm(params["ln_f"], x) @ params["wte"]["embedding"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss


def jax_step(p, x):
    """A jitted step with donation, and its arguments, on a mesh if the row has one."""
    import jax
    import optax
    from jax.sharding import NamedSharding, PartitionSpec as P
    params, specs = jax_params(p, x)
    matrices = jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in ("kernel", "embedding"), params)
    tx = optax.chain(optax.clip_by_global_norm(1.0),
                     optax.adamw(3e-4, b1=0.9, b2=0.99, eps=1e-8, weight_decay=0.1, mask=matrices))
    loss = jax_loss(p)

    def step(params, state, ids, labels):
        value, grads = jax.value_and_grad(loss)(params, ids, labels)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    ids, labels = x["ids"], x["labels"]
    if p.get("mesh"):
        axes = [part.split(":") for part in p["mesh"].split(",")]
        mesh = jax.make_mesh([int(n) for _, n in axes], [name for name, _ in axes],
                             axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
        has = set(mesh.axis_names)
        place = lambda spec: NamedSharding(mesh, P(*[a if a in has else None for a in spec]))  # noqa: E731
        shardings = jax.tree.map(place, specs, is_leaf=lambda s: isinstance(s, P))
        params = jax.tree.map(jax.device_put, params, shardings)
        ids, labels = (jax.device_put(a, place(P("data"))) for a in (ids, labels))
        state = tx.init(params)  # moments lie as their parameters do
        held = jax.tree.map(lambda a: a.sharding if a.ndim else place(P()), state)
        state = jax.device_put(state, held)
        return jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, held, place(P()))), params, state, ids, labels
    params = jax.tree.map(jax.device_put, params)
    state = jax.jit(tx.init)(params)
    return jax.jit(step, donate_argnums=(0, 1)), params, state, jax.device_put(ids), jax.device_put(labels)


def jax_case(p, x):
    step, params, state, ids, labels = jax_step(p, x)
    held = [params, state]

    def run():
        held[0], held[1], loss = step(held[0], held[1], ids, labels)
        return loss.item()
    return run, lambda: [run() for _ in range(3)]


# ---- PyTorch -------------------------------------------------------------------------------------


def torch_model(p, x):
    import torch
    from torch import nn
    from torch.nn import functional as F
    width, heads = p["width"], p["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(p["vocab"], width), nn.Parameter(torch.zeros(p["seq"], width))
            self.h, self.ln_f = nn.ModuleList([Block() for _ in range(p["layers"])]), nn.LayerNorm(width)

        def forward(self, ids, labels):
            x = self.wte(ids) + self.wpe[:ids.shape[1]]
            for block in self.h:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    model = GPT()
    load_torch(model, p, x)
    return model


def load_torch(model, p, x):
    """meshlua's parameters: nn.Linear has its weight transposed."""
    import numpy as np
    import torch
    width = p["width"]

    def put(param, array, transpose=False):
        array = torch.from_numpy(np.ascontiguousarray(array.T if transpose else array))
        assert param.shape == array.shape
        param.copy_(array)
    with torch.no_grad():
        put(model.wte.weight, x["wte.embedding"])
        put(model.wpe, x["wpe"])
        put(model.ln_f.weight, x["ln_f.scale"])
        put(model.ln_f.bias, x["ln_f.bias"])
        for i, block in enumerate(model.h):
            at = lambda name: x[f"h.{i + 1}.{name}"]  # noqa: E731, B023
            names = ("query", "key", "value")
            put(block.qkv.weight, np.concatenate([at(f"attn.{n}.kernel").reshape(width, width) for n in names], 1), True)
            put(block.qkv.bias, np.concatenate([at(f"attn.{n}.bias").reshape(width) for n in names]))
            put(block.out.weight, at("attn.out.kernel").reshape(width, width), True)
            put(block.out.bias, at("attn.out.bias"))
            for name, layer in (("up", block.up), ("down", block.down)):
                put(layer.weight, at(f"mlp.{name}.kernel"), True)
                put(layer.bias, at(f"mlp.{name}.bias"))
            for name, layer in (("ln_1", block.ln_1), ("ln_2", block.ln_2)):
                put(layer.weight, at(f"{name}.scale"))
                put(layer.bias, at(f"{name}.bias"))


def torch_step(p, x, compiled):
    import torch
    model = torch_model(p, x)
    matrices = [w for w in model.parameters() if w.ndim == 2]
    others = [w for w in model.parameters() if w.ndim != 2]
    opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                            lr=3e-4, betas=(0.9, 0.99), eps=1e-8, fused=True)
    forward = torch.compile(model) if compiled else model
    ids, labels = torch.from_numpy(x["ids"]).long(), torch.from_numpy(x["labels"]).long()

    def step():
        loss = forward(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.item()
    return step


def torch_case(p, x, compiled=False):
    step = torch_step(p, x, compiled)
    return step, lambda: [step() for _ in range(3)]


def compile_case(p, x):
    return torch_case(p, x, True)
