"""optax's own tests, as they are in its wheel: what its tests of losses and schedules call with which arguments, and
the optimizers that its tests of aliases list, twenty steps of float64 with gradients that are given."""

import contextlib
import importlib
import inspect
import io
import os
import re
import sys
import types
import unittest

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from cases import Case, Stop  # noqa: E402
from expr import Expr, departs, lambda_, ml, tool  # noqa: E402
from optim_rows import OPTAX, given  # noqa: E402

NAME, VERSION = "optax's tests", "optax " + optax.__version__
STEPS, SHAPE = 20, (3, 4)


def last_axis(x, d):
    if d not in (-1, None) and (isinstance(d, tuple) or d % x.ndim != x.ndim - 1):
        departs("losses are of the last dim")


def integer_labels(logits, labels, axis=-1, where=None):
    last_axis(logits, axis)
    return ml.nn.softmax_cross_entropy_with_integer_labels(logits, labels)


def kl(x, y, axis=-1, where=None):
    last_axis(x, axis)
    return ml.nn.kl(x, y)


def squared(x, y=None):
    return ml.square(x if y is None else ml.sub(x, y))


def huber(x, y=None, delta=1.0):
    if not isinstance(x, Expr) or y is None:
        departs("losses are of tensors: predictions and targets")
    return ml.nn.huber(x, y, float(delta))


def same(name, n=2, of=None, table=False):
    """A loss of the same name and arguments: n tensors, and options, which have places or a table."""
    order = inspect.signature(getattr(optax.losses, of or name))

    def row(*args, **keys):
        given = order.bind(*args, **keys).arguments
        tensors = [given.pop(k, None) for k in list(order.parameters)[:n]]
        last_axis(tensors[0], given.pop("axis", -1))
        given.pop("where", None)
        if not all(isinstance(x, Expr) for x in tensors):
            departs("losses are of tensors: predictions and targets")
        options = {k: float(v) for k, v in given.items() if v is not None}
        return getattr(ml.nn, name)(*tensors, *([options] if table else options.values()))
    return row


LOSSES = {
    **{name: same(name) for name in (
        "softmax_cross_entropy", "safe_softmax_cross_entropy", "poly_loss_cross_entropy", "hinge_loss", "perceptron_loss",
        "multiclass_hinge_loss", "multiclass_perceptron_loss", "kl_divergence_with_log_targets", "l2_loss", "log_cosh",
        "generalized_kl_divergence", "cosine_similarity", "cosine_distance")},
    "convex_kl_divergence": same("generalized_kl_divergence", of="convex_kl_divergence"), "smooth_labels": same("smooth_labels", 1),
    "sigmoid_focal_loss": same("sigmoid_focal_loss", table=True),
    "softmax_cross_entropy_with_integer_labels": integer_labels, "kl_divergence": kl, "squared_error": squared,
    "sigmoid_binary_cross_entropy": lambda x, y: ml.nn.sigmoid_binary_cross_entropy(x, y),
    "huber_loss": huber,
}
WARMUP = dict(init_value="init_value", peak_value="peak_value", warmup_steps="warmup_steps", decay_steps="decay_steps",
              end_value="end_value", exponent="exponent")


def schedule(name, *same):
    return lambda **o: getattr(ml.schedule, name)(given(o, **{k: k for k in same}))


PIECES = ("init_value", "boundaries_and_scales")
SCHEDULES = {
    "polynomial_schedule": schedule("polynomial", "init_value", "end_value", "power", "transition_steps",
                                    "transition_begin"),
    "exponential_decay": schedule("exponential", "init_value", "transition_steps", "decay_rate", "transition_begin",
                                  "staircase", "end_value"),
    "piecewise_constant_schedule": schedule("piecewise_constant", *PIECES),
    "piecewise_interpolate_schedule": schedule("piecewise_interpolate", "interpolate_type", *PIECES),
    "cosine_onecycle_schedule": schedule("cosine_onecycle", "transition_steps", "peak_value", "pct_start", "div_factor",
                                         "final_div_factor"),
    "linear_onecycle_schedule": schedule("linear_onecycle", "transition_steps", "peak_value", "pct_start", "pct_final",
                                         "div_factor", "final_div_factor"),
    "constant_schedule": lambda value: ml.schedule.constant(float(value)),
    "linear_schedule": lambda **o: ml.schedule.linear(given(o, init_value="init_value", end_value="end_value",
                                                            transition_steps="transition_steps",
                                                            transition_begin="transition_begin")),
    "cosine_decay_schedule": lambda **o: ml.schedule.cosine(given(o, init_value="init_value", decay_steps="decay_steps",
                                                                  alpha="alpha", exponent="exponent")),
    "warmup_cosine_decay_schedule": lambda **o: ml.schedule.warmup_cosine(given(o, **WARMUP)),
}
SLOW = re.compile("CTC|AsLearningRate|SGDR").search  # minutes each
QUIET = {"make_fenchel_young_loss"}  # functions of functions


def concrete(tree):
    return not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


def recorded(module, names, tests, keep):
    """Runs test files with functions of a module watched: keep(name, fn, args, kwargs) is called instead of them."""
    originals = {n: getattr(module, n) for n in names}
    jit = jax.jit
    jax.jit = lambda f=None, *a, **k: f if f is not None else (lambda g: g)
    try:
        for n, fn in originals.items():
            setattr(module, n, keep(n, fn))
        for test in tests:
            file = importlib.import_module(test)
            classes = [c for c in vars(file).values() if inspect.isclass(c) and issubclass(c, unittest.TestCase)]
            found = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in classes
                                       if not SLOW(c.__name__))
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                unittest.TextTestRunner(stream=io.StringIO()).run(found)
    finally:
        jax.jit = jit
        for n, fn in originals.items():
            setattr(module, n, fn)


