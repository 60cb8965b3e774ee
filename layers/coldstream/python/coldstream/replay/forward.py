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
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.entry_run import iter_entry_runs, message_runs, uncompressed_header
from coldstream.units import KIB, MIB, Offset

FRAME_BYTES = MIB
"""Size of the entries that are sent together. A single entry may be larger."""

RUN_BYTES = 32 * KIB
RUN_RECORDS = 1000
"""Most bytes and messages of a run: a broker puts a whole entry into one chunk, and chunks should stay small."""

_ID = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Frame:
    """Entries, each after its publishing id, as pieces of `size_bytes` in all: parts of chunks are not copied.

    `parts` has the id of each entry, and how many messages it holds.
    """

    pieces: tuple[bytes | memoryview, ...]
    size_bytes: int
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
    """An entry to publish: `head` and `data` are the bytes that a chunk has for it."""

    publishing_id: int
    head: bytes
    data: bytes | memoryview
    messages: int


class Runs:
    """Joins messages into runs, for messages that were decoded."""

    __slots__ = ("_ids", "_messages")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._messages: list[bytes] = []

    def add(self, publishing_id: int, message: bytes) -> None:
        """Add a message. All that is added lies in memory until `entries`: the messages of a chunk, at most."""
        self._ids.append(publishing_id)
        self._messages.append(message)

    def entries(self) -> Iterator[Entry]:
        """Yield what was added, as runs. Raises OverflowError for a message of 2 GiB."""
        after = 0
        for data, records in message_runs(self._messages, max_bytes=RUN_BYTES, max_records=RUN_RECORDS):
            after += records
            yield _packed(self._ids[after - 1], data, records)


def chunk_entries(chunk: Chunk, start: Offset, end: Offset, *, source: str) -> Iterator[Entry]:
    """Yield the records of a verified chunk from `start` up to, not including, `end`, without decoding them.

    Tracking chunks have no entries. Entries keep the chunk's memory alive. Cost: that of `iter_entry_runs`. Raises
    CorruptionError.
    """
    if chunk.header.type is not ChunkType.USER:
        return
    for run in iter_entry_runs(chunk, max_bytes=RUN_BYTES, max_records=RUN_RECORDS, source=source):
        if run.next_offset <= start or run.first_offset >= end:
            continue
        records = run.next_offset - run.first_offset
        if start > run.first_offset or end < run.next_offset:
            yield from _part_of(chunk, max(start, run.first_offset), min(end, run.next_offset), source)
        elif run.is_sub_batch:
            yield Entry(run.next_offset, b"", chunk.data[run.start : run.end], records)
        else:
            yield _packed(run.next_offset, chunk.data[run.start : run.end], records)


def in_frames(entries: Iterable[Entry], max_bytes: int, max_messages: int | None = None) -> Iterator[Frame]:
    """Join entries into frames of about FRAME_BYTES, at most `max_bytes`.

    A frame has at most `max_messages` messages, unless it is a single entry. Raises InvalidInputError for an entry that
    is larger than `max_bytes`.
    """
    limit = min(FRAME_BYTES, max_bytes)
    pieces: list[bytes | memoryview] = []
    parts: list[tuple[int, int]] = []
    size = messages = 0
    for entry in entries:
        entry_bytes = _ID.size + len(entry.head) + len(entry.data)
        if entry_bytes > max_bytes:
            raise InvalidInputError(
                "message",
                f"before offset {entry.publishing_id} has {entry_bytes - _ID.size} bytes; the broker takes {max_bytes}",
            )
        is_many = max_messages is not None and messages + entry.messages > max_messages
        if parts and (is_many or size + entry_bytes > limit):
            yield Frame(tuple(pieces), size, tuple(parts))
            pieces, parts, size, messages = [], [], 0, 0
        pieces += (_ID.pack(entry.publishing_id) + entry.head, entry.data)
        parts.append((entry.publishing_id, entry.messages))
        size += entry_bytes
        messages += entry.messages
    if parts:
        yield Frame(tuple(pieces), size, tuple(parts))


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
                    runs.add(number + 1, bytes(message))
        offset = after
    yield from runs.entries()


def _packed(publishing_id: int, messages: memoryview, records: int) -> Entry:
    """Make one entry of messages, each after its length. A single message stays a simple entry."""
    head = b"" if records == 1 else uncompressed_header(len(messages), records)
    return Entry(publishing_id, head, messages, records)
