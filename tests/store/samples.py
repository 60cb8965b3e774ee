"""Entries, and a commit of them, for the tests of the manifest's tables."""

from __future__ import annotations

from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import FragmentEntry, Head, LastUserChunk
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestTable
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

ORDERS = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NOW = TimestampMs(1_763_700_000_123)


def entry(
    first: int, following: int, *, time: int = 1000, last_user_chunk: LastUserChunk | None = None
) -> FragmentEntry:
    """An entry all of whose chunks are of one time."""
    point = SparsePoint(ChunkId(first), 0, 8, TimestampMs(time), TimestampMs(time))
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(following),
        first_timestamp=TimestampMs(time),
        last_timestamp=TimestampMs(time),
        greatest_timestamp=TimestampMs(time),
        epoch=Epoch(3),
        chunks=2,
        records=following - first,
        messages=following - first - 1,
        data_bytes=1000,
        object_bytes=1082,
        key=f"data/{first:020}.fragment",
        crc32=0xFFFF_FFFF,
        sparse=SparseIndex((point,)),
        last_user_chunk=last_user_chunk,
        segment_offset=Offset(first),
    )


def commit(table: ManifestTable, new: FragmentEntry, stream: StreamId = ORDERS) -> FragmentEntry:
    """Add an entry to a stream of at most 100, and return it as it was written."""
    life = stream.incarnation
    before = next(iter(table.log_before(life, new.first_offset, 1)), None)
    change = plan_commit(
        Neighbourhood(
            head=table.head(life) or Head(stream),
            before=before,
            after=table.log_from_offset(life, new.first_offset, 100).entries,
        ),
        new,
        NOW,
    )
    table.apply(change)
    assert change.new_entry is not None
    return change.new_entry
