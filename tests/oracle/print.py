"""How numpy prints 200 arrays, for tests/spec/print_spec.lua.

    python tests/oracle/print.py > tests/oracle/print.json

The values of a case are Lua that makes the elements: a list, or ramp(first, step). What is ours: "true" and "false", "…" (one column) for "...", and bfloat16, which numpy does
not know: what is asked for of its elements is asked of the shortest decimals that say which bfloat16 they are (of
whole numbers below 1e3 themselves), and exponents begin at 1e3, as of float16.
"""

import json
import math
import random

import ml_dtypes
import numpy as np
from numpy._core import arrayprint

draw = random.Random(19)
DEFAULTS = {"precision": 8, "threshold": 1000, "edge_items": 3, "width": 75, "suppress": False, "sign": "-",
            "float_mode": "maxprec"}
NUMPY = {"edge_items": "edgeitems", "width": "linewidth", "float_mode": "floatmode"}


class Finfo:
    """numpy.finfo with the precision that meshlua gives bfloat16."""

    precision = 3


def shortest_bfloat16(x):
    """The float64 with the shortest decimal that is this bfloat16; whole numbers as they are."""
    if not math.isfinite(x) or abs(x) < 1e3 and x == int(x):
        return x
    texts = (f"{x:.{n}e}" for n in range(6))
    return next(float(text) for text in texts if float(ml_dtypes.bfloat16(np.float64(text))) == x)


def text_of(a, options, is_bfloat16, exact=None):
    """What numpy prints, with our ellipsis. exact: the numbers themselves, of which a has the shortest decimals."""
    if a.shape == ():
        large = is_bfloat16 and 1e3 <= abs(a) < math.inf
        return np.format_float_scientific(a, trim="-") if large else str(a)
    names = {NUMPY.get(k, k): v for k, v in (DEFAULTS | options).items()}
    finfo = np.finfo
    if is_bfloat16:
        np.finfo = lambda dtype: Finfo
    try:
        with np.printoptions(**names) as o:
            if a.size == 0:
                return "[]"
            o = arrayprint.format_options.get()
            summary, data = "", a
            if a.size > o["threshold"]:
                summary, data = "…", arrayprint._leading_trailing(a, o["edgeitems"])
            write = arrayprint._get_format_function(data, **o)
            cut = max(0, write.precision) if is_bfloat16 else 0

            def word(i):
                x = a.flat[i]
                if is_bfloat16 and (write.exp_format or len(np.format_float_positional(x).partition(".")[2]) > cut):
                    x = exact.flat[i]
                return write(x)

            places = np.arange(a.size).reshape(a.shape)
            return arrayprint._formatArray(places, word, o["linewidth"], " ", " ", o["edgeitems"], summary, o["legacy"])
    finally:
        np.finfo = finfo


def lua(x):
    if isinstance(x, str):
        return x
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return "math.mininteger" if x == -2**63 else str(x)
    if math.isnan(x):
        return "0/0"
    if math.isinf(x):
        return "1/0" if x > 0 else "-1/0"
    return float(x).hex() if x != int(x) or abs(x) > 1e15 or x == 0 else f"{int(x)}.0"


cases = []


def case(dtype, shape, values, **options):
    """values: a list, or ("ramp", first, step): first + step * i."""
    n = math.prod(shape)
    if isinstance(values, tuple):
        _, first, step = values
        text = f"ramp({first!r}, {step!r})"
        values = [first + step * i for i in range(n)]
    else:
        text = "{" + ", ".join(lua(v) for v in values) + "}"
    assert len(values) == n, (dtype, shape, len(values))
    is_bfloat16 = dtype == "bfloat16"
    a = np.array(values, dtype="float64" if is_bfloat16 else dtype).reshape(shape)
    exact = a
    if is_bfloat16:
        exact = a.astype(ml_dtypes.bfloat16).astype("float64")
        a = np.vectorize(shortest_bfloat16, otypes=["float64"])(exact)
        a = a.reshape(shape)
    result = text_of(a, options, is_bfloat16, exact)
    if dtype == "bool":
        result = result.replace("True", "true").replace("False", "false")
    cases.append({"dtype": dtype, "shape": shape, "options": options, "values": text, "text": result})


FLOATS = ["float32", "float64", "float16", "bfloat16"]
NAN, INF = math.nan, math.inf


