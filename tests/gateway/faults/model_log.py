"""A stream as a list of chunks, with what retention has left of it: what a broker has, and what tests compare with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.format.writer import make_chunk
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import ChunkId, Epoch, TimestampMs


@dataclass(frozen=True, slots=True)
class ModelChunk:
    """A chunk, and its header and data as delivered."""

    header: ChunkHeader
    delivered: bytes

    @property
    def is_user(self) -> bool:
        """Whether it holds messages."""
        return self.header.type is ChunkType.USER


class ModelLog:
    """Everything ever written, and the first chunk that the broker still has."""

    def __init__(self, first_offset: int = 0) -> None:
        self.chunks: list[ModelChunk] = []
        self.epoch = 1
        self.ms = 1_700_000_000_000
        self._ids: list[int] = []
        self._kept_from = 0
        self._begin = first_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.chunks[-1].header.next_offset if self.chunks else self._begin

    @property
    def users_end(self) -> int:
        """The offset after the last message."""
        return next((chunk.header.next_offset for chunk in reversed(self.chunks) if chunk.is_user), self._begin)

    @property
    def first_offset(self) -> int:
        """The first offset that the broker has."""
        return self.kept[0].header.chunk_id if self._kept_from < len(self.chunks) else self.next_offset

    @property
    def kept(self) -> Sequence[ModelChunk]:
        """What the broker has."""
        return self.chunks[self._kept_from :]

    def write(self, messages: Sequence[bytes]) -> ModelChunk:
        """Append a user chunk."""
        return self._append(messages, ChunkType.USER)

    def track(self) -> ModelChunk:
        """Append a tracking chunk, which takes an offset."""
        return self._append([b"\x01\x01c" + bytes(8)], ChunkType.TRACKING_DELTA)

    def copy(self, delivered: bytes) -> None:
        """Append a chunk that was made elsewhere."""
        header = ChunkHeader.from_bytes(delivered, source="copied", position=0)
        assert header.chunk_id == self.next_offset
        self.ms = max(self.ms, header.timestamp)
        self._add(ModelChunk(header, delivered))

    def retain(self, chunks: int) -> None:
        """Let retention leave the last so many chunks, at least one."""
        self._kept_from = max(self._kept_from, len(self.chunks) - max(1, chunks))

    def at(self, offset: int) -> int | None:
        """Return the index of the chunk that holds an offset; None past the end."""
        index = bisect_right(self._ids, offset) - 1
        if index >= 0 and offset < self.chunks[index].header.next_offset:
            return index
        return None

    def attach(self, spec: OffsetSpec | None) -> int:
        """Return the offset from which a subscription at the broker goes on."""
        match spec:
            case AtOffset(offset) if offset < self.first_offset:
                return self.first_offset
            case AtOffset(offset):
                index = self.at(offset)
                return self.next_offset if index is None else self.chunks[index].header.chunk_id
            case AtTimestamp(timestamp):
                later = (chunk.header.chunk_id for chunk in self.kept if chunk.header.timestamp >= timestamp)
                return next(later, self.next_offset)
            case AtEnd("first"):
                return self.first_offset
            case AtEnd("last"):
                users = [chunk.header.chunk_id for chunk in self.kept if chunk.is_user]
                return users[-1] if users else self.next_offset
            case _:
                return self.next_offset

    def after(self, offset: int, *, every_chunk: bool) -> ModelChunk | None:
        """Return the chunk that a reader at an offset gets next. One that retention has overtaken goes on after it."""
        offset = max(offset, self.first_offset)
        for index in range(max(self._kept_from, bisect_right(self._ids, offset) - 1), len(self.chunks)):
            chunk = self.chunks[index]
            if chunk.header.next_offset > offset and (chunk.is_user or every_chunk):
                return chunk
        return None

    def after_all(self, offset: int) -> ModelChunk | None:
        """Return the first user chunk ever written that holds an offset or comes after it."""
        for index in range(max(0, bisect_right(self._ids, offset) - 1), len(self.chunks)):
            chunk = self.chunks[index]
            if chunk.is_user and chunk.header.next_offset > offset:
                return chunk
        return None

    def _append(self, entries: Sequence[bytes], kind: ChunkType) -> ModelChunk:
        self.ms += 1
        header, encoded = make_chunk(
            entries,
            chunk_id=ChunkId(self.next_offset),
            timestamp=TimestampMs(self.ms),
            epoch=Epoch(self.epoch),
            kind=kind,
        )
        return self._add(ModelChunk(header, encoded))

    def _add(self, chunk: ModelChunk) -> ModelChunk:
        self.chunks.append(chunk)
        self._ids.append(chunk.header.chunk_id)
        return chunk
