"""Losses, quarantines, holds and erasures: the head counts them right."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coldstream.errors import NotRecordedError
from coldstream.manifest.change import (
    Change,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    PutErasure,
    PutHold,
    PutLoss,
    PutQuarantine,
    Write,
)
from coldstream.manifest.entry import Erasure, Head, Hold, Loss, Quarantine, Row
from coldstream.scrub.account import RECENT_CHANGES, shows_all
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.mend import plan_head
from coldstream.scrub.reads import MAX_KEYS
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.sortkeys import row_key

KINDS = ("erasure#", "hold#", "loss#", "quarantine#")
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Counts:
    """How many items of these kinds there are; the names are those of the head's counts."""

    losses: int = 0
    quarantined: int = 0
    quarantined_again: int = 0
    holds: int = 0
    erasures: int = 0

    @classmethod
    def of_head(cls, head: Head) -> Counts:
        """Return the counts of a head."""
        return cls(head.losses, head.quarantined, head.quarantined_again, head.holds, head.erasures)

    def plus(self, row: Row, times: int = 1) -> Counts:
        """Return the counts with an item more, or less."""
        match row:
            case Loss():
                return replace(self, losses=self.losses + times)
            case Quarantine():
                again = self.quarantined_again + times * (row.copies - 1)
                return replace(self, quarantined=self.quarantined + times, quarantined_again=again)
            case Hold():
                return replace(self, holds=self.holds + times)
            case Erasure():
                return replace(self, erasures=self.erasures + times)
            case _:
                return self


def check_counts(examiner: Examiner) -> None:
    """Count the items of these kinds, and compare with the head. Cost: a Query a page of each kind, and two reads.

    Counting takes several reads. Only if no change came in between, and what the newest changes wrote is read again as
    of one moment, another count is a damage.
    """
    for _ in range(ATTEMPTS):
        snapshot = examiner.reads.at_once(examiner.incarnation, [])
        if snapshot is None:
            return
        found = (row for kind in KINDS for row in examiner.reads.all_rows(examiner.incarnation, kind, row_key))
        rows = {row_key(row): row for row in found}
        counts = Counts()
        for row in rows.values():
            counts = counts.plus(row)
        if counts == Counts.of_head(snapshot.head):
            return
        keys = _recent_keys(examiner, snapshot.head)
        if keys is not None and _settle(examiner, snapshot.head.revision, keys, rows, counts):
            return
    examiner.unsettled += 1


def _settle(examiner: Examiner, revision: int, keys: list[str], rows: dict[str, Row], counts: Counts) -> bool:
    """Judge counts of a revision; return whether it was still that revision."""
    is_same = True

    def judge(snapshot: Snapshot) -> list[Trouble]:
        nonlocal is_same
        if snapshot.head.revision != revision:
            is_same = False
            return []
        found, told = _counts_of_moment(snapshot, keys, rows, counts), Counts.of_head(snapshot.head)
        return (
            [] if found == told else [Trouble(Damage.COUNTS, differs("the head's count", expected=found, found=told))]
        )

    def plan(snapshot: Snapshot, _: Trouble) -> Change:
        found = _counts_of_moment(snapshot, keys, rows, counts)
        corrected = replace(
            snapshot.head,
            losses=found.losses,
            quarantined=found.quarantined,
            quarantined_again=found.quarantined_again,
            holds=found.holds,
            erasures=found.erasures,
        )
        return plan_head(corrected, examiner.now(), "counts")

    before = len(examiner.findings)
    examiner.confirm(keys, judge, plan)
    return is_same or len(examiner.findings) > before


def _counts_of_moment(snapshot: Snapshot, keys: list[str], rows: dict[str, Row], counts: Counts) -> Counts:
    """Correct counts by what the newest changes wrote, as it is at one moment."""
    for key in keys:
        if (seen := rows.get(key)) is not None:
            counts = counts.plus(seen, -1)
        if (now := snapshot.items.get(key)) is not None:
            counts = counts.plus(now)
    return counts


def _recent_keys(examiner: Examiner, head: Head) -> list[str] | None:
    """Return the sort keys of such items that the newest changes wrote.

    None if they are too many to read at once, or if not all of these changes show.
    """
    after = max(0, head.revision - RECENT_CHANGES)
    try:
        changes = examiner.reads.changes(examiner.incarnation, after)
    except NotRecordedError:
        return []  # of an earlier release, and so long over
    if not shows_all([event for event, _ in changes], after, head):
        return None
    keys = dict.fromkeys(row_key(row) for _, change in changes for write in change.writes if (row := _row(write)))
    return list(keys) if len(keys) <= MAX_KEYS else None


def _row(write: Write) -> Row | None:
    match write:
        case PutLoss(row) | DeleteLoss(row) | PutHold(row) | DeleteHold(row) | PutQuarantine(row):
            return row
        case DeleteQuarantine(row):
            return row
        case PutErasure(_, row):
            return row
        case _:
            return None
