"""The units of coldstream: offsets, timestamps, byte ranges.

Offsets, chunk ids and epochs are osiris's: unsigned 64-bit integers. Timestamps are milliseconds since the Unix epoch,
signed 64-bit, as osiris writes them. Ranges are half-open everywhere; only `ByteRange.http` makes the inclusive form of
HTTP.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NewType

Offset = NewType("Offset", int)
"""Position of a record in a stream: 0 to 2^64 - 1."""

ChunkId = NewType("ChunkId", int)
"""The offset of a chunk's first record; the next chunk's id is this one plus the chunk's records."""

Epoch = NewType("Epoch", int)
"""The term of the leader that wrote a chunk."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z, signed 64-bit."""

KIB = 1 << 10
MIB = 1 << 20

MAX_OFFSET = (1 << 64) - 1
MIN_TIMESTAMP_MS = -(1 << 63)
MAX_TIMESTAMP_MS = (1 << 63) - 1

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>[kKMGT]i|[kMGT])?B?")
_FACTORS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_DAY_MS = 86_400_000
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_AGO = re.compile(r"(?:now)?-(?P<duration>[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_FINER_THAN_MICROSECONDS = re.compile(r"[.,][0-9]{6}([0-9]+)")
"""The digits that datetime.fromisoformat drops."""


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Bytes `start` up to, not including, `end` of an object or a file."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a byte range needs 0 <= start < end, got {self.start}..{self.end}")

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def http(self) -> str:
        """The value of an HTTP `Range` header, whose last byte is inclusive (RFC 9110, 14.1.2)."""
        return f"bytes={self.start}-{self.end - 1}"


def now_ms() -> TimestampMs:
    """Return the time by this machine's clock."""
    return TimestampMs(time.time_ns() // 1_000_000)


def parse_timestamp(text: str) -> TimestampMs:
    """Read milliseconds since the Unix epoch, or an RFC 3339 date and time with an offset from UTC.

    A time finer than a millisecond is rounded up, so that "at or after" keeps its meaning. Raises ValueError if the
    text is neither, has no offset from UTC, or lies outside 64 bits.
    """
    stripped = text.strip().upper()
    try:
        # Not int() alone: it also takes "1_000" and non-ASCII digits.
        is_number = stripped.lstrip("-").isascii() and stripped.lstrip("-").isdigit()
        if is_number:
            value = int(stripped)
        else:
            moment = datetime.fromisoformat(stripped)
            if "T" not in stripped and " " not in stripped:
                raise ValueError("no time of day")
            if moment.tzinfo is None:
                raise ValueError("no offset from UTC")
            if (finer := _FINER_THAN_MICROSECONDS.search(stripped)) and int(finer[1]):
                moment += timedelta(microseconds=1)
            value = -((_EPOCH - moment) // timedelta(milliseconds=1))
    except (ValueError, OverflowError) as err:
        raise ValueError(
            f"{text[:80]!r} is neither milliseconds since 1970 nor an RFC 3339 time such as"
            f" 2026-01-31T09:30:00Z ({err})"
        ) from err
    if not MIN_TIMESTAMP_MS <= value <= MAX_TIMESTAMP_MS:
        raise ValueError(f"{text[:80]!r} lies outside a signed 64-bit number of milliseconds")
    return TimestampMs(value)


def parse_time(text: str, now: TimestampMs) -> TimestampMs:
    """Read a time as people write it on a command line. Days begin at midnight UTC, as all output is in UTC.

    Accepts `now`, `today` or `yesterday`; some time ago, such as -90s, -30m, -1h, -2d or now-1h; a date, such as
    2026-01-31; and everything that `parse_timestamp` reads. Raises ValueError.
    """
    stripped = text.strip()
    midnight = now - now % _DAY_MS
    words = {"now": now, "today": midnight, "yesterday": midnight - _DAY_MS}
    if stripped in words:
        return TimestampMs(words[stripped])
    if ago := _AGO.fullmatch(stripped):
        return TimestampMs(now - round(parse_duration(ago["duration"]) * 1000))
    return parse_timestamp(f"{stripped}T00:00:00Z" if _DATE.fullmatch(stripped) else stripped)


def is_relative(text: str) -> bool:
    """Tell whether a time depends on the moment at which it is read."""
    stripped = text.strip()
    return stripped in {"now", "today", "yesterday"} or _AGO.fullmatch(stripped) is not None


def format_timestamp(timestamp: TimestampMs) -> str:
    """Write a timestamp as RFC 3339 in UTC with milliseconds; as plain milliseconds outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_duration(text: str) -> float:
    """Read a duration, such as 60s, 5m, 0.5h or 30d, in seconds; a number alone is seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a duration such as 30s, 5m or 1h")
    try:
        return timedelta(seconds=float(match["number"]) * _SECONDS[match["unit"] or "s"]).total_seconds()
    except OverflowError as err:
        raise ValueError(f"{text[:20]!r} is too long") from err


def parse_size(text: str) -> int:
    """Read a size, such as 500MB or 2GiB, in bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a size such as 500MB or 2GiB")
    try:
        return int(float(match["number"]) * (_FACTORS[match["unit"].replace("ki", "Ki")] if match["unit"] else 1))
    except OverflowError as err:
        raise ValueError(f"{text[:20]!r} is too large") from err
