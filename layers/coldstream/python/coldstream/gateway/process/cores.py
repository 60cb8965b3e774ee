"""How many processes a machine has cores for: those that this one may use, and what its container is allowed."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(limit_file: Path = _CGROUP_LIMIT) -> int:
    """Return the number of cores, at least 1. A container's limit counts, rounded up, as far as cgroup v2 shows it."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = limit_file.read_text().split()
        allowed = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": there is no limit
        return cores
    return max(1, min(cores, allowed))
