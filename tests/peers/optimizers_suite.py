"""PyTorch's settings of its optimizers, torch/testing/_internal/common_optimizers.py: five steps of float64 with
gradients that are given."""

import numpy as np
import torch
from torch.testing._internal.common_optimizers import optim_db

from cases import Case, Stop
from expr import lambda_, tool
from optim_rows import TORCH, plain

NAME, VERSION = "PyTorch OptimizerInfo", "torch " + torch.__version__.split("+")[0]
STEPS, SHAPE = 5, (3, 4)


def run(suite, only=None):
    for info in optim_db:
        op = info.optim_cls.__name__
        if only and only not in op:
            continue
        for i, setting in enumerate(info.optim_inputs_func(device="cpu")):
            one(suite, info.optim_cls, op, f"{op}_{i}_{setting.desc}", dict(setting.kwargs), i)


def one(suite, cls, op, name, kwargs, i):
    if op not in TORCH:
        return suite.stop(name, op, [("absent", "optim." + op.lower())])
    rng = np.random.RandomState(i)
    x, grads = rng.standard_normal(SHAPE), rng.standard_normal((STEPS, *SHAPE))
    case = Case(name, op)
    try:
        made = TORCH[op](**plain(dict(kwargs)))
    except Stop as stop:
        return suite.stop(name, op, [(stop.kind, stop.what)])
    case.results(case.let(tool("optimize")(lambda_("m", made), case.input(x), case.input(grads)), [(SHAPE, "float64")]))
    p = torch.nn.Parameter(torch.from_numpy(x.copy()))
    optimizer = cls([p], **kwargs)
    for g in grads:
        p.grad = torch.from_numpy(g)
        optimizer.step()
    stops = suite.missing(case, ["float64"])
    case.tolerance = (1e-7, 1e-9)  # rates are float32 numbers
    suite.stop(name, op, stops) if stops else suite.add(case, [p.detach().numpy()])
