"""SciPy's tables of special functions, scipy/special/tests/data/*.npz: arguments and results to many digits, which
scipy/special/tests/test_data.py says how to read. A table is a case, of float64 and of float32.
"""

import ast
import inspect
import pathlib

import numpy as np
import scipy

from cases import Case
from expr import ml

NAME, VERSION = "SciPy special tables", "scipy " + scipy.__version__
# How meshlua calls the functions of SciPy.
ROWS = {
    "erf": "erf", "erfc": "erfc", "erfinv": "erf_inv", "erfcinv": "erfc_inv", "digamma": "digamma", "psi": "digamma",
    "gammaln": "lgamma", "gamma": "gamma", "log1p": "log1p", "expm1": "expm1", "cbrt": "cbrt", "sinc": "sinc",
    "gammainc": "igamma", "gammaincc": "igammac", "betainc": "betainc", "beta": "beta", "betaln": "lbeta",
    "zeta": "zeta",
}


def literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def tables():
    """(function, table, columns of arguments, column of the result, tolerance) of each row of test_data.py."""
    from scipy.special.tests import test_data

    tree = ast.parse(inspect.getsource(test_data))
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("data", "data_local", "data_gsl")):
            continue
        if len(call.args) < 4 or not isinstance(call.args[0], ast.Name):
            continue
        table, args, result = map(literal, call.args[1:4])
        keys = {k.arg: literal(k.value) for k in call.keywords}
        where = {"data": "boost", "data_local": "local", "data_gsl": "gsl"}[call.func.id]
        if table and args is not None and isinstance(result, int):
            yield call.args[0].id, where, table, args if isinstance(args, tuple) else (args,), result, keys


def run(suite, only=None):
    folder = pathlib.Path(scipy.__file__).parent / "special/tests/data"
    files = {n: np.load(folder / (n + ".npz")) for n in ("boost", "gsl", "local")}
    for fn, where, table, args, result, keys in tables():
        if only and only not in fn:
            continue
        data = files[where][table] if table in files[where] else files[where][table.replace("/", "-")]
        for dtype in ("float64", "float32"):
            case = Case(f"{fn}_{table}_{dtype}", fn)
            if fn not in ROWS:
                suite.stop(case.name, fn, [("absent", "special.*")])
                continue
            if any(isinstance(i, complex) for i in args):
                suite.stop(case.name, fn, [("absent", "complex numbers")])
                continue
            xs = [data[:, i].astype(dtype) for i in args]
            want = data[:, result]
            with np.errstate(over="ignore"):
                want = want.astype(dtype)
            eps = float(np.finfo(dtype).eps)
            case.tolerance = (max(keys.get("rtol") or 0, 16 * eps), float(np.finfo(dtype).tiny))
            case.results(case.let(getattr(ml, ROWS[fn])(*map(case.input, xs)), [(want.shape, dtype)]))
            stops = suite.missing(case, [dtype])
            suite.stop(case.name, fn, stops) if stops else suite.add(case, [want])
