"""A search for messages, its slices, and the forecast of what it will read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.browse.cost import ReadCost
from coldstream.browse.limits import IN_A_LIST, ViewLimits
from coldstream.browse.message_view import MessageView
from coldstream.browse.predicate import Predicate
from coldstream.errors import InvalidQueryError
from coldstream.manifest.entry import Gap, StorageClass
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import MIB, Offset

MAX_SEARCH_BYTES = 64 * 1024 * MIB
MAX_SEARCH_MATCHES = 10_000
MAX_SLICE_BYTES = 256 * MIB
MAX_SLICE_MATCHES = 200


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The messages of a stream from `start` up to, not including, `end` that a predicate holds for.

    Without `end` the search goes up to the tail that the archive has when it begins. It ends after `max_bytes` of
    chunks, or `max_matches` matches, whatever is left.
    """

    vhost: str
    name: str
    predicate: Predicate
    start: OffsetSpec = FIRST
    end: AtOffset | AtTimestamp | None = None
    incarnation: str | None = None
    max_bytes: int = 1024 * MIB
    max_matches: int = 100
    limits: ViewLimits = IN_A_LIST

    def __post_init__(self) -> None:
        for field, value, most in (
            ("max_bytes", self.max_bytes, MAX_SEARCH_BYTES),
            ("max_matches", self.max_matches, MAX_SEARCH_MATCHES),
        ):
            if not 1 <= value <= most:
                raise InvalidQueryError(field, f"{value} is not from 1 to {most}")


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """How much one slice does: bytes of chunks, seconds, and matches. It goes past a bound by one range at most."""

    max_bytes: int = 32 * MIB
    max_seconds: float = 2.0
    max_matches: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_SLICE_BYTES:
            raise InvalidQueryError("slice_bytes", f"{self.max_bytes} is not from 1 to {MAX_SLICE_BYTES}")
        if not 0 < self.max_seconds <= 60:  # noqa: PLR2004  a minute, more than a function may take
            raise InvalidQueryError("slice_seconds", f"{self.max_seconds:g} is not from 0 to 60")
        if not 1 <= self.max_matches <= MAX_SLICE_MATCHES:
            raise InvalidQueryError("slice_matches", f"{self.max_matches} is not from 1 to {MAX_SLICE_MATCHES}")


class SearchEnd(StrEnum):
    """What ended a slice. SLICE: its own bounds. GAP: offsets that are missing. Both go on by the cursor.

    END: all was read. BOUND: `max_bytes` of the search. MATCHES: `max_matches` of it. There is no cursor then.
    """

    SLICE = "slice"
    GAP = "gap"
    END = "end"
    BOUND = "bound"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class SearchForecast:
    """What a search will read, if nothing ends it before: an estimate from the head and the entries at both ends.

    `offsets` are those of its range; `chunk_bytes` are counted before, `read_bytes` after compression. `is_bounded`
    says that `max_bytes` ends it before the end of its range. `cold` is a storage class that must be restored first.
    """

    first_offset: Offset
    next_offset: Offset
    chunk_bytes: int
    read_bytes: int
    messages: int
    cost: ReadCost
    is_bounded: bool
    cold: StorageClass | None = None

    @property
    def offsets(self) -> int:
        """How many offsets the range has."""
        return self.next_offset - self.first_offset


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is, all slices together: everything below `next_offset` is done.

    `end` is where it ends, `chunk_bytes` and `messages` were looked at, `unreadable` counts messages that could not be
    decoded as far as a condition needed it, `gap_offsets` those that the archive lacks. `share` is of its offsets.
    """

    first_offset: Offset
    next_offset: Offset
    end: Offset
    chunk_bytes: int = 0
    messages: int = 0
    matches: int = 0
    unreadable: int = 0
    gap_offsets: int = 0
    cost: ReadCost = ReadCost()  # noqa: RUF009  frozen

    @property
    def share(self) -> float:
        """From 0 to 1."""
        total = self.end - self.first_offset
        return 1.0 if total <= 0 else min(1.0, (self.next_offset - self.first_offset) / total)


@dataclass(frozen=True, slots=True)
class SearchSlice:
    """What one slice found. `cursor` asks for the next one, None if there is none: whoever cancels does not ask.

    `gap` is there if that is what ended it; the next slice goes on after it.
    """

    matches: tuple[MessageView, ...]
    progress: SearchProgress
    ended_by: SearchEnd
    cursor: str | None
    gap: Gap | None
    incarnation: str
