"""A pre-norm transformer block of flax for tests/spec/seeds/seed003_block_spec.lua.

    python tests/oracle/transformer_block.py > tests/oracle/transformer_block.json
"""

import json

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class TransformerBlock(nnx.Module):
    def __init__(self, embed_dim, num_heads, ff_dim, dropout_rate, rngs):
        self.layer_norm1 = nnx.LayerNorm(epsilon=1e-6, num_features=embed_dim, rngs=rngs)
        self.mha = nnx.MultiHeadAttention(num_heads=num_heads, in_features=embed_dim, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=dropout_rate)
        self.layer_norm2 = nnx.LayerNorm(epsilon=1e-6, num_features=embed_dim, rngs=rngs)
        self.linear1 = nnx.Linear(in_features=embed_dim, out_features=ff_dim, rngs=rngs)
        self.linear2 = nnx.Linear(in_features=ff_dim, out_features=embed_dim, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=dropout_rate)

    def __call__(self, inputs, training=False):
        mask = jnp.tril(jnp.ones((inputs.shape[1], inputs.shape[1]), bool))
        attention_output = self.mha(inputs_q=self.layer_norm1(inputs), mask=mask, decode=False)
        x = inputs + self.dropout1(attention_output, deterministic=not training)
        mlp_output = self.linear1(self.layer_norm2(x))
        mlp_output = nnx.gelu(mlp_output)
        mlp_output = self.linear2(mlp_output)
        mlp_output = self.dropout2(mlp_output, deterministic=not training)
        return x + mlp_output


def main():
    block = TransformerBlock(16, 4, 32, 0.1, nnx.Rngs(0))
    inputs = jax.random.normal(jax.random.key(1), (2, 6, 16))
    made = {
        "result": np.asarray(block(inputs), "float64").tolist(),
        "made_with": {"jax": jax.__version__, "flax": flax.__version__},
    }
    print(json.dumps(made, separators=(",", ":")))


main()
