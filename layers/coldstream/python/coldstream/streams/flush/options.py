"""When what was appended goes from the write-ahead log into fragments."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidSettingError
from coldstream.units import MIB

MAX_FRAGMENT_BYTES = 1 << 30
MAX_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class FlushOptions:
    """A stream is flushed once it has `fragment_bytes` that are in the write-ahead log alone.

    It is flushed earlier if the oldest of them were appended `flush_age_s` ago, if more than `wal_bytes` of all streams
    were appended since, or if memory runs short; then the stream with the most comes first. At most `at_once` flushes
    run at a time, each with up to twice `fragment_bytes` of temporary disk space; more if it has more than 64 of them,
    as a flush has no more fragments.

    Cost a flush: 1 PUT for every `fragment_bytes`, once at least, and 2 requests to the table. So a quiet stream costs
    that every `flush_age_s` in which something was appended, and nothing in the others; a larger `flush_age_s` is
    cheaper, and takes longer to recover after a crash.
    """

    fragment_bytes: int = 64 * MIB
    flush_age_s: float = 600.0
    wal_bytes: int = 512 * MIB
    at_once: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.fragment_bytes <= MAX_FRAGMENT_BYTES:
            raise InvalidSettingError("fragment_bytes", f"{self.fragment_bytes} is not 1 to {MAX_FRAGMENT_BYTES}")
        if self.flush_age_s <= 0:
            raise InvalidSettingError("flush_age_s", f"{self.flush_age_s} is not more than 0")
        if self.wal_bytes < 1:
            raise InvalidSettingError("wal_bytes", f"{self.wal_bytes} is not more than 0")
        if not 1 <= self.at_once <= MAX_AT_ONCE:
            raise InvalidSettingError("at_once", f"{self.at_once} is not 1 to {MAX_AT_ONCE}")
