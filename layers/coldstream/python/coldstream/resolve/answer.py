"""The questions to the resolver, and its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coldstream.errors import InvalidQueryError
from coldstream.manifest.entry import Encoding, Gap, Head, StorageClass
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import MIB, ByteRange, Offset, TimestampMs

MAX_RANGES = 1000
"""The most in one answer: with their URLs they stay well below the 6 MB that a function may return."""

DEFAULT_MAX_RANGES = 16
DEFAULT_MAX_BYTES = 256 * MIB


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue exactly where another answer ended, by its `cursor`, whose content only the resolver reads."""

    cursor: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one answer may hold. Sizes are bytes of chunks.

    `max_bytes` is the sum over all ranges, but one range is always given. `range_bytes` splits fragments at points of
    their sparse index, about a MiB apart, into ranges of at most that size if the points allow; None leaves them whole.
    """

    max_ranges: int = DEFAULT_MAX_RANGES
    max_bytes: int = DEFAULT_MAX_BYTES
    range_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_ranges <= MAX_RANGES:
            raise InvalidQueryError("max_ranges", f"{self.max_ranges} is not from 1 to {MAX_RANGES}")
        if self.max_bytes < 1:
            raise InvalidQueryError("max_bytes", f"{self.max_bytes} is not 1 or more")
        if self.range_bytes is not None and self.range_bytes < 1:
            raise InvalidQueryError("range_bytes", f"{self.range_bytes} is not 1 or more")


@dataclass(frozen=True, slots=True)
class RangesQuery:
    """Asks which ranges hold a stream from `start` on.

    `incarnation` None means the newest one. With `precise` the first range begins at the very chunk, for two GETs of
    a part of the fragment's index; else it begins at a point up to about a MiB before that chunk.
    """

    vhost: str
    name: str
    start: OffsetSpec | Continue
    incarnation: str | None = None
    bounds: Bounds = field(default_factory=Bounds)
    precise: bool = False


class AnswerOutcome(StrEnum):
    """What an answer begins with."""

    RANGES = "ranges"
    GAP = "gap"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Range:
    """Whole, consecutive chunks: bytes of one object, and a URL that grants exactly these bytes.

    `byte_range` is a range of the object; offsets are half-open. `first_timestamp` is that of the first chunk,
    `last_timestamp` that of the last. If the range ends inside its fragment, `last_timestamp` is the greatest of the
    fragment's chunks up to there, which is the same unless the leader's clock ran backwards.

    `data_bytes` is the size of the chunks. `byte_range` holds them as `encoding` says: as they are, or in whole zstd
    frames that hold nothing else. `crc32` is that of the whole object. Of an `erased` fragment, messages were erased on
    purpose: what is left of them has its place and no content.
    """

    bucket: str
    key: str
    byte_range: ByteRange
    first_offset: Offset
    next_offset: Offset
    first_timestamp: TimestampMs
    last_timestamp: TimestampMs
    encoding: Encoding
    data_bytes: int
    crc32: int
    url: str
    expires_at: TimestampMs
    storage_class: StorageClass | None = None
    erased: bool = False

    @property
    def must_be_restored(self) -> bool:
        """Whether S3 refuses the URL until a copy of the object is restored."""
        return self.storage_class is not None and self.storage_class.must_be_restored


@dataclass(frozen=True, slots=True)
class Answer:
    """Ranges in the order of their offsets, without a hole between them, and what follows them.

    Each range begins at or before the next offset of the one before, and the first at or before the requested place.
    Exactly one of these says what follows: the `gap` after the last range; the `tail`, from which on the broker has the
    stream; or the `cursor` to continue with. `floor` is there if an offset below it was asked for: everything below was
    removed from the archive, and the answer begins with what is left.
    """

    stream: StreamId
    ranges: tuple[Range, ...] = ()
    gap: Gap | None = None
    tail: Offset | None = None
    cursor: str | None = None
    floor: Offset | None = None

    def __post_init__(self) -> None:
        if sum(follows is not None for follows in (self.gap, self.tail, self.cursor)) != 1:
            raise ValueError("an answer ends in a gap, in the tail, or with a cursor")
        if self.cursor is not None and not self.ranges:
            raise ValueError("an answer without ranges has no cursor")

    @property
    def outcome(self) -> AnswerOutcome:
        """RANGES if there are any, else GAP or TAIL, whichever is there instead."""
        if self.ranges:
            return AnswerOutcome.RANGES
        return AnswerOutcome.TAIL if self.gap is None else AnswerOutcome.GAP


@dataclass(frozen=True, slots=True)
class Description:
    """The state of a stream as a whole, and its first gaps; `head.gaps` counts all of them.

    `before` is the gap before the first archived offset, None if the archive begins with the stream, or at the floor:
    what was removed is no gap. `after` is what is known to be lost from the tail on, None if the broker continues at
    the tail.
    """

    head: Head
    gaps: tuple[Gap, ...]
    before: Gap | None = None
    after: Gap | None = None

    @property
    def complete_from(self) -> Offset | None:
        """The offset from which on nothing is missing up to the tail; None if not all gaps are known here."""
        if self.head.gaps > len(self.gaps):
            return None
        return self.gaps[-1].next_offset if self.gaps else self.head.first_offset
