"""Lua calls as Python values: `ml.sum(x, (1, 2), True)` is the text `ml.sum(x, {1, 2}, true)`.

The rows of the suites are written with it. What a row calls is remembered, so that a case whose function meshlua
does not have is counted under its name, and runs as soon as the name is there.
"""

import math

import numpy as np


class Stop(Exception):
    """A case that is not run. kind: absent (a name), dtype, departs (a reason), peer (a reason)."""

    def __init__(self, kind, what):
        super().__init__(f"{kind}: {what}")
        self.kind, self.what = kind, what


def absent(name):
    """meshlua has nothing that does this; `name` is what it would be called."""
    raise Stop("absent", name)


def departs(reason):
    """meshlua does it otherwise on purpose."""
    raise Stop("departs", reason)


class Expr:
    """A Lua expression, with the names of meshlua that it needs."""

    def __init__(self, text, uses=(), shape=None, dtype=None, value=None):
        self.text, self.uses = text, frozenset(uses)
        self.shape, self.dtype, self.value = shape, dtype, value
        self.fixed = False  # an input that the row has taken as a number

    @property
    def ndim(self):
        return len(self.shape)

    def at(self, i):
        """The i-th of a list (from 0)."""
        return Expr(f"({self.text})[{i + 1}]", self.uses)

    def of(self, expr):
        """An expression that has the shape and dtype of this one."""
        return Expr(expr.text, expr.uses, self.shape, self.dtype)

    def first(self):
        """The first of several results."""
        return Expr(f"({self.text})", self.uses)

    def second(self):
        """The second of them."""
        return self.nth(2)

    def nth(self, n):
        return Expr(f"(select({n}, {self.text}))", self.uses)

    def field(self, name):
        return Expr(f"({self.text}).{name}", self.uses)

    def __call__(self, *args, **options):
        return called(self.text, self.uses, args, options)


def number(x):
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    if isinstance(x, (int, np.integer)):
        return str(int(x)) if x > -(2**63) else "math.mininteger"
    x = float(x)
    if math.isnan(x):
        return "(0/0)"
    if math.isinf(x):
        return "math.huge" if x > 0 else "-math.huge"
    return repr(x)


def lua(x):
    """The text of a value, and the names that it uses."""
    if x is None:
        return "nil", frozenset()
    if isinstance(x, Expr):
        return x.text, x.uses
    if isinstance(x, str):
        return '"' + x.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"', frozenset()
    if isinstance(x, (list, tuple)):
        parts = [lua(y) if y is not None else ("false", frozenset()) for y in x]
        return "{" + ", ".join(t for t, _ in parts) + "}", frozenset().union(*(u for _, u in parts))
    if isinstance(x, dict):
        parts = [(k, *lua(v)) for k, v in x.items() if v is not None]
        return ("{" + ", ".join(f"{k if isinstance(k, str) else [k]} = {t}" for k, t, _ in parts) + "}",
                frozenset().union(*(u for _, _, u in parts)))
    return number(x), frozenset()


def called(head, uses, args, options):
    args = list(args)
    while args and args[-1] is None:
        args.pop()
    parts = [lua(a) for a in args]
    options = {k: v for k, v in options.items() if v is not None}
    if options:
        parts.append(lua(options))
    uses = frozenset(uses).union(*(u for _, u in parts))
    return Expr(f"{head}({', '.join(t for t, _ in parts)})", uses)


class Names:
    """ml, ml.nn, ...: attributes are names, calls are calls."""

    def __init__(self, name=""):
        self._name = name

    def __getattr__(self, name):
        return Names(f"{self._name}.{name}" if self._name else name)

    def __call__(self, *args, **options):
        return called("ml." + self._name, {self._name}, args, options)


ml = Names()


def tool(name):
    """A function that run.lua gives to the cases."""
    return lambda *args: called("tools." + name, (), args, {})


def lambda_(parameter, body):
    """function(parameter) return body end"""
    return Expr(f"function({parameter}) return {body.text} end", body.uses)


def axis(d):
    """A dim counted from 0 as one counted from 1."""
    return d if d is None or d < 0 else int(d) + 1


def axes(dims):
    """The same for None, one or several."""
    if dims is None:
        return None
    return axis(dims) if isinstance(dims, (int, np.integer)) else tuple(axis(d) for d in dims)


def tensor(x, dtype):
    """A number as a tensor of rank 0."""
    return ml.full((), x, str(dtype))


def slices(starts, limits, steps):
    """Half-open ranges from 0 as ranges from 1 with both ends."""
    out = []
    for start, limit, step in zip(starts, limits, steps):
        last = start if limit <= start else start + (limit - start - 1) // step * step + 1
        out.append((start + 1, last, step) if step != 1 else (start + 1, last))
    return out


def broadcast_in_dim(x, shape, dims):
    """x with its dims at `dims` of a shape, repeated along the others."""
    ones = [1] * len(shape)
    for size, d in zip(x.shape, dims):
        ones[d] = size
    if tuple(ones) != tuple(x.shape):
        x = ml.reshape(x, tuple(ones))
    return ml.broadcast(x, tuple(shape)) if tuple(ones) != tuple(shape) else x
