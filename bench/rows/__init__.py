"""The rows, by family."""

import importlib

FAMILIES = ["matmul", "train"]


def all_rows():
    return [row for family in FAMILIES for row in importlib.import_module("rows." + family).ROWS]
