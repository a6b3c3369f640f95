"""Measures a row: every arm is made and compared first, then they take turns."""

import os
import shutil
import statistics
import tempfile
import time

from arms import Failed

WARM_UPS, ROUNDS = 5, 5
SHORTEST = 2e-3  # seconds that a sample takes at least: as many calls in it as that needs
SETTLE = 0.02  # between turns: threads of the last arm that wait for work by spinning have gone to sleep


def quantile(times, q):
    times = sorted(times)
    return times[min(len(times) - 1, round(q * (len(times) - 1)))]


def summary(times):
    return {"median": statistics.median(times), "p10": quantile(times, 0.1), "p90": quantile(times, 0.9),
            "samples": len(times)}


def prepare(arms, row, folder):
    """Which arms take part, and a reason for each that does not: (ready, reasons, info)."""
    ready, reasons, info = [], {}, {}
    for arm in row.arms:
        request = {"command": "prepare", "family": row.family, "params": row.params,
                   "folder": folder if arm != "one device" else None}
        try:
            answer = arms.ask(arm, request, row.patience)
        except Failed as e:
            reasons[arm] = f"not measured: {e}"
            if arm == "meshlua":
                return [], reasons, info
            continue
        if arm == "meshlua":
            info = answer["info"]
        off = answer.get("difference", 0.0)
        if off > row.tolerance:
            reasons[arm] = f"wrong: differs from meshlua's by {off:.2g}, more than {row.tolerance:g}"
            continue
        ready.append(arm)
    return ready, reasons, info


def check(arms, row):
    """The reasons for which arms would not be measured; nothing is timed."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ready, reasons, _ = prepare(arms, row, folder)
        for arm in ready:
            try:
                arms.ask(arm, {"command": "time", "samples": 1, "inner": 1})
            except Failed as e:
                reasons[arm] = f"not measured: {e}"
            arms.drop(arm)
    return reasons


def calibrate(arms, arm, seconds):
    """Warm-ups, and from the last of them how many calls make a sample, and samples a turn."""
    ask = {"command": "time", "samples": 1, "inner": 1}
    for _ in range(WARM_UPS):
        once = arms.ask(arm, ask)["times"][0]
    inner = max(1, round(SHORTEST / max(once, 1e-7)))
    if inner > 1:  # a single call is too short to be trusted
        once = min(arms.ask(arm, {**ask, "inner": inner, "samples": 2})["times"])
        inner = max(1, round(SHORTEST / max(once, 1e-8)))
    return inner, max(2, min(40, round(seconds / ROUNDS / (once * inner))))


def take_turns(arms, ready, seconds):
    """Times by arm, and how many cores worked meanwhile for anything but the arm whose turn it was."""
    plan = {arm: calibrate(arms, arm, seconds) for arm in ready}
    times, spent, elsewhere = {arm: [] for arm in ready}, 0.0, 0.0
    for turn in range(ROUNDS):
        shift = turn % len(ready)
        for arm in ready[shift:] + ready[:shift]:
            inner, samples = plan[arm]
            time.sleep(SETTLE)
            before, start = arms.cpu_elsewhere(arm), time.monotonic()
            times[arm] += arms.ask(arm, {"command": "time", "inner": inner, "samples": samples})["times"]
            elsewhere += arms.cpu_elsewhere(arm) - before
            spent += time.monotonic() - start
    return times, elsewhere / spent


def measure(arms, row, seconds):
    """What was found for a row: {"arms": {arm: summary or reason}, "info", "elsewhere"}."""
    folder = tempfile.mkdtemp(prefix="bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    found = {"arms": {}, "info": {}}
    try:
        ready, reasons, found["info"] = prepare(arms, row, folder)
        found["arms"].update(reasons)
        if "meshlua" in ready:
            times, found["elsewhere"] = take_turns(arms, ready, seconds)
            found["arms"].update({arm: summary(t) for arm, t in times.items()})
    except Failed as e:
        found["arms"]["meshlua"] = f"not measured: {e}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for arm in row.arms:
            arms.drop(arm)
    return found
