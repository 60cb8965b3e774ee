"""Offset specs: where in a stream to attach, in the terms of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coldstream.errors import InvalidQueryError
from coldstream.units import (
    MAX_OFFSET,
    MAX_TIMESTAMP_MS,
    MIN_TIMESTAMP_MS,
    Offset,
    TimestampMs,
    parse_time,
    parse_timestamp,
)


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Attach at the chunk that holds `offset`; at the first if it is below that, at the tail if it is past that."""

    offset: Offset

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= MAX_OFFSET:
            raise InvalidQueryError("offset", f"{self.offset} is not from 0 to 2^64 - 1")

    def __str__(self) -> str:
        return str(self.offset)


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Attach at the first chunk, in offset order, whose timestamp is at or after `timestamp`."""

    timestamp: TimestampMs

    def __post_init__(self) -> None:
        if not MIN_TIMESTAMP_MS <= self.timestamp <= MAX_TIMESTAMP_MS:
            raise InvalidQueryError("timestamp", f"{self.timestamp} is not a signed 64-bit number of milliseconds")

    def __str__(self) -> str:
        return f"timestamp:{self.timestamp}"


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Attach at `first`, the first chunk of any type; `last`, the last user chunk; or `next`, the tail."""

    which: Literal["first", "last", "next"]

    def __str__(self) -> str:
        return self.which


OffsetSpec = AtOffset | AtTimestamp | AtEnd

FIRST = AtEnd("first")
LAST = AtEnd("last")
NEXT = AtEnd("next")


def parse_offset_spec(text: str, now: TimestampMs | None = None) -> OffsetSpec:
    """Read `first`, `last`, `next`, an offset, or a timestamp.

    Digits alone are an offset; a timestamp is `timestamp:` and milliseconds since 1970 or an RFC 3339 time, or an
    RFC 3339 time alone. With `now`, for input by people, also a date, or a time such as `yesterday` and `-1h`. Raises
    InvalidQueryError.
    """
    match text.strip():
        case "first" | "last" | "next" as which:
            return AtEnd(which)
        case spec:
            try:
                if spec.isascii() and spec.removeprefix("-").isdigit():
                    return AtOffset(Offset(int(spec)))
                time = spec.removeprefix("timestamp:")
                return AtTimestamp(parse_timestamp(time) if now is None else parse_time(time, now))
            except ValueError as err:
                times = "" if now is None else ", a date, now, today, yesterday, or a while ago, such as -1h"
                raise InvalidQueryError(
                    "offset spec",
                    f"{text[:80]!r} is not first, last, next, an offset, timestamp:<milliseconds>, or an RFC 3339 time"
                    f" such as 2026-01-31T09:30:00Z{times}{_zone_hint(spec)}",
                ) from err


def _zone_hint(spec: str) -> str:
    """Return advice for a time that lacks only its offset from UTC."""
    try:
        parse_timestamp(f"{spec}Z")
    except ValueError:
        return ""
    return f"; it has no offset from UTC: {spec}Z is in UTC"
