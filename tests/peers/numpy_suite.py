"""NumPy's validation sets of its elementary functions, numpy/_core/tests/data/umath-validation-set-*.csv: bits of
arguments, bits of results, and how many units in the last place are allowed there.
"""

import csv
import pathlib

import numpy as np

from cases import Case
from expr import ml

NAME, VERSION = "NumPy umath sets", "numpy " + np.__version__
ROWS = {"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctanh": "atanh"}


def columns(path):
    """By dtype: arguments, results, units."""
    found = {}
    for row in csv.reader(line for line in open(path) if line.startswith("np.")):
        dtype = np.dtype(row[0].removeprefix("np."))
        bits = np.dtype(f"u{dtype.itemsize}")
        args, results, units = found.setdefault(dtype, ([], [], []))
        args.append(np.array(int(row[1], 16), bits).view(dtype))
        results.append(np.array(int(row[2], 16), bits).view(dtype))
        units.append(int(row[3]))
    return found


def run(suite, only=None):
    for path in sorted((pathlib.Path(np.__file__).parent / "_core/tests/data").glob("umath-validation-set-*.csv")):
        name = path.stem.removeprefix("umath-validation-set-")
        if only and only not in name:
            continue
        for dtype, (args, results, units) in columns(path).items():
            case = Case(f"{name}_{dtype}", name)
            # One unit more: the results there are themselves rounded.
            case.tolerance = ((max(units) + 1) * float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny))
            call = getattr(ml, ROWS.get(name, name))
            case.results(case.let(call(case.input(np.array(args, dtype))), [((len(args),), dtype)]))
            stops = suite.missing(case, [dtype])
            suite.stop(case.name, name, stops) if stops else suite.add(case, [np.array(results, dtype)])
