"""Write down in the manifest what is missing and why, and give the gaps that it explains their reason."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.archive.bound import claim
from coldstream.archive.commit import persist, read_missing
from coldstream.archive.lost import SegmentLost
from coldstream.manifest.commit import MAX_GAPS, plan_missing
from coldstream.manifest.entry import Gap, Head, Loss, Missing
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs

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

    Cost: 2 requests; where the stream has gaps, or anything else is missing, one Query more for each of the two. Many
    gaps take more than one transaction.
    """

    def attempt() -> bool:
        # The head is read first: what comes after that raises its revision, and this change is refused.
        head = table.head(stream.incarnation) or Head(stream)
        known = read_missing(table, head)
        change = plan_missing(head, new, known, _overlapping_gaps(table, head, new))
        if change is None:
            return True
        table.apply(change)
        return len(change.put_gaps) < MAX_GAPS

    while not persist(attempt):
        pass


def _overlapping_gaps(table: ManifestTable, head: Head, new: Missing) -> list[Gap]:
    gaps: list[Gap] = []
    position = new.next_offset
    while head.gaps:
        page = table.gaps_before(head.stream.incarnation, position, PAGE_GAPS)
        gaps.extend(gap for gap in page if gap.next_offset > new.first_offset)
        if not page or page[-1].first_offset <= new.first_offset:
            break
        position = page[-1].first_offset
    return gaps
