"""What the machine can do: limits.c through ctypes, and the arms that every family shares."""

import ctypes
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.join(HERE, ".cache", "limits.so")
# Core types of OpenBLAS that are tried; it may not know a processor, and then takes its oldest.
CORE_TYPES = ["", "SkylakeX", "Cooperlake", "SapphireRapids", "Zen", "Haswell"]
FMA_FLOPS = 2e9

_library = None


def library():
    global _library
    if not _library:
        _library = ctypes.CDLL(LIBRARY)
        _library.limits_alloc.restype = ctypes.c_void_p
        _library.limits_alloc.argtypes = [ctypes.c_size_t]
        _library.limits_fma.restype = ctypes.c_double
        _library.limits_fma.argtypes = [ctypes.c_double]
        _library.limits_blas.restype = ctypes.c_char_p
        _library.limits_cross_entropy.restype = ctypes.c_float
        _library.limits_threads(os.cpu_count())
    return _library


class Buffer:
    """Memory of floats, as a pointer for C and, with numpy, as an array."""

    def __init__(self, n, data=None):
        self.n = n
        self.pointer = ctypes.c_void_p(library().limits_alloc(max(n, 1) * 4))
        if not self.pointer:
            raise MemoryError(f"{n} floats")
        if data is not None:
            import numpy as np
            flat = np.ascontiguousarray(data).reshape(-1)
            ctypes.memmove(self.pointer, flat.ctypes.data, flat.nbytes)

    def __del__(self):
        library().limits_free(self.pointer)

    def array(self):
        import numpy as np
        return np.ctypeslib.as_array(ctypes.cast(self.pointer, ctypes.POINTER(ctypes.c_float)), (self.n,)).copy()


def call(name, *args):
    """A function without arguments that calls one of limits.c: buffers as pointers, ints as int64."""
    function = getattr(library(), name)

    def convert(x):
        if isinstance(x, Buffer):
            return x.pointer
        if isinstance(x, float):
            return ctypes.c_float(x)
        return ctypes.c_void_p(None) if x is None else ctypes.c_int64(x)
    converted = [convert(x) for x in args]
    return lambda args=args: function(*converted)  # which hold the buffers


def fma_case(params, inputs):
    """Multiply-adds in registers, FMA_FLOPS of them."""
    lib = library()
    return (lambda: lib.limits_fma(FMA_FLOPS)), None


def copy_case(params, inputs):
    """memcpy by all cores of params["copy"] bytes: as many are read, and as many written."""
    n = int(params["copy"])
    return call("limits_memcpy", Buffer(n // 4), Buffer(n // 4), n), None


def read_case(params, inputs):
    """A read by all cores of params["read"] bytes."""
    n = int(params["read"])
    return call("limits_read", Buffer(n // 4), n // 4), None


# ---- the machine's own table ---------------------------------------------------------------------


def best(run, seconds=0.15):
    run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2]


def blas_speed():
    """GFLOP/s of the BLAS of this process on 1024 x 1024 x 1024, and its kernels' name; None without one."""
    name = library().limits_blas(os.cpu_count())
    if not name:
        return None
    n, lib = 1024, library()
    y, a, b = (Buffer(n * n) for _ in range(3))
    seconds = best(lambda: lib.limits_gemm(y.pointer, a.pointer, b.pointer, n, n, n, 0, 0))
    return {"kernels": name.decode(), "gflops": 2.0 * n ** 3 / seconds / 1e9}


def blas_of(core_type):
    """blas_speed in a process of its own: OpenBLAS reads its core type once."""
    code = f"import sys; sys.path.insert(0, {HERE!r}); from rows.machine import blas_speed; print(repr(blas_speed()))"
    env = dict(os.environ)
    if core_type:
        env["OPENBLAS_CORETYPE"] = core_type
    try:
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60, text=True)
        return eval(out.stdout) if out.returncode == 0 else None  # noqa: S307  our own repr
    except (subprocess.TimeoutExpired, SyntaxError):
        return None


def measure():
    """{name: GFLOP/s or GB/s}: the head of RESULTS.md. STREAM counts bytes as McCalpin does."""
    lib, cores, out = library(), os.cpu_count(), {}
    n = 1 << 25
    a, b, c = (Buffer(n) for _ in range(3))
    for threads in sorted({1, cores}):
        lib.limits_threads(threads)
        flops = lib.limits_fma(FMA_FLOPS)
        out[f"FMA peak, {threads} threads, GFLOP/s"] = flops / best(lambda: lib.limits_fma(FMA_FLOPS)) / 1e9
        for label, streaming in (("", 0), (", non-temporal stores", 1)):
            copy, triad = call("limits_copy", a, b, n, streaming), call("limits_triad", a, b, c, n, streaming)
            out[f"STREAM copy, {threads} threads{label}, GB/s"] = 8 * n / best(copy) / 1e9
            out[f"STREAM triad, {threads} threads{label}, GB/s"] = 12 * n / best(triad) / 1e9
        out[f"memcpy 128 MiB, {threads} threads, GB/s copied"] = 4 * n / best(call("limits_memcpy", a, b, 4 * n)) / 1e9
    lib.limits_threads(cores)
    found = {core: blas_of(core) for core in CORE_TYPES}
    found = {core: speed for core, speed in found.items() if speed}
    for core, speed in found.items():
        out[f"OpenBLAS, core type {core or 'its own choice'} ({speed['kernels']}), n = 1024, {cores} threads, GFLOP/s"] = (
            speed["gflops"])
    fastest = max(found, key=lambda core: found[core]["gflops"], default="")
    return out, fastest
