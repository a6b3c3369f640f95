"""Lays down the cases of the suites in a folder: build.py FOLDER NAMES.json [SUITE[=PATTERN]...].

NAMES.json is what `build/meshlua tests/peers/run.lua names` prints.
"""

import importlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys

SUITES = ["jax", "torch", "modules", "optimizers", "optax", "scipy", "numpy", "onnx"]


def check_versions():
    """Other versions have other cases: docs/peers.md says which they are."""
    for line in (pathlib.Path(__file__).parent / "requirements.txt").read_text().split():
        name, wanted = line.split("==")
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"skipped: {sys.executable} has no {name}; tests/peers/requirements.txt has what it takes")
            sys.exit(77)
        if found != wanted:
            sys.exit(f"peers: {name} is {found}, tests/peers/requirements.txt has {wanted}")


def main(folder, has, *wanted):
    check_versions()
    has = json.load(open(has))
    os.makedirs(folder, exist_ok=True)
    from cases import Suite

    chosen = dict((w.split("=", 1) + [None])[:2] for w in wanted) or dict.fromkeys(SUITES)
    done = []
    for name, only in chosen.items():
        module = importlib.import_module(name + "_suite")
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        suite = Suite(module.NAME, module.VERSION, os.path.join(folder, name), has)
        module.run(suite, only)
        suite.close()
        done.append(name)
    known = [n for n in SUITES if os.path.exists(os.path.join(folder, n, "suite.lua"))]
    with open(os.path.join(folder, "suites"), "w") as f:
        f.write("".join(n + "\n" for n in known))


main(*sys.argv[1:])
