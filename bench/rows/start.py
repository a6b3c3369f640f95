"""From the start of a process to its first result: a sum of two small tensors, or a product of two 1024 x 1024; the whole
process is timed, its end included."""

from rows.row import Row

PRODUCT, SUM = "product", "sum"
ROWS = [Row(f"start of a process, first {what}", "start", {"what": what}, ("jax", "torch"), mode="process", constant=limit,
            share=1.0, vs_jax=20.0, vs_torch=20.0)
        for what, limit in ((SUM, 15e-3), (PRODUCT, 45e-3))]

LUA = {SUM: "print((ml.ones {16} + ml.ones {16}):slice(1):item())",
       PRODUCT: "print(ml.ones {1024, 1024}:matmul(ml.ones {1024, 1024}):slice(1, 1):item())"}
PYTHON = {"jax": {SUM: "import jax.numpy as jnp; print((jnp.ones(16) + jnp.ones(16))[0])",
                  PRODUCT: "import jax.numpy as jnp; print((jnp.ones((1024, 1024)) @ jnp.ones((1024, 1024)))[0, 0])"},
          "torch": {SUM: "import torch; print((torch.ones(16) + torch.ones(16))[0])",
                    PRODUCT: "import torch; print((torch.ones(1024, 1024) @ torch.ones(1024, 1024))[0, 0])"}}


def command(params, arm, meshlua, python):
    if arm == "meshlua":
        return [meshlua, "-e", "local ml = require 'meshlua' " + LUA[params["what"]]]
    return [python, "-c", PYTHON[arm][params["what"]]]
