"""Add an entry to the manifest: read around it, plan, write, and begin again while others get in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.errors import LostRaceError
from coldstream.manifest.commit import (
    Neighbourhood,
    after_raise,
    is_append,
    is_settled,
    makes_gap,
    plan_commit,
)
from coldstream.manifest.entry import FragmentEntry, Head, Missing, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs

PAGE_ENTRIES = 16


def commit_fragment(
    table: ManifestTable, stream: StreamId, entry: FragmentEntry, now: Callable[[], TimestampMs]
) -> bool:
    """Commit an entry; return False when the manifest holds its offsets already. Cost: 2 requests, when nobody is near.

    Raises LostRaceError when others kept getting in between, OverlapError at once when entries hold a part of its
    offsets only: those are to be cut out of it first.
    """

    def attempt() -> bool:
        around = read_neighbourhood(table, stream, entry)
        overlapping = [other for other in around.after if other.first_offset < entry.next_offset]
        if overlapping:
            coverage = read_coverage(table, stream.incarnation, entry.first_offset, entry.next_offset)
            # Either may show half of a change. What an entry was ever seen to hold is archived: both count.
            held = Coverage(tuple(sorted([*overlapping, *coverage.entries], key=attrgetter("first_offset"))))
            if held.holds(entry.first_offset, entry.next_offset):
                return False
        while True:
            change = plan_commit(around, entry, now())
            table.apply(change)
            if change.put_entry is not None:
                return True
            around = after_raise(around, change)

    return retry_lost_races(attempt)


def read_neighbourhood(table: ManifestTable, stream: StreamId, entry: FragmentEntry) -> Neighbourhood:
    """Read what a commit of `entry` has to know.

    Cost: one GetItem, and two requests more unless it is an append; one more where it leaves a gap beside it and
    anything of the stream is known to be missing.

    What is read may be half of a change of others. The plan sees where it contradicts itself; what does not, and is no
    longer so, the conditions of the change refuse.
    """
    incarnation = stream.incarnation
    head = table.head(incarnation) or Head(stream)
    if is_append(head, entry):
        return _with_missing(table, Neighbourhood(head), entry)
    after: list[FragmentEntry] = []
    position = entry.first_offset
    while True:
        page = table.log_from_offset(incarnation, position, PAGE_ENTRIES)
        after.extend(page.entries)
        if page.head is not None or not page.entries or is_settled(page.entries[-1], entry):
            break
        position = page.entries[-1].next_offset
    before = next(iter(table.log_before(incarnation, entry.first_offset, 1)), None)
    return _with_missing(table, Neighbourhood(head, before, after), entry)


def read_missing(table: ManifestTable, head: Head) -> tuple[Missing, ...]:
    """Read what is known to be missing. Cost: nothing where nothing is, else one Query a page of thousands.

    Raises LostRaceError unless it is all that the head counts.
    """
    if not head.losses and not head.quarantined:
        return ()
    missing = tuple(table.missing(head.stream.incarnation))
    quarantined = [one for one in missing if isinstance(one, Quarantine)]
    again = sum(one.copies - 1 for one in quarantined)
    counted = len(missing) - len(quarantined), len(quarantined), again
    if counted != (head.losses, head.quarantined, head.quarantined_again):
        raise LostRaceError(f"half of a change shows in what is missing of {head.stream}")
    return missing


def _with_missing(table: ManifestTable, around: Neighbourhood, entry: FragmentEntry) -> Neighbourhood:
    return replace(around, missing=read_missing(table, around.head)) if makes_gap(around, entry) else around
