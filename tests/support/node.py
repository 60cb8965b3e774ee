"""A node without a broker: streams on disk, written as osiris does, and what a consumer would be given of them."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from pathlib import Path

from coldstream.errors import CorruptionError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter
from coldstream.manifest.spec import AtEnd, AtOffset, OffsetSpec
from coldstream.units import Epoch, Offset, TimestampMs

START = TimestampMs(1_763_700_000_000)
_DECLARED = itertools.count(1_763_700_000_000_000_000)


class NodeStream:
    """One incarnation of a stream. `committed_to` is None while everything is committed."""

    def __init__(self, data: Path, vhost: str, name: str, *, max_segment_bytes: int = 20_000) -> None:
        written = f"{vhost}_{name}".replace("/", "_").replace(".", "_")
        self.incarnation = f"{written}_{next(_DECLARED)}"
        self.vhost = vhost
        self.name = name
        self.directory = data / self.incarnation
        self.directory.mkdir(parents=True)
        self.committed_to: int | None = None
        self.now = START
        self._writer = SegmentWriter(self.directory, max_segment_bytes=max_segment_bytes)

    @property
    def next_offset(self) -> Offset:
        return self._writer.next_offset

    @property
    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.segment"))

    def publish(self, messages: int, *, size: int = 500, step_ms: int = 10, epoch: int = 1) -> None:
        """Write chunks of ten messages."""
        for first in range(0, messages, 10):
            self.now = TimestampMs(self.now + step_ms)
            batch = [b"%020d" % (self.next_offset + at) * (size // 20) for at in range(min(10, messages - first))]
            self._writer.write(batch, timestamp=self.now, epoch=Epoch(epoch))
        self.flush()

    def store_offset(self) -> None:
        """Write a tracking chunk."""
        self.now = TimestampMs(self.now + 1)
        self._writer.write(
            timestamp=self.now, tracking=[TrackingRecord(TrackingType.OFFSET, b"consumer", int(self.next_offset))]
        )
        self.flush()

    def flush(self) -> None:
        self._writer._segment.flush()
        self._writer._index.flush()

    def retain(self, segments: int) -> None:
        """Delete all but the newest segments."""
        for path in self.segments[:-segments]:
            path.unlink()
            path.with_suffix(".index").unlink()

    def close(self) -> None:
        self._writer.close()

    def chunks(self) -> list[Chunk]:
        """Return what is on the disk, without what is damaged."""
        found: list[Chunk] = []
        for path in self.segments:
            content = path.read_bytes()[SEGMENT_HEADER_BYTES:]
            with suppress(CorruptionError):
                found.extend(iter_chunks(content, source=path.name, position=SEGMENT_HEADER_BYTES))
        return found


class Node:
    """The streams of a node, and the agent's port to them."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.data.mkdir(parents=True)
        self.streams: dict[tuple[str, str], NodeStream] = {}
        self.is_down = False
        self.probes = 0

    def declare(self, name: str, vhost: str = "/", *, max_segment_bytes: int = 20_000) -> NodeStream:
        stream = NodeStream(self.data, vhost, name, max_segment_bytes=max_segment_bytes)
        self.streams[vhost, name] = stream
        return stream

    def delete(self, name: str, vhost: str = "/") -> None:
        stream = self.streams.pop((vhost, name))
        stream.close()
        shutil.rmtree(stream.directory)

    async def login(self) -> None:
        pass

    async def members(self, vhost: str, name: str) -> int:
        return 1

    async def place(self, vhost: str, name: str) -> int:
        return 0

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        self.probes += 1
        if self.is_down:
            raise UnavailableError("the broker is down")
        if (vhost, name) not in self.streams:
            raise StreamNotFoundError(name)
        stream = self.streams[vhost, name]
        limit = stream.next_offset if stream.committed_to is None else stream.committed_to
        given = [
            chunk
            for chunk in stream.chunks()
            if chunk.header.type is ChunkType.USER and chunk.header.next_offset <= limit
        ]
        match spec:
            case AtOffset(offset):
                return next((chunk for chunk in given if chunk.header.next_offset > offset), None)
            case AtEnd("first"):
                return next(iter(given), None)
        raise NotImplementedError(spec)

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
