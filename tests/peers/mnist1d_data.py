"""Writes the data of the package mnist1d, and the same with its places shuffled, for tests/peers/mnist1d.lua:
FOLDER/plain.npz and FOLDER/shuffled.npz.
"""

import sys
import types

import numpy as np

for name in ("matplotlib", "matplotlib.pyplot", "requests"):  # with which the package draws and fetches, what nobody asks
    sys.modules.setdefault(name, types.ModuleType(name))
from mnist1d.data import get_dataset_args, make_dataset  # noqa: E402


def main(folder):
    for name in ("plain", "shuffled"):
        args = get_dataset_args()
        args.shuffle_seq = name == "shuffled"
        data = make_dataset(args)
        np.savez(f"{folder}/{name}.npz", **{k: np.asarray(data[k], "float32" if k[0] == "x" else "int32")
                                            for k in ("x", "y", "x_test", "y_test")})


main(*sys.argv[1:])
