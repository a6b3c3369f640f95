"""Tokens behind a prompt, greedy, batch 1, float32: transformers' LlamaForCausalLM.generate beside ml.generate, from
meshlua's parameters. The limit reads every parameter once a token, with the bandwidth of a read by all cores."""

from rows.row import Row

READ = 256 << 20
SIZE = {"size": "smollm2-135m", "layers": 30, "width": 576, "heads": 9, "kv_heads": 3, "hidden": 1536, "vocab": 49152,
        "theta": 1e5, "epsilon": 1e-5, "read": READ}
PEERS = ("torch",)
PRODUCTS = 30 * 576 * (2 * 576 + 2 * 192 + 3 * 1536)  # parameters of products, without the head's

ROWS = [
    Row("decode smollm2-135m", "generate", dict(SIZE, prompt=16, tokens=64), PEERS, limits=("read",), share=0.7,
        vs_torch=1.2, tags={"limit is": "bytes of weights / read bandwidth"}),
    Row("prefill smollm2-135m 512", "generate", dict(SIZE, prompt=512, tokens=1), PEERS, limits=("fma",),
        flops=2.0 * 512 * PRODUCTS, vs_torch=1.3),
]


def limit(row, times, info):
    from rows.machine import FMA_FLOPS
    if "fma" in times:
        return row.flops * times["fma"] / FMA_FLOPS
    return row.params["tokens"] * info["weights"] * times["read"] / READ


def torch_case(p, x):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=p["width"], num_hidden_layers=p["layers"], num_attention_heads=p["heads"],
        num_key_value_heads=p["kv_heads"], intermediate_size=p["hidden"], vocab_size=p["vocab"],
        rms_norm_eps=p["epsilon"], rope_parameters={"rope_type": "default", "rope_theta": p["theta"]},
        max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)).eval()

    def put(param, name, matrix=False):
        array = x[name]
        array = array.reshape(-1, param.shape[0]).T if matrix else array
        param.copy_(torch.from_numpy(array.copy()))
    with torch.no_grad():
        put(model.model.embed_tokens.weight, "embed.embedding")
        put(model.model.norm.weight, "norm.scale")
        for i, layer in enumerate(model.model.layers):
            at = f"layers.{i + 1}."
            put(layer.input_layernorm.weight, at + "norm_1.scale")
            put(layer.post_attention_layernorm.weight, at + "norm_2.scale")
            for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o")):
                put(getattr(layer.self_attn, theirs + "_proj").weight, f"{at}attn.{ours}.kernel", True)
            for name in ("gate", "up", "down"):
                put(getattr(layer.mlp, name + "_proj").weight, f"{at}mlp.{name}.kernel", True)
    ids = torch.from_numpy(x["prompt"].astype("int64"))[None]
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def run():
        new = p["tokens"]
        return model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)
    return run, lambda: [run()[0, ids.shape[1]:].numpy().astype("float32")]
