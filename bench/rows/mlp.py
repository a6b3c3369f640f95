"""A training step of a multilayer perceptron 784-512-512-10: batch 128, ReLU, softmax cross-entropy, Adam."""

from rows.row import Row

PARAMS = {"sizes": [784, 512, 512, 10], "batch": 128}
WEIGHTS = sum(a * b for a, b in zip(PARAMS["sizes"], PARAMS["sizes"][1:]))
# No gradient with respect to the images: one product less.
FLOPS = 6.0 * PARAMS["batch"] * WEIGHTS - 2.0 * PARAMS["batch"] * 784 * 512

ROWS = [Row("train mlp 784-512-512-10", "mlp", PARAMS, limits=("fma",), flops=FLOPS, tolerance=1e-4, vs_jax=1.5, vs_torch=1.5)]


def jax_case(p, x):
    import jax
    import optax
    n = len(p["sizes"]) - 1
    params = [{"kernel": jax.device_put(x[f"kernel{i + 1}"]), "bias": jax.device_put(x[f"bias{i + 1}"])} for i in range(n)]
    tx = optax.adam(1e-3)
    images, labels = jax.device_put(x["x"]), jax.device_put(x["labels"])

    def loss(params, images, labels):
        for i, w in enumerate(params):
            images = images @ w["kernel"] + w["bias"]
            images = jax.nn.relu(images) if i < n - 1 else images
        return optax.softmax_cross_entropy_with_integer_labels(images, labels).mean()

    def step(params, state, images, labels):
        value, grads = jax.value_and_grad(loss)(params, images, labels)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value
    step = jax.jit(step, donate_argnums=(0, 1))
    held = [params, jax.jit(tx.init)(params)]

    def run():
        held[0], held[1], value = step(*held, images, labels)
        return value.item()
    return run, lambda: [run() for _ in range(3)]


def torch_case(p, x, compiled=False):
    import torch
    from torch import nn
    layers = []
    for i, (n_in, n_out) in enumerate(zip(p["sizes"], p["sizes"][1:])):
        layer = nn.Linear(n_in, n_out)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(x[f"kernel{i + 1}"]).T)
            layer.bias.copy_(torch.from_numpy(x[f"bias{i + 1}"]))
        layers += [layer, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.from_numpy(x["x"]), torch.from_numpy(x["labels"]).long()

    def loss_of(images, labels):
        return nn.functional.cross_entropy(model(images), labels)
    loss_of = torch.compile(loss_of) if compiled else loss_of

    def run():
        loss = loss_of(images, labels)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.item()
    return run, lambda: [run() for _ in range(3)]


def compile_case(p, x):
    return torch_case(p, x, True)
