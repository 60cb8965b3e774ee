"""The options of a compaction, checked, as a run needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from coldstream.compact.arguments import LONGEST_URL_EXPIRY, CompactArguments
from coldstream.errors import InvalidSettingError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import MAX_TARGET_BYTES, MIN_TARGET_BYTES, CompactionPolicy
from coldstream.store.grace import LONGEST_GRACE_MS, read_grace_ms
from coldstream.store.settings import MAX_COMPRESSION_LEVEL
from coldstream.units import TimestampMs, parse_duration, parse_size

MAX_OLDER_THAN_S = 100 * 365 * 24 * 3600
MAX_LEVEL = MAX_COMPRESSION_LEVEL

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Fragments older than `older_than_ms` become fragments of up to `target_bytes` of chunks, in `encoding`.

    What they replace stays for `grace_ms` more.
    """

    older_than_ms: int
    target_bytes: int
    encoding: Encoding
    level: int
    grace_ms: int = LONGEST_GRACE_MS

    @classmethod
    def of(cls, arguments: CompactArguments) -> CompactOptions:
        """Check what a user gave. Raises InvalidSettingError, naming the option."""
        return cls.parse(
            older_than=arguments.older_than,
            target_size=arguments.target_size,
            encoding=arguments.encoding,
            level=arguments.level,
            url_expiry=arguments.url_expiry,
        )

    @classmethod
    def parse(
        cls,
        *,
        older_than: str,
        target_size: str,
        encoding: str,
        level: int = DEFAULT_LEVEL,
        url_expiry: str = LONGEST_URL_EXPIRY,
    ) -> CompactOptions:
        """Parse the options of these names. Raises InvalidSettingError, naming the option."""
        older_than_s = _parse("--older-than", parse_duration, older_than)
        if older_than_s > MAX_OLDER_THAN_S:
            raise InvalidSettingError("--older-than", "must be at most 100 years")
        target_bytes = _parse("--target-size", parse_size, target_size)
        if not MIN_TARGET_BYTES <= target_bytes <= MAX_TARGET_BYTES:
            raise InvalidSettingError("--target-size", "must be from 64KiB to 4GiB")
        if encoding not in set(Encoding):
            raise InvalidSettingError("--encoding", f"{encoding[:80]!r} is not one of {', '.join(Encoding)}")
        if not 1 <= level <= MAX_LEVEL:
            raise InvalidSettingError("--level", f"must be from 1 to {MAX_LEVEL}")
        grace_ms = read_grace_ms(url_expiry)
        return cls(round(older_than_s * 1000), target_bytes, Encoding(encoding), level, grace_ms)

    def policy(self, now: TimestampMs) -> CompactionPolicy:
        """Return what to compact at that time."""
        return CompactionPolicy(TimestampMs(now - self.older_than_ms), self.target_bytes, self.encoding)


def _parse(option_name: str, parse: Callable[[str], _Number], text: str) -> _Number:
    try:
        return parse(text)
    except ValueError as err:
        raise InvalidSettingError(option_name, str(err)) from err