def main():
    for dtype in FLOATS:
        for x in [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 1e-5, 1e-4, 100000.0, 12345.678, NAN, -INF]:
            if dtype == "float16" and x == 100000.0:
                x = 2048.0
            case(dtype, [], [x])
    case("float32", [], [1.6e7])
    case("float32", [], [123456792.0])
    case("float32", [], [1e16])
    case("float64", [], [1e15])
    case("float64", [], [2.0**-44])
    case("float32", [], [2.0**-149])
    for dtype in FLOATS:
        case(dtype, [0], [])
        case(dtype, [2, 0, 3], [])
        case(dtype, [3], [0.0, 1.0, 2.0])
        case(dtype, [4], [0.5, -1.25, 3.0, 100.0])
        case(dtype, [3], [0.1, 0.2, 1 / 3])
        case(dtype, [3], [1e-5, 0.5, 1.0])
        case(dtype, [3], [0.0001, 0.1, 0.01])
        case(dtype, [4], [999.0, 1.0, -0.0, 500.0])
        case(dtype, [3], [1.0, 1000.0, 1001.0])
        case(dtype, [3], [1.0, 60000.0, 0.001])
        case(dtype, [4], [NAN, 1.0, INF, -INF])
        case(dtype, [3], [NAN, NAN, INF])
        case(dtype, [2], [-INF, NAN])
        case(dtype, [2, 3], [1e-7, 1e-3, 7.0, NAN, -3.5, INF])
        case(dtype, [6], [2.0**-k for k in range(6)])
        case(dtype, [30], [draw.gauss(0, 1) for _ in range(30)])
        case(dtype, [4, 9], [draw.gauss(0, 1) for _ in range(36)])
        case(dtype, [2, 3, 4], [draw.uniform(-5, 5) for _ in range(24)], precision=3)
        case(dtype, [5], [draw.uniform(0, 1) for _ in range(5)], precision=0)
    case("float32", [3], [1e6, 1.0, 2.0])
    case("float32", [3], [999999.0, 1000.0, 2000.0])
    case("float32", [3], [2.0**-149, 2.0**-126, 3.4028234663852886e38])
    case("float64", [3], [2.0**-1074, 2.0**-1022, 1.7976931348623157e308])
    case("float64", [3], [1e7, 99999999.0, 1e6])
    case("float64", [2], [1e8, 1e6])
    case("float64", [3], [1e-5, 1e100, 1.0])
    case("float64", [4], [2.0**-44, 2.0**-24, 9007199254740993.0, 0.1])
    case("float32", [8], [2.0**k for k in range(-100, 100, 25)])
    case("float16", [4], [65504.0, 2.0**-24, 2.0**-14, 1.0])
    case("float32", [9], [0.001953125 * k for k in range(9)])  # of 8 bits: e4m3
    case("float32", [6], [448.0, -448.0, 0.015625, 240.0, 57344.0, 0.0001220703125])
    case("float32", [1200], ("ramp", -600.0, 1.0))
    case("float32", [1001], ("ramp", 0.0, 0.125))
    case("float32", [1000], ("ramp", 0.0, 0.25))
    case("float32", [2, 700], ("ramp", 0.0, 0.5))
    case("float32", [100, 100], ("ramp", -5000.0, 1.0))
    case("float32", [7, 8, 40], ("ramp", 0.0, 0.0625))
    case("float32", [5, 2, 300], ("ramp", 0.0, 1.0))
    case("float32", [2, 3, 2, 120], ("ramp", 0.0, 0.5))
    case("float64", [40, 40], ("ramp", 0.0, 0.1))
    case("bfloat16", [50, 50], ("ramp", 0.0, 0.5))
    case("float16", [1, 2000], ("ramp", 0.0, 0.5))
    case("float32", [4000], ("ramp", 0.0, 1.0), threshold=10, edge_items=2)
    case("float32", [12], ("ramp", 0.0, 1.0), threshold=10, edge_items=1)
    case("float32", [12, 2], ("ramp", 0.0, 1.0), threshold=5, edge_items=4)
    case("float32", [40], ("ramp", 0.0, 0.5), width=20)
    case("float32", [3, 40], ("ramp", 0.0, 1.0), width=40)
    case("float32", [2, 2, 10], ("ramp", 0.0, 1.0), width=3)
    case("float32", [3], [1e-10, 1.0, 12.5], suppress=True)
    case("float32", [3], [-1e-10, 1e7, 12.5], suppress=True)
    case("float32", [2, 2], [1.0, -2.5, 0.25, 1e-3], sign="+")
    case("float32", [2, 2], [1.0, 2.5, 0.25, 1e-3], sign=" ")
    case("float32", [3], [1.0, NAN, INF], sign="+")
    case("float32", [3], [1.0, NAN, -INF], sign=" ")
    case("float32", [3], [1.0, 0.5, 1 / 3], float_mode="fixed", precision=4)
    case("float32", [3], [1e-9, 0.5, 1 / 3], float_mode="fixed", precision=4)
    case("float32", [3], [1.0, 0.5, 1 / 3], float_mode="unique")
    case("float64", [3], [1e-9, 0.5, 1 / 3], float_mode="unique")
    case("float32", [3], [1.0, 0.5, 0.125], float_mode="maxprec_equal")
    case("float64", [3], [1.0, 0.5, 1 / 3], precision=20)
    for dtype, low, high in [("int32", -2**31, 2**31 - 1), ("int64", -2**63, 2**63 - 1), ("uint32", 0, 2**32 - 1),
                             ("uint8", 0, 255)]:
        case(dtype, [], [high])
        case(dtype, [3], [low, high, 0])
        case(dtype, [0, 3], [])
        case(dtype, [2, 5], [k * k for k in range(10)])
        case(dtype, [60], [k * 4 for k in range(60)])
    case("int32", [], [-7])
    case("int32", [5], [-1, 2, -30, 400, 0])
    case("int32", [3], [1, 2, 30], sign="+")
    case("int32", [3], [1, 2, 30], sign=" ")
    case("int32", [3], [1, -2, 30], sign=" ")
    case("int32", [1500], ("ramp", 0, 1))
    case("int64", [50, 50], ("ramp", -100, 7))
    case("int32", [3, 4, 5], ("ramp", 0, 1))
    case("int32", [1, 1, 1, 1], [5])
    case("int32", [2, 1, 3], [1, 2, 3, 4, 5, 6])
    case("bool", [], [True])
    case("bool", [], [False])
    case("bool", [3], [True, False, True])
    case("bool", [2, 2], [True, True, True, True])
    case("bool", [20], [k % 3 == 0 for k in range(20)])
    case("bool", [0], [])
    for _ in range(30):
        dtype = draw.choice(FLOATS)
        shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 3))]
        scale = draw.choice([1e-3, 1.0, 30.0, 1e3])
        values = [draw.choice([draw.gauss(0, scale), float(draw.randint(-9, 9)), draw.gauss(0, scale)])
                  for _ in range(math.prod(shape))]
        case(dtype, shape, values)


main()
lines = (json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
print("[" + ",\n".join(lines) + "]")
