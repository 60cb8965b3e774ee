"""Offsets as the protocol has them: opaque tokens that sort as their positions do.

    0000000000000042_0000000000000000
    offset of a message, 16 digits; reserved, 16 zeros

In a stream of bytes one message is the body of one request, in a stream of JSON it is one value. A token names the
position before a message, so every token that a response holds lies between two messages. The shape is that of the
protocol's own server, whose first position is all zeros, too.
"""

from __future__ import annotations

import re
from enum import Enum

from coldstream.errors import InvalidQueryError
from coldstream.units import Offset

_DIGITS = 16
_RESERVED = "0" * _DIGITS
_TOKEN = re.compile(r"([0-9]{16})_([0-9]{16})", re.ASCII)
MAX_TOKEN_OFFSET = 10**_DIGITS - 1
"""No stream gets there: it is a million messages a second for three centuries."""


class EndOfStream(Enum):
    """A place that has no token: before everything that is kept, or after everything there is."""

    FIRST = "-1"
    NOW = "now"


def to_token(offset: Offset) -> str:
    """Return the token of a position."""
    return f"{offset:0{_DIGITS}d}_{_RESERVED}"


def parse_token(text: str) -> Offset:
    """Return the position of a token. Raises InvalidQueryError."""
    found = _TOKEN.fullmatch(text)
    if found is None or found[2] != _RESERVED:
        raise InvalidQueryError("offset", f"{text[:80]!r} is no offset of a stream")
    return Offset(int(found[1]))


def parse_place(text: str) -> Offset | EndOfStream:
    """Return what the query's `offset` names: -1, now, or a token. Raises InvalidQueryError."""
    try:
        return EndOfStream(text)
    except ValueError:
        return parse_token(text)
