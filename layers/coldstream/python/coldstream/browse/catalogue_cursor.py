"""Cursors of the list of streams: the row that a page begins after, or ends before, as text.

cursor    base64url without padding, of JSON: {"v": 1, "s": column, "d": descending, "b": before, "x": value of the row
          in that column, "k": [name, vhost, incarnation]}

The value is in it, so the place is found even if the row is gone, or has another value by now.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from coldstream.browse.catalogue_query import CatalogueColumn
from coldstream.errors import InvalidQueryError

VERSION = 1
MAX_CHARACTERS = 4096
"""More than two names and an incarnation of 255 bytes each need, escaped and encoded."""

_KEY_PARTS = 3


@dataclass(frozen=True, slots=True)
class CatalogueCursor:
    """Right after a row, or right before it with `is_before`, in the order of a column."""

    sort: CatalogueColumn
    descending: bool
    is_before: bool
    value: str | float | None
    name: str
    vhost: str
    incarnation: str

    def to_text(self) -> str:
        """Encode."""
        content = {
            "v": VERSION,
            "s": self.sort.value,
            "d": self.descending,
            "b": self.is_before,
            "x": self.value,
            "k": [self.name, self.vhost, self.incarnation],
        }
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> CatalogueCursor:
        """Decode. Raises InvalidQueryError for any text that `to_text` does not produce."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError("too long")
            content = json.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
            if not isinstance(content, dict):
                raise TypeError("not an object")
            key, value = content["k"], content["x"]
            is_of_types = (
                isinstance(key, list)
                and len(key) == _KEY_PARTS
                and all(isinstance(part, str) for part in key)
                and type(content["d"]) is bool
                and type(content["b"]) is bool
                and (value is None or type(value) in {str, int, float})
            )
            if not is_of_types:
                raise TypeError("fields are of other types")
            sort = CatalogueColumn(content["s"])
            is_text = sort in {CatalogueColumn.NAME, CatalogueColumn.VHOST}
            if is_text != isinstance(value, str):
                raise TypeError("a value of another column")
            cursor = cls(sort, content["d"], content["b"], value, *key)
            # A cursor has one text. Comparing it refuses other versions, unknown fields and other spellings.
            if cursor.to_text() != text:
                raise ValueError("another version, or unknown fields")
        except (ValueError, TypeError, KeyError, RecursionError) as err:
            raise InvalidQueryError("cursor", f"{text[:80]!r} is not a cursor of this list") from err
        return cursor
