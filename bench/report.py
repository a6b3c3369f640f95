"""What a run leaves: results.json, RESULTS.md, results.svg."""

import json
import os

import plot

HERE = os.path.dirname(os.path.abspath(__file__))
JSON, TABLE, NOTES, PLOT = (os.path.join(HERE, name) for name in ("results.json", "RESULTS.md", "notes.md", "results.svg"))

UNITS = {"s": [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")], "bytes": [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]}


def quantity(x, unit):
    """Three digits and a unit."""
    for scale, name in UNITS[unit]:
        if abs(x) >= scale:
            break
    return f"{x / scale:.3g} {name}" if abs(x / scale) < 1000 else f"{x / scale:.0f} {name}"


def ratio(r):
    return f"{r:.2f}" if r < 10 else f"{r:.0f}"


def read():
    try:
        with open(JSON) as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


# ---- a row as text -------------------------------------------------------------------------------


def met(row):
    """Which of what is wanted is not so: names, or None where meshlua itself was not measured."""
    if not isinstance(row["arms"].get("meshlua"), dict):
        return None
    short = []
    for key, got in (("share", row.get("share")), ("jax", row.get("vs jax")), ("torch", row.get("vs torch"))):
        if row["wanted"][key] and got is not None and got < row["wanted"][key]:
            short.append({"share": "limit", "jax": "JAX", "torch": "PyTorch"}[key])
    return short


def of_arm(row, arm):
    found = row["arms"].get(arm)
    if isinstance(found, dict):
        return quantity(found["median"], row["unit"])
    return found or ""


def cells(row):
    """Columns of the table behind the name."""
    ours = row["arms"].get("meshlua")
    if not isinstance(ours, dict):
        return [str(ours), "", "", "", "", ""]
    spread = "–".join(quantity(ours[q], row["unit"]) for q in ("p10", "p90"))
    limit = row.get("no limit", "")
    if "limit" in row:
        limit = f"{quantity(row['limit'], row['unit'])}: {row['share']:.0%}"
        if row["wanted"]["share"]:
            limit += f" (≥ {row['wanted']['share']:.0%})"
    columns = [f"{quantity(ours['median'], row['unit'])} [{spread}]", limit]
    for peer, names in (("jax", ("jax", "jax 8")), ("torch", ("torch", "torch.compile", "gloo"))):
        if peer in row:
            wanted = f" (≥ {row['wanted'][peer]:g})" if row["wanted"][peer] else ""
            columns.append(f"{of_arm(row, row[peer])} ({row[peer]}): **{ratio(row['vs ' + peer])}**{wanted}")
        else:
            columns.append("; ".join(dict.fromkeys(of_arm(row, name) for name in names if name in row["arms"])))
    short = met(row)
    columns.append("yes" if not short else "behind: " + ", ".join(short))
    return columns


def line(name, row):
    """A row on the terminal."""
    text = f"{name:34} " + "  ".join(c for c in cells(row) if c).replace("**", "")
    wrong = [f"{arm} {found}" for arm, found in row["arms"].items() if isinstance(found, str) and arm != "meshlua"]
    return text + ("\n" + "\n".join("    " + w for w in wrong) if wrong else "")


# ---- files ---------------------------------------------------------------------------------------


def head(machine):
    versions = ", ".join(f"{name} {version}".strip() for name, version in machine["versions"].items())
    text = f"""# What bench/run.py measured

![ratios](results.svg)

Written by `script/bench`; how to read it is in [README.md](README.md). {machine['now']}.
{machine['processor']}, {machine['cores']} cores, {machine['system']}. {versions}. {machine['load before']:.2f} cores were busy before.

| this machine | |
|---|---|
"""
    for name, value in machine["speeds"].items():
        text += f"| {name} | {value:.1f} |\n"
    return text


def write(results, order):
    """Writes all three; rows in this order, those that no longer exist are left out."""
    rows = {name: results["rows"][name] for name in order if name in results["rows"]}
    with open(JSON, "w") as f:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        f.write(f'{{"machine": {json.dumps(results["machine"])},\n"rows": {{\n{lines}\n}}}}\n')
    text = head(results["machine"])
    text += ("\nTime of meshlua: median [p10–p90]; the limit, and what share of it is reached; the faster arm of each "
             "peer, and **R** = its time / meshlua's. In parentheses what is wanted.\n\n"
             "| row | meshlua | limit | JAX | PyTorch | as wanted |\n|---|---|---|---|---|---|\n")
    remarks = []
    for name, row in rows.items():
        text += f"| {name} | " + " | ".join(c.replace("|", "/") for c in cells(row)) + " |\n"
        if row["now"] != results["machine"]["now"]:
            remarks.append(f"`{name}` is of {row['now']}.")
        if row.get("elsewhere", 0) > 0.1:
            remarks.append(f"`{name}`: {row['elsewhere']:.2f} cores worked for something else meanwhile.")
        remarks += [f"`{name}`: {arm} {found}" for arm, found in row["arms"].items() if isinstance(found, str)]
    if remarks:
        text += "\n" + "\n".join(f"- {r}" for r in dict.fromkeys(remarks)) + "\n"
    if os.path.exists(NOTES):
        with open(NOTES) as f:
            text += "\n" + f.read()
    with open(TABLE, "w") as f:
        f.write(text)
    with open(PLOT, "w") as f:
        f.write(plot.svg(rows))
