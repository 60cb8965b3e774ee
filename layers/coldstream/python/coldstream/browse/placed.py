"""The messages of a chunk, each with its place in it: what `format.amqp.message` yields, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.browse.limits import MAX_UNPACKED_BYTES
from coldstream.browse.message_view import EntryPlace
from coldstream.errors import CorruptionError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message's bytes and place; `problem` says why there are none, if its sub-batch cannot be unpacked."""

    offset: Offset
    place: EntryPlace
    raw: memoryview
    problem: str | None = None


_NOTHING = memoryview(b"")


def placed_messages(chunk: Chunk, *, source: str, from_offset: Offset) -> Iterator[PlacedMessage]:
    """Yield the messages of a chunk at or after an offset, in order; a tracking chunk has none.

    What was packed badly, by its publisher, comes out as messages with a problem, one for each offset. Raises
    CorruptionError if the entries contradict the chunk's header, after what comes before the fault.
    """
    header = chunk.header
    if header.type is not ChunkType.USER or header.next_offset <= from_offset:
        return
    offset = Offset(header.chunk_id)
    for number, entry in enumerate(iter_entries(chunk, source=source)):
        records = entry.records if isinstance(entry, SubBatch) else 1
        first, offset = offset, Offset(offset + records)
        if offset > header.next_offset:
            continue  # at its end `iter_entries` raises that there are too many: none gets the offset of another
        if offset <= from_offset or not records:
            continue
        if isinstance(entry, SubBatch):
            yield from _unpacked(entry, first, number, from_offset, source)
        else:
            yield PlacedMessage(first, EntryPlace(number), entry)


def compression_name(compression: int) -> str:
    """Return the name of a sub-batch's compression, such as `zstd`; a number if it is unknown."""
    try:
        return Compression(compression).name.lower()
    except ValueError:
        return f"unknown ({compression})"


def _unpacked(batch: SubBatch, first: Offset, number: int, from_offset: Offset, source: str) -> Iterator[PlacedMessage]:
    name = compression_name(batch.compression)
    index = 0
    problem = None
    if batch.compression != Compression.NONE and batch.uncompressed_bytes > MAX_UNPACKED_BYTES:
        problem = f"its sub-batch unpacks to {batch.uncompressed_bytes} bytes, more than is unpacked for a view"
    else:
        try:
            for raw in batch.messages(source=source):
                if first + index >= from_offset:
                    yield PlacedMessage(Offset(first + index), EntryPlace(number, name, index, batch.records), raw)
                index += 1
        except CorruptionError as err:
            problem = str(err)
    for rest in range(max(index, from_offset - first), batch.records):
        place = EntryPlace(number, name, rest, batch.records)
        yield PlacedMessage(Offset(first + rest), place, _NOTHING, problem)
