"""The node tests of ONNX: onnx/backend/test/case/node, graphs of one operator with inputs and results."""

import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

from cases import Case, Stop  # noqa: E402
from onnx_rows import ABSENT, OWN, ROWS  # noqa: E402

NAME, VERSION = "ONNX node tests", "onnx " + onnx.__version__
SUMS = ("Reduce", "Conv", "MatMul", "Gemm", "Einsum", "Cum", "Norm", "Softmax", "Average", "Attention")


def arrays(values):
    """NumPy's of a list; None where one of them is something else (a sequence, strings)."""
    out = []
    for v in values:
        v = onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v
        if not isinstance(v, np.ndarray | np.generic) or np.asarray(v).dtype.kind in "OUS":
            return None
        out.append(np.asarray(v))
    return out


def attribute(a):
    v = onnx.helper.get_attribute_value(a)
    if isinstance(v, bytes):
        return v.decode()
    return onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v


def one(suite, test):
    graph = test.model.graph
    if len(graph.node) != 1:
        return suite.stop(test.name, "expanded", [("departs", "operators spelled out by simpler ones")])
    node = graph.node[0]
    op = node.op_type
    if op not in ROWS:
        own = ("departs", "strings, sequences, quantization, control flow and operators that are ONNX's own")
        absent = ("absent", ABSENT.get(op, op))
        return suite.stop(test.name, op, [absent if op in ABSENT or not op.startswith(OWN) else own])
    given, want = (arrays(x) for x in test.data_sets[0])
    if given is None or want is None:
        return suite.stop(test.name, op, [("departs", "values that are no tensors")])
    case, stops, exprs = Case(test.name, op), [], []
    case.scale = any(s in op for s in SUMS)
    try:
        by_name = {v.name: case.input(x) for v, x in zip(graph.input, given)}
        exprs = ROWS[op](*(by_name.get(n) for n in node.input), **{a.name: attribute(a) for a in node.attribute})
    except Stop as stop:
        stops.append((stop.kind, stop.what))
    except (TypeError, AttributeError, ValueError, IndexError, KeyError) as e:
        stops.append(("adapter", f"{type(e).__name__}: {e}"[:90]))
    exprs = exprs if isinstance(exprs, list) else [exprs]
    want = want[:len(exprs)]
    if not stops:
        case.results([case.let([e], [(w.shape, w.dtype)])[0] for e, w in zip(exprs, want)])
    stops += suite.missing(case, [x.dtype for x in [*case.inputs, *want]])
    suite.stop(test.name, op, stops) if stops else suite.add(case, want)


def run(suite, only=None):
    for test in sorted(collect_testcases(None), key=lambda t: t.name):
        if not only or only in test.name:
            one(suite, test)
