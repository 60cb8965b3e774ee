"""The commit of one entry to the manifest: read around it, plan, write, and start over if another writer was first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.manifest.commit import (
    Neighbourhood,
    after_raise,
    is_append,
    is_settled,
    makes_gap,
    plan_commit,
)
from coldstream.manifest.entry import FragmentEntry, Head, Missing
from coldstream.manifest.missing import check_all_missing
from coldstream.manifest.stream import StreamId
from coldstream.store.log import iter_pages
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs

PAGE_ENTRIES = 16
"""Successors of a late entry that one Query reads. Usually the second is settled already, and more would be wasted."""


def commit_fragment(
    table: ManifestTable,
    stream: StreamId,
    entry: FragmentEntry,
    now: Callable[[], TimestampMs],
    head: Head | None = None,
) -> bool:
    """Commit an entry, or return False if the manifest holds its offsets. Cost: 2 requests if it is appended.

    A caller that has just read the head may give it, which saves one: if it has changed, the head is read again.

    Raises LostRaceError if other writers kept being first, and OverlapError at once if the manifest holds some of the
    offsets but not all: the caller must cut those out first.
    """
    heads = iter((head,))  # for one attempt only: on a head that lost the race, every other would lose as well

    def attempt() -> bool:
        around = read_neighbourhood(table, stream, entry, next(heads, None))
        overlapping = [other for other in around.after if other.first_offset < entry.next_offset]
        if overlapping:
            coverage = read_coverage(table, stream.incarnation, entry.first_offset, entry.next_offset)
            # Each of the two reads may show half of a change. Offsets seen in either are archived for good, so both
            # count; judging by one alone could report an overlap that a compaction in progress only seems to leave.
            entries = sorted([*overlapping, *coverage.entries], key=attrgetter("first_offset"))
            if Coverage(tuple(entries)).holds(entry.first_offset, entry.next_offset):
                return False
        while True:
            change = plan_commit(around, entry, now())
            table.apply(change)
            if change.new_entry is not None:
                return True
            # That change only raised the timestamps of successors. No new read is needed: it passed, so `around` was
            # what the manifest held, and the entry is planned on what the change left.
            around = after_raise(around, change)

    return retry_lost_races(attempt)


def read_neighbourhood(
    table: ManifestTable, stream: StreamId, entry: FragmentEntry, head: Head | None = None
) -> Neighbourhood:
    """Read what a commit of `entry` must know; `head` is the stream's, if it was just read.

    Cost: one GetItem unless there is a head, and two more requests unless it is an append. One more if it leaves a gap
    beside it and some of the stream is known to be missing.

    These reads may show half of another writer's change. The plan detects a view that contradicts itself. A view that
    is consistent but out of date fails the conditions of the change.
    """
    incarnation = stream.incarnation
    head = head or table.head(incarnation) or Head(stream)
    if is_append(head, entry):
        return _with_missing(table, Neighbourhood(head), entry)
    after: list[FragmentEntry] = []
    for page in iter_pages(table, incarnation, entry.first_offset, PAGE_ENTRIES):
        after.extend(page.entries)
        if page.entries and is_settled(page.entries[-1], entry):
            break
    before = next(iter(table.log_before(incarnation, entry.first_offset, 1)), None)
    return _with_missing(table, Neighbourhood(head, before, after), entry)


def read_missing(table: ManifestTable, head: Head) -> tuple[Missing, ...]:
    """Read what is known to be missing. Cost: nothing if the head counts none, else one Query a page of thousands.

    Raises LostRaceError unless the counts are the head's.
    """
    if not head.losses and not head.quarantined:
        return ()
    missing = tuple(table.missing(head.stream.incarnation))
    check_all_missing(head, missing)
    return missing


def _with_missing(table: ManifestTable, around: Neighbourhood, entry: FragmentEntry) -> Neighbourhood:
    return replace(around, missing=read_missing(table, around.head)) if makes_gap(around, entry) else around
