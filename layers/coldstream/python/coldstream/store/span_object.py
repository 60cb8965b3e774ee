"""An object of the recovery log: a directory, then chunks as the broker wrote them, of many streams.

    object      header · runs; all integers big-endian

    header
     0  magic        4 bytes  "CSRL"
     4  version      u16      1
     6  reserved     u16      0
     8  entries      u32
    12  header size  u32      bytes of all this, the CRC included: the first run's position
    16  entries
        CRC-32       u32      of everything before it

    entry
        length       u8, then the incarnation in ASCII
        length       u8, then the vhost in UTF-8
        length       u8, then the stream's name in UTF-8
        first offset u64      id of the run's first chunk
        next offset  u64
        position     u32      of the run in the object
        length       u32      of the run
        CRC-32       u32      of the run's bytes

A run is consecutive chunks of one segment. Runs lie one after the other, in the order of the entries, and fill the
object to its end. The names are here because the manifest may not know the stream yet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import (
    BadCrcError,
    BadLengthError,
    BadMagicError,
    BadVersionError,
    CorruptionError,
    InvalidInputError,
    TruncatedError,
)
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.units import MAX_OFFSET, ByteRange, Offset

MAGIC = b"CSRL"
VERSION = 1

_FIXED = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # entries
    "I"  # header, bytes
)
_NUMBERS = struct.Struct(
    ">"
    "Q"  # first offset
    "Q"  # next offset
    "I"  # position
    "I"  # length
    "I"  # CRC-32
)
_CRC = struct.Struct(">I")
assert (_FIXED.size, _NUMBERS.size) == (16, 28)

FIXED_BYTES = _FIXED.size
"""Bytes that tell how long the header is."""

MAX_ENTRIES = 100_000
"""Far more than an agent puts into an object; what says more is damaged."""

MAX_ENTRY_BYTES = 3 * 256 + _NUMBERS.size


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Consecutive chunks of a stream, on their way into the recovery log."""

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    data: bytes

    @property
    def object_bytes(self) -> int:
        """What it takes of an object, its entry included."""
        return len(_names(self.stream)) + _NUMBERS.size + len(self.data)


@dataclass(frozen=True, slots=True)
class SpanEntry:
    """Where a run is in its object, and the CRC-32 of its bytes."""

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    byte_range: ByteRange
    crc32: int


@dataclass(frozen=True, slots=True)
class SpanHeader:
    """The header of an object."""

    entries: tuple[SpanEntry, ...]
    header_bytes: int

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return self.entries[-1].byte_range.end if self.entries else self.header_bytes


def span_object(runs: Sequence[LoggedRun]) -> bytes:
    """Return the object of these runs. Raises OverflowError for more than it can say."""
    names = [_names(run.stream) for run in runs]
    size = FIXED_BYTES + sum(len(name) + _NUMBERS.size for name in names) + _CRC.size
    if len(runs) > MAX_ENTRIES:
        raise OverflowError(f"{len(runs)} runs in an object of the recovery log")
    parts = [_FIXED.pack(MAGIC, VERSION, 0, len(runs), size)]
    position = size
    for name, run in zip(names, runs, strict=True):
        if position + len(run.data) >= 1 << 32:
            raise OverflowError(f"an object of {position + len(run.data)} bytes")
        numbers = _NUMBERS.pack(run.first_offset, run.next_offset, position, len(run.data), crc32(run.data))
        parts += [name, numbers]
        position += len(run.data)
    header = b"".join(parts)
    return b"".join((header, _CRC.pack(crc32(header)), *(run.data for run in runs)))


def header_bytes_of(view: bytes, *, source: str) -> int:
    """Read how long a header is from its first FIXED_BYTES. Raises CorruptionError."""
    entries, size = _fixed(view, source)
    least = FIXED_BYTES + _CRC.size
    if not least <= size <= least + entries * MAX_ENTRY_BYTES:
        raise BadLengthError(source, 12, "size of the header of a recovery log's object", found=size)
    return size


