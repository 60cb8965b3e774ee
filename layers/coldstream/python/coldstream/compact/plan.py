"""The groups of a stream that are worth compacting, read from the manifest as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.groups import CompactionPolicy, Group, plan_groups
from coldstream.manifest.holding import held
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset


def find_groups(
    table: ManifestReads,
    incarnation: Incarnation,
    policy: CompactionPolicy,
    offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
) -> Iterator[Group]:
    """Yield the groups that are worth compacting. Cost: that of `iter_settled`; a GetItem, and a Query if it has holds.

    They begin at the fragment that holds `offset`: for a run that goes on where another has ended.

    None of a deleted stream, and none of what a hold protects: compaction removes objects. Groups may be committed
    while this goes on: a group is yielded once the log has been read past it. Raises LostRaceError if a hold is put or
    released meanwhile.
    """
    head = table.head(incarnation)
    if head is None or head.is_deleted:
        return
    holds = read_holds(table, head)
    free = (
        entry
        for entry in iter_settled(table, incarnation, offset)
        if held(holds, entry.first_offset, entry.next_offset) is None
    )
    yield from plan_groups(free, policy)


def iter_settled(
    table: ManifestReads,
    incarnation: Incarnation,
    offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
) -> Iterator[FragmentEntry]:
    """Yield the entries of a log from an offset on, without those that an unfinished compaction is about to remove.

    Cost: a GetItem, a Query if a compaction is unfinished, and a Query every 1,000 entries.
    """
    head = table.head(incarnation)
    if head is None:
        return
    merged = _unfinished(table, head)
    for entry in iter_log(table, incarnation, offset):
        # What lies within the merged entry is merged already. As part of a group, it would be archived twice.
        if merged is None or not merged.first_offset <= entry.first_offset < entry.next_offset < merged.next_offset:
            yield entry


def _unfinished(table: ManifestReads, head: Head) -> FragmentEntry | None:
    """Return the merged entry of the compaction that the head says is not finished."""
    if head.compacting is None:
        return None
    entries = table.log_from_offset(head.stream.incarnation, Offset(head.compacting - 1), 1).entries
    return next((entry for entry in entries if entry.next_offset == head.compacting), None)
