"""Write down in the manifest what is missing and why, and give the gaps that it explains their reason."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.archive.bound import claim
from coldstream.archive.commit import read_missing
from coldstream.archive.lost import SegmentLost
from coldstream.errors import LostRaceError
from coldstream.manifest.commit import MAX_GAPS, check_neighbours, plan_missing
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Loss, Missing
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs

PAGE_ENTRIES = 100
PAGE_GAPS = 100


def record_loss(table: ManifestTable, lost: SegmentLost, now: Callable[[], TimestampMs]) -> None:
    """Write down a loss, unless losses that are written down cover it. Safe to repeat.

    Cost: that of `claim` and `record_missing`. Raises OtherClusterError when the stream is bound to another cluster
    than the one that says so.
    """
    claim(table, lost.stream, lost.cluster)
    record_missing(table, lost.stream, Loss(lost.first_offset, lost.next_offset, lost.reason, now()))


def record_missing(table: ManifestTable, stream: StreamId, new: Missing) -> None:
    """Write down what is missing, unless that is done. Safe to repeat.

    Cost: 2 requests; one Query more where anything else is missing, and two where the stream has gaps, or one for every
    100 entries and gaps within these offsets. More than a hundred gaps take more than one transaction.
    """
    position = new.first_offset

    def attempt() -> Offset:
        """Deal with the gaps from the position on, as many as one transaction takes; return where it got to."""
        head = table.head(stream.incarnation) or Head(stream)
        known = read_missing(table, head)
        gaps = _gaps_within(table, head, position, new.next_offset)
        is_all = position == new.first_offset and len(gaps) <= MAX_GAPS
        change = plan_missing(head, new, known, gaps[:MAX_GAPS], is_checked=is_all)
        if change is not None:
            table.apply(change)
        return gaps[MAX_GAPS].first_offset if len(gaps) > MAX_GAPS else new.next_offset

    while position < new.next_offset:
        position = retry_lost_races(attempt)


def _gaps_within(table: ManifestTable, head: Head, first_offset: Offset, next_offset: Offset) -> list[Gap]:
    """Read the gaps that overlap a span. Raises LostRaceError where what is read shows half of a change.

    Where entries are seen is no gap, for good; where none are seen there has to be a gap item of exactly that hole,
    which the change that is planned on it makes sure of.
    """
    if not head.gaps or head.first_offset is None or head.next_offset is None:
        return []
    first_offset, next_offset = max(first_offset, head.first_offset), min(next_offset, head.next_offset)
    if first_offset >= next_offset:
        return []
    holes = _holes_within(table, head, first_offset, next_offset)
    gaps: list[Gap] = []
    while len(gaps) < len(holes):
        position = holes[len(gaps)].first_offset
        page = table.gaps(head.stream.incarnation, PAGE_GAPS, from_offset=position)[: len(holes) - len(gaps)]
        expected = holes[len(gaps) : len(gaps) + len(page)]
        if not page or [_offsets(gap) for gap in page] != [_offsets(hole) for hole in expected]:
            raise LostRaceError(f"half of a change shows in the gaps from offset {position} on")
        gaps += page
    return gaps


def _holes_within(table: ManifestTable, head: Head, first_offset: Offset, next_offset: Offset) -> list[Gap]:
    """Walk the entries from the one that ends past the first offset to the one that ends at or past the next offset."""
    holes: list[Gap] = []
    before: FragmentEntry | None = None
    position = first_offset
    while position < next_offset:
        page = table.log_from_offset(head.stream.incarnation, position, PAGE_ENTRIES)
        for entry in page.entries:
            if before is None:
                start = _reaches(entry, first_offset)
            else:
                check_neighbours(before, entry)
                start = before.next_offset
            if max(start, first_offset) < min(entry.first_offset, next_offset):
                holes.append(Gap(start, entry.first_offset))
            before, position = entry, entry.next_offset
            if position >= next_offset:
                break
        else:
            if page.head is not None or not page.entries:
                raise LostRaceError(f"the tail is {head.next_offset}, and no entry past {position} shows")
    return holes


def _reaches(entry: FragmentEntry, offset: Offset) -> Offset:
    """Return where what is before an entry ends, at or before an offset that is not before the stream's first.

    Raises LostRaceError where its link says that it is not the first one past that.
    """
    if entry.first_offset <= offset:
        return entry.first_offset
    if entry.prior_offset is None or entry.prior_offset > offset:
        raise LostRaceError(f"half of a change shows between offsets {offset} and {entry.first_offset}")
    return entry.prior_offset


def _offsets(gap: Gap) -> tuple[Offset, Offset]:
    return gap.first_offset, gap.next_offset
