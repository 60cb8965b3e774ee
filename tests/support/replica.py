"""One replica of a stream on this disk, and its cluster, which may go another way: lost leaders, new replicas.

The cluster's log is what is committed. The replica's files are written, truncated and deleted as osiris does it
(osiris_log:truncate_to/4, eval_max_bytes/3, delete_directory/1), which is not always the oldest first.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkHeader, ChunkType
from coldstream.format.segment import SEGMENT_HEADER, file_name
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import make_chunk
from coldstream.manifest.spec import AtEnd, AtOffset, OffsetSpec
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

START = TimestampMs(1_763_700_000_000)
NOTHING = memoryview(b"")
_DECLARED = itertools.count(1_763_700_000_000_000_000)


@dataclass(frozen=True, slots=True)
class Written:
    """A chunk, and its bytes."""

    header: ChunkHeader
    raw: bytes


class SegmentOnDisk:
    """A segment file, and the chunks in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Written] = []
        path.write_bytes(SEGMENT_HEADER)

    @property
    def size_bytes(self) -> int:
        return len(SEGMENT_HEADER) + sum(len(chunk.raw) for chunk in self.chunks)

    def append(self, chunk: Written) -> None:
        with self.path.open("ab") as file:
            file.write(chunk.raw)
        self.chunks.append(chunk)

    def truncate(self, chunks: int) -> None:
        """Keep the first so many chunks, in the same file."""
        del self.chunks[chunks:]
        with self.path.open("r+b") as file:
            file.truncate(self.size_bytes)


