"""Cursors: the place where the next answer begins, as text that only the resolver reads.

cursor    base64url without padding, of JSON: {"v": 1, "i": incarnation, "o": next offset}
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from coldstream.errors import InvalidNameError, InvalidQueryError
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.units import MAX_OFFSET, Offset

VERSION = 1

MAX_CHARACTERS = 512
"""More than the longest incarnation and offset need."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Continue at exactly `next_offset` of that incarnation. If the archive lacks that offset, the answer is a gap."""

    incarnation: Incarnation
    next_offset: Offset

    def to_text(self) -> str:
        """Encode."""
        content = {"v": VERSION, "i": self.incarnation, "o": self.next_offset}
        return urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """Decode. Raises InvalidQueryError for any text that `to_text` does not produce."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError("too long")
            content = json.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
            # `isinstance` would take JSON's `true` for an offset, and `to_text` would give it back unchanged.
            if not isinstance(content, dict) or type(content.get("i")) is not str or type(content.get("o")) is not int:
                raise ValueError("fields are missing")
            if not 0 <= content["o"] <= MAX_OFFSET:
                raise ValueError("the offset is out of range")
            # A cursor has one text. Comparing it refuses other versions, unknown fields and other base64 spellings.
            cursor = cls(incarnation(content["i"]), Offset(content["o"]))
            if cursor.to_text() != text:
                raise ValueError("another version, or unknown fields")
        except (ValueError, RecursionError, InvalidNameError) as err:  # RecursionError: nested too deep
            raise InvalidQueryError("cursor", f"{text[:80]!r} is not a cursor of this API") from err
        return cursor
