"""script/bench's driver. See README.md."""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time

import report
from arms import HERE, ROOT, Arms, Failed, busy_seconds
from measure import check, measure
from rows import all_rows, machine

LOAD = 0.3  # cores that may be busy before a measurement
PATIENCE = 30  # seconds to wait until they are not
RESULTS = os.path.join(HERE, "results.json")


def load_now(seconds=1.0):
    """Cores that are busy, over a second."""
    before = busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - before) / seconds


def wait_for_quiet():
    """The load when it was low enough, or at the end of the wait."""
    end = time.monotonic() + PATIENCE
    load = load_now()
    while load > LOAD and time.monotonic() < end:
        load = load_now()
    return load


def now():
    """The moment, and the commit that runs."""
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"],
                            capture_output=True, text=True, check=False).stdout.strip()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"{date}, commit {commit}"


def about_machine(arms, load):
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    speeds, core_type = machine.measure()
    return {"now": now(), "processor": model.group(1) if model else platform.processor(), "cores": os.cpu_count(),
            "system": platform.platform(), "load before": load, "speeds": speeds, "core type": core_type,
            "versions": versions_of(arms)}


def versions_of(arms):
    """{library: version} of the workers; a reason in the place of what is not there."""
    found = {}
    for worker in ("meshlua", "jax", "torch"):
        try:
            found.update(arms.worker(worker).ask({"command": "hello"})["versions"])
        except Failed as e:
            found[worker] = f"not measured: {e}"
    return found


def evaluate(row, found):
    """What the report needs of a row: its numbers, limit, ratios, and whether each is what is wanted."""
    medians = {arm: m["median"] for arm, m in found["arms"].items() if isinstance(m, dict)}
    out = {"arms": found["arms"], "unit": row.unit, "tags": row.tags, "elsewhere": round(found.get("elsewhere", 0), 3),
           "wanted": {"share": row.share, "jax": row.vs_jax, "torch": row.vs_torch}}
    ours = medians.get("meshlua")
    if not ours:
        return out
    try:
        out["limit"] = row.limit_of(medians, found["info"])
    except KeyError as e:
        out["no limit"] = f"not measured: {e.args[0]}" if row.limits or e.args[0] != "limit" else ""
    if "limit" in out:
        out["share"] = out["limit"] / ours
    for peer, names in (("jax", ("jax", "jax 8")), ("torch", ("torch", "torch.compile", "gloo"))):
        there = {name: medians[name] for name in names if name in medians}
        if there:
            out[peer] = min(there, key=there.get)
            out["vs " + peer] = there[out[peer]] / ours
    return out


def run_rows(rows, arms, seconds, results, keep):
    moment = now()
    for row in rows:
        load = wait_for_quiet() if load_now(0.3) > LOAD else 0.0
        if load > LOAD:
            found = {"arms": {"meshlua": f"not measured: the machine is loaded ({load:.1f} cores busy)"}}
        else:
            found = measure(arms, row, seconds)
        results["rows"][row.name] = dict(evaluate(row, found), now=moment)
        print(report.line(row.name, results["rows"][row.name]), flush=True)
        if keep:
            report.write(results, [r.name for r in all_rows()])


def main():
    parser = argparse.ArgumentParser(prog="script/bench", description="meshlua beside JAX and PyTorch; see bench/README.md")
    parser.add_argument("filter", nargs="?", default="", help="a regular expression: rows whose names match (default all)")
    parser.add_argument("--quick", action="store_true", help="fewer samples: minutes in place of half an hour")
    parser.add_argument("--list", action="store_true", help="names of rows, and end")
    parser.add_argument("--check", action="store_true", help="compare the arms' results, and time nothing")
    parser.add_argument("--arms", default="", help="a regular expression: only meshlua and the arms whose names match; "
                        "nothing is written")
    parser.add_argument("--no-python", default="", help=argparse.SUPPRESS)  # why there are no peers
    options = parser.parse_args()
    rows = [row for row in all_rows() if re.search(options.filter, row.name, re.IGNORECASE)]
    for row in rows:
        row.peers, row.limits = ([arm for arm in arms if re.search(options.arms, arm)] for arms in (row.peers, row.limits))
    if options.list or not rows:
        print("\n".join(row.name for row in rows) or f"no row's name matches '{options.filter}'")
        return
    os.makedirs(os.path.join(HERE, ".cache"), exist_ok=True)
    arms = Arms(None if options.no_python else sys.executable, options.no_python)
    if options.check:
        for row in rows:
            reasons = check(arms, row)
            print(f"{row.name:34}", "; ".join(f"{arm} {why}" for arm, why in reasons.items()) or "ok", flush=True)
        arms.stop()
        return
    load = wait_for_quiet()
    if load > LOAD:
        print(f"not measured: the machine is loaded ({load:.1f} cores busy for {PATIENCE} s)")
        return
    try:
        results = report.read() or {"rows": {}}
        if not options.filter or "machine" not in results:
            results["machine"] = about_machine(arms, load)
        arms.core_type = results["machine"]["core type"]
        run_rows(rows, arms, 0.5 if options.quick else 2.0, results, not options.arms)
    finally:
        arms.stop()


if __name__ == "__main__":
    main()
