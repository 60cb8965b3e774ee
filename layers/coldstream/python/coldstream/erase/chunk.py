"""The rewrite of one chunk: the messages that a selection takes become erased messages, and nothing else moves.

    header        as it was, but for the CRC and the size of the data
    bloom filter  all bits set, as many bytes as there were: what it knew of the filter values is gone
    data          the same entries; an erased message in each place; sub-batches packed again as their publisher did
    trailer       as it was: publishing ids and stored offsets are no part of a message

A chunk of which nothing is taken is not rewritten. Neither is one whose taken messages were all erased before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from zlib import crc32

from coldstream.erase.selection import Selection
from coldstream.errors import CorruptionError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk, ChunkHeader, ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries, simple_entry
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.writer import make_sub_batch
from coldstream.units import Offset

UNKNOWN_FILTER = b"\xff"
"""A byte of a bloom filter that matches any value: what the chunk holds is not known (docs/formats.md)."""


@dataclass(frozen=True, slots=True)
class ErasedChunk:
    """A chunk without the bytes of `offsets`, of which each was a message until now."""

    header: ChunkHeader
    bloom: bytes
    data: bytes
    trailer: memoryview
    offsets: Sequence[int]

    @property
    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes of the whole chunk, in order."""
        yield from (self.header.to_bytes(), self.bloom, self.data, self.trailer)


@dataclass(slots=True)
class Doubts:
    """Messages that conditions could not be tried on, and which therefore stay.

    `unreadable` counts those of damaged AMQP, and of sub-batches that cannot be unpacked. `unknown_filter_values`
    counts those that say no filter value of their own in chunks that have a bloom filter: a stream client may have
    given the value beside the message.
    """

    unreadable: int = 0
    unknown_filter_values: int = 0


def erase_chunk(chunk: Chunk, selection: Selection, doubts: Doubts, *, source: str) -> ErasedChunk | None:
    """Return the chunk without the messages that a selection takes, None if there is nothing to erase in it.

    Memory: the chunk a few times, and what its largest sub-batch expands to. Raises CorruptionError if entries or
    sub-batches contradict their headers, and as `Selection.takes`.
    """
    header = chunk.header
    if header.type is not ChunkType.USER:
        return None
    first_offset = max(header.chunk_id, selection.first_offset)
    next_offset = (
        header.next_offset if selection.next_offset is None else min(header.next_offset, selection.next_offset)
    )
    if first_offset >= next_offset:
        return None
    span = range(first_offset, next_offset)
    taken = _taken(chunk, span, selection, doubts, source) if selection.needs_content else span
    if not taken:
        return None
    rewriter = _Rewriter(taken, source)
    data = b"".join(rewriter.entries(chunk))
    if not rewriter.has_changed:
        return None
    return ErasedChunk(
        replace(header, crc=crc32(data), data_bytes=len(data)),
        UNKNOWN_FILTER * header.bloom_bytes,
        data,
        chunk.trailer,
        rewriter.erased,
    )


def _taken(chunk: Chunk, span: range, selection: Selection, doubts: Doubts, source: str) -> list[int]:
    """Return the offsets in a span of the messages that a selection takes.

    A sub-batch that nobody can unpack, of a compression of its publisher's own, stays: it must not keep all others.
    """
    before = replace(doubts)
    try:
        return [
            message.offset
            for message in messages(chunk, source=source)
            if message.offset in span and _takes(selection, message, chunk, doubts)
        ]
    except CorruptionError:
        # Entry by entry now, and all is asked once more.
        doubts.unreadable, doubts.unknown_filter_values = before.unreadable, before.unknown_filter_values
    taken: list[int] = []
    read = 0
    for part in _readable(chunk, span, source):
        read += len(part)
        found = islice(messages(chunk, source=source, from_offset=Offset(part.start)), len(part))
        taken += (message.offset for message in found if _takes(selection, message, chunk, doubts))
    doubts.unreadable += len(span) - read
    return taken


def _readable(chunk: Chunk, span: range, source: str) -> Iterator[range]:
    """Yield the offsets in a span of each entry whose messages can be unpacked."""
    offset = int(chunk.header.chunk_id)
    for entry in iter_entries(chunk, source=source):
        first_offset = offset
        offset += entry.records if isinstance(entry, SubBatch) else 1
        part = range(max(first_offset, span.start), min(offset, span.stop))
        if isinstance(entry, SubBatch) and part:
            try:
                deque(entry.messages(source=source), maxlen=0)
            except CorruptionError:
                continue
        if part:
            yield part


def _takes(selection: Selection, message: Message, chunk: Chunk, doubts: Doubts) -> bool:
    # Never asked again: what was erased has nothing by which it could be taken.
    if message.raw == ERASED_MESSAGE:
        return False
    try:
        is_taken = selection.takes(message)
        if selection.filter_value is not None and not is_taken and chunk.header.bloom_bytes:
            doubts.unknown_filter_values += not selection.has_filter_value(message)
    except CorruptionError:
        doubts.unreadable += 1
        return False
    return is_taken


class _Rewriter:
    """Encodes the entries of a chunk again, with the messages at the offsets `taken`, which rise, erased."""

    def __init__(self, taken: Sequence[int], source: str) -> None:
        # A range answers `in` by itself; the offsets of a selection by content are a list.
        self._taken = taken if isinstance(taken, range) else frozenset(taken)
        self._source = source
        self.erased: list[int] = []
        self.has_changed = False

    def entries(self, chunk: Chunk) -> Iterator[bytes]:
        offset = int(chunk.header.chunk_id)
        for entry in iter_entries(chunk, source=self._source):
            if isinstance(entry, SubBatch):
                yield self._sub_batch(entry, offset).to_bytes()
                offset += entry.records
            else:
                yield simple_entry(self._message(entry, offset))
                offset += 1

    def _message(self, raw: bytes | memoryview, offset: int) -> bytes | memoryview:
        if offset not in self._taken or raw == ERASED_MESSAGE:
            return raw
        self.erased.append(offset)
        self.has_changed = True
        return ERASED_MESSAGE

    def _sub_batch(self, batch: SubBatch, first_offset: int) -> SubBatch:
        offsets = range(first_offset, first_offset + batch.records)
        taken = sum(offset in self._taken for offset in offsets)
        if not batch.records:
            return self._empty(batch, first_offset)
        if not taken:
            return batch
        try:
            members = list(map(bytes, batch.messages(source=self._source)))
        except CorruptionError:
            if taken < batch.records:
                raise
            # Nobody can read it, and all of it is to go: what it was packed with does not matter any more.
            self.erased += offsets
            self.has_changed = True
            return make_sub_batch([ERASED_MESSAGE] * batch.records)
        before = len(self.erased)
        members = [bytes(self._message(raw, offset)) for raw, offset in zip(members, offsets, strict=True)]
        if len(self.erased) == before:
            return batch
        return make_sub_batch(members, Compression(batch.compression))

    def _empty(self, batch: SubBatch, offset: int) -> SubBatch:
        """Return a sub-batch without records, which no reader unpacks, without the bytes that it may have all the same.

        It lies between two messages, and goes with either.
        """
        if not len(batch.data) or not (offset in self._taken or offset - 1 in self._taken):
            return batch
        self.has_changed = True
        return make_sub_batch([])
