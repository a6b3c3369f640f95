"""Small files of tensors as the libraries of their formats write them, for tests/spec/disk/oracle_spec.lua.

    python tests/oracle/disk.py write    tests/oracle/disk/ and tests/oracle/disk.json: what is in each
    python tests/oracle/disk.py read     what the libraries find in tests/oracle/disk/ours-*, into disk_ours.json

Needs safetensors, numpy, gguf. A tensor's bytes are hexadecimal, as they lie in the file when it is unpacked. Files of
tests/oracle/disk/ours-* are written by meshlua: see the spec.
"""

import json
import pathlib
import struct
import sys
import zipfile
import io

import gguf
import numpy as np
import safetensors
import safetensors.numpy

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "disk"
RNG = np.random.default_rng(16)
NAMES = {"bool": "BOOL", "uint8": "U8", "uint32": "U32", "int32": "I32", "int64": "I64", "float16": "F16",
         "float32": "F32", "float64": "F64", "int8": "I8", "int16": "I16", "uint16": "U16", "uint64": "U64",
         "complex64": "C64"}
WORDS = {"F32": "float32", "F16": "float16", "F64": "float64", "BF16": "bfloat16", "I32": "int32", "I64": "int64",
         "U32": "uint32", "U8": "uint8", "BOOL": "bool", "I8": "int8", "I16": "int16", "U16": "uint16", "U64": "uint64",
         "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
found = {}


def drawn(dtype, shape):
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if "float" in dtype or "complex" in dtype:
        return np.asarray(RNG.normal(size=shape)).astype(dtype)
    return RNG.integers(0, 100, shape).astype(dtype)


def entry(x, name=None, encoding=None, column_major=False, raw=None):
    raw = x.tobytes("F" if column_major else "C") if raw is None else raw
    out = {"name": name, "encoding": encoding or NAMES[str(x.dtype)], "shape": list(x.shape), "hex": raw.hex()}
    if column_major:
        out["column_major"] = True
    return out


# ---- safetensors ----

def by_library(file, tensors, metadata=None):
    """tensors: name -> (encoding, shape, bytes)"""
    kept = {k: np.frombuffer(b or b"-", "uint8") for k, (_, _, b) in tensors.items()}
    specs = {k: safetensors.TensorSpec(dtype=WORDS[e], shape=list(s), data_ptr=kept[k].ctypes.data, data_len=len(b))
             for k, (e, s, b) in tensors.items()}
    data = safetensors.serialize(specs, metadata)
    (FOLDER / file).write_bytes(bytes(data))
    found[file] = {"tensors": [{"name": k, "encoding": e, "shape": list(s), "hex": b.hex()}
                               for k, (e, s, b) in tensors.items()], "metadata": metadata or {}}


def by_hand(file, header, data, tensors, metadata=None):
    """Forms that the library's writer never makes; its reader must take them."""
    text = header.encode()
    (FOLDER / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
    with safetensors.safe_open(FOLDER / file, "np") as f:
        assert set(f.keys()) == {t["name"] for t in tensors}, file
    found[file] = {"tensors": tensors, "metadata": metadata or {}}


def some(encoding, shape):
    if encoding in ("BF16", "F8_E4M3", "F8_E5M2"):
        size = 2 if encoding == "BF16" else 1
        return encoding, shape, RNG.integers(0, 120, int(np.prod(shape)) * size).astype("uint8").tobytes()
    return encoding, shape, drawn(WORDS[encoding], shape).tobytes()


def write_safetensors():
    for e in ["BOOL", "U8", "U32", "I32", "I64", "BF16", "F16", "F32", "F64"]:
        by_library(f"{e.lower()}.safetensors", {"x": some(e, (2, 3)), "v": some(e, (5,))})
    for e in ["I8", "I16", "U16", "U64", "F8_E4M3", "F8_E5M2"]:
        by_library(f"{e.lower()}.safetensors", {"x": some(e, (2, 2)), "y": some("F32", (2,))})
    by_library("scalar.safetensors", {"s": some("F32", ()), "i": some("I64", ())})
    by_library("zero.safetensors", {"a": some("F32", (0,)), "b": some("F32", (2, 0, 3)), "c": some("I32", (2,))})
    by_library("empty.safetensors", {})
    by_library("metadata.safetensors", {"x": some("F32", (1,))},
               {"format": "pt", "note": 'a "b"\n\u00e9\u4e16', "": "e"})
    by_library("names.safetensors", {"a/b.c": some("U8", (1,)), "\u00fc\u4e16": some("U8", (2,)),
                                     'q"\\': some("U8", (3,)), "x" * 200: some("U8", (1,))})
    kinds = [("w", "F32", (3, 2)), ("b", "BF16", (3,)), ("mask", "BOOL", (3,)), ("n", "I64", ())]
    by_library("mixed.safetensors", {f"layer.{i}.{n}": some(e, s) for i in range(4) for n, e, s in kinds})
    by_library("rank8.safetensors", {"x": some("U8", (1, 2, 1, 2, 1, 2, 1, 2))})
    f, u = drawn("float32", (3,)), drawn("uint8", (3,))
    by_hand("unaligned.safetensors", '{"u":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
            '"f":{"dtype":"F32","shape":[3],"data_offsets":[3,15]}}', u.tobytes() + f.tobytes(),
            [entry(u, "u"), entry(f, "f")])
    by_hand("order.safetensors", '{"f":{"data_offsets":[3,15],"shape":[3],"dtype":"F32"},"__metadata__":{"a":"b"},'
            '"u":{"shape":[3],"dtype":"U8","data_offsets":[0,3]}}   ', u.tobytes() + f.tobytes(),
            [entry(u, "u"), entry(f, "f")], {"a": "b"})
    by_hand("spaces.safetensors", '{ "f" :\n{"dtype":"F32", "shape":[ 3 ],\t"data_offsets":[0,12]} }  ', f.tobytes(),
            [entry(f, "f")])
    by_hand("escapes.safetensors", '{"\\u0061\\/\\ud83d\\ude00":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}',
            f.tobytes(), [entry(f, "a/\U0001f600")])


# ---- npy, npz ----

def npy(file, x, version=None, column_major=False, encoding=None):
    with open(FOLDER / file, "wb") as f:
        np.lib.format.write_array(f, x, version=version)
    found[file] = {"tensors": [entry(x, "arr_0", encoding, column_major)]}


def npz(file, tensors, compressed=False, stream=False, comment=b""):
    buffer = io.BytesIO()
    if stream:  # into what cannot be sought, sizes stand behind the members
        class Pipe(io.RawIOBase):
            def writable(self):
                return True

            def write(self, b):
                return buffer.write(b)
        with zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as z:
            for name, x in tensors.items():
                one = io.BytesIO()
                np.save(one, x)
                z.writestr(name + ".npy", one.getvalue())
    else:
        (np.savez_compressed if compressed else np.savez)(buffer, **tensors)
    if comment:
        with zipfile.ZipFile(buffer, "a") as z:
            z.comment = comment
    (FOLDER / file).write_bytes(buffer.getvalue())
    found[file] = {"tensors": [entry(x, name, None, x.ndim > 1 and x.flags.f_contiguous and not x.flags.c_contiguous)
                               for name, x in tensors.items()]}


def write_numpy():
    for d in ["bool", "uint8", "uint32", "int32", "int64", "float16", "float32", "float64"]:
        npy(f"{d}.npy", drawn(d, (2, 3)))
    for d in ["int8", "int16", "uint64", "complex64"]:
        npy(f"unread-{d}.npy" if d == "complex64" else f"{d}.npy", drawn(d, (2,)))
    npy("unread-big.npy", drawn("float32", (2, 2)).astype(">f4"), encoding=">f4")
    npy("unread-text.npy", np.array(["ab", "c"]), encoding="<U2")
    npy("scalar.npy", drawn("float32", ()))
    npy("zero.npy", drawn("float32", (2, 0, 3)))
    npy("vector.npy", drawn("float64", (7,)))
    npy("fortran.npy", np.asfortranarray(drawn("float32", (2, 3, 2))), column_major=True)
    npy("version2.npy", drawn("int32", (3,)), (2, 0))
    npy("version3.npy", drawn("int32", (3,)), (3, 0))
    npy("rank8.npy", drawn("uint8", (1, 2, 1, 2, 1, 2, 1, 1)))
    two = {"w": drawn("float32", (3, 4)), "b": drawn("int64", (4,))}
    npz("stored.npz", two)
    npz("deflated.npz", two, compressed=True)
    npz("deflated-large.npz", {"z": np.zeros((64, 64), "float32"), "i": np.arange(3000, dtype="int32")},
        compressed=True)
    npz("empty.npz", {})
    npz("fortran.npz", {"f": np.asfortranarray(drawn("float16", (2, 3))), "c": drawn("bool", (2, 2))}, compressed=True)
    npz("zero.npz", {"z": drawn("float32", (0, 2)), "s": drawn("float64", ())}, compressed=True)
    npz("stream.npz", two, stream=True)
    npz("stream-deflated.npz", two, stream=True, compressed=True)
    npz("comment.npz", two, comment=b"PK\5\6 a remark")
    npz("names.npz", {"a/b": drawn("uint8", (2,)), "\u00fc": drawn("uint8", (1,)), "x.npy": drawn("uint8", (1,))})


# ---- GGUF ----

T = gguf.GGMLQuantizationType


def gguf_file(file, tensors, metadata=None, alignment=None, version=None):
    """tensors: list of (name, array or bytes, type or None, logical shape)"""
    w = gguf.GGUFWriter(FOLDER / file, "test")
    values = {"general.architecture": "test"}
    if alignment:
        w.add_custom_alignment(alignment)
        values["general.alignment"] = alignment
    for key, (add, value) in (metadata or {}).items():
        getattr(w, add)(key, value)
        values[key] = value
    out = []
    for name, x, kind, shape in tensors:
        w.add_tensor(name, x, raw_dtype=kind)
        encoding = kind.name if kind is not None else NAMES[str(x.dtype)]
        out.append({"name": name, "encoding": encoding, "shape": list(shape), "hex": x.tobytes().hex()})
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    if version:
        data = bytearray((FOLDER / file).read_bytes())
        data[4:8] = struct.pack("<I", version)
        (FOLDER / file).write_bytes(data)
    for t in gguf.GGUFReader(FOLDER / file).tensors:
        want = next(o for o in out if o["name"] == t.name)
        assert [int(d) for d in reversed(t.shape)] == want["shape"] or not want["shape"], (file, t)
    found[file] = {"tensors": out, "metadata": values}


def plain(name, x):
    return name, x, None, x.shape


def quantized(kind):
    """x; x in blocks of the kind; what these mean."""
    x = drawn("float32", (3, 64))
    x[0, :32] = 0
    x[1, :32] *= 1e-6
    x[2, :32] *= 3e4
    x[2, 40] = x[2, 32:].max() * 2
    q = gguf.quants.quantize(x, kind)
    return [plain("x", x), ("q", q, kind, x.shape), plain("d", gguf.quants.dequantize(q, kind).astype("float32"))]


def write_gguf():
    for d in ["float32", "float16", "float64", "int32", "int64"]:
        gguf_file(f"{d}.gguf", [plain("x", drawn(d, (2, 3))), plain("v", drawn(d, (5,)))])
    bf16 = gguf.quants.quantize(drawn("float32", (2, 4)), T.BF16)
    gguf_file("bfloat16.gguf", [("x", bf16, T.BF16, (2, 4))])
    for kind in [T.Q8_0, T.Q4_0, T.Q4_1]:
        gguf_file(f"{kind.name.lower()}.gguf", quantized(kind))
    for kind in [T.Q4_K, T.Q6_K, T.Q5_0]:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = RNG.integers(0, 255, (2, 256 // block * size)).astype("uint8")
        gguf_file(f"unread-{kind.name.lower()}.gguf", [("x", raw, kind, (2, 256)), plain("y", drawn("float32", (2,)))])
    for d in ["int8", "int16"]:
        gguf_file(f"{d}.gguf", [plain("x", drawn(d, (4,)))])
    gguf_file("metadata.gguf", [plain("x", drawn("float32", (3,)))], {
        "t.u8": ("add_uint8", 200), "t.i8": ("add_int8", -100), "t.u16": ("add_uint16", 60000),
        "t.i16": ("add_int16", -30000),
        "t.u32": ("add_uint32", 4000000000), "t.i32": ("add_int32", -2000000000), "t.u64": ("add_uint64", 1 << 40),
        "t.i64": ("add_int64", -(1 << 40)), "t.f32": ("add_float32", 0.5), "t.f64": ("add_float64", 0.1),
        "t.yes": ("add_bool", True), "t.no": ("add_bool", False), "t.text": ("add_string", "\u00e9\u4e16"),
        "t.tokens": ("add_array", ["a", "", "\u4e16", "a" * 50]),
        "t.scores": ("add_array", [0.5, -1.0]), "t.types": ("add_array", [1, -2, 3]),
        "t.flags": ("add_array", [True, False])})
    gguf_file("alignment.gguf", [plain("a", drawn("float32", (3,))), plain("b", drawn("float16", (5,)))], alignment=128)
    gguf_file("version2.gguf", [plain("a", drawn("float32", (2, 2)))], version=2)
    gguf_file("empty.gguf", [], {"t.text": ("add_string", "no tensors")})
    gguf_file("rank4.gguf", [plain("x", drawn("float32", (2, 1, 3, 2))), plain("o", drawn("float32", (1,)))])


def write():
    FOLDER.mkdir(exist_ok=True)
    write_safetensors()
    write_numpy()
    write_gguf()
    total = sum((FOLDER / f).stat().st_size for f in found)
    print(len(found), "files,", total, "bytes")
    (HERE / "disk.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in
                                                      sorted(found.items())) + "\n}\n")


# ---- what meshlua wrote ----

def read_one(path):
    if path.suffix == ".safetensors":
        data = safetensors.deserialize(path.read_bytes())
        words = {"BF16": "BF16"}
        out = {n: [words.get(t["dtype"], t["dtype"]), list(t["shape"]), bytes(t["data"]).hex()] for n, t in data}
        with safetensors.safe_open(path, "np") as f:
            return out, f.metadata() or {}
    if path.suffix == ".npy":
        x = np.load(path)
        return {"arr_0": [NAMES[str(x.dtype)], list(x.shape), x.tobytes().hex()]}, {}
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as z:
            assert z.testzip() is None
        z = np.load(path)
        return {n: [NAMES[str(z[n].dtype)], list(z[n].shape), z[n].tobytes().hex()] for n in z.files}, {}
    r = gguf.GGUFReader(path)
    out = {t.name: [t.tensor_type.name, [int(d) for d in reversed(t.shape)], t.data.tobytes().hex()] for t in r.tensors}
    return out, {k: v.contents() for k, v in r.fields.items() if not k.startswith("GGUF.")}


def read():
    out = {}
    for path in sorted(FOLDER.glob("ours-*")):
        tensors, metadata = read_one(path)
        out[path.name] = {"tensors": tensors, "metadata": metadata}
    print(len(out), "files")
    (HERE / "disk_ours.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in
                                                           out.items()) + "\n}\n")


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]]()