def public(module):
    return [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__
            and (hasattr(optax.losses, n) or hasattr(optax.schedules, n)) and n not in QUIET]


def losses(suite, only):
    for kind in ("_classification", "_regression", "_smoothing"):
        module, calls = importlib.import_module("optax.losses." + kind), {}

        def keep(name, fn):
            def watched(*args, **kwargs):
                out = fn(*args, **kwargs)
                leaves = jax.tree.leaves((args, kwargs))
                arrays = all(isinstance(x, (jax.Array, np.ndarray, float, int)) for x in leaves)
                if concrete((args, kwargs, out)) and arrays and not isinstance(out, tuple):
                    key = name + repr(jax.tree.map(lambda x: np.asarray(x).tolist(), (args, sorted(kwargs.items()))))
                    calls.setdefault(key, (name, fn, args, kwargs, np.asarray(out)))
                return out
            return watched

        recorded(module, public(module), [f"optax.losses.{kind}_test"], keep)
        for i, (name, fn, args, kwargs, out) in enumerate(calls.values()):
            if not only or only in name:
                loss(suite, f"{name}_{i}", name, fn, args, kwargs, out)


def loss(suite, label, name, fn, args, kwargs, out):
    if name not in LOSSES:
        return suite.stop(label, name, [("absent", "nn." + name)])
    case = Case(label, name)
    arrays, case.scale = [], True

    def put(x):
        if isinstance(x, (jax.Array, np.ndarray)):
            arrays.append(np.asarray(jnp.asarray(x)))
            return case.input(arrays[-1])
        return x

    try:
        if kwargs.get("where") is not None:
            departs("masks: by where")
        expr = LOSSES[name](*map(put, args), **{k: put(v) for k, v in kwargs.items()})
    except Stop as stop:
        return suite.stop(label, name, [(stop.kind, stop.what)])
    except TypeError as e:
        return suite.stop(label, name, [("adapter", str(e)[:80])])
    case.results(case.let(expr, [(out.shape, out.dtype)]))
    stops = suite.missing(case, [a.dtype for a in [*arrays, out]])
    suite.stop(label, name, stops) if stops else suite.add(case, [out])


def schedules(suite, only):
    from optax.schedules import _schedule

    made = []

    def keep(name, fn):
        def watched(*args, **kwargs):
            schedule, seen = fn(*args, **kwargs), {}
            made.append((name, inspect.signature(fn).bind(*args, **kwargs).arguments, seen))

            def at(count):
                value = schedule(count)
                if concrete((count, value)) and np.ndim(count) == 0 and len(seen) < 100:
                    seen[int(count)] = np.float32(value)
                return value
            return at
        return watched

    recorded(_schedule, [n for n in public(_schedule) if "schedule" in n or n == "exponential_decay"],
             ["optax.schedules._schedule_test"], keep)
    for i, (name, arguments, seen) in enumerate(made):
        label = f"{name}_{i}"
        if not seen or (only and only not in name):
            continue
        if name not in SCHEDULES:
            suite.stop(label, name, [("absent", "schedule." + name)])
            continue
        case = Case(label, name)
        try:
            plain = {k: v if isinstance(v, (int, float)) or v is None else np.asarray(v).item()
                     for k, v in arguments.items()}
            case.results(case.let(tool("steps")(SCHEDULES[name](**plain), list(seen)), [((len(seen),), "float32")]))
        except Stop as stop:
            suite.stop(label, name, [(stop.kind, stop.what)])
            continue
        case.tolerance = (1e-5, 1e-6)
        stops = suite.missing(case, [])
        suite.stop(label, name, stops) if stops else suite.add(case, [np.array(list(seen.values()), "float32")])


def optimizers(suite, only):
    from optax._src import alias_test

    with jax.enable_x64(True):
        for i, row in enumerate(alias_test._OPTIMIZERS_UNDER_TEST):
            if not only or only in row["opt_name"]:
                optimizer(suite, f"{row['opt_name']}_{i}", row["opt_name"], row["opt_kwargs"], i)


def optimizer(suite, label, name, kwargs, i):
    if name not in OPTAX:
        return suite.stop(label, name, [("absent", "optim." + name)])
    rng = np.random.RandomState(i)
    x, grads = rng.standard_normal(SHAPE), rng.standard_normal((STEPS, *SHAPE))
    case = Case(label, name)
    try:
        made = OPTAX[name](**kwargs)
    except Stop as stop:
        return suite.stop(label, name, [(stop.kind, stop.what)])
    case.results(case.let(tool("optimize")(lambda_("m", made), case.input(x), case.input(grads)), [(SHAPE, "float64")]))
    rule = getattr(optax, name)(**kwargs)
    p = jnp.asarray(x)
    state = rule.init(p)
    for g in grads:
        updates, state = rule.update(jnp.asarray(g), state, p)
        p = optax.apply_updates(p, updates)
    case.tolerance = (1e-7, 1e-9)  # rates are float32 numbers
    stops = suite.missing(case, ["float64"])
    suite.stop(label, name, stops) if stops else suite.add(case, [np.asarray(p)])


def run(suite, only=None):
    for name in ("sklearn", "sklearn.datasets", "sklearn.linear_model"):  # which tests ask for that are not run
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["sklearn"].datasets = sys.modules["sklearn"].linear_model = None
    losses(suite, only)
    schedules(suite, only)
    optimizers(suite, only)