def parse_header(view: bytes, *, source: str) -> SpanHeader:
    """Read the header at the start of `view`. Raises CorruptionError, which names where."""
    size = header_bytes_of(view, source=source)
    count, _ = _fixed(view, source)
    if len(view) < size:
        raise TruncatedError(source, 0, "header is cut short", expected=size, found=len(view))
    expected, found = crc32(view[: size - _CRC.size]), _CRC.unpack_from(view, size - _CRC.size)[0]
    if expected != found:
        raise BadCrcError(source, size - _CRC.size, "CRC of a header", expected=expected, found=found)
    at, position = FIXED_BYTES, size
    entries: list[SpanEntry] = []
    for _ in range(count):
        entry, at = _parse_entry(view, at, size - _CRC.size, source=source)
        if entry.byte_range.start != position:
            raise BadLengthError(source, at, "position of a run", expected=position, found=entry.byte_range.start)
        position = entry.byte_range.end
        entries.append(entry)
    if at != size - _CRC.size:
        raise BadLengthError(source, at, "entries of a header", expected=size - _CRC.size, found=at)
    return SpanHeader(tuple(entries), size)


def check_run(data: bytes, entry: SpanEntry, *, source: str) -> None:
    """Check that these are an entry's bytes. Raises CorruptionError, which names where."""
    position = entry.byte_range.start
    if len(data) != len(entry.byte_range):
        raise TruncatedError(source, position, "run is cut short", expected=len(entry.byte_range), found=len(data))
    if crc32(data) != entry.crc32:
        raise BadCrcError(source, position, "CRC of a run", expected=entry.crc32, found=crc32(data))


def _parse_entry(view: bytes, at: int, end: int, *, source: str) -> tuple[SpanEntry, int]:
    """Read the entry at a byte of a header whose entries end at `end`; return it, and where the next one begins."""
    began, texts = at, []
    for _ in range(3):
        ends = at + 1 + (view[at] if at < end else 0)
        if ends > end:
            raise BadLengthError(source, began, "an entry runs past the header")
        texts.append(view[at + 1 : ends])
        at = ends
    if at + _NUMBERS.size > end:
        raise BadLengthError(source, began, "an entry runs past the header")
    try:
        directory, vhost, name = (text.decode() for text in texts)
        stream = StreamId(vhost, name, incarnation(directory))
    except (InvalidInputError, UnicodeDecodeError) as err:
        raise CorruptionError(source, began, f"malformed names: {err}") from err
    first, following, position, length, checksum = _NUMBERS.unpack_from(view, at)
    if not first < following <= MAX_OFFSET or not length:
        raise BadLengthError(source, at, "a run without offsets or bytes", found=(first, following, length))
    byte_range = ByteRange(position, position + length)
    return SpanEntry(stream, Offset(first), Offset(following), byte_range, checksum), at + _NUMBERS.size


def _names(stream: StreamId) -> bytes:
    texts = [text.encode() for text in (stream.incarnation, stream.vhost, stream.name)]
    return b"".join(bytes((len(text),)) + text for text in texts)


def _fixed(view: bytes, source: str) -> tuple[int, int]:
    if len(view) < FIXED_BYTES:
        raise TruncatedError(source, 0, "header is cut short", expected=FIXED_BYTES, found=len(view))
    magic, version, reserved, entries, size = _FIXED.unpack_from(view)
    if magic != MAGIC:
        raise BadMagicError(source, 0, "magic of a recovery log's object", expected=MAGIC, found=magic)
    if version != VERSION:
        raise BadVersionError(source, 4, "version", expected=VERSION, found=version)
    if reserved:
        raise BadVersionError(source, 6, "reserved bytes", expected=0, found=reserved)
    if entries > MAX_ENTRIES:
        raise BadLengthError(source, 8, "number of entries", expected=f"up to {MAX_ENTRIES}", found=entries)
    return entries, size
