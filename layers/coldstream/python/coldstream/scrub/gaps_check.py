"""The gap items: each is a hole of the log, and has the reason that follows from what is known to be missing."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.change import Change
from coldstream.manifest.entry import FragmentEntry, Gap, Loss, Missing, Quarantine
from coldstream.manifest.missing import with_reason
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.log_checks import reason_troubles, stray_gap_troubles
from coldstream.scrub.mend import plan_gap, plan_no_gap
from coldstream.scrub.reads import MAX_KEYS
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.sortkeys import gap_key, log_key, missing_key, row_key
from coldstream.units import Offset

MAX_MISSING = 20_000
"""Losses and quarantines that are held in memory to explain gaps, as a commit holds them."""


def check_gaps(examiner: Examiner, after: Offset) -> Iterator[Offset]:
    """Check the gaps that begin at or after an offset; yield where to go on, after each.

    Cost: a request for each page of gaps, one for each gap, and two more for each that is suspicious; once, a request
    for each page of losses and quarantines.
    """
    missing: list[Missing] | None = None
    while page := examiner.reads.gaps(examiner.incarnation, after):
        if missing is None:
            missing = _missing(examiner)
        for gap in page:
            _check_hole(examiner, gap)
            if missing is not None and any(reason_troubles(gap, missing)):
                _check_reason(examiner, gap, missing)
            after = Offset(gap.first_offset + 1)
            yield after


def _missing(examiner: Examiner) -> list[Missing] | None:
    """Return all losses and quarantines, None if they are too many."""
    found: list[Missing] = []
    for kind in ("loss#", "quarantine#"):
        for row in examiner.reads.all_rows(examiner.incarnation, kind, row_key):
            if isinstance(row, Loss | Quarantine):
                found.append(row)
            if len(found) > MAX_MISSING:
                examiner.unsettled += 1
                return None
    return found


def _check_hole(examiner: Examiner, gap: Gap) -> None:
    following = next(iter(examiner.reads.log(examiner.incarnation, gap.first_offset, 1).entries), None)
    if not any(stray_gap_troubles(gap, following)):
        return
    keys = [gap_key(gap.first_offset)]
    if following is not None:
        keys.append(log_key(following.next_offset))
        if following.prior_offset is not None:
            keys.append(log_key(following.prior_offset))

    def judge(snapshot: Snapshot) -> list[Trouble]:
        there = snapshot.gap(gap.first_offset)
        now = None if following is None else snapshot.entry(following.next_offset)
        if there is None or (following is not None and now is None):
            return []
        if now is None:
            # Nothing showed past the gap: the head says whether there is anything.
            is_past = snapshot.head.next_offset is None or snapshot.head.next_offset <= gap.first_offset
            return list(stray_gap_troubles(there, None)) if is_past else []
        if now.first_offset > gap.first_offset and _is_between(snapshot, following, now, gap.first_offset):
            return []
        return list(stray_gap_troubles(there, now))

    def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
        there = snapshot.gap(gap.first_offset)
        return None if there is None else plan_no_gap(snapshot.head, there, examiner.now())

    examiner.confirm(keys, judge, plan)


def _is_between(snapshot: Snapshot, seen: FragmentEntry | None, now: FragmentEntry, offset: Offset) -> bool:
    """Tell whether an entry has come in between an offset and an entry, as that one's link says by now."""
    if now.prior_offset is None or now.prior_offset <= offset:
        return False
    return snapshot.entry(now.prior_offset) is not None or seen is None or now.prior_offset != seen.prior_offset


def _check_reason(examiner: Examiner, gap: Gap, missing: list[Missing]) -> None:
    about = [one for one in missing if one.first_offset < gap.next_offset and gap.first_offset < one.next_offset]
    keys = [gap_key(gap.first_offset), *map(missing_key, about)]
    if len(keys) > MAX_KEYS:
        examiner.unsettled += 1
        return
    counts = _counts(missing)

    def judge(snapshot: Snapshot) -> list[Trouble]:
        there = snapshot.gap(gap.first_offset)
        head = snapshot.head
        # Another count means that a loss or a quarantine came meanwhile, which is not among those that were read.
        if there is None or (head.losses, head.quarantined, head.quarantined_again) != counts:
            return []
        return list(reason_troubles(there, _of(snapshot)))

    def plan(snapshot: Snapshot, _: Trouble) -> Change | None:
        there = snapshot.gap(gap.first_offset)
        if there is None:
            return None
        explained = with_reason(Gap(there.first_offset, there.next_offset), _of(snapshot))
        return plan_gap(snapshot.head, there, explained, examiner.now())

    examiner.confirm(keys, judge, plan)


def _counts(missing: list[Missing]) -> tuple[int, int, int]:
    quarantines = [one for one in missing if isinstance(one, Quarantine)]
    return len(missing) - len(quarantines), len(quarantines), sum(one.copies - 1 for one in quarantines)


def _of(snapshot: Snapshot) -> list[Missing]:
    return [row for row in snapshot.items.values() if isinstance(row, Loss | Quarantine)]
