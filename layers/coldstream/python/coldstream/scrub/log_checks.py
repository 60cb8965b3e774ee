"""Neighbours of the log, and the gaps between them: pure, on values of one moment.

What is called *of one moment* was read by `ManifestReads.items_at_once`. On values of several moments the same
functions give suspicions, which may be nothing but a change half seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldstream.manifest.entry import FragmentEntry, Gap, Head, Missing
from coldstream.manifest.missing import with_reason
from coldstream.scrub.damage import Damage
from coldstream.scrub.trouble import Trouble, differs


def entry_troubles(head: Head, entry: FragmentEntry) -> Iterator[Trouble]:
    """Yield what contradicts the head in one entry."""
    if entry.first_offset < head.floor:
        yield Trouble.of(Damage.BELOW_FLOOR, entry, f"the floor is {head.floor}")
    if head.greatest_timestamp is not None and (entry.prior_timestamp or 0) > head.greatest_timestamp:
        detail = differs("prior timestamp", expected=f"at most {head.greatest_timestamp}", found=entry.prior_timestamp)
        yield Trouble.of(Damage.RUNNING_TIMESTAMP, entry, detail)


def pair_troubles(head: Head, before: FragmentEntry, entry: FragmentEntry, gap: Gap | None) -> Iterator[Trouble]:
    """Yield what is wrong between an entry and the nearest before it that does not lie within it.

    `gap` is the gap that begins where `before` ends. If another entry lies between the two, they are no neighbours:
    see `link_target`.
    """
    if entry.first_offset < before.next_offset:
        if head.compacting != entry.next_offset or before.first_offset < entry.first_offset:
            yield Trouble.of(
                Damage.OVERLAP, entry, f"it begins before offset {before.next_offset}, where the entry before it ends"
            )
        return
    if entry.prior_offset != before.next_offset:
        detail = differs("the link to the entry before", expected=before.next_offset, found=entry.prior_offset)
        yield Trouble.of(Damage.LINK, entry, detail)
    if entry.prior_timestamp is None or entry.prior_timestamp < before.running_timestamp:
        detail = differs(
            "prior timestamp", expected=f"at least {before.running_timestamp}", found=entry.prior_timestamp
        )
        yield Trouble.of(Damage.RUNNING_TIMESTAMP, entry, detail)
    hole = Gap(before.next_offset, entry.first_offset)
    if hole.first_offset < hole.next_offset and (gap is None or gap.next_offset != hole.next_offset):
        found = "no gap" if gap is None else f"a gap up to {gap.next_offset}"
        yield Trouble(Damage.GAP_MISSING, f"{found} is recorded for this hole", hole.first_offset, hole.next_offset)


def first_troubles(head: Head, first: FragmentEntry) -> Iterator[Trouble]:
    """Yield what is wrong with the first entry of the log."""
    if first.prior_offset is not None:
        detail = differs("the link of the first entry", expected=None, found=first.prior_offset)
        yield Trouble.of(Damage.LINK, first, detail)
    if (head.first_offset, head.first_timestamp) != (first.first_offset, first.first_timestamp):
        yield Trouble.of(
            Damage.HEAD_BOUNDS,
            first,
            differs(
                "the head's first offset and its time",
                expected=(first.first_offset, first.first_timestamp),
                found=(head.first_offset, head.first_timestamp),
            ),
        )


def last_troubles(head: Head, last: FragmentEntry) -> Iterator[Trouble]:
    """Yield what is wrong with the last entry of the log."""
    if head.next_offset != last.next_offset:
        detail = differs("the tail in the head", expected=last.next_offset, found=head.next_offset)
        yield Trouble.of(Damage.HEAD_BOUNDS, last, detail)
    elif head.greatest_timestamp is None or head.greatest_timestamp < last.running_timestamp:
        detail = differs(
            "the head's greatest timestamp",
            expected=f"at least {last.running_timestamp}",
            found=head.greatest_timestamp,
        )
        yield Trouble.of(Damage.HEAD_BOUNDS, last, detail)


def empty_troubles(head: Head) -> Iterator[Trouble]:
    """Yield what is wrong with the head of a log without entries."""
    if head.first_offset is not None:
        detail = differs("the first offset of an empty log", expected=None, found=head.first_offset)
        yield Trouble(Damage.HEAD_BOUNDS, detail)


def stray_gap_troubles(gap: Gap, following: FragmentEntry | None) -> Iterator[Trouble]:
    """Yield what is wrong with a gap; `following` is the first entry that ends after its first offset.

    A gap that begins where a hole does, and ends elsewhere, is `pair_troubles`'s to find.
    """
    is_hole = (
        following is not None
        and gap.first_offset < following.first_offset
        and following.prior_offset == gap.first_offset
    )
    if not is_hole:
        detail = f"a gap from {gap.first_offset} to {gap.next_offset}, and the log has no such hole"
        yield Trouble(Damage.GAP_EXTRA, detail, gap.first_offset, gap.next_offset)


def reason_troubles(gap: Gap, missing: Sequence[Missing]) -> Iterator[Trouble]:
    """Yield whether a gap's reason is not the one that follows from everything that is missing."""
    expected = with_reason(Gap(gap.first_offset, gap.next_offset), missing)
    if expected.reason != gap.reason:
        detail = differs("its reason", expected=expected.reason, found=gap.reason)
        yield Trouble(Damage.GAP_REASON, detail, gap.first_offset, gap.next_offset)
