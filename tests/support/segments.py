"""Synthetic streams on disk, and the archive that their segments go into."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter, make_sub_batch
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ByteRange, Epoch, Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
START = TimestampMs(1_763_700_000_000)


def write_stream(
    directory: Path,
    *,
    chunks: int = 300,
    max_segment_bytes: int = 100_000,
    seed: int = 1,
    timestamps: Sequence[int] | None = None,
) -> int:
    """Write a stream of mixed chunks, and return the offset after its last; the newest segment is the active one."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    with SegmentWriter(directory, max_segment_bytes=max_segment_bytes) as writer:
        now = START
        for number in range(chunks):
            now = TimestampMs(timestamps[number] if timestamps is not None else now + rng.randrange(0, 30))
            tracking = []
            if rng.random() < 0.1:
                tracking = [TrackingRecord(TrackingType.OFFSET, b"consumer", writer.next_offset)]
            entries: list[bytes | SubBatch] = []
            if rng.random() < 0.95:
                entries = [rng.randbytes(rng.randrange(0, 600)) for _ in range(rng.randrange(1, 12))]
            if rng.random() < 0.2:
                batch = [rng.randbytes(20) * 3 for _ in range(rng.randrange(1, 30))]
                entries.append(make_sub_batch(batch, rng.choice(list(Compression))))
            if entries or tracking:
                writer.write(entries, timestamp=now, epoch=Epoch(1 + number // 100), tracking=tracking)
        return writer.next_offset


class MemoryArchive:
    """An archive in memory, of one stream."""

    def __init__(
        self, fragment_bytes: int = 20_000, stream: StreamId = STREAM, *, zstd_level: int | None = None
    ) -> None:
        self.table = MemoryTable()
        self.objects = MemoryObjects()
        self.keys = Keys("archive/")
        self.stream = stream
        self.uploader = Uploader(
            self.table, self.objects, self.keys, fragment_bytes, zstd_level=zstd_level, now=lambda: START
        )

    def stage(self, directory: Path) -> list[SegmentRolled]:
        """Stage every rolled segment of a stream directory; return what to announce."""
        return [stage(segment, self.stream, self.objects, self.keys) for segment in find_rolled(directory)]

    def announce(self, directory: Path) -> list[SegmentRolled]:
        """Stage and upload every rolled segment."""
        segments = self.stage(directory)
        for segment in segments:
            self.uploader.upload(segment)
        return segments

    def use(self, *, table: MemoryTable | None = None, objects: MemoryObjects | None = None) -> None:
        """Go on with another table, or other objects."""
        self.table = table or self.table
        self.objects = objects or self.objects
        self.uploader = replace(self.uploader, table=self.table, objects=self.objects)

    def log(self) -> tuple[FragmentEntry, ...]:
        """Return every entry of the log."""
        return self.table.log_from_offset(self.stream.incarnation, Offset(0), 10_000).entries

    def body(self, key: str) -> bytes:
        """Return the bytes of an object."""
        return self.objects.get_range(key, ByteRange(0, 1 << 32)).data

    def state(self) -> tuple[object, ...]:
        """Return what must not depend on how the archive came about: log, gaps, totals, and the objects."""
        head = self.table.head(self.stream.incarnation)
        assert head is not None
        totals = (head.first_offset, head.next_offset, head.fragments, head.records, head.data_bytes, head.gaps)
        gaps = self.table.gaps(self.stream.incarnation, 1000)
        return self.log(), gaps, totals, {entry.key: self.body(entry.key) for entry in self.log()}
