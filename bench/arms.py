"""Arms: what takes part in a row. An arm is a variant of a worker, a process that lives through the whole run
and is spoken to by lines: a request as JSON (to meshlua: as a Lua table), an answer as JSON."""

import importlib
import json
import os
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MESHLUA = os.path.join(ROOT, "build", "meshlua")


class Failed(Exception):
    """A worker that gave an error, died or hung; the text is the row's reason."""


def lua_literal(value):
    """A value as Lua text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua_literal(k)}] = {lua_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(lua_literal(v) for v in value) + "}"
    if value is None:
        return "nil"
    return json.dumps(value)


def busy_seconds():
    """Seconds of processor that the whole machine has worked, or had taken from it by its host."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = (int(n) for n in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


# Workers: which arms they are, and how each is started. XLA gives its 8 host devices their own process, so
# that they cost the one-device rows nothing.
WORKERS = {"meshlua": ["meshlua", "one device"], "jax": ["jax"], "jax8": ["jax 8"],
           "torch": ["torch", "torch.compile"], "gloo": ["gloo"], "limits": ["limit", "fma", "copy", "read"]}
WORKER_OF = {arm: worker for worker, arms in WORKERS.items() for arm in arms}


def command_of(worker, python):
    if worker == "meshlua":
        return [MESHLUA, "--devices=8", os.path.join(HERE, "worker.lua"), HERE]
    return [python, os.path.join(HERE, "worker.py"), worker]


def environment_of(worker, core_type):
    env = dict(os.environ, PYTHONPATH="", TF_CPP_MIN_LOG_LEVEL="3", JAX_PLATFORMS="cpu",
               CUDA_VISIBLE_DEVICES="")
    # Compiled code is kept apart from what a user's own torch has cached.
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(HERE, ".cache", "inductor"))
    if worker == "jax8":
        env["XLA_FLAGS"] = (env.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
    if worker == "limits" and core_type:
        env["OPENBLAS_CORETYPE"] = core_type
    return env


class Worker:
    def __init__(self, name, python, core_type=None):
        self.name = name
        self.log = open(os.path.join(HERE, ".cache", f"{name}.log"), "wb")
        self.process = subprocess.Popen(command_of(name, python), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, cwd=ROOT, env=environment_of(name, core_type))

    def ask(self, request, limit=300):
        """The answer to a request; raises Failed."""
        text = "return " + lua_literal(request) if self.name == "meshlua" else json.dumps(request)
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as e:
            raise Failed(f"the process is gone ({e.strerror})") from e
        end, line = time.monotonic() + limit, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.stop()
                raise Failed(f"no answer within {limit} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failed(f"the process ended; its last words are in bench/.cache/{self.name}.log")
            line += more
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"].replace(HERE + "/../", "").replace(ROOT + "/", "").strip().splitlines()[0][:200])
        return answer

    def cpu_seconds(self):
        """Time of processor that its threads have had, and those of its children."""
        pid, ticks = self.process.pid, 0
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                pids = [pid, *map(int, f.read().split())]
        except OSError:
            pids = [pid]
        for one in pids:
            try:
                with open(f"/proc/{one}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Arms:
    """The workers of a run, each started when it is first needed."""

    def __init__(self, python, why_no_python):
        self.python, self.why_no_python, self.core_type = python, why_no_python, None
        self.workers, self.broken = {}, {}

    def worker(self, name):
        if name in self.broken:
            raise Failed(self.broken[name])
        if name in self.workers and self.workers[name].process.poll() is not None:
            self.workers.pop(name).stop()
            raise Failed("the process ended between two requests; was memory short?")
        if name not in self.workers:
            peer = name not in ("meshlua", "limits")
            if peer and not self.python:
                raise Failed(self.why_no_python)
            worker = Worker(name, self.python or sys.executable, self.core_type)
            self.workers[name] = worker
            try:
                worker.ask({"command": "hello"}, 120)
            except Failed as e:
                self.broken[name] = str(e)
                worker.stop()
                del self.workers[name]
                raise
        return self.workers[name]

    def new(self, arm):
        """A process for this arm alone, which the caller stops."""
        name = WORKER_OF[arm]
        if name != "meshlua" and not self.python:
            raise Failed(self.why_no_python)
        return Worker(name, self.python, self.core_type)

    def command(self, row, arm):
        """The command of a row that times whole processes."""
        if arm != "meshlua" and not self.python:
            raise Failed(self.why_no_python)
        return importlib.import_module("rows." + row.family).command(row.params, arm, MESHLUA, self.python)

    def ask(self, arm, request, limit=300):
        return self.worker(WORKER_OF[arm]).ask(dict(request, arm=arm), limit)

    def drop(self, arm):
        """Forgets an arm's case, where there is one."""
        worker = self.workers.get(WORKER_OF[arm])
        if worker and worker.process.poll() is None:
            worker.ask({"command": "drop", "arm": arm})

    def cpu_elsewhere(self, arm):
        """Seconds of processor that all but the arm's own worker have had since the machine started."""
        return busy_seconds() - self.worker(WORKER_OF[arm]).cpu_seconds()

    def stop(self, *names):
        for name in names or list(self.workers):
            worker = self.workers.pop(name, None)
            if worker:
                worker.stop()