class Replica:
    """Implements `BrokerProver` by what the cluster has committed; `alone` are chunks of this replica only."""

    def __init__(self, data: Path, name: str = "orders", *, max_segment_bytes: int = 2_000, seed: int = 0) -> None:
        self.vhost, self.name = "/", name
        self.incarnation = f"__{name}_{next(_DECLARED)}"
        self.directory = data / self.incarnation
        self.directory.mkdir(parents=True)
        self.max_segment_bytes = max_segment_bytes
        self.rng = random.Random(seed)
        self.now = START
        self.epoch = 1
        self.log: list[Written] = []
        self.alone: list[Written] = []
        self.kept_from = Offset(0)
        self.on_disk: list[SegmentOnDisk] = []
        self.is_down = self.is_deleted = False

    @property
    def segments(self) -> list[Path]:
        return [segment.path for segment in self.on_disk]

    @property
    def next_offset(self) -> Offset:
        """The end of what is committed."""
        return self.log[-1].header.next_offset if self.log else Offset(0)

    def publish(self, chunks: int, *, messages: int = 3, size: int = 100, step_ms: int = 10) -> None:
        """Write chunks that are committed at once."""
        for _ in range(chunks):
            self.log.append(self._make(self.next_offset, messages, size, step_ms))
        self._replicate()

    def track(self) -> None:
        """Write a tracking chunk, committed at once."""
        records = TrackingRecord(TrackingType.OFFSET, b"consumer", int(self.next_offset)).to_bytes()
        self.log.append(self._written([records], self.next_offset, ChunkType.TRACKING_DELTA))
        self._replicate()

    def publish_alone(self, chunks: int, *, messages: int = 3, size: int = 100) -> None:
        """Write chunks as a leader whose followers are away."""
        for _ in range(chunks):
            end = self.alone[-1].header.next_offset if self.alone else self.next_offset
            self.alone.append(self._make(end, messages, size, 10))
            self._append(self.alone[-1])

    def commit(self) -> None:
        """Have the followers come back: the chunks that only this replica has are committed."""
        self.log += self.alone
        self.alone = []

    def lose_leader(self, chunks: int = 0, *, messages: int = 3, size: int = 100) -> None:
        """Elect another leader, which writes chunks of its own. This replica does not know of it yet."""
        self.epoch += 1
        for _ in range(chunks):
            self.log.append(self._make(self.next_offset, messages, size, 10))

    def truncate(self) -> None:
        """Cut off, in place, what the cluster does not have, delete the segments after it, and replicate the rest."""
        committed = {chunk.header for chunk in self.log}
        self.alone = []
        for number, segment in enumerate(self.on_disk):
            kept = sum(chunk.header in committed for chunk in segment.chunks)
            if kept < len(segment.chunks):
                # Osiris cuts after the last common chunk. If that ends a segment, the next one is deleted as a whole.
                remaining = number + (kept > 0 or number == 0)
                if remaining > number:
                    segment.truncate(kept)
                for later in self.on_disk[remaining:]:
                    later.path.unlink()
                del self.on_disk[remaining:]
                break
        self._replicate()

    def expendable(self, segments: int) -> list[Path]:
        """Return what retention would delete to keep so many segments, in the order in which osiris deletes it."""
        return list(reversed(self.segments[:-segments]))

    def delete_file(self, path: Path) -> None:
        """Delete a file as retention does."""
        path.unlink()
        self.on_disk = [segment for segment in self.on_disk if segment.path != path]
        first = next((chunk for segment in self.on_disk for chunk in segment.chunks), None)
        self.kept_from = max(self.kept_from, Offset(first.header.chunk_id) if first is not None else self.next_offset)

    def retain(self, segments: int) -> None:
        """Keep the newest segments."""
        for path in self.expendable(segments):
            self.delete_file(path)

    def make_anew(self) -> None:
        """Delete every file, and replicate again what the cluster still has."""
        for path in self.segments:
            path.unlink()
        self.on_disk = []
        self.alone = []
        self._replicate()

    def remove(self) -> None:
        """Delete this replica: the cluster still has the stream."""
        for path in self.rng.sample(self.segments, len(self.segments)):
            path.unlink()
        self.directory.rmdir()
        self.on_disk = []

    def delete(self) -> None:
        """Delete the stream."""
        self.remove()
        self.is_deleted = True

    async def login(self) -> None:
        pass

    async def members(self, vhost: str, name: str) -> int:
        return 1

    async def place(self, vhost: str, name: str) -> int:
        return 0

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        if self.is_down:
            raise UnavailableError("the broker is down")
        if self.is_deleted or (vhost, name) != (self.vhost, self.name):
            raise StreamNotFoundError(name)
        given = (
            chunk
            for chunk in self.log
            if chunk.header.chunk_id >= self.kept_from and chunk.header.type is ChunkType.USER
        )
        match spec:
            case AtOffset(offset):
                found = next((chunk for chunk in given if chunk.header.next_offset > offset), None)
            case AtEnd("first"):
                found = next(given, None)
            case _:
                raise NotImplementedError(spec)
        if found is None:
            return None
        return Chunk(found.header, 0, NOTHING, memoryview(found.raw)[CHUNK_HEADER_BYTES:], NOTHING)

    def _replicate(self) -> None:
        """Write the chunks that the cluster has and this replica has not."""
        if self.is_deleted or self.alone:
            return
        here = [chunk.header.next_offset for segment in self.on_disk for chunk in segment.chunks]
        start = max(here, default=self.kept_from)
        for chunk in self.log:
            if chunk.header.chunk_id >= start:
                self._append(chunk)

    def _append(self, chunk: Written) -> None:
        if not self.on_disk or self.on_disk[-1].size_bytes >= self.max_segment_bytes:
            path = self.directory / file_name(Offset(chunk.header.chunk_id), "segment")
            self.on_disk.append(SegmentOnDisk(path))
        self.on_disk[-1].append(chunk)

    def _make(self, offset: Offset, messages: int, size: int, step_ms: int) -> Written:
        self.now = TimestampMs(self.now + step_ms)
        return self._written([self.rng.randbytes(size) for _ in range(messages)], offset, ChunkType.USER)

    def _written(self, entries: list[bytes], offset: Offset, kind: ChunkType) -> Written:
        header, raw = make_chunk(
            entries, chunk_id=ChunkId(offset), timestamp=self.now, epoch=Epoch(self.epoch), kind=kind
        )
        return Written(header, raw)
