"""The options of a worker, checked."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.jobs.attempt import LEASE_S
from coldstream.jobs.specs import JobKind

LEAST_LEASE_S = 2.0
MOST_LEASE_S = 600.0
LEAST_POLL_S = 0.05
MOST_POLL_S = 300.0
MOST_CONCURRENCY = 64


def worker_name() -> str:
    """Return a name that no other worker has: host, process, and something random, as process ids come again."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:80]
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works: so many jobs at a time, of these kinds, each under a lease of that length.

    It looks for jobs about every `poll_s`. With `once` it ends when nothing is due and nothing runs.
    """

    concurrency: int = 2
    lease_s: float = LEASE_S
    poll_s: float = 2.0
    kinds: frozenset[JobKind] = frozenset(JobKind)
    once: bool = False
    state: Path = Path("coldstream-worker")
    name: str = field(default_factory=worker_name)

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MOST_CONCURRENCY:
            raise InvalidSettingError("--concurrency", f"must be from 1 to {MOST_CONCURRENCY}")
        if not LEAST_LEASE_S <= self.lease_s <= MOST_LEASE_S:
            raise InvalidSettingError("--lease", f"must be from {LEAST_LEASE_S:g}s to {MOST_LEASE_S:g}s")
        if not LEAST_POLL_S <= self.poll_s <= MOST_POLL_S:
            raise InvalidSettingError("--poll", f"must be from {LEAST_POLL_S:g}s to {MOST_POLL_S:g}s")


def parse_kinds(names: Sequence[str]) -> frozenset[JobKind]:
    """Read names of kinds, each option one or some with commas between; none means all. Raises InvalidSettingError."""
    found = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in found:
        if name not in set(JobKind):
            raise InvalidSettingError("--kinds", f"{name[:40]!r} is none of {', '.join(JobKind)}")
    return frozenset(map(JobKind, found)) or frozenset(JobKind)
