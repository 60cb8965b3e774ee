"""Cursors of a search: where its next slice begins, and what the slices before it did, as text.

cursor    base64url without padding, of JSON: {"v": 1, "q": digest of the query, "i": incarnation, "p": the progress}

The server keeps nothing. A cursor that somebody has changed gets no more than another search would: every slice has its
own bounds, and names are checked again by whoever serves it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256

from coldstream.browse.cost import ReadCost
from coldstream.browse.search_slice import SearchProgress, SearchQuery
from coldstream.errors import InvalidNameError, InvalidQueryError
from coldstream.manifest.stream import incarnation as check_incarnation
from coldstream.units import MAX_OFFSET, Offset

VERSION = 1
MAX_CHARACTERS = 2048

_NUMBERS = 13
_MAX_COUNT = 1 << 63


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """Continue one search, of that incarnation, after what `progress` says is done."""

    incarnation: str
    progress: SearchProgress

    def to_text(self, query: SearchQuery) -> str:
        """Encode."""
        one, cost = self.progress, self.progress.cost
        numbers = [
            one.first_offset,
            one.next_offset,
            one.end,
            one.chunk_bytes,
            one.messages,
            one.matches,
            one.unreadable,
            one.gap_offsets,
            cost.queries,
            cost.gets,
            cost.units,
            cost.read_bytes,
            cost.usd,
        ]
        content = {"v": VERSION, "q": digest_of(query), "i": self.incarnation, "p": numbers}
        return urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str, query: SearchQuery) -> SearchCursor:
        """Decode. Raises InvalidQueryError for any text that `to_text` does not produce, or does for another query."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError("too long")
            content = json.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
            if not isinstance(content, dict) or not isinstance(content["i"], str):
                raise TypeError("not an object of a cursor")
            counts: list[int]
            *counts, usd = content["p"]
            if len(counts) != _NUMBERS - 1 or any(type(one) is not int or not one >= 0 for one in counts):
                raise TypeError("counts are not whole numbers")
            if max(counts[:3]) > MAX_OFFSET or max(counts[3:]) > _MAX_COUNT or not 0 <= float(usd) < _MAX_COUNT:
                raise ValueError("a number is out of range")
            first, following, end = map(Offset, counts[:3])
            if not first <= following:
                raise ValueError("offsets run backwards")
            chunk_bytes, messages, matches, unreadable, gap_offsets, queries, gets, units, read_bytes = counts[3:]
            cost = ReadCost(queries, gets, units, read_bytes, float(usd))
            done = (chunk_bytes, messages, matches, unreadable, gap_offsets)
            cursor = cls(check_incarnation(content["i"]), SearchProgress(first, following, end, *done, cost))
            if content["q"] != digest_of(query):
                raise ValueError("of another search")
            if cursor.to_text(query) != text:
                raise ValueError("another version, or unknown fields")
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError, InvalidNameError) as err:
            raise InvalidQueryError("cursor", f"{text[:80]!r} is not a cursor of this search") from err
        return cursor


def digest_of(query: SearchQuery) -> str:
    """Return what tells a search from others."""
    parts = (
        query.vhost,
        query.name,
        query.incarnation,
        str(query.predicate),
        str(query.start),
        str(query.end),
        query.max_bytes,
        query.max_matches,
    )
    return sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()[:16]
