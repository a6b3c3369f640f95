"""JAX's own inputs for its primitives: jax/_src/internal_test_util/test_harnesses.py of the jax wheel.

Each of them is traced, and each equation of the trace is a row of jax_rows.py; the results, gradients and tangents are
those of the traced function in JAX on a CPU.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from jax._src.internal_test_util import test_harnesses  # noqa: E402
from jax.extend import core  # noqa: E402

from cases import Case, Stop  # noqa: E402
from expr import Expr, ml, tensor  # noqa: E402
from jax_rows import ROWS, SUMS  # noqa: E402

INLINE = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}
FLOAT = ("float", "bfloat")


def is_float(x):
    return str(x.dtype).startswith(FLOAT)


def random_row(harness):
    """Calls of jax.random are compared as calls: what they are made of differs."""
    args = [a.value for a in harness.arg_descriptors if isinstance(a, test_harnesses.StaticArg)]
    group = harness.group_name
    if group == "random_uniform":
        return lambda x: ml.random.uniform(ml.random.key(42), tuple(args[0]), str(np.dtype(args[1])))
    if group == "random_randint":
        shape, low, high, dtype = args
        return lambda x: ml.random.randint(ml.random.key(42), tuple(shape), int(low), int(high), str(np.dtype(dtype)))
    if group == "random_split":
        return lambda x: ml.random.split(ml.random.key(42), 2)
    if group == "random_categorical":
        d = args[-1] + 1 if args[-1] >= 0 else args[-1]
        return lambda x: ml.astype(ml.random.categorical(ml.random.key(1337), x, d), "int64")
    if group == "random_gamma":
        return lambda x: ml.random.gamma(ml.random.key(42), x)
    return None


def inner(eqn):
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if key in eqn.params:
            return eqn.params[key]
    raise Stop("absent", eqn.primitive.name)


def know(eqn, xs, ys):
    """Integers that follow from the inputs are known: rows ask whether ids are in range."""
    if all(x.value is not None for x in xs) and all(y.dtype.startswith(("int", "uint", "bool")) for y in ys):
        values = eqn.primitive.bind(*(np.asarray(x.value) for x in xs), **eqn.params)
        for y, value in zip(ys, values if eqn.primitive.multiple_results else [values]):
            y.value = np.asarray(value)


def translate(case, jaxpr, consts, args):
    """The equations of a jaxpr as lines of Lua; gives the results."""
    env = dict(zip(jaxpr.constvars, consts)) | dict(zip(jaxpr.invars, args))

    def read(v):
        if not isinstance(v, core.Literal):
            return env[v]
        x = np.asarray(v.val, v.aval.dtype)
        e = tensor(x.item(), x.dtype) if x.shape == () and np.dtype(x.dtype).kind in "biuf" else case.const(x)
        return Expr(e.text, e.uses, x.shape, str(x.dtype), x)

    for eqn in jaxpr.eqns:
        name, xs = eqn.primitive.name, [read(v) for v in eqn.invars]
        if name in INLINE:
            sub = inner(eqn)
            closed = sub if isinstance(sub, core.ClosedJaxpr) else core.ClosedJaxpr(sub, ())
            ys = translate(case, closed.jaxpr, [case.const(np.asarray(c)) for c in closed.consts], xs)
        else:
            if name not in ROWS:
                raise Stop("absent", name)
            case.scale = case.scale or name in SUMS
            ys = case.let(ROWS[name](*xs, **eqn.params), [(v.aval.shape, v.aval.dtype) for v in eqn.outvars])
            know(eqn, xs, ys)
        env.update(zip(eqn.outvars, ys))
    return [read(v) for v in jaxpr.outvars]


def lines(case, harness, args, closed):
    """The lines of Lua for a harness."""
    inputs = [case.input(a) for a in args]
    row = random_row(harness)
    if row:
        out = case.let(row(*(inputs or [None])), [(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.outvars])
    else:
        out = translate(case, closed.jaxpr, [case.const(np.asarray(c)) for c in closed.consts], inputs)
    case.results(out)
    case.fixed = {i for i, x in enumerate(inputs) if x.fixed}


def one(suite, harness):
    name, op = harness.fullname, harness.group_name
    if "complex" in str(np.dtype(harness.dtype)):
        return suite.stop(name, op, [("dtype", str(np.dtype(harness.dtype)))])
    if not harness.filter("cpu"):
        return suite.stop(name, op, [("peer", "JAX itself does not do it")])
    rng = np.random.RandomState(abs(hash_of(name)))
    args = [np.asarray(a) for a in harness.dyn_args_maker(rng)]
    case, stops = Case(name, op), []
    try:
        closed = jax.make_jaxpr(harness.dyn_fun)(*args)
        lines(case, harness, args, closed)
    except Stop as stop:
        stops.append((stop.kind, stop.what))
    dtypes = [a.dtype for a in args] + [a.dtype for a in case.consts]
    if not stops:
        dtypes += [v.aval.dtype for v in closed.jaxpr.outvars if hasattr(v, "aval")]
    stops += suite.missing(case, dtypes)
    if stops:
        return suite.stop(name, op, stops)
    # The function is compiled as one: eager JAX compiles each of its equations.
    outs = [np.asarray(y) for y in jax.tree.leaves(jax.jit(harness.dyn_fun)(*args))]
    diff = [i for i, a in enumerate(args) if is_float(a) and i not in case.fixed]
    floats = [i for i, y in enumerate(outs) if is_float(y)]
    suite.add(case, outs, *derivatives(harness, args, diff, floats, rng, outs))


def derivatives(harness, args, diff, floats, rng, outs):
    """Cotangents of the float results and the gradients for them; tangents of the inputs and what becomes of them.
    Empty where JAX has none: of some of its primitives it has one and not the other."""
    none = [], {}, ({}, [])
    if not diff or not floats or harness.group_name.startswith("random"):
        return none
    cotangents = [rng.standard_normal(outs[i].shape).astype(outs[i].dtype) for i in floats]
    directions = {i: rng.standard_normal(args[i].shape).astype(args[i].dtype) for i in diff}

    def function(xs):
        def f(*ds):
            full = list(xs)
            for i, d in zip(diff, ds):
                full[i] = d
            leaves = jax.tree.leaves(harness.dyn_fun(*full))
            return [leaves[i] for i in floats]
        return f, [xs[i] for i in diff]

    def back(*xs):
        f, ds = function(xs)
        return jax.vjp(f, *ds)[1](cotangents)

    def forward(*xs):
        f, ds = function(xs)
        return jax.jvp(f, ds, list(directions.values()))[1]

    def had(fn):
        try:
            return list(map(np.asarray, jax.jit(fn)(*args)))
        except (NotImplementedError, ValueError, TypeError):
            return []

    gradients, tangents = dict(zip(diff, had(back))), had(forward)
    return cotangents if gradients else none[0], gradients, (directions, tangents) if tangents else none[2]


def hash_of(name):
    h = 0
    for c in name.encode():
        h = (h * 31 + c) % 2**31
    return h


def run(suite, only=None):
    for harness in test_harnesses.all_harnesses:
        if "xla_False" in harness.fullname or (only and only not in harness.fullname):
            continue  # the same function and inputs as with True
        one(suite, harness)


NAME = "JAX test harnesses"
VERSION = "jax " + jax.__version__
