"""Offsets as people write them: `A:B`, from A up to, not including, B; either may be left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coldstream.errors import InvalidSettingError
from coldstream.units import MAX_OFFSET, Offset

_RANGE = re.compile(r"(?P<first>[0-9]{0,20}):(?P<next>[0-9]{0,20})")


@dataclass(frozen=True, slots=True)
class OffsetSelection:
    """Offsets `first_offset` up to `next_offset`, without end if that is None."""

    first_offset: Offset
    next_offset: Offset | None

    @classmethod
    def from_text(cls, text: str) -> OffsetSelection:
        """Read offsets. Raises InvalidSettingError."""
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise InvalidSettingError("--offsets", f"{text[:80]!r} is not A:B, such as 1000:2000 or 1000:")
        first, following = int(match["first"] or 0), int(match["next"]) if match["next"] else None
        if first > MAX_OFFSET or (following is not None and not first < following <= MAX_OFFSET + 1):
            raise InvalidSettingError("--offsets", f"{text[:80]!r}: no offset is in it")
        return cls(Offset(first), None if following is None else Offset(following))
