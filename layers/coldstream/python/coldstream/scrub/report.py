"""What a run of the scrub reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coldstream.scrub.budget import Spent
from coldstream.scrub.catalogue import CATALOGUE
from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.position import PassPosition

MAX_KEPT = 1000
"""Findings that a report names. All are counted."""


@dataclass
class RunFindings:
    """The findings of a run, in bounded memory: all are counted, the first are kept, and `on_more` gets the others."""

    on_more: Callable[[Finding, bool], object] = lambda _, __: None
    findings: list[Finding] = field(default_factory=list)
    mended: list[Finding] = field(default_factory=list)
    counts: Counter[Damage] = field(default_factory=Counter)
    mended_counts: Counter[Damage] = field(default_factory=Counter)

    def take(self, findings: list[Finding], mended: list[Finding]) -> None:
        """Take findings, and those of them that were mended, out of these lists."""
        for finding in findings:
            is_mended = finding in mended
            self.counts[finding.damage] += 1
            self.mended_counts[finding.damage] += is_mended
            if len(self.findings) == MAX_KEPT:
                self.on_more(finding, is_mended)
                continue
            self.findings.append(finding)
            if is_mended:
                self.mended.append(finding)
        findings.clear()
        mended.clear()


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """One run, and the pass that it is a part of.

    `findings` are this run's, the first `MAX_KEPT` of them, and `mended` those of them that were repaired; the counts
    are of all. `notes` say what a person should know about repairs that were not done. `position` counts the whole pass
    so far; the pass is complete if `position.ended_at` is set. `at` is the stream that the run ended in, None after the
    last.
    """

    findings: tuple[Finding, ...]
    mended: tuple[Finding, ...]
    counts: Mapping[Damage, int]
    mended_counts: Mapping[Damage, int]
    notes: tuple[str, ...]
    spent: Spent
    position: PassPosition
    at: str | None

    @property
    def is_complete(self) -> bool:
        """Whether the pass has come to its end."""
        return self.position.ended_at is not None

    @property
    def found(self) -> int:
        """How many findings there were."""
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        """How many of the findings were not repaired."""
        return self.found - sum(self.mended_counts.values())

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        position = self.position
        return {
            "complete": self.is_complete,
            "share": round(position.share, 4),
            "deep": position.deep,
            "at": self.at,
            "offset": int(position.reached) if position.stage == "log" and position.reached else None,
            "stage": position.stage,
            "requests": self.spent.requests,
            "read_bytes": self.spent.data_bytes,
            "seconds": round(self.spent.seconds, 1),
            "found": self.found,
            "mended": self.found - self.left,
            "notes": list(self.notes),
            "findings": [finding_to_json(finding, is_mended=finding in self.mended) for finding in self.findings],
            "pass": {
                "began_at": position.began_at,
                "ended_at": position.ended_at,
                "streams": position.streams_done,
                "of_streams": position.streams_total,
                "fragments": position.fragments,
                "unread": position.unread,
                "unsettled": position.unsettled,
                "damages": position.counts,
            },
        }


def finding_to_json(finding: Finding, *, is_mended: bool) -> dict[str, object]:
    """Return a finding for programs, with what is to be done about it."""
    kind = CATALOGUE[finding.damage]
    return {
        "damage": finding.damage,
        "severity": kind.severity.name.lower(),
        "vhost": finding.stream.vhost,
        "stream": finding.stream.name,
        "incarnation": finding.stream.incarnation,
        "first_offset": finding.first_offset,
        "next_offset": finding.next_offset,
        "key": finding.key,
        "detail": finding.detail,
        "meaning": kind.meaning,
        "mended": is_mended,
        "todo": None if is_mended else kind.command.replace("NAME", finding.stream.name),
    }
