"""Repairs of items: pure plans of one transaction each, from the items of one moment.

Each is conditional on the revision of that moment, so what was planned on a state is only written to that state. Ranges
are given up by `manifest.repair.plan_range_removal`. None deletes an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.manifest.change import (
    Change,
    DeleteGap,
    DeleteTombstone,
    EntryVersion,
    PutGap,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    Write,
)
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Tombstone
from coldstream.manifest.repair import plan_items_repair
from coldstream.units import Offset, TimestampMs

Span = tuple[Offset, Offset]


def plan_relink(head: Head, before: FragmentEntry | None, entry: FragmentEntry, at: TimestampMs) -> Change:
    """Plan linking an entry to the one before it, None if it is the first."""
    prior_offset = None if before is None else before.next_offset
    prior_timestamp = None if before is None else before.running_timestamp
    running = entry.greatest_timestamp if prior_timestamp is None else max(prior_timestamp, entry.greatest_timestamp)
    write = Relink(EntryVersion.of(entry), prior_offset, prior_timestamp, running)
    return _repair(head, [write], at, "links", (entry.first_offset, entry.next_offset))


def plan_same_links(head: Head, entry: FragmentEntry, at: TimestampMs) -> Change:
    """Plan writing an entry's links as they are: that also writes its place in the index by time."""
    write = Relink(EntryVersion.of(entry), entry.prior_offset, entry.prior_timestamp, entry.running_timestamp)
    return _repair(head, [write], at, "place in the index by time", (entry.first_offset, entry.next_offset))


def plan_gap(head: Head, there: Gap | None, gap: Gap, at: TimestampMs) -> Change:
    """Plan the item of a gap, over the one that is there. The head's count of gaps stays: `totals_check` has that."""
    write = PutGap(gap) if there is None else ReplaceGap(there, gap)
    return _repair(head, [write], at, "gap", (gap.first_offset, gap.next_offset))


def plan_no_gap(head: Head, gap: Gap, at: TimestampMs) -> Change:
    """Plan deleting the item of a gap that is none."""
    return _repair(head, [DeleteGap(gap)], at, "gap that is no hole", (gap.first_offset, gap.next_offset))


def plan_head(corrected: Head, at: TimestampMs, what: str) -> Change:
    """Plan writing a corrected head; `corrected` still has the revision that was read."""
    return plan_items_repair(corrected, corrected, (), at, what)


def plan_no_tombstone(head: Head, tombstone: Tombstone, at: TimestampMs) -> Change:
    """Plan deleting the tombstone of an object that an entry names."""
    span = tombstone.first_offset, tombstone.next_offset
    return _repair(head, [DeleteTombstone(tombstone)], at, "tombstone of an object that an entry names", span)


def plan_entry(head: Head, before: FragmentEntry, entry: FragmentEntry, at: TimestampMs, detail: str) -> Change:
    """Plan another entry for the same object and the same next offset.

    The head's totals stay: an item was damaged, and the head was not made from that. `totals_check` finds it if it was.
    """
    write = ReplaceEntry(EntryVersion.of(before), entry)
    return _repair(head, [write], at, detail, (entry.first_offset, entry.next_offset))


def _repair(head: Head, writes: Sequence[Write], at: TimestampMs, detail: str, span: Span) -> Change:
    """Plan writes beside an unchanged head. The event names the offsets, so that accounts know what was touched."""
    change = plan_items_repair(head, head, writes, at, detail)
    return replace(change, event=replace(change.event, first_offset=span[0], next_offset=span[1]))
