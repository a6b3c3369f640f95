"""For each optimizer of optax and PyTorch the call of meshlua that makes it for a model m."""

from expr import Expr, absent, departs, ml

M = Expr("m")


def given(options, **renamed):
    """Options under meshlua's names; those without one stop the case unless they are None or False."""
    out = {}
    for key, value in options.items():
        if value is None or value is False:
            continue
        if key not in renamed:
            departs(f"an option that meshlua does not have: {key}")
        out[renamed[key]] = value
    return out


ADAM = dict(learning_rate="lr", b1="b1", b2="b2", eps="eps", eps_root="eps_root", nesterov="nesterov")


def optax_adam(name):
    def row(**o):
        return getattr(ml.optim, name)(M, given(o, **ADAM, weight_decay="weight_decay"))
    return row


def nadam(name):
    return lambda **o: getattr(ml.optim, name)(M, {**given(o, **ADAM, weight_decay="weight_decay"), "nesterov": True})


def optax(name, *same, **renamed):
    """Options of the same names, the learning rate and others renamed; mu_dtype stays what it is by itself."""
    return lambda **o: getattr(ml.optim, name)(M, given(o, learning_rate="lr", **{k: k for k in same}, **renamed))


def adafactor(**o):
    return optax("adafactor", "min_dim_size_to_factor", "decay_rate", "decay_offset", "multiply_by_parameter_scale",
                 "clipping_threshold", "momentum", "eps", "factored", weight_decay_rate="weight_decay")(**o)


# optax's by their names.
OPTAX = {
    "lion": optax("lion", "b1", "b2", "weight_decay"),
    "rmsprop": optax("rmsprop", "decay", "eps", "initial_scale", "eps_in_sqrt", "centered", "momentum", "nesterov",
                     "bias_correction"),
    "adagrad": optax("adagrad", "initial_accumulator_value", "eps"),
    "lamb": optax("lamb", "b1", "b2", "eps", "eps_root", "weight_decay"),
    "lars": optax("lars", "momentum", "nesterov", "trust_coefficient", "eps", "weight_decay"),
    "adafactor": adafactor,
    "adam": optax_adam("adam"), "adamw": lambda **o: optax_adam("adamw")(**{"weight_decay": 1e-4, **o}),
    "nadam": nadam("adam"), "nadamw": lambda **o: nadam("adamw")(**{"weight_decay": 1e-4, **o}),
    "sgd": lambda **o: ml.optim.sgd(M, given(o, learning_rate="lr", momentum="momentum", nesterov="nesterov")),
}


def decayed(weight_decay, name, options):
    """L2: the decay goes into the gradient."""
    if not weight_decay:
        return getattr(ml.optim, name)(M, options)
    return ml.optim.Optimizer(M, ml.optim.chain(ml.optim.add_decayed_weights(weight_decay),
                                                getattr(ml.optim, name)(options)))


def plain(o):
    """Options that say how PyTorch computes, not what."""
    for key in ("foreach", "fused", "capturable", "differentiable"):
        o.pop(key, None)
    if o.pop("maximize", False):
        departs("maximize: negate the loss")
    if o.pop("amsgrad", False):
        absent("optim.amsgrad")
    lr = o.get("lr")
    if lr is not None and not isinstance(lr, (int, float)):
        o["lr"] = float(lr)
    return o


def torch_adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False):
    options = dict(lr=lr, b1=float(betas[0]), b2=float(betas[1]), eps=eps)
    if decoupled_weight_decay:
        return ml.optim.adamw(M, {**options, "weight_decay": weight_decay})
    return decayed(weight_decay, "adam", options)


def torch_sgd(lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False):
    if dampening:
        departs("an option that meshlua does not have: dampening")
    return decayed(weight_decay, "sgd", dict(lr=lr, momentum=momentum or None, nesterov=nesterov or None))


TORCH = {
    "Adam": torch_adam, "SGD": torch_sgd,
    "AdamW": lambda weight_decay=1e-2, **o: torch_adam(weight_decay=weight_decay, decoupled_weight_decay=True, **o),
}
