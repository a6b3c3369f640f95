"""Cases of a suite, written as Lua files beside safetensors files, for tests/peers/run.lua.

A case is a Lua function of input tensors and constants, what a peer makes of them, and the peer's gradients for
cotangents that are given. A case that is not run is a line with what stops it.
"""

import collections
import json
import os

import numpy as np

from expr import Expr, Stop, lua

PER_FILE = 250

# (relative, absolute) tolerance of values, by the coarsest dtype that takes part.
TOLERANCE = {
    "float64": (1e-13, 1e-14),
    "float32": (3e-6, 1e-6),
    "bfloat16": (1e-2, 4e-3),
    "float16": (1.5e-3, 5e-4),
}
SAFE = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8", "int16": "I16",
    "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}


class Case:
    """What one case is. out: an Expr or a list of them; inputs: arrays; fn(inputs): the peer's results; see Suite."""

    def __init__(self, name, op):
        self.name, self.op = name, op
        self.inputs, self.consts, self.lines = [], [], []
        self.uses = set()
        self.tolerance, self.scale, self.check = None, False, "all"

    def input(self, array):
        array = np.asarray(array)
        self.inputs.append(array)
        return Expr(f"a[{len(self.inputs)}]", shape=array.shape, dtype=str(array.dtype), value=array)

    def const(self, array):
        array = np.asarray(array)
        self.consts.append(array)
        return Expr(f"k[{len(self.consts)}]", shape=array.shape, dtype=str(array.dtype), value=array)

    def let(self, exprs, outs):
        """v[n], v[n + 1] = exprs: each expression a variable; one expression may give several."""
        exprs = list(exprs) if isinstance(exprs, (list, tuple)) else [exprs]
        texts = [lua(e) for e in exprs]
        for _, uses in texts:
            self.uses |= uses
        made = []
        for shape, dtype in outs:
            self.counter = getattr(self, "counter", 0) + 1
            made.append(Expr(f"v[{self.counter}]", shape=tuple(shape), dtype=str(dtype)))
        self.lines.append(", ".join(m.text for m in made) + " = " + ", ".join(t for t, _ in texts))
        return made

    def results(self, exprs):
        texts = [lua(e) for e in exprs]
        for _, uses in texts:
            self.uses |= uses
        self.lines.append("return " + ", ".join(t for t, _ in texts))


class Suite:
    """Collects the cases of one suite and writes them under a folder."""

    def __init__(self, name, version, folder, has):
        self.name, self.version, self.folder, self.has = name, version, folder, has
        self.names, self.dtypes = set(has["names"]), set(has["dtypes"])
        self.total, self.waiting, self.files = 0, [], 0
        self.stops, self.kinds = [], collections.Counter()
        os.makedirs(folder, exist_ok=True)

    def stop(self, name, op, reasons):
        """Counts a case that is not run; reasons: (kind, what)."""
        self.total += 1
        self.stops.append((name, op, sorted(set(reasons))))

    def missing(self, case, dtypes):
        """What keeps a case from being run: names and dtypes that are not there."""
        out = [("absent", n) for n in case.uses if n not in self.names]
        return out + [("dtype", d) for d in map(str, dtypes) if d not in self.dtypes]

    def add(self, case, outputs, cotangents=(), gradients=None, tangents=({}, ())):
        """outputs: arrays; gradients: {input (from 0): array} for the cotangents of all float outputs; tangents: {input:
        array}, and those of the float outputs."""
        self.total += 1
        self.waiting.append((case, outputs, cotangents, gradients or {}, tangents))
        if len(self.waiting) >= PER_FILE:
            self.flush()

    def tolerance(self, case, outputs):
        if case.tolerance:
            return case.tolerance
        names = {str(x.dtype) for x in [*outputs, *case.inputs]}
        found = [TOLERANCE[n] for n in TOLERANCE if n in names]
        return max(found) if found else (0, 0)

    def flush(self):
        if not self.waiting:
            return
        self.files += 1
        arrays, rows = {}, []
        for i, (case, outputs, cotangents, gradients, (directions, tangents)) in enumerate(self.waiting, 1):
            for letter, group in (("a", case.inputs), ("k", case.consts), ("y", outputs), ("c", cotangents),
                                  ("t", directions.values()), ("d", tangents)):
                for j, x in enumerate(group, 1):
                    arrays[f"{i}{letter}{j}"] = x
            for j, x in gradients.items():
                arrays[f"{i}g{j + 1}"] = x
            rtol, atol = self.tolerance(case, outputs)
            fields = {
                "name": case.name, "op": case.op, "inputs": len(case.inputs), "consts": len(case.consts),
                "outputs": len(outputs), "rtol": rtol, "atol": atol, "scale": case.scale or None,
                "check": case.check if case.check != "all" else None,
                "diff": [j + 1 for j in gradients or directions] or None,
                "backward": bool(gradients) or None, "forward": bool(tangents) or None,
            }
            body = "; ".join(case.lines)
            rows.append(f"{lua(fields)[0][:-1]}, f = function(ml, a, k, tools) local v = {{}}; {body} end}},")
        base = os.path.join(self.folder, f"{self.files}")
        write_safetensors(base + ".safetensors", arrays)
        with open(base + ".lua", "w") as f:
            f.write("return {\n" + "\n".join(rows) + "\n}\n")
        self.waiting = []

    def close(self):
        self.flush()
        rows = []
        for name, op, reasons in self.stops:
            why = ", ".join("{%s, %s}" % (lua(k)[0], lua(w)[0]) for k, w in reasons)
            rows.append(f"{{name = {lua(name)[0]}, op = {lua(op)[0]}, why = {{{why}}}}},")
        with open(os.path.join(self.folder, "suite.lua"), "w") as f:
            f.write(f"return {{name = {lua(self.name)[0]}, version = {lua(self.version)[0]}, total = {self.total}, "
                    f"files = {self.files}, stops = {{\n" + "\n".join(rows) + "\n}}\n")
        print(f"{self.name}: {self.total} cases, {self.total - len(self.stops)} to run", flush=True)


def write_safetensors(file, arrays):
    header, at, blobs = {}, 0, []
    for name, x in arrays.items():
        blob = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": SAFE[str(x.dtype)], "shape": list(np.shape(x)),
                        "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(file, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for blob in blobs:
            f.write(blob)


__all__ = ["Case", "Stop", "Suite"]
