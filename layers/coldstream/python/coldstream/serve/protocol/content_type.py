"""Content types: whether two are the same, and how a stream of one is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coldstream.errors import InvalidInputError

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD}")
MAX_BYTES = 255


@dataclass(frozen=True, slots=True)
class ContentType:
    """A content type as it was given. Two are the same if their media types are: case and parameters don't count."""

    text: str

    @classmethod
    def parse(cls, text: str) -> ContentType:
        """Check a header's value. Raises InvalidInputError."""
        found = cls(text.strip())
        if len(text) > MAX_BYTES or not text.isascii() or not _MEDIA_TYPE.fullmatch(found.media_type):
            raise InvalidInputError("Content-Type", f"{text[:80]!r} is no media type")
        return found

    @property
    def media_type(self) -> str:
        """The type without its parameters, in lower case."""
        return self.text.partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        """Whether messages are JSON values, and a read returns an array of them."""
        return self.media_type == "application/json"

    @property
    def is_text(self) -> bool:
        """Whether events carry the bytes as they are: text and JSON. All others are in base64."""
        return self.is_json or self.media_type.startswith("text/")


BYTES = ContentType("application/octet-stream")
"""The type of a stream whose creator gave none."""
