"""Tiny models of transformers: a folder of weights and config.json each, under tests/oracle/models/, and in models.json
the logits that transformers gives for all ids but the last, the loss and the norm of its gradient, in float64.

    python3 tests/oracle/models.py                  needs torch and transformers
    python3 tests/oracle/models.py llama FOLDER     how far the logits of a folder written by meshlua are from these
    python3 tests/oracle/models.py llama FOLDER FILE.gguf     and of a GGUF file in it
"""
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
BATCH, LENGTH = 4, 16

LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=48, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=24, n_layer=2, n_head=4, n_positions=32, vocab_size=48,
                                         bos_token_id=0, eos_token_id=0)),
    "llama": (LlamaForCausalLM, LlamaConfig(**LLAMA, rope_theta=10000.0, tie_word_embeddings=False)),
    # Tied, wide heads, and rotations slowed as in Llama 3.1, within so short a context that it matters.
    "llama_scaled": (LlamaForCausalLM, LlamaConfig(
        **LLAMA, head_dim=16, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=16))),
}


def ids_of(vocab):
    return [[(5 * b + 3 * t + b * t * t % 7 + 11) % vocab for t in range(LENGTH + 1)] for b in range(BATCH)]


def main():
    out = {}
    for name, (cls, config) in MODELS.items():
        torch.manual_seed(len(name))
        model = cls(config).eval()
        with torch.no_grad():
            for path, p in model.named_parameters():
                scale = 0.2 if p.ndim > 1 else 0.1
                p.copy_((p if "norm" in path or "ln_" in path else 0 * p) + scale * torch.randn_like(p))
        model.save_pretrained(HERE / "models" / name)
        (HERE / "models" / name / "generation_config.json").unlink(missing_ok=True)
        (HERE / "models" / name / "model.safetensors").chmod(0o644)
        ids = ids_of(config.vocab_size)
        given = torch.tensor(ids)
        logits = model.double()(given[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        norm = sum((p.grad**2).sum() for p in model.parameters()) ** 0.5
        out[name] = dict(ids=ids, loss=loss.item(), gradient_norm=norm.item(),
                         logits=[[[round(x, 7) for x in row] for row in rows] for rows in logits.tolist()])
    (HERE / "models.json").write_text(json.dumps(out) + "\n")


def check(name, folder, gguf=None):
    expected = json.loads((HERE / "models.json").read_text())[name]
    more = dict(gguf_file=gguf, config=AutoConfig.from_pretrained(folder)) if gguf else {}
    model = AutoModelForCausalLM.from_pretrained(folder, **more).double()
    logits = model(torch.tensor(expected["ids"])[:, :-1]).logits
    print((logits - torch.tensor(expected["logits"], dtype=torch.float64)).abs().max().item())


check(*sys.argv[1:]) if len(sys.argv) > 1 else main()
