from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidQueryError
from coldstream.serve.protocol.offset_token import MAX_TOKEN_OFFSET, EndOfStream, parse_place, parse_token, to_token
from coldstream.units import Offset

OFFSETS = st.integers(0, MAX_TOKEN_OFFSET).map(Offset)


@given(OFFSETS, OFFSETS)
def test_tokens_sort_as_offsets_do(one: Offset, other: Offset) -> None:
    assert (to_token(one) < to_token(other)) == (one < other)
    assert len(to_token(one)) == len(to_token(other))


@given(OFFSETS)
def test_a_token_is_read_back(offset: Offset) -> None:
    assert parse_token(to_token(offset)) == offset == parse_place(to_token(offset))


def test_the_first_position_is_all_zeros() -> None:
    assert to_token(Offset(0)) == "0000000000000000_0000000000000000"


def test_both_ends_have_names() -> None:
    assert parse_place("-1") is EndOfStream.FIRST
    assert parse_place("now") is EndOfStream.NOW


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-2",
        "Now",
        "0,1",
        "0 1",
        "../0",
        "0000000000000001_0000000000000001",
        "9999999999999999_9999999999999999",
        " 0000000000000001_0000000000000000",
        "0000000000000001_0000000000000000\n",
        "\u0660000000000000001_0000000000000000",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError):
        parse_place(text)
