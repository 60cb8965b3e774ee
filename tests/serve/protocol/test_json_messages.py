from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidInputError
from coldstream.serve.protocol.json_messages import check_message, join_messages, split_messages

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(VALUES), st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}]))
def test_an_array_is_one_message_for_each_element(values: list[object], how: dict[str, Any]) -> None:
    body = json.dumps(values, **how).encode()
    messages = split_messages(body)
    assert [json.loads(message) for message in messages] == values
    assert json.loads(join_messages(messages)) == values


@given(VALUES.filter(lambda value: not isinstance(value, list)))
def test_any_other_value_is_one_message(value: object) -> None:
    assert split_messages(json.dumps(value).encode()) == [json.dumps(value).encode()]


def test_only_one_level_is_taken_apart() -> None:
    assert split_messages(b" [[1, 2] , [ ],[[3]]] \n") == [b"[1, 2]", b"[ ]", b"[[3]]"]


@pytest.mark.parametrize(
    "number",
    [
        b"1" * 5000,
        b"0.1000000000000000055511151231257827",
        b"1e400",
        b"-0",
        b"1.0",
    ],
)
def test_a_number_keeps_its_digits(number: bytes) -> None:
    assert split_messages(b"[" + number + b"]") == [number]


def test_an_empty_array_has_no_messages() -> None:
    assert split_messages(b"[ ]") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[1,]",
        b"[1 2]",
        b"[1",
        b"{",
        b"1 2",
        b"[] []",
        b"NaN",
        b"[Infinity]",
        b"'a'",
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b"[" * 200_000,
        b'["a\nb"]',
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        split_messages(body)
    with pytest.raises(InvalidInputError):
        check_message(body)


def test_one_value_passes_the_check() -> None:
    check_message(b' {"a": [1, 2]} ')
