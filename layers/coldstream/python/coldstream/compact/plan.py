"""The groups of a stream's log, read as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.groups import Group, Policy, plan_groups
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset

PAGE_ENTRIES = 1000
"""Read of the manifest at a time: about 1 MB, where DynamoDB ends a page."""


def groups_of(table: ManifestReads, incarnation: Incarnation, policy: Policy) -> Iterator[Group]:
    """Yield the groups that are worth compacting. Cost: that of `walk`.

    Groups may be committed while the walk goes on: it is past them.
    """
    return plan_groups(walk(table, incarnation), policy)


def walk(table: ManifestReads, incarnation: Incarnation) -> Iterator[FragmentEntry]:
    """Yield the entries of a log in order, without those that an unfinished compaction is about to remove.

    Cost: one GetItem, one more Query where there is such a one, and one Query every 1,000 entries.
    """
    head = table.head(incarnation)
    if head is None:
        return
    merged = _unfinished(table, head)
    position = Offset(0)
    while True:
        page = table.log_from_offset(incarnation, position, PAGE_ENTRIES)
        for entry in page.entries:
            if merged is None or not merged.first_offset <= entry.first_offset < entry.next_offset < merged.next_offset:
                yield entry
        if page.head is not None or not page.entries:
            return
        position = page.entries[-1].next_offset


def _unfinished(table: ManifestReads, head: Head) -> FragmentEntry | None:
    if head.compacting is None:
        return None
    entries = table.log_from_offset(head.stream.incarnation, Offset(head.compacting - 1), 1).entries
    return next((entry for entry in entries if entry.next_offset == head.compacting), None)
