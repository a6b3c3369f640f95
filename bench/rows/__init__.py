"""The rows, by family."""

import importlib

FAMILIES = ["matmul", "fused", "adamw", "attention", "train", "mlp", "collectives", "dispatch", "compile", "start",
            "memory", "single", "generate"]


def all_rows():
    return [row for family in FAMILIES for row in importlib.import_module("rows." + family).ROWS]
