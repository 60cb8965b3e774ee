"""The stream of all worlds, and what its archive holds at first.

Eight chunks of two messages, in two segments; a fragment has two chunks. The first segment is archived: offsets 0 to 8.
An upload of the second died, and left its first object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.format.chunk import ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import make_chunk
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.grace import grace_ms
from coldstream.store.keys import Keys
from coldstream.store.memory.bucket import Version
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.explore.bucket_store import BucketState

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
INCARNATION = STREAM.incarnation
KEYS = Keys("archive/")
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
START = 1_763_700_000_000
NOW = TimestampMs(START + 100 * DAY_MS)
URL_EXPIRY_S = 3600
GRACE_MS = grace_ms(URL_EXPIRY_S)
HOST_AHEAD_MS = HOUR_MS
FRAGMENT_BYTES = 200
MESSAGES = 2
"""A chunk's. Two chunks make a fragment, four a segment."""

SECOND = 8
"""The first offset of the second segment."""

ERASED = range(3, 5)
"""The offsets of messages that the erasure takes: the last of one fragment, and the first of the next."""


@dataclass(frozen=True)
class WholeChunk:
    """A chunk of the stream, with all of its bytes."""

    header: ChunkHeader
    data: bytes


def secret(offset: int, epoch: int = 1) -> bytes:
    """Return the message at an offset; in another epoch it is of another history."""
    return f"what {'alice' if epoch == 1 else 'carol'} said at {offset:04}".encode()


@cache
def chunks(epoch: int = 1) -> tuple[WholeChunk, ...]:
    """Make the stream: eight chunks of two messages, five days apart; once the clock ran backwards."""
    made = []
    for number, days in enumerate((0, 5, 3, 15, 20, 25, 30, 35)):
        first = number * MESSAGES
        header, data = make_chunk(
            [secret(offset, epoch) for offset in range(first, first + MESSAGES)],
            chunk_id=ChunkId(first),
            timestamp=TimestampMs(START + days * DAY_MS),
            epoch=Epoch(epoch),
        )
        made.append(WholeChunk(header, data))
    return tuple(made)


def segment(first: int, following: int, *, epoch: int = 1) -> bytes:
    """Make the slice of these offsets; of another epoch, it is of another history."""
    return SEGMENT_HEADER + b"".join(one.data for one in chunks(epoch) if first <= one.header.chunk_id < following)


@dataclass
class Base:
    """The stores before anybody acts."""

    table: MemoryTable = field(default_factory=MemoryTable)
    objects: MemoryObjects = field(default_factory=lambda: MemoryObjects(clock=lambda: NOW))

    def stage(
        self, first: int, following: int, *, data: bytes | None = None, cluster: Cluster = NO_CLUSTER
    ) -> SegmentRolled:
        """Stage a slice, and return its event."""
        data = segment(first, following) if data is None else data
        key = replace(KEYS, cluster=cluster).staged(INCARNATION, Offset(first), Offset(following))
        self.objects._write(key, data)
        info = self.objects.info(key)
        assert info is not None
        return SegmentRolled(
            *(STREAM, Offset(first), Offset(following), len(data), self.objects.bucket, key),
            etag=info.etag,
            cluster=cluster,
        )

    def archive(self, *spans: tuple[int, int]) -> Base:
        """Archive slices, one after the other."""
        for span in spans:
            Uploader(self.table, self.objects, KEYS, FRAGMENT_BYTES, now=lambda: NOW).upload(self.stage(*span))
        return self

    def leave_object(self, first: int, found: Version) -> None:
        """Have an upload that died leave an object."""
        self.objects._write(KEYS.fragment(INCARNATION, Offset(first)), found.data or b"", note=found.note)

    @property
    def bucket(self) -> BucketState:
        """Return what the bucket holds."""
        return BucketState({key: self.objects._version(key) for key in sorted(self.objects.objects)})


@cache
def _orphan() -> Version:
    return Base().archive((0, 8), (8, 16)).objects._version(KEYS.fragment(INCARNATION, Offset(8)))


def archived(spans: Sequence[tuple[int, int]] = ((0, 8),), *, orphan: bool = True) -> Base:
    """Return an archive of some slices, with the object that an upload left."""
    base = Base().archive(*spans)
    if orphan:
        base.leave_object(8, _orphan())
    return base
