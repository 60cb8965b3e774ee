"""Elements of lists and maps with the names of their types, held against the decoder."""

from __future__ import annotations

from uuid import UUID

import pytest

from coldstream.errors import BadLengthError, CorruptionError
from coldstream.format.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, locate, read_section
from coldstream.format.amqp.typed import typed_elements, typed_value
from coldstream.format.amqp.values import decode
from tests.support.amqp_samples import EVERY_SIMPLE_VALUE, MESSAGES, SOME_UUID, encode


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES)
def test_the_elements_of_a_section_are_those_that_the_decoder_decodes(raw: bytes) -> None:
    sections = locate(raw, source="message")
    if APPLICATION_PROPERTIES in sections:
        found = list(typed_elements(raw, *sections[APPLICATION_PROPERTIES], source="message"))
        pairs = zip(found[::2], found[1::2], strict=True)
        wanted = read_section(raw, sections, APPLICATION_PROPERTIES, source="message")
        assert {key.value: value.value for key, value in pairs} == wanted
    if PROPERTIES in sections:
        found = list(typed_elements(raw, *sections[PROPERTIES], source="message"))
        wanted = read_section(raw, sections, PROPERTIES, source="message")
        assert [one.value for one in found] == list(wanted)[: len(found)]


@pytest.mark.parametrize("name", EVERY_SIMPLE_VALUE)
def test_a_value_cut_anywhere_is_damage(name: str) -> None:
    raw = encode(application_properties={name: EVERY_SIMPLE_VALUE[name]})
    start, end = locate(raw, source="message")[APPLICATION_PROPERTIES]
    for size in range(start + 1, end):
        with pytest.raises(CorruptionError):
            list(typed_elements(raw[:size], start, end, source="message"))


def test_an_empty_list_has_no_elements() -> None:
    assert list(typed_elements(b"\x45", 0, 1, source="value")) == []
    assert list(typed_elements(b"\xc0\x01\x00", 0, 3, source="value")) == []


def test_lists_maps_arrays_and_described_values_have_names() -> None:
    elements = bytes.fromhex("45c10100e00301500700530140")  # empty list and map, an ubyte 7, a null
    value = bytes((0xC0, len(elements) + 1, 4)) + elements
    found = list(typed_elements(value, 0, len(value), source="value"))
    assert [one.type for one in found] == ["list", "map", "array", "described"]


def test_typed_elements_refuse_what_is_neither_a_list_nor_a_map() -> None:
    with pytest.raises(CorruptionError, match="neither a list nor a map"):
        list(typed_elements(b"\xa1\x01a", 0, 3, source="value"))
    with pytest.raises(BadLengthError):
        typed_value(b"\x40\x40", 0, 2, source="value")
    with pytest.raises(BadLengthError):
        list(typed_elements(b"\xd0\x00", 0, 2, source="value"))


def test_typed_values_are_the_decoded_ones() -> None:
    raw = b"\x98" + SOME_UUID.bytes
    assert typed_value(raw, 0, 17, source="value").value == decode(raw, 0, 17, source="value")
    assert isinstance(typed_value(raw, 0, 17, source="value").value, UUID)
