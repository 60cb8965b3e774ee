"""What a compaction is told, as text on a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import InvalidSettingError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Policy
from coldstream.units import KIB, TimestampMs, parse_duration, parse_size

DEFAULT_OLDER_THAN = "1h"
DEFAULT_TARGET_SIZE = "512MiB"

MAX_OLDER_THAN_S = 100 * 365 * 24 * 3600
MIN_TARGET_BYTES = 64 * KIB
MAX_TARGET_BYTES = 1 << 32
MAX_LEVEL = 19
"""Higher ones of zstd want 128 MiB of whoever reads, too."""

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Fragments older than `older_than_ms` become ones of up to `target_bytes` of chunks in the encoding."""

    older_than_ms: int
    target_bytes: int
    encoding: Encoding
    level: int

    @classmethod
    def parse(cls, *, older_than: str, target_size: str, encoding: str, level: int = DEFAULT_LEVEL) -> CompactOptions:
        """Read the options of these names. Raises InvalidSettingError, naming the option."""
        older_than_s = _parse("--older-than", parse_duration, older_than)
        if older_than_s > MAX_OLDER_THAN_S:
            raise InvalidSettingError("--older-than", "is to be 100 years at most")
        target_bytes = _parse("--target-size", parse_size, target_size)
        if not MIN_TARGET_BYTES <= target_bytes <= MAX_TARGET_BYTES:
            raise InvalidSettingError("--target-size", "is to be from 64KiB to 4GiB")
        if encoding not in set(Encoding):
            raise InvalidSettingError("--encoding", f"{encoding[:80]!r} is none of {', '.join(Encoding)}")
        if not 1 <= level <= MAX_LEVEL:
            raise InvalidSettingError("--level", f"is to be from 1 to {MAX_LEVEL}")
        return cls(round(older_than_s * 1000), target_bytes, Encoding(encoding), level)

    def policy(self, now: TimestampMs) -> Policy:
        """Return what to compact at that time."""
        return Policy(TimestampMs(now - self.older_than_ms), self.target_bytes, self.encoding)


def _parse(option: str, read: Callable[[str], _Number], text: str) -> _Number:
    try:
        return read(text)
    except ValueError as err:
        raise InvalidSettingError(option, str(err)) from err
