"""Records of what is missing: they say why, in the manifest, and give the gaps that they explain their reason.

Nothing is missing of what was removed from the archive: no record is made of offsets below the floor, nor of a deleted
stream, but for losses while it can still be undeleted. A record's control object is written to the bucket before it, so
that the bucket always knows as much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from coldstream.archive.cluster_binding import claim
from coldstream.archive.commit import read_missing
from coldstream.archive.segment_lost import SegmentLost
from coldstream.errors import BelowFloorError, LostRaceError, RemovedError, StreamDeletedError
from coldstream.manifest.change import PutLoss, PutQuarantine
from coldstream.manifest.commit import MAX_GAPS, plan_missing
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Loss, Missing, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.store.recent_changes import recent_tombstones
from coldstream.units import Offset, TimestampMs

PAGE_ENTRIES = 100
PAGE_GAPS = 100


def record_loss(
    table: ManifestTable, control: ControlObjects, lost: SegmentLost, now: Callable[[], TimestampMs]
) -> bool:
    """Record a loss, unless recorded losses cover it. Safe to repeat.

    Return False if the archive had these offsets removed, which is no loss. Cost: that of `claim` and `record_missing`;
    a PUT for a new loss, and one for the first change of a stream. Raises OtherClusterError if the stream is bound to
    another cluster than the one that announces the loss.
    """
    claim(table, control, lost.stream, lost.cluster)

    def protect(one: Missing, head: Head) -> None:
        assert isinstance(one, Loss)
        if not head.revision:
            control.write_stream(lost.stream)
        control.write_loss(lost.stream.incarnation, one)

    try:
        record_missing(table, lost.stream, Loss(lost.first_offset, lost.next_offset, lost.reason, now()), protect)
    except RemovedError:
        return False
    return True


def record_missing(
    table: ManifestTable,
    stream: StreamId,
    new: Missing,
    protect: Callable[[Missing, Head], None] = lambda *_: None,
) -> None:
    """Record that something is missing, unless that is recorded. Safe to repeat.

    `protect` is called before the change that adds the record, with the record as it will be, and the head before it.
    Of a loss, only what lies at or above the floor is recorded; of a segment in quarantine, its own offsets, as all of
    it is kept.

    Cost: 2 requests. One more Query if anything else of the stream is missing, and four more if it has gaps, or, beside
    two, one for every 100 entries and gaps within these offsets. More than a hundred gaps take more than one
    transaction. Raises StreamDeletedError, and BelowFloorError if all of it lies below the floor.
    """
    position = new.first_offset

    def attempt() -> Offset:
        """Update the gaps from `position` on, as many as one transaction takes; return how far that got."""
        head = table.head(stream.incarnation) or Head(stream)
        one = _above_floor(head, new)
        known = read_missing(table, head)
        gaps = gaps_within(table, head, position, new.next_offset)
        # Only an attempt that has seen all gaps may conclude that there is nothing to write.
        is_all = position == new.first_offset and len(gaps) <= MAX_GAPS
        change = plan_missing(head, one, known, gaps[:MAX_GAPS], is_checked=is_all)
        if change is not None:
            for lost in change.of(PutLoss):
                protect(lost.loss, head)
            for aside in change.of(PutQuarantine):
                protect(aside.quarantine, head)
            table.apply(change)
        return gaps[MAX_GAPS].first_offset if len(gaps) > MAX_GAPS else new.next_offset

    # `position` moves only after a transaction has passed, so a lost race repeats that part and no other.
    while position < new.next_offset:
        position = retry_lost_races(attempt)


def _above_floor(head: Head, new: Missing) -> Missing:
    """Return what of a record is not removed. Raises StreamDeletedError, and BelowFloorError if nothing is left."""
    # What is lost while the deletion can be undone is a gap with a reason afterwards; a purge forgets it.
    if head.deleted_at is not None and not (head.can_be_undeleted and isinstance(new, Loss)):
        raise StreamDeletedError(str(head.stream), head.deleted_at)
    if new.next_offset <= head.floor:
        what = new.key if isinstance(new, Quarantine) else f"the loss of {head.stream}"
        raise BelowFloorError(what, new.first_offset, new.next_offset, head.floor)
    return replace(new, first_offset=max(new.first_offset, head.floor)) if isinstance(new, Loss) else new


def gaps_within(table: ManifestTable, head: Head, first_offset: Offset, next_offset: Offset) -> list[Gap]:
    """Read the gaps that overlap a span. Raises LostRaceError if the reads show half of a change.

    Entries that were seen prove that there is no gap, unless one of the last changes gave them up: what still shows of
    them is half of that. Their absence proves nothing, so each hole between them must have a gap item of exactly its
    offsets, and the change that is planned on that item is conditioned on it.
    """
    if not head.gaps or head.first_offset is None or head.next_offset is None:
        return []
    first_offset, next_offset = max(first_offset, head.first_offset), min(next_offset, head.next_offset)
    if first_offset >= next_offset:
        return []
    gone = {one.key for one in recent_tombstones(table, head)}
    holes = _holes_within(table, head, first_offset, next_offset, gone)
    gaps: list[Gap] = []
    while len(gaps) < len(holes):
        position = holes[len(gaps)].first_offset
        page = table.gaps(head.stream.incarnation, PAGE_GAPS, from_offset=position)[: len(holes) - len(gaps)]
        expected = holes[len(gaps) : len(gaps) + len(page)]
        if not page or [_offsets(gap) for gap in page] != [_offsets(hole) for hole in expected]:
            raise LostRaceError(f"the gaps from offset {position} on show half of a change")
        gaps += page
    return gaps


def _holes_within(
    table: ManifestTable, head: Head, first_offset: Offset, next_offset: Offset, gone: Collection[str]
) -> list[Gap]:
    """List the holes of a span, from the entry that ends after its first offset to the one that ends at its end.

    Raises LostRaceError if an entry shows that is gone, or none up to there.
    """
    holes: list[Gap] = []
    before: FragmentEntry | None = None
    for entry in iter_log(table, head.stream.incarnation, first_offset, PAGE_ENTRIES):
        check_not_gone(entry, gone)
        start = _start_of_hole(entry, first_offset) if before is None else before.next_offset
        if max(start, first_offset) < min(entry.first_offset, next_offset):
            holes.append(Gap(start, entry.first_offset))
        before = entry
        if entry.next_offset >= next_offset:
            return holes
    position = first_offset if before is None else before.next_offset
    raise LostRaceError(f"the tail is {head.next_offset}, but the log shows no entry after {position}")


def check_not_gone(entry: FragmentEntry, gone: Collection[str]) -> None:
    """Raise LostRaceError if the entry, as it was read, names an object that is gone: nothing names it again."""
    if entry.key in gone:
        raise LostRaceError(f"the log shows half of a change at offset {entry.first_offset}")


def _start_of_hole(entry: FragmentEntry, offset: Offset) -> Offset:
    """Return where the hole before an entry begins, or the entry's own start if it holds `offset`.

    The stream's first entry is at or before `offset`. Raises LostRaceError if the entry's link names an entry between
    the two, which did not show.
    """
    if entry.first_offset <= offset:
        return entry.first_offset
    if entry.prior_offset is None or entry.prior_offset > offset:
        raise LostRaceError(f"the log shows half of a change between offsets {offset} and {entry.first_offset}")
    return entry.prior_offset


def _offsets(gap: Gap) -> tuple[Offset, Offset]:
    return gap.first_offset, gap.next_offset
