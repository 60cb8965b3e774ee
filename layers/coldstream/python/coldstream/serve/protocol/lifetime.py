"""Stream-TTL and Stream-Expires-At: how long a stream lives without being used, or at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from coldstream.errors import InvalidInputError
from coldstream.units import TimestampMs

_TTL = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """At most one of both: seconds since the last read or write, or the time of the end, as it was given."""

    ttl_s: int | None = None
    expires_at: str | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the stream ever ends by itself."""
        return self.ttl_s is not None or self.expires_at is not None

    def ends_at(self, used: TimestampMs) -> TimestampMs | None:
        """Return when a stream ends that was last used at `used`; None for never."""
        if self.ttl_s is not None:
            return TimestampMs(used + self.ttl_s * 1000)
        return None if self.expires_at is None else parse_time(self.expires_at)


def parse_lifetime(ttl: str | None, expires_at: str | None) -> Lifetime:
    """Check both headers. Raises InvalidInputError."""
    if ttl is not None and expires_at is not None:
        raise InvalidInputError("Stream-TTL", "and Stream-Expires-At exclude each other")
    if ttl is not None and not _TTL.fullmatch(ttl):
        raise InvalidInputError("Stream-TTL", f"{ttl[:40]!r} is no number of seconds")
    if expires_at is not None:
        parse_time(expires_at)
    return Lifetime(None if ttl is None else int(ttl), expires_at)


def parse_time(text: str) -> TimestampMs:
    """Parse a time of RFC 3339. Raises InvalidInputError."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError("not RFC 3339")
        return TimestampMs(int(datetime.fromisoformat(text.upper()).timestamp() * 1000))
    except (ValueError, OverflowError) as err:
        raise InvalidInputError("Stream-Expires-At", f"{text[:40]!r} is no time of RFC 3339") from err
