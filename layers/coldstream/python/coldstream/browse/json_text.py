"""JSON set out for reading, its tokens as they were written.

Parsed and written again, numbers would lose digits, escapes would change and of equal keys one would be lost. So the
text is checked by the parser, and then only its whitespace is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from coldstream.units import MIB

MAX_PRETTY_CHARACTERS = 8 * MIB
"""A text that indentation would take past this is left as it is: deep nesting makes a small text large."""

_INDENT = "  "
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""A string, a mark, or a number or word. Each alternative begins with a character of its own: it cannot backtrack."""


def pretty_json(data: bytes) -> str | None:
    """Return JSON on indented lines; None if it is not an object or array, or not JSON at all."""
    try:
        text = data.decode()
        if not text.lstrip().startswith(("{", "[")):
            return None
        json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_PRETTY_CHARACTERS:
            return text
    return "".join(pieces)


def _pieces(text: str) -> Iterator[str]:
    depth = 0
    opened = False
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if piece in "}]":
            depth -= 1
            if not opened:
                yield "\n" + _INDENT * depth
            opened = False
            yield piece
            continue
        if opened:
            yield "\n" + _INDENT * depth
            opened = False
        yield piece
        match piece:
            case "{" | "[":
                depth += 1
                opened = True
            case ",":
                yield "\n" + _INDENT * depth
            case ":":
                yield " "


def _number(_: str) -> int:
    # Not converted: Python takes long for numbers of many digits, and refuses those of more than 4,300.
    return 0


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
