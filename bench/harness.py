"""What all measurements share: runs in processes of their own, rounds, medians, aims, and sections of the report."""

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

_Result = TypeVar("_Result")
Cell = str | int | float


class CannotMeasureError(Exception):
    """A measurement cannot be made here. The message says why."""


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim of a measurement, and the result."""

    text: str
    result: str
    met: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One measurement in the report: the method, a table of figures, notes, and the aims."""

    title: str
    how: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    aims: tuple[Aim, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A call in a process of its own.

    `peak_rss_bytes` is the most memory that the process ever held, interpreter and libraries included. `log` is what it
    printed.
    """

    answer: Any
    peak_rss_bytes: int
    log: str

    @property
    def seconds(self) -> float:
        """The seconds that the call says it took."""
        return float(self.answer["seconds"])

    @property
    def cpu_s(self) -> float:
        """The CPU seconds that the call says it took."""
        return float(self.answer["cpu_s"])

    @property
    def peak_memory_mb(self) -> str:
        """The most memory that the process ever held, for a table."""
        return f"{self.peak_rss_bytes / MB:.0f}"

    @property
    def messages_per_s(self) -> float:
        """The rate, if the call says how many messages it handled."""
        return float(self.answer["messages"] / self.answer["seconds"])


class Stopwatch:
    """A context manager that measures its block: seconds, and CPU seconds of all threads of the process."""

    seconds = 0.0
    cpu_s = 0.0

    def __enter__(self) -> Self:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_s = time.process_time() - self._cpu_began


def in_child(
    function: str,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    python: str | Path = sys.executable,
    inherits: bool = True,
) -> ChildRun:
    """Call `package.module:function` with keyword arguments in a new process. Arguments and answer pass as JSON.

    `environment` is added to this process's, or with `inherits` false is all that the new one has, as on Lambda. The
    repository and the layer are on the path, unless it has a path itself.
    `python` is the interpreter, by default this one.
    Raises CannotMeasureError with the process's output if it fails.
    """
    path = os.pathsep.join((str(ROOT), str(LAYER)))
    process = subprocess.run(
        [python, "-m", "bench.child"],
        input=json.dumps({"function": function, "arguments": arguments}),
        env={**(os.environ if inherits else {"PATH": os.defpath}), "PYTHONPATH": path, **(environment or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise CannotMeasureError(f"{function} failed:\n{process.stderr[-4000:]}")
    return ChildRun(**json.loads(process.stdout), log=process.stderr)


def run_as_child() -> None:
    """Make the call that `in_child` asks for. What it prints goes to standard error."""
    request = json.load(sys.stdin)
    module, _, name = request["function"].partition(":")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    function = getattr(importlib.import_module(module), name)
    answer = function(**request["arguments"])
    json.dump({"answer": answer, "peak_rss_bytes": _peak_rss_bytes()}, answers)
    answers.close()


def in_turns(
    contenders: Mapping[str, Callable[[], _Result]], *, rounds: int, label: str = ""
) -> dict[str, list[_Result]]:
    """Run each contender once a round, in turns, so that a machine that grows slower is slower for all of them."""
    runs: dict[str, list[_Result]] = {name: [] for name in contenders}
    for number in range(rounds):
        say(f"{label}round {number + 1} of {rounds}")
        for name, run in contenders.items():
            runs[name].append(run())
    return runs


def median_runs(runs: Mapping[str, list[ChildRun]]) -> dict[str, ChildRun]:
    """Return the run of median duration of each contender."""
    return {name: median_run(found, lambda run: run.seconds) for name, found in runs.items()}


def median_run(runs: list[_Result], key: Callable[[_Result], float]) -> _Result:
    """Return the run with the median figure, the lower one of two."""
    middle = statistics.median_low(map(key, runs))
    return next(run for run in runs if key(run) == middle)


def percentile(values: list[float], percent: int) -> float:
    """Return the least value that `percent` of the values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs."""
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
    """Report progress to whoever is waiting."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _peak_rss_bytes() -> int:
    # Not ru_maxrss: a child begins with its parent's figure.
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CannotMeasureError("/proc/self/status has no VmHWM, the peak memory of the process")
