"""What every measurement is made of: runs in processes of their own, medians, aims, and a section of the report."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

ROOT = Path(__file__).resolve().parent.parent
LAYER = ROOT / "layers" / "coldstream" / "python"
CACHE = ROOT / ".cache"

MB = 1_000_000
MIB = 1 << 20

_Run = TypeVar("_Run")
Cell = str | int | float


class CannotMeasureError(Exception):
    """A measurement that cannot be made here, and why."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What was wanted of a measurement, and what came out."""

    wanted: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One measurement in the report: how it was made, a table of figures, what else was seen, the aims."""

    title: str
    how: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    aims: tuple[Aim, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A call that was made in a process of its own.

    `peak_rss_bytes` is the most that the process has ever held in memory, interpreter and libraries included. `log` is
    what it printed.
    """

    answer: Any
    peak_rss_bytes: int
    log: str


class Stopwatch:
    """A context manager that measures what happens in it: seconds, and CPU seconds of the process, all threads."""

    seconds = 0.0
    cpu_s = 0.0

    def __enter__(self) -> Self:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_s = time.process_time() - self._cpu_began


def in_child(function: str, arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ChildRun:
    """Call `package.module:function` with keyword arguments in a new process; all goes through JSON.

    `environment` comes on top of this process's, with the repository and the layer on the path unless it has a path.
    Raises CannotMeasureError, with what the process said, when it fails.
    """
    path = os.pathsep.join((str(ROOT), str(LAYER)))
    process = subprocess.run(
        [sys.executable, "-m", "bench.child"],
        input=json.dumps({"function": function, "arguments": arguments}),
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise CannotMeasureError(f"{function} failed:\n{process.stderr[-4000:]}")
    return ChildRun(**json.loads(process.stdout), log=process.stderr)


def run_as_child() -> None:
    """Make the call that `in_child` has asked for. What it prints goes to standard error."""
    request = json.load(sys.stdin)
    module, _, name = request["function"].partition(":")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    function = getattr(importlib.import_module(module), name)
    answer = function(**request["arguments"])
    json.dump({"answer": answer, "peak_rss_bytes": _peak_rss_bytes()}, answers)
    answers.close()


def median_run(runs: list[_Run], key: Callable[[_Run], float]) -> _Run:
    """Return the run whose figure is the median; of an even number, the lower one of the two in the middle."""
    middle = statistics.median_low(map(key, runs))
    return next(run for run in runs if key(run) == middle)


def percentile(values: list[float], percent: int) -> float:
    """Return the value that `percent` of the values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the context lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def say(text: str) -> None:
    """Tell whoever waits what is going on."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _peak_rss_bytes() -> int:
    # Not ru_maxrss: a child inherits its parent's until it outgrows it.
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotMeasureError("/proc/self/status does not say how much memory the process has held")
