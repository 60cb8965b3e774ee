"""JSON with its tokens told apart by classes, so that a style sheet can colour them. Everything is escaped."""

from __future__ import annotations

import re

from markupsafe import Markup

from coldstream.console.words import body_text
from coldstream.units import KIB

MAX_CHARACTERS = 128 * KIB
"""Of a longer text the tokens are not told apart: each takes an element."""

_TOKEN = re.compile(
    r'(?P<key>"[^"\\]*(?:\\.[^"\\]*)*"(?=\s*:))'
    r'|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)"
    r"|(?P<word>true|false|null)"
)
_CLASSES = {"key": "j-key", "string": "j-string", "number": "j-number", "word": "j-word"}
_ELEMENT = Markup('<span class="{}">{}</span>')


def json_markup(text: str) -> Markup:
    """Return a text that is JSON, or its beginning, as markup."""
    if len(text) > MAX_CHARACTERS:
        return body_text(text)
    parts: list[Markup] = []
    at = 0
    for found in _TOKEN.finditer(text):
        kind = _CLASSES[found.lastgroup or ""]
        parts += [body_text(text[at : found.start()]), _ELEMENT.format(kind, body_text(found[0]))]
        at = found.end()
    return Markup("").join([*parts, body_text(text[at:])])
