"""JSON as messages: a body's values in, an array out. Values keep their bytes: no number is ever rounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from coldstream.errors import InvalidInputError

_SPACE = " \t\n\r"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Only the ends of the values count here. So numbers are not converted, which also has no limit of digits.
_DECODER = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_no_constant)


def split_messages(body: bytes, at_most: int | None = None) -> list[bytes]:
    """Return the messages of a body, or the first of them: the elements of an array, or the one value that it is.

    An empty array has none. `at_most` bounds the time: millions of elements take seconds. Raises
    InvalidInputError if the body is not JSON in UTF-8.
    """
    try:
        text = body.decode()
        return [value.encode() for value in islice(_values(text), at_most)]
    except (ValueError, RecursionError) as err:
        problem = "is nested too deep" if isinstance(err, RecursionError) else f"is not JSON: {err}"
        raise InvalidInputError("body", problem) from err


def join_messages(messages: Iterable[bytes]) -> bytes:
    """Return an array of messages."""
    return b"[" + b",".join(messages) + b"]"


def check_message(message: bytes) -> None:
    """Raise InvalidInputError unless the message is one JSON value."""
    try:
        text = message.decode()
        start = _skip(text, 0)
        _end(text, _DECODER.raw_decode(text, start)[1])
    except (ValueError, RecursionError) as err:
        raise InvalidInputError("message", f"is not JSON: {err}") from err


def _values(text: str) -> Iterator[str]:
    start = _skip(text, 0)
    _, end = _DECODER.raw_decode(text, start)  # the whole is checked here, so that the walk below may be simple
    _end(text, end)
    if not text.startswith("[", start):
        yield text[start:end]
        return
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise ValueError(f"more follows the value at character {at}")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
