"""How far the archive has a partition."""

from __future__ import annotations

import re

from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs

TOLERANCE_MS = 300_000
"""How far the broker's clock, whose time is in an incarnation, may be behind that of the map."""

_PAGE = 100
_FIRST = Offset(0)
_DECLARED = re.compile(r"_(?P<ns>[0-9]{16,20})$")


def may_be_of(found: Incarnation, since: TimestampMs) -> bool:
    """Tell whether an incarnation may have been declared since a time; one whose name does not tell may."""
    match = _DECLARED.search(found)
    return match is None or int(match["ns"]) // 1_000_000 >= since - TOLERANCE_MS


def archived_stream(table: ManifestReads, found: ShardMap, number: int) -> StreamId | None:
    """Return the incarnation in which a partition is archived, None if it is not. Cost: a Query, unless it is known."""
    one = found.partitions[number]
    incarnation = one.incarnation or table.incarnation_of(found.vhost, one.name)
    # The newest in the archive may be that of an earlier partition of this name.
    earlier = {other.incarnation for other in found.partitions if other.number != number and other.name == one.name}
    if incarnation is None or incarnation in earlier:
        return None
    version = next(version for version in found.versions if number in version.partitions)
    # Version 1 may be of streams that were there long before it.
    if one.incarnation is None and version.version > 1 and not may_be_of(incarnation, version.since):
        return None
    return StreamId(found.vhost, one.name, incarnation)


def archived_end(table: ManifestReads, found: ShardMap, number: int) -> Offset:
    """Return the offset up to which a partition is archived, 0 if it is not. Cost: a Query and a GetItem."""
    stream = archived_stream(table, found, number)
    head = None if stream is None else table.head(stream.incarnation)
    if head is None or head.is_deleted or head.next_offset is None:
        return Offset(0)
    return head.next_offset


def unexplained_gap(
    table: ManifestReads, stream: StreamId, *, start: Offset = _FIRST, end: Offset | None = None
) -> Gap | None:
    """Return the first gap of an archive between two offsets that no loss explains, None if there is none.

    So what the broker may still have. Offsets before the first archived one are none: retention takes them first. Cost:
    a GetItem, and a Query for each 100 gaps.
    """
    head = table.head(stream.incarnation)
    if head is None or not head.gaps:
        return None
    at = Offset(0)
    while gaps := table.gaps(stream.incarnation, _PAGE, from_offset=at):
        for gap in gaps:
            if end is not None and gap.first_offset >= end:
                return None
            if gap.reason is None and gap.next_offset > start:
                return gap
        at = Offset(gaps[-1].first_offset + 1)
    return None
