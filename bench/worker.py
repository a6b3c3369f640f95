"""A peer's process: makes a row's case and runs it as often as it is asked to. See arms.py.

A family (rows/FAMILY.py) has functions NAME_case(params, inputs) for the arms, which return (run, results):
run() does the work once and returns when it is done; results() gives a list of arrays to compare, in an order
that is the same for all arms. Inputs are meshlua's: {name: array}."""

import importlib
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
FUNCTION = {"jax": "jax_case", "jax 8": "jax_case", "torch": "torch_case", "torch.compile": "compile_case",
            "gloo": "gloo_case", "limit": "limit_case", "fma": "fma_case", "copy": "copy_case",
            "read": "read_case"}


def read_arrays(folder, name):
    """What meshlua wrote: {name: array} of a manifest; without numpy, nothing."""
    import numpy as np
    arrays = {}
    with open(os.path.join(folder, name + ".json")) as f:
        for entry in json.load(f):
            data = np.fromfile(os.path.join(folder, entry["file"]), entry["dtype"])
            arrays[entry["name"]] = data.reshape(entry["shape"] or ())
    return arrays


def difference(results, wanted):
    """The largest difference, over the largest number that is wanted of the same result."""
    import numpy as np
    if len(results) != len(wanted):
        raise ValueError(f"{len(results)} results; meshlua has {len(wanted)}")
    worst = 0.0
    for got, want in zip(results, wanted):
        got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
        if got.shape != want.shape:
            raise ValueError(f"a result has {got.size} numbers; meshlua's has {want.size}")
        if not np.isfinite(got).all():
            return float("inf")
        if got.size:
            worst = max(worst, float(np.abs(got - want).max() / (np.abs(want).max() + 1e-30)))
    return worst


def memory(name):
    """Bytes of this process, as the kernel calls them: "VmRSS", "VmHWM" (the most so far)."""
    with open("/proc/self/status") as f:
        return next(1024 * int(line.split()[1]) for line in f if line.startswith(name + ":"))


class Commands:
    def __init__(self, worker):
        self.cases = {}
        if worker == "limits":
            from rows import machine  # noqa: F401
            self.versions = {}
        elif worker in ("torch", "gloo"):
            import torch
            torch.set_num_threads(os.cpu_count())
            torch.ones(2) + 1
            self.versions = {"torch": torch.__version__}
        else:
            import jax
            import optax  # noqa: F401
            (jax.numpy.ones(2) + 1).block_until_ready()
            self.versions = {"jax": jax.__version__}
        self.empty = memory("VmRSS")

    def hello(self, request):
        return {"versions": self.versions}

    def prepare(self, request):
        family = importlib.import_module("rows." + request["family"])
        folder, arm = request["folder"], request["arm"]
        is_limit = FUNCTION[arm] in ("limit_case", "fma_case", "copy_case", "read_case")
        try:
            inputs = read_arrays(folder, "inputs") if folder else {}
        except ImportError:
            if arm == "limit":
                raise
            inputs = {}
        function = getattr(family, FUNCTION[arm], None)
        if function is None and is_limit:
            from rows import machine
            function = getattr(machine, FUNCTION[arm])
        run, results = function(request["params"], inputs)
        self.cases[arm] = run
        if results is None or not folder:
            return {}
        wanted = list(read_arrays(folder, "results").values())
        return {"difference": difference(results(), wanted)}

    def time(self, request):
        run, inner, clock, times = self.cases[request["arm"]], request["inner"], time.perf_counter, []
        if hasattr(run, "announce"):
            run.announce(request["samples"] * inner)
        for _ in range(request["samples"]):
            start = clock()
            for _ in range(inner):
                out = run()
            times.append(out if hasattr(run, "gives_seconds") else (clock() - start) / inner)
        return {"times": times}

    def value(self, request):
        """The most memory over three runs, once two have been, beside that of an empty process."""
        import ctypes
        import gc
        run = self.cases[request["arm"]]
        for _ in range(2):
            run()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        try:
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")
        except OSError:
            pass  # then it is the most of all that was
        for _ in range(3):
            run()
        return {"value": memory("VmHWM") - self.empty}

    def drop(self, request):
        self.cases.pop(request["arm"], None)
        return {}


def main():
    # Libraries that print do so to the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            commands = commands or Commands(sys.argv[1])
            answer = getattr(commands, request["command"])(request)
        except Exception as e:  # noqa: BLE001  whatever it is, it is this arm's reason
            import traceback
            traceback.print_exc()
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
