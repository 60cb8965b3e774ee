"""How far a pass is: kept in the table between runs, as JSON.

{"version": 1, "deep": false, "began_at": ms, "streams_total": n, "streams_done": n, "after": registry key or null,
 "only": [incarnations] or null, "stage": "log", "reached": "...", "account": [revision, boundary, sums...] or null,
 "fragments": n, "unread": n, "unsettled": n, "counts": {"ObjectMissing": 1}, "mended": {"LinkBroken": 1},
 "findings": [...], "ended_at": ms}

An earlier release wrote no "mended".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.plain_json import read_json
from coldstream.scrub.account import Account, Sums
from coldstream.scrub.damage import Damage, Finding
from coldstream.units import Offset, TimestampMs

VERSION = 1

KEPT_FINDINGS = 200
"""Findings that a pass keeps in words; it counts all of them. An item of DynamoDB has 400 KB."""


class Stage(StrEnum):
    """The parts of a stream's examination, in order. `reached` means something else in each."""

    BEGIN = "begin"
    LOG = "log"
    """`reached`: the offset up to which all entries are checked."""
    TIMES = "times"
    """`reached`: the same."""
    GAPS = "gaps"
    """`reached`: the offset from which on gaps are to be checked."""
    TOMBSTONES = "tombstones"
    """`reached`: a sort key."""
    QUARANTINES = "quarantines"
    """`reached`: a sort key."""
    NOTES = "notes"
    COUNTS = "counts"
    JOURNAL = "journal"
    """`reached`: a revision."""
    TOTALS = "totals"
    REPLAY = "replay"


STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True)
class PassPosition:
    """The state of one pass over an archive, or over the streams `only`.

    `after` is the key of the last stream that is done, in the registry, or its number among `only`. The counts are
    those of the whole pass so far, over all of its runs; `mended` are of `counts`.
    """

    deep: bool
    began_at: TimestampMs
    only: tuple[Incarnation, ...] | None = None
    streams_total: int = 0
    streams_done: int = 0
    after: str | None = None
    stage: Stage = Stage.BEGIN
    reached: str = ""
    account: Account | None = None
    fragments: int = 0
    unread: int = 0
    unsettled: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    mended: dict[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    ended_at: TimestampMs | None = None

    @property
    def share(self) -> float:
        """The share of the pass that is done, from 0 to 1, by streams and their stages."""
        if self.ended_at is not None:
            return 1.0
        if not self.streams_total:
            return 0.0
        return min(1.0, (self.streams_done + STAGES.index(self.stage) / len(STAGES)) / self.streams_total)

    def with_findings(
        self,
        found: Sequence[Finding],
        mended: Sequence[Finding] = (),
        *,
        fragments: int,
        unread: int,
        unsettled: int,
    ) -> Self:
        """Return the position with what a part of a run has found, and has mended of that."""
        return replace(
            self,
            counts=_with(self.counts, found),
            mended=_with(self.mended, mended),
            findings=(*self.findings, *found)[:KEPT_FINDINGS],
            fragments=self.fragments + fragments,
            unread=self.unread + unread,
            unsettled=self.unsettled + unsettled,
        )

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`."""
        account = self.account
        return json.dumps(
            {
                "version": VERSION,
                "deep": self.deep,
                "began_at": self.began_at,
                "only": self.only,
                "streams_total": self.streams_total,
                "streams_done": self.streams_done,
                "after": self.after,
                "stage": self.stage,
                "reached": self.reached,
                "account": account and [account.revision, account.boundary, *astuple(account.sums)],
                "fragments": self.fragments,
                "unread": self.unread,
                "unsettled": self.unsettled,
                "counts": self.counts,
                "mended": self.mended,
                "findings": [_finding_to_json(finding) for finding in self.findings],
                "ended_at": self.ended_at,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Self:
        """Decode. Raises BadVersionError for another release's, CorruptionError for anything else."""
        try:
            value = read_json(data)
            if value["version"] != VERSION:
                raise BadVersionError(
                    source, 0, "version of a scrub's position", expected=VERSION, found=value["version"]
                )
            account = value["account"]
            return cls(
                deep=value["deep"],
                began_at=value["began_at"],
                only=None if value["only"] is None else tuple(map(Incarnation, value["only"])),
                streams_total=value["streams_total"],
                streams_done=value["streams_done"],
                after=value["after"],
                stage=Stage(value["stage"]),
                reached=value["reached"],
                account=None if account is None else Account(account[0], Offset(account[1]), Sums(*account[2:])),
                fragments=value["fragments"],
                unread=value["unread"],
                unsettled=value["unsettled"],
                counts=value["counts"],
                mended=value.get("mended", {}),
                findings=tuple(map(_finding_from_json, value["findings"])),
                ended_at=value["ended_at"],
            )
        except (ValueError, KeyError, TypeError, IndexError) as err:
            raise CorruptionError(source, 0, f"no position of a scrub: {err}") from err


def _with(counts: Mapping[str, int], findings: Sequence[Finding]) -> dict[str, int]:
    total = dict(counts)
    for finding in findings:
        total[finding.damage] = total.get(finding.damage, 0) + 1
    return total


def _finding_to_json(finding: Finding) -> list[Any]:
    stream = finding.stream
    return [
        finding.damage,
        stream.vhost,
        stream.name,
        stream.incarnation,
        finding.first_offset,
        finding.next_offset,
        finding.key,
        finding.detail[:500],
    ]


def _finding_from_json(value: list[Any]) -> Finding:
    damage, vhost, name, incarnation, first_offset, next_offset, key, detail = value
    return Finding(Damage(damage), StreamId(vhost, name, incarnation), first_offset, next_offset, key, detail)
