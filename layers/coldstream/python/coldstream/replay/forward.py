"""Entries of archived chunks, packed to be published again without decoding their messages.

A run of messages becomes one sub-batch without compression. The broker then does once for a hundred messages what it
would do for each, and the bytes of the run already lie in the chunk as a sub-batch has them. Consumers, by either
protocol, see no difference. Sub-batches stay packed. If only a part of one is requested, it is unpacked, and that part
is sent as a run.

The publishing id of an entry is the offset after its last record in the source. So ids rise, 0 means that nothing was
published, and one number says how much of a source a broker has. The end of a run depends on the chunk alone: two
replays of the same request send the same entries, and the broker takes each entry once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.entry import SubBatch, iter_entries, simple_entry
from coldstream.format.entry_run import iter_entry_runs, uncompressed_sub_batch
from coldstream.units import KIB, MIB, Offset

FRAME_BYTES = MIB
"""Size of the entries that are sent together. A single entry may be larger."""

RUN_BYTES = 32 * KIB
RUN_RECORDS = 1000
"""Most bytes and messages of a run: a broker puts a whole entry into one chunk, and chunks should stay small."""

_ID = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Frame:
    """Entries, each after its publishing id. `parts` has the id of each, and how many messages it holds."""

    data: bytes
    parts: tuple[tuple[int, int], ...]

    @property
    def entries(self) -> int:
        """Number of entries."""
        return len(self.parts)

    @property
    def messages(self) -> int:
        """Number of messages in all entries."""
        return self.messages_after(0)

    @property
    def last_id(self) -> int:
        """The publishing id of the last entry."""
        return self.parts[-1][0]

    def messages_after(self, publishing_id: int) -> int:
        """Return how many messages are in the entries after a publishing id."""
        return sum(messages for number, messages in self.parts if number > publishing_id)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to publish, in the bytes that a chunk has for it."""

    publishing_id: int
    data: bytes
    messages: int


class Runs:
    """Joins messages into runs, for messages that were decoded; `cut` ends a run."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = self._last_id = 0

    def add(self, publishing_id: int, message: bytes | memoryview) -> Iterator[Entry]:
        """Add a message; if the run is full, yield it first."""
        part = simple_entry(message)
        if self._parts and (self._bytes + len(part) > RUN_BYTES or len(self._parts) == RUN_RECORDS):
            yield from self.cut()
        self._parts.append(part)
        self._bytes += len(part)
        self._last_id = publishing_id

    def cut(self) -> Iterator[Entry]:
        """Yield the run, if it has messages, and begin another."""
        if self._parts:
            yield _packed(self._last_id, b"".join(self._parts), len(self._parts))
            self._parts = []
            self._bytes = 0


def chunk_entries(chunk: Chunk, start: Offset, end: Offset, *, source: str) -> Iterator[Entry]:
    """Yield the records of a verified chunk from `start` up to, not including, `end`, without decoding them.

    Tracking chunks have no entries. Cost: about 0.15 us a message. Raises CorruptionError.
    """
    if chunk.header.type is not ChunkType.USER:
        return
    block = bytes(chunk.data)
    view = memoryview(block)
    for run in iter_entry_runs(chunk, block, max_bytes=RUN_BYTES, max_records=RUN_RECORDS, source=source):
        if run.next_offset <= start or run.first_offset >= end:
            continue
        records = run.next_offset - run.first_offset
        if start > run.first_offset or end < run.next_offset:
            yield from _part_of(chunk, max(start, run.first_offset), min(end, run.next_offset), source)
        elif run.is_sub_batch:
            yield Entry(run.next_offset, block[run.start : run.end], records)
        else:
            yield _packed(run.next_offset, view[run.start : run.end], records)


def in_frames(entries: Iterable[Entry], max_bytes: int, max_messages: int | None = None) -> Iterator[Frame]:
    """Join entries into frames of about FRAME_BYTES, at most `max_bytes`.

    A frame has at most `max_messages` messages, unless it is a single entry. Raises InvalidInputError for an entry that
    is larger than `max_bytes`.
    """
    limit = min(FRAME_BYTES, max_bytes)
    encoded: list[bytes] = []
    parts: list[tuple[int, int]] = []
    size = messages = 0
    for entry in entries:
        entry_bytes = _ID.size + len(entry.data)
        if entry_bytes > max_bytes:
            raise InvalidInputError(
                "message",
                f"before offset {entry.publishing_id} has {len(entry.data)} bytes; the broker takes {max_bytes}",
            )
        is_many = max_messages is not None and messages + entry.messages > max_messages
        if parts and (is_many or size + entry_bytes > limit):
            yield Frame(b"".join(encoded), tuple(parts))
            encoded, parts, size, messages = [], [], 0, 0
        encoded += (_ID.pack(entry.publishing_id), entry.data)
        parts.append((entry.publishing_id, entry.messages))
        size += entry_bytes
        messages += entry.messages
    if parts:
        yield Frame(b"".join(encoded), tuple(parts))


def _part_of(chunk: Chunk, start: int, end: int, source: str) -> Iterator[Entry]:
    """Yield the records from `start` up to `end`, which lie in one run or one sub-batch."""
    runs = Runs()
    offset: int = chunk.header.chunk_id
    for entry in iter_entries(chunk, source=source):
        after = offset + (entry.records if isinstance(entry, SubBatch) else 1)
        if start < after and offset < end:
            messages = entry.messages(source=source) if isinstance(entry, SubBatch) else (entry,)
            for number, message in enumerate(messages, offset):
                if start <= number < end:
                    yield from runs.add(number + 1, message)
        offset = after
    yield from runs.cut()


def _packed(publishing_id: int, messages: bytes | memoryview, records: int) -> Entry:
    """Make one entry of messages, each after its length. A single message stays a simple entry."""
    if records == 1:
        return Entry(publishing_id, bytes(messages), 1)
    return Entry(publishing_id, uncompressed_sub_batch(messages, records), records)
