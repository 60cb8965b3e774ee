from __future__ import annotations

import json

import pytest

from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import CorruptionError, InvalidQueryError, InvalidSettingError
from coldstream.format.amqp.field import MessageField
from coldstream.format.amqp.message import Message, messages
from coldstream.units import Offset
from tests.erase.samples import amqp, chunk_of


def message_of(raw: bytes) -> Message:
    return next(messages(chunk_of(raw), source="test"))


ALICE = amqp(b"hello", user="alice", x_stream_filter_value="eu", x_routing_key="orders.alice")


@pytest.mark.parametrize(
    ("selection", "is_taken"),
    [
        (Selection(filter_value=ValueDigest.of("eu")), True),
        (Selection(filter_value=ValueDigest.of("us")), False),
        (Selection(key=ValueDigest.of("alice")), True),
        (Selection(key=ValueDigest.of("orders.alice")), True),
        (Selection(key=ValueDigest.of("bob")), False),
        (Selection(properties=((MessageField.parse("properties.message-id"), ValueDigest.of("alice")),)), True),
        (Selection(properties=((MessageField.parse("properties.subject"), ValueDigest.of("alice")),)), False),
        (Selection(key=ValueDigest.of("alice"), filter_value=ValueDigest.of("us")), False),
        (Selection(key=ValueDigest.of("alice"), filter_value=ValueDigest.of("eu")), True),
    ],
)
def test_a_message_is_taken_if_every_condition_takes_it(selection: Selection, *, is_taken: bool) -> None:
    assert selection.takes(message_of(ALICE)) is is_taken


def test_what_is_not_amqp_has_no_value() -> None:
    assert not Selection(key=ValueDigest.of("alice")).takes(message_of(b"plain text"))


def test_a_selection_without_conditions_is_refused() -> None:
    with pytest.raises(InvalidQueryError, match="name offsets"):
        Selection()


@pytest.mark.parametrize(("first", "following"), [(5, 5), (6, 5), (-1, 5)])
def test_offsets_that_do_not_rise_are_refused(first: int, following: int) -> None:
    with pytest.raises(InvalidQueryError, match="must rise"):
        Selection(Offset(first), Offset(following))


WHOLE = Selection(
    Offset(10),
    Offset(20),
    filter_value=ValueDigest.of("größe"),
    key=ValueDigest.of("alice"),
    properties=((MessageField.parse("application_properties.user.id"), ValueDigest.of("4711")),),
    function="rules:old",
)


def test_a_selection_comes_back_from_its_text() -> None:
    assert Selection.from_text(WHOLE.to_text(), source="test") == WHOLE


def test_its_text_has_none_of_the_values() -> None:
    text = WHOLE.to_text()
    assert not any(value in text for value in ("größe", "gr\\u00f6", "alice", "4711"))


def test_the_same_value_has_another_digest_each_time() -> None:
    assert ValueDigest.of("alice") != ValueDigest.of("alice")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"offsets":[5,5]}', '{"key":{"salt":"00"}}', '{"function":1,"x":2}'])
def test_a_text_that_is_no_selection_is_refused(text: str) -> None:
    with pytest.raises(CorruptionError):
        Selection.from_text(text, source="test")


def test_a_condition_of_a_later_release_is_refused_and_not_left_out() -> None:
    text = json.dumps({"offsets": [1, 2], "older_than": 5})
    with pytest.raises(CorruptionError, match="older_than"):
        Selection.from_text(text, source="test")


def test_a_function_that_is_not_loaded_is_no_answer() -> None:
    with pytest.raises(InvalidSettingError, match="rules:old"):
        Selection(function="rules:old").takes(message_of(ALICE))


def test_a_function_that_fails_ends_the_run_without_telling_what_it_said() -> None:
    def fails(message: Message) -> bool:
        raise ValueError(f"what of {message.properties}")

    with pytest.raises(InvalidSettingError) as caught:
        Selection(function="rules:old").with_predicate(fails).takes(message_of(ALICE))
    assert "ValueError for the message at offset 100" in str(caught.value)
    assert "alice" not in str(caught.value)
