"""CPU and memory of other processes, as Linux counts them, and their priority."""

from __future__ import annotations

import os
from pathlib import Path

from coldstream.units import KIB

NICEST = 19
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(process_id: int) -> float:
    """Return the CPU seconds of a process up to now, user and system, all threads; in steps of 10 ms."""
    # The name, in brackets, may have spaces. Field 3 comes after it; 14 and 15 are utime and stime.
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def tree_cpu_s(process_id: int) -> float:
    """Return the CPU seconds of a process and of all below it up to now, those that have ended included."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / _TICKS_PER_S  # the last two: children that were waited for
    return own + sum(map(tree_cpu_s, children(process_id)))


def rss_bytes(process_id: int) -> int:
    """Return the memory that a process holds now."""
    lines = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * KIB for line in lines if line.startswith("VmRSS:"))


def children(process_id: int | None = None) -> list[int]:
    """Return the child processes of this one, or of another."""
    sought = os.getpid() if process_id is None else process_id
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == sought:
            found.append(int(path.parent.name))
    return found


def put_last(process_id: int) -> None:
    """Let a process in a session of its own run only while nothing else needs the processor."""
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), NICEST)
    # If Linux schedules sessions as groups, the priority of a thread counts only within its group.
    group = Path(f"/proc/{process_id}/autogroup")
    if group.exists():
        group.write_text(str(NICEST), encoding="ascii")
