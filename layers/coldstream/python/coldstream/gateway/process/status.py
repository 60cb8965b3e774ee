"""What a gateway is and does, as a value: `coldstream gateway status` shows it, /status answers it as JSON.

The parent answers, from what its children reported last. `to_json` has the names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from coldstream.errors import UnavailableError
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.channel import ChildReport
from coldstream.plain_json import read_json
from coldstream.units import TimestampMs

QUIET_S = 10.0
"""A process reports every second. One that has not for so long serves nobody, whatever it has said before."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process."""

    number: int
    pid: int
    is_listening: bool
    silent_s: float
    """Since its last report."""
    report: ChildReport

    @property
    def is_serving(self) -> bool:
        """Whether it listens, and does not hang."""
        return self.is_listening and self.silent_s < QUIET_S

    @property
    def state(self) -> str:
        """Say in a word or two how it is."""
        if self.silent_s >= QUIET_S:
            return f"silent for {self.silent_s:.0f} s"
        return "serves" if self.is_listening else "starts"


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """All processes, and what is wrong."""

    version: str
    at: TimestampMs
    up_s: float
    listen: str
    mode: str
    """`proxy` or `archive-only`."""
    is_draining: bool
    problems: tuple[str, ...]
    """Why it is not ready."""
    restarts: int
    processes: tuple[ProcessStatus, ...]
    ended: GatewayFigures
    """Totals of processes that have ended."""
    memory_bytes: int

    @property
    def is_ready(self) -> bool:
        """Whether clients should be sent here."""
        return not self.problems

    def figures(self) -> GatewayFigures:
        """Return the counts of all processes together, also of those that have ended."""
        found = GatewayFigures()
        found.add_totals(self.ended)
        for process in self.processes:
            found.add(process.report.figures)
        return found

    @property
    def archive_problems(self) -> tuple[str, ...]:
        """Why the archive doesn't answer, of all processes, each reason once.

        In front of a broker that is no reason not to be ready, but nothing comes from the archive.
        """
        found = dict.fromkeys(process.report.archive_problem for process in self.processes)
        return tuple(problem for problem in found if problem is not None)

    def coldest(self, count: int) -> list[ColdRow]:
        """Return the cold subscriptions that are furthest behind."""
        rows = [row for process in self.processes for row in process.report.cold]
        return sorted(rows, key=lambda row: row.behind, reverse=True)[:count]

    def to_json(self) -> bytes:
        """Return the status as JSON."""
        content = {
            "version": self.version,
            "at": self.at,
            "up_s": round(self.up_s, 3),
            "listen": self.listen,
            "mode": self.mode,
            "ready": self.is_ready,
            "draining": self.is_draining,
            "problems": list(self.problems),
            "restarts": self.restarts,
            "memory_bytes": self.memory_bytes,
            "totals": self.figures().to_dict(),
            "ended": self.ended.to_dict(),
            "processes": [
                {
                    "number": process.number,
                    "pid": process.pid,
                    "listening": process.is_listening,
                    "silent_s": round(process.silent_s, 3),
                    **process.report.to_json(),
                }
                for process in self.processes
            ],
        }
        return json.dumps(content).encode()

    @classmethod
    def from_json(cls, body: bytes, *, source: str) -> Self:
        """Read what `to_json` wrote; its totals are added up anew. Raises UnavailableError if it is something else."""
        try:
            return cls._of(read_json(body))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as err:
            raise UnavailableError(f"{source} doesn't answer as a gateway of this release does: {err!r}") from err

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        return cls(
            version=given["version"],
            at=TimestampMs(given["at"]),
            up_s=given["up_s"],
            listen=given["listen"],
            mode=given["mode"],
            is_draining=given["draining"],
            problems=tuple(given["problems"]),
            restarts=given["restarts"],
            processes=tuple(
                ProcessStatus(one["number"], one["pid"], one["listening"], one["silent_s"], ChildReport.from_json(one))
                for one in given["processes"]
            ),
            ended=GatewayFigures.from_dict(given["ended"]),
            memory_bytes=given["memory_bytes"],
        )
