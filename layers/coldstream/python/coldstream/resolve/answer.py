"""What is asked of the resolver, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coldstream.errors import InvalidQueryError
from coldstream.manifest.entry import Encoding, Gap, Head
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import MIB, ByteRange, Offset, TimestampMs

MAX_RANGES = 1000
"""Of one answer: with a URL each it stays well below the 6 MB that a function may return."""

DEFAULT_MAX_RANGES = 16
DEFAULT_MAX_BYTES = 256 * MIB


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on exactly where another answer ended, by its `cursor`, whose content is the resolver's own."""

    cursor: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one answer may hold, in bytes of chunks.

    `max_bytes` is over all ranges, but one range there always is. `range_bytes` splits fragments at points of their
    sparse index, about a MiB apart, into ranges of at most that size where the points allow; None leaves them whole.
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
    """Which ranges hold the stream from `start` on.

    `incarnation` None asks for the newest one. `precise` begins the first range at the very chunk, for one GET of a
    part of the fragment's index, instead of at a point up to about a MiB before it.
    """

    vhost: str
    name: str
    start: OffsetSpec | Continue
    incarnation: str | None = None
    bounds: Bounds = field(default_factory=Bounds)
    precise: bool = False


class AnswerOutcome(StrEnum):
    """What an answer is, first of all."""

    RANGES = "ranges"
    GAP = "gap"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Range:
    """Whole chunks, one after the other: bytes of one object, and a URL that grants exactly those.

    `byte_range` is of the object, offsets are half-open. `first_timestamp` is the first chunk's, `last_timestamp` the
    last chunk's; where the range ends inside a fragment, the greatest of the fragment's chunks up to there, which is
    the same unless the leader's clock ran backwards. `data_bytes` is the size of the chunks, which `byte_range` holds
    as `encoding` says: as they are, or in whole frames of zstd that hold nothing else. `crc32` is that of the whole
    object.
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


@dataclass(frozen=True, slots=True)
class Answer:
    """Ranges in the order of their offsets, without a hole between them, and what follows.

    Each range begins at or before the next offset of the one before, the first one at or before the place that was
    asked for. Exactly one of the last three is there: the `gap` behind the last range; the `tail`, from where on the
    broker has the stream; or the `cursor` to ask on with.
    """

    stream: StreamId
    ranges: tuple[Range, ...] = ()
    gap: Gap | None = None
    tail: Offset | None = None
    cursor: str | None = None

    def __post_init__(self) -> None:
        if sum(follows is not None for follows in (self.gap, self.tail, self.cursor)) != 1:
            raise ValueError("an answer ends in a gap, in the tail, or with a cursor")
        if self.cursor is not None and not self.ranges:
            raise ValueError("an answer without ranges has no cursor")

    @property
    def outcome(self) -> AnswerOutcome:
        """Ranges if there are any, else whether a gap or the tail is there instead."""
        if self.ranges:
            return AnswerOutcome.RANGES
        return AnswerOutcome.TAIL if self.gap is None else AnswerOutcome.GAP


@dataclass(frozen=True, slots=True)
class Description:
    """The state of a stream as a whole, and its first gaps: `head.gaps` says how many there are.

    `before` is what is missing before the first archived offset, None where the archive begins with the stream;
    `after` what is known to be lost right behind the tail, None where the broker goes on there.
    """

    head: Head
    gaps: tuple[Gap, ...]
    before: Gap | None = None
    after: Gap | None = None

    @property
    def complete_from(self) -> Offset | None:
        """The offset from which on nothing is missing up to the tail; None where too many gaps are there to tell."""
        if self.head.gaps > len(self.gaps):
            return None
        return self.gaps[-1].next_offset if self.gaps else self.head.first_offset
