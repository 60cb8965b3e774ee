"""An object of a write-ahead log: a directory, then chunks as the broker writes them; or a seal, which has neither.

    object      header · chunks; all integers big-endian

    header
     0  magic        4 bytes  "CSWL"
     4  version      u16      1
     6  kind         u16      0 batches, 1 seal
     8  nonce        16 bytes of the writer's choosing: tells its own object from another's
    24  entries      u32
    28  header size  u32      bytes of all this, the CRC included: the first chunk's position
    32  entries
        CRC-32       u32      of everything before it

    entry
        length       u8, then the incarnation in ASCII
        epoch        u64      of the stream's opening
        first offset u64      id of the chunk
        next offset  u64
        position     u32      of the chunk in the object
        length       u32      of the chunk

The chunks lie one after the other, in the order of the entries. Their data has CRCs of its own, and the store verifies
the whole object as it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
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
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.units import ByteRange, Epoch, Offset

MAGIC = b"CSWL"
VERSION = 1
NONCE_BYTES = 16

_FIXED = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # version
    "H"  # kind
    "16s"  # nonce
    "I"  # entries
    "I"  # header, bytes
)
_NUMBERS = struct.Struct(
    ">"
    "Q"  # epoch
    "Q"  # first offset
    "Q"  # next offset
    "I"  # position
    "I"  # length
)
_CRC = struct.Struct(">I")
assert (_FIXED.size, _NUMBERS.size) == (32, 32)

FIXED_BYTES = _FIXED.size
"""Bytes that tell how long the header is."""

EMPTY_BYTES = FIXED_BYTES + _CRC.size
"""Bytes of an object without chunks: of a seal, too."""

MAX_ENTRIES = 1_000_000
"""Far more than an object has room for; what says more is damaged."""


class WalObjectKind(IntEnum):
    """What an object of a write-ahead log is."""

    BATCHES = 0
    SEAL = 1


@dataclass(frozen=True, slots=True)
class WalChunk:
    """A chunk on its way into a WAL, of the stream's opening `epoch`."""

    incarnation: Incarnation
    epoch: Epoch
    first_offset: Offset
    next_offset: Offset
    data: bytes


@dataclass(frozen=True, slots=True)
class WalEntry:
    """Where a chunk is in its object."""

    incarnation: Incarnation
    epoch: Epoch
    first_offset: Offset
    next_offset: Offset
    byte_range: ByteRange


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The header of an object."""

    kind: WalObjectKind
    nonce: bytes
    entries: tuple[WalEntry, ...]
    header_bytes: int

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return self.entries[-1].byte_range.end if self.entries else self.header_bytes


def entry_bytes(incarnation: Incarnation) -> int:
    """Return the bytes that a chunk takes in the directory."""
    return 1 + len(incarnation) + _NUMBERS.size


def wal_object(nonce: bytes, chunks: Sequence[WalChunk]) -> bytes:
    """Return the object of these chunks. Raises OverflowError for more than 4 GiB."""
    return _object(WalObjectKind.BATCHES, nonce, chunks)


def seal_object(nonce: bytes) -> bytes:
    """Return a seal: the WAL ends before it."""
    return _object(WalObjectKind.SEAL, nonce, ())


def header_bytes_of(view: bytes, *, source: str) -> int:
    """Read how long a header is from its first FIXED_BYTES. Raises CorruptionError."""
    _, _, entries, size = _fixed(view, source)
    if not FIXED_BYTES + _CRC.size <= size <= FIXED_BYTES + _CRC.size + entries * (256 + _NUMBERS.size):
        raise BadLengthError(source, 28, "size of the header of a write-ahead log's object", found=size)
    return size


def kind_and_nonce(view: bytes, *, source: str) -> tuple[WalObjectKind, bytes]:
    """Read what an object is, and whose, from its first FIXED_BYTES. Raises CorruptionError."""
    kind, nonce, _, _ = _fixed(view, source)
    return kind, nonce


def parse_header(view: bytes, *, source: str) -> WalHeader:
    """Read the header at the start of `view`. Raises CorruptionError, which names where."""
    size = header_bytes_of(view, source=source)
    kind, nonce, count, _ = _fixed(view, source)
    if len(view) < size:
        raise TruncatedError(source, 0, "header is cut short", expected=size, found=len(view))
    expected, found = crc32(view[: size - _CRC.size]), _CRC.unpack_from(view, size - _CRC.size)[0]
    if expected != found:
        raise BadCrcError(source, size - _CRC.size, "CRC of a header", expected=expected, found=found)
    at, position = FIXED_BYTES, size
    entries: list[WalEntry] = []
    for _ in range(count):
        name_ends = at + 1 + view[at]
        if name_ends + _NUMBERS.size > size - _CRC.size:
            raise BadLengthError(source, at, "an entry runs past the header")
        try:
            name = incarnation(view[at + 1 : name_ends].decode("ascii"))
        except (InvalidInputError, UnicodeDecodeError) as err:
            raise CorruptionError(source, at, f"malformed incarnation: {err}") from err
        epoch, first, following, chunk_at, length = _NUMBERS.unpack_from(view, name_ends)
        if first >= following or not length:
            raise BadLengthError(source, at, "a chunk without offsets or bytes", found=(first, following, length))
        if chunk_at != position:
            raise BadLengthError(source, at, "position of a chunk", expected=position, found=chunk_at)
        position = chunk_at + length
        entries.append(WalEntry(name, Epoch(epoch), Offset(first), Offset(following), ByteRange(chunk_at, position)))
        at = name_ends + _NUMBERS.size
    if at != size - _CRC.size or (kind is WalObjectKind.SEAL and entries):
        raise BadLengthError(source, at, "entries of a header", expected=size - _CRC.size, found=at)
    return WalHeader(kind, nonce, tuple(entries), size)


def _object(kind: WalObjectKind, nonce: bytes, chunks: Sequence[WalChunk]) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
    names = [one.incarnation.encode() for one in chunks]
    size = FIXED_BYTES + sum(1 + len(name) + _NUMBERS.size for name in names) + _CRC.size
    try:
        parts = [_FIXED.pack(MAGIC, VERSION, kind, nonce, len(chunks), size)]
        position = size
        for name, one in zip(names, chunks, strict=True):
            numbers = _NUMBERS.pack(one.epoch, one.first_offset, one.next_offset, position, len(one.data))
            parts += [bytes((len(name),)), name, numbers]
            position += len(one.data)
        if position >= 1 << 32:
            raise OverflowError(f"an object of {position} bytes")
    except struct.error as err:
        raise OverflowError(f"no object of a write-ahead log can say this: {err}") from err
    header = b"".join(parts)
    return b"".join((header, _CRC.pack(crc32(header)), *(one.data for one in chunks)))


def _fixed(view: bytes, source: str) -> tuple[WalObjectKind, bytes, int, int]:
    if len(view) < FIXED_BYTES:
        raise TruncatedError(source, 0, "header is cut short", expected=FIXED_BYTES, found=len(view))
    magic, version, kind, nonce, entries, size = _FIXED.unpack_from(view)
    if magic != MAGIC:
        raise BadMagicError(source, 0, "magic of a write-ahead log's object", expected=MAGIC, found=magic)
    if version != VERSION:
        raise BadVersionError(source, 4, "version", expected=VERSION, found=version)
    if kind not in tuple(WalObjectKind):
        raise BadVersionError(source, 6, "kind", expected="0 or 1", found=kind)
    if entries > MAX_ENTRIES:
        raise BadLengthError(source, 24, "number of entries", expected=f"up to {MAX_ENTRIES}", found=entries)
    return WalObjectKind(kind), nonce, entries, size
