"""Entries of archived chunks as they are published again.

Messages travel as they are, a run of them as one sub-batch without compression: a broker then does once for a hundred
messages what it otherwise does for each, and the bytes of a run stand in the chunk already as a sub-batch has them. To
consumers, by either protocol, it makes no difference. Sub-batches stay packed as they were; those of which only a part
is wanted are unpacked, and that part is sent as a run.

The publishing id of an entry is the offset after its last record in the source. So ids rise, 0 says that nothing was
published, and what a broker has of a source is told by one number. Where runs end depends on the chunks alone: so two
that replay the same at the same time send the same entries, of which the broker takes each once.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SIMPLE_HEADER_BYTES, SUB_BATCH_HEADER_BYTES, SubBatch, iter_entries, simple_entry
from coldstream.units import KIB, MIB, Offset

FRAME_BYTES = MIB
"""Of entries that are sent together, unless one alone is larger."""

RUN_BYTES = 32 * KIB
RUN_RECORDS = 1000
"""The most that are sent as one sub-batch: brokers put whole entries into chunks, which should not become large."""

_ID = struct.Struct(">Q")
_SIMPLE = struct.Struct(">i")  # length, bytes; of a sub-batch it is negative
_SUB_BATCH = struct.Struct(
    ">"
    "B"  # kind, compression, reserved
    "H"  # records
    "I"  # uncompressed, bytes
    "I"  # length, bytes
)
_SUB_BATCH_KIND = 0x80
_UNCOMPRESSED = _SUB_BATCH_KIND + (Compression.NONE << 4)


@dataclass(frozen=True, slots=True)
class Frame:
    """Entries behind their publishing ids: `parts` has the id of each, and how many messages it holds."""

    data: bytes
    parts: tuple[tuple[int, int], ...]

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.parts)

    @property
    def messages(self) -> int:
        """How many messages they hold."""
        return self.messages_after(0)

    @property
    def last_id(self) -> int:
        """The publishing id of the last one."""
        return self.parts[-1][0]

    def messages_after(self, publishing_id: int) -> int:
        """Return how many messages the entries behind a publishing id hold."""
        return sum(messages for number, messages in self.parts if number > publishing_id)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that is to be published, as a chunk has it."""

    publishing_id: int
    data: bytes
    messages: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries of a chunk that go together: offsets `first` up to `after`, bytes `at` up to `stop` of its data."""

    first: int
    after: int
    at: int
    stop: int
    is_sub_batch: bool


class Runs:
    """Puts messages together into runs; `cut` ends one. For messages of a chunk that are not sent as they stand."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = self._last_id = 0

    def add(self, publishing_id: int, message: bytes | memoryview) -> Iterator[Entry]:
        """Add a message; yield the run before it where that is full."""
        part = simple_entry(message)
        if self._parts and (self._bytes + len(part) > RUN_BYTES or len(self._parts) == RUN_RECORDS):
            yield from self.cut()
        self._parts.append(part)
        self._bytes += len(part)
        self._last_id = publishing_id

    def cut(self) -> Iterator[Entry]:
        """Yield what was added since the last run."""
        if self._parts:
            yield _packed(self._last_id, b"".join(self._parts), len(self._parts))
            self._parts = []
            self._bytes = 0


def chunk_entries(chunk: Chunk, start: Offset, end: Offset, *, source: str) -> Iterator[Entry]:
    """Yield the records of a verified chunk from `start` up to, not including, `end`, nothing decoded.

    Tracking chunks have none. Cost: about 0.15 us a message. Raises CorruptionError.
    """
    if chunk.header.type is not ChunkType.USER:
        return
    block = bytes(chunk.data)
    view = memoryview(block)
    for run in _runs(chunk, block, source):
        if run.after <= start or run.first >= end:
            continue
        if start > run.first or end < run.after:
            yield from _part_of(chunk, max(start, run.first), min(end, run.after), source)
        elif run.is_sub_batch:
            yield Entry(run.after, block[run.at : run.stop], run.after - run.first)
        else:
            yield _packed(run.after, view[run.at : run.stop], run.after - run.first)


def in_frames(entries: Iterable[Entry], max_bytes: int, max_messages: int | None = None) -> Iterator[Frame]:
    """Put entries together into frames of about FRAME_BYTES, and `max_bytes` at most.

    One that holds more than `max_messages` has one entry.

    Raises InvalidInputError for an entry that is larger than that.
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


def _runs(chunk: Chunk, block: bytes, source: str) -> Iterator[_Run]:
    """Cut a chunk's data into runs."""
    size = len(block)
    first: int = chunk.header.chunk_id
    at = 0
    while at < size:
        stop, records = _simple_run(block, at)
        if records:
            yield _Run(first, first + records, at, stop, is_sub_batch=False)
        else:
            if at + SUB_BATCH_HEADER_BYTES > size:
                break
            kind, records, _, length = _SUB_BATCH.unpack_from(block, at)
            stop = at + SUB_BATCH_HEADER_BYTES + length
            if not kind & _SUB_BATCH_KIND or stop > size:
                break
            yield _Run(first, first + records, at, stop, is_sub_batch=True)
        first += records
        at = stop
    if at != size or first != chunk.header.next_offset:
        deque(iter_entries(chunk, source=source), maxlen=0)  # raises what is wrong


def _simple_run(block: bytes, at: int) -> tuple[int, int]:
    """Return where the run of simple entries ends that begins at a byte, and how many it has."""
    # A loop over every message: one read tells where it ends.
    size, length_of = len(block), _SIMPLE.unpack_from
    limit, last = min(at + RUN_BYTES, size), size - SIMPLE_HEADER_BYTES
    for records in range(RUN_RECORDS):
        if at > last or (length := length_of(block, at)[0]) < 0:
            return at, records
        stop = at + SIMPLE_HEADER_BYTES + length
        if stop > limit:
            # One that is larger than a run goes alone.
            return (stop, 1) if not records and stop <= size else (at, records)
        at = stop
    return at, RUN_RECORDS


def _part_of(chunk: Chunk, start: int, end: int, source: str) -> Iterator[Entry]:
    """Yield the records from `start` up to `end`, which are of one run or one sub-batch."""
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
    """Make an entry of messages behind their lengths; one alone stays as it is."""
    if records == 1:
        return Entry(publishing_id, bytes(messages), 1)
    header = _SUB_BATCH.pack(_UNCOMPRESSED, records, len(messages), len(messages))
    return Entry(publishing_id, b"".join((header, messages)), records)
