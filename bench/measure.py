"""Measures a row: every arm is made and compared first, then they take turns."""

import os
import shutil
import statistics
import subprocess
import tempfile
import time

from arms import Failed

WARM_UPS, ROUNDS = 5, 5
# Samples of a turn: ENOUGH, if that does not take longer than the time that is given; up to MOST in a quarter of it.
ENOUGH, MOST = 6, 40
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
    if row.mode != "turns":
        return {arm: why for arm, why in measure_processes(arms, row, 1)["arms"].items() if isinstance(why, str)}
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
    turn = seconds / ROUNDS / (once * inner)  # samples that fill the time
    return inner, max(2, min(MOST, round(turn / 4)), min(ENOUGH, round(turn)))


def take_turns(arms, ready, seconds):
    """Times by arm, reasons of the arms that failed, and how many cores worked meanwhile for anything but the arm whose
    turn it was."""
    plan, times, reasons, spent, elsewhere = {}, {}, {}, 0.0, 0.0

    def turn_of(arm):
        nonlocal spent, elsewhere
        if arm not in plan:
            plan[arm], times[arm] = calibrate(arms, arm, seconds), []
        inner, samples = plan[arm]
        time.sleep(SETTLE)
        before, start = arms.cpu_elsewhere(arm), time.monotonic()
        times[arm] += arms.ask(arm, {"command": "time", "inner": inner, "samples": samples})["times"]
        elsewhere += arms.cpu_elsewhere(arm) - before
        spent += time.monotonic() - start

    for turn in range(ROUNDS):
        shift = turn % len(ready)
        for arm in ready[shift:] + ready[:shift]:
            if arm in reasons:
                continue
            try:
                turn_of(arm)
            except Failed as e:
                reasons[arm] = f"not measured: {e}"
                times.pop(arm, None)
    return times, reasons, elsewhere / spent if spent else 0.0


def fresh(arms, row, arm, folder, request):
    """What a new process answers to one request."""
    worker = arms.new(arm)
    try:
        worker.ask({"command": "hello"}, 120)
        worker.ask({"command": "prepare", "family": row.family, "params": row.params, "folder": folder, "arm": arm},
                   row.patience)
        return worker.ask(dict(request, arm=arm), row.patience)
    finally:
        worker.stop()


def whole_process(arms, row, arm):
    start = time.perf_counter()
    done = subprocess.run(arms.command(row, arm), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it failed"]
        raise Failed(words[0 if arm == "meshlua" else -1])
    return seconds


def single(arms, row, arm, folder):
    """One number of an arm in a process of its own."""
    if row.mode == "process":
        return whole_process(arms, row, arm)
    if row.mode == "value":
        return fresh(arms, row, arm, folder, {"command": "value"})["value"]
    return fresh(arms, row, arm, None, {"command": "time", "samples": 1, "inner": 1})["times"][0]


def measure_processes(arms, row, rounds):
    """As measure, of rows that need new processes: rounds of them, in turns; of the slow, only one."""
    found = {"arms": {}, "info": {}}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if row.mode == "value":  # for inputs, and the plan
            ready, found["arms"], found["info"] = prepare(arms, row, folder)
            for arm in row.arms:
                arms.drop(arm)
        numbers = {arm: [] for arm in row.arms if arm not in found["arms"]}
        for turn in range(rounds):
            for arm in list(numbers):
                if turn and row.mode != "process" and arm != "meshlua":
                    continue
                try:
                    time.sleep(SETTLE)
                    # meshlua would write its inputs again, which is no part of its step.
                    numbers[arm].append(single(arms, row, arm, None if arm == "meshlua" else folder))
                except Failed as e:
                    del numbers[arm]
                    found["arms"][arm] = f"not measured: {e}"
    found["arms"].update({arm: summary(list_) for arm, list_ in numbers.items()})
    return found


def measure(arms, row, seconds):
    """What was found for a row: {"arms": {arm: summary or reason}, "info", "elsewhere"}."""
    if row.mode != "turns":
        return measure_processes(arms, row, ROUNDS)
    folder = tempfile.mkdtemp(prefix="bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    found = {"arms": {}, "info": {}}
    try:
        ready, reasons, found["info"] = prepare(arms, row, folder)
        found["arms"].update(reasons)
        if "meshlua" in ready:
            times, reasons, found["elsewhere"] = take_turns(arms, ready, seconds)
            found["arms"].update(reasons)
            found["arms"].update({arm: summary(t) for arm, t in times.items()})
    except Failed as e:
        found["arms"]["meshlua"] = f"not measured: {e}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for arm in row.arms:
            arms.drop(arm)
    return found
