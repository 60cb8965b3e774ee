"""What is wrong with an archive, or may be: findings, each with what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.manifest.stream import StreamId
from coldstream.operate.diagnosis import ArchivePart
from coldstream.units import TimestampMs


class HealthLevel(StrEnum):
    """How bad a finding is, the worst first. NOT_ASKED: it could not be asked, and `found` says why."""

    BAD = "bad"
    WARN = "warn"
    INFO = "info"
    NOT_ASKED = "not asked"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One finding: what was looked at, what was found, what that means, and the command or advice for it.

    `stream` is there if it is about one. `todo` is None if nothing is to be done.
    """

    part: ArchivePart
    level: HealthLevel
    what: str
    found: str
    meaning: str
    todo: str | None = None
    stream: StreamId | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All findings, the worst first, then part by part. `at` is when the report was begun."""

    at: TimestampMs
    findings: tuple[HealthFinding, ...]
    looked_at_streams: int
    streams: int

    def of(self, level: HealthLevel) -> tuple[HealthFinding, ...]:
        """Return the findings of a level."""
        return tuple(one for one in self.findings if one.level is level)

    @property
    def level(self) -> HealthLevel:
        """The worst level of any finding, OK if there is none."""
        found = {one.level for one in self.findings}
        return next((level for level in HealthLevel if level in found), HealthLevel.OK)
