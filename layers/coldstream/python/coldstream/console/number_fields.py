"""Numbers of queries and forms."""

from __future__ import annotations

from coldstream.errors import InvalidQueryError

_MOST_DIGITS = 20


def number_of(field: str, text: str, default: int) -> int:
    """Read a whole number that is not negative; what is empty is the default. Raises InvalidQueryError."""
    stripped = text.strip().replace(",", "").replace(" ", "")
    if not stripped:
        return default
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= _MOST_DIGITS):
        raise InvalidQueryError(field, f"{text[:40]!r} is not a whole number")
    return int(stripped)
