"""Cursors decode to what was encoded, and no other text is a cursor."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.manifest.stream import Incarnation
from coldstream.resolve.cursor import Cursor
from coldstream.units import MAX_OFFSET, Offset

GOOD = {"v": 1, "i": "__orders_1763700000000000000", "o": 5}


def encoded(content: object) -> str:
    return urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")


@pytest.mark.parametrize("offset", [0, 1, 1 << 53, MAX_OFFSET])
@pytest.mark.parametrize("name", ["a", "__orders_1763700000000000000", "=" * 255])
def test_a_cursor_comes_back_as_it_went(offset: int, name: str) -> None:
    cursor = Cursor(Incarnation(name), Offset(offset))
    text = cursor.to_text()
    assert Cursor.from_text(text) == cursor
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "é",
        "!!!!",
        "A" * 10_000,
        encoded([]),
        encoded("text"),
        encoded({}),
        encoded(GOOD | {"v": 2}),
        encoded(GOOD | {"more": 1}),
        encoded(GOOD | {"o": -1}),
        encoded(GOOD | {"o": 1 << 64}),
        encoded(GOOD | {"o": 1.0}),
        encoded(GOOD | {"o": True}),
        encoded(GOOD | {"o": "5"}),
        encoded(GOOD | {"i": "../x"}),
        encoded(GOOD | {"i": ""}),
        encoded(GOOD | {"i": 7}),
        encoded(GOOD) + "=",
        encoded(GOOD) + "\n",
        " " + encoded(GOOD),
        urlsafe_b64encode(json.dumps(GOOD).encode()).decode().rstrip("="),
        urlsafe_b64encode(b"\xff\xfe").decode(),
        urlsafe_b64encode(b"[" * 300).decode().rstrip("="),
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidQueryError) as raised:
        Cursor.from_text(text)
    assert raised.value.field == "cursor"
    assert len(str(raised.value)) < 300


def test_the_good_example_is_good() -> None:
    assert Cursor.from_text(encoded(GOOD)).next_offset == 5
