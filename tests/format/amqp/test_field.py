"""Fields by their names, and what they find in a message."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError, TruncatedError
from coldstream.format.amqp.field import MessageField
from coldstream.format.amqp.message import Message, in_place_of, messages
from coldstream.format.amqp.sections import Properties
from coldstream.format.chunk import iter_chunks
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.amqp_samples import MESSAGES, SOME_UUID, encode


def message_of(raw: bytes) -> Message:
    _, data = make_chunk([raw], chunk_id=ChunkId(7), timestamp=TimestampMs(5), epoch=Epoch(1))
    return next(messages(next(iter_chunks(data, source="here")), source="here"))


@pytest.mark.parametrize(
    ("text", "section", "name"),
    [
        ("properties.message_id", "properties", "message_id"),
        ("properties.user-id", "properties", "user_id"),
        ("application_properties.a-b", "application_properties", "a-b"),
        ("application_properties.a.b", "application_properties", "a.b"),
        ("message_annotations.x-routing-key", "message_annotations", "x-routing-key"),
    ],
)
def test_a_field_is_a_section_and_a_name_and_its_text_can_be_read_again(text, section, name):
    field = MessageField.parse(text)
    assert (field.section, field.name) == (section, name)
    assert MessageField.parse(str(field)) == field


@pytest.mark.parametrize(
    "text",
    ["", "properties", "properties.", "properties.other", "footer.a", ".a", "application_properties.", "body"],
)
def test_what_names_no_field_is_refused_about_what_was_asked(text):
    with pytest.raises(InvalidQueryError, match=r"--property.*message_annotations\.NAME") as caught:
        MessageField.parse(text, "--property")
    assert caught.value.field == "--property"


def test_every_property_is_a_field():
    for name in Properties._fields:
        assert MessageField.parse(f"properties.{name}") == MessageField("properties", name)


VALUES = {"text": "grün", "number": 5, "yes": True, "id": SOME_UUID, "bytes": b"\x00\xff"}


def test_values_are_found_as_text():
    message = message_of(encode(application_properties=VALUES, body=b"hello"))

    def found(name: str) -> str | None:
        return MessageField("application_properties", name).find(message)

    assert found("text") == "grün"
    assert found("number") == "5"
    assert found("yes") == "True"
    assert found("id") == str(SOME_UUID)
    assert found("bytes") is not None
    assert found("bytes") != found("text")
    assert found("another") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("properties.message_id", "id-1"),
        ("properties.subject", "subject"),
        ("properties.reply-to", "back"),
        ("properties.correlation_id", str(SOME_UUID)),
        ("properties.group_sequence", "7"),
    ],
)
def test_properties_are_found_by_their_names(text, value):
    assert MessageField.parse(text).find(message_of(MESSAGES["properties"])) == value


def test_an_annotation_is_found_and_a_list_is_its_text():
    message = message_of(MESSAGES["every section"])
    assert MessageField.parse("message_annotations.x-exchange").find(message) == "e"
    assert MessageField.parse("message_annotations.x-list").find(message) == "[1, 'two']"


@pytest.mark.parametrize("section", ["properties", "application_properties", "message_annotations"])
def test_a_message_without_the_section_has_no_value(section):
    field = MessageField(section, "message_id")
    assert field.find(message_of(encode(body=b"hello"))) is None
    assert field.find(message_of(b"no AMQP at all")) is None


def test_damaged_amqp_is_told():
    damaged = encode(application_properties={"a": "b"})[:-1]
    with pytest.raises(TruncatedError):
        MessageField("application_properties", "a").find(message_of(damaged))


def test_a_message_in_the_place_of_another_has_its_offset_and_other_bytes():
    message = message_of(encode(body=b"hello"))
    other = in_place_of(message, encode(application_properties={"a": "b"}))
    assert (other.offset, other.timestamp, other.source) == (Offset(7), TimestampMs(5), "here")
    assert MessageField("application_properties", "a").find(other) == "b"
