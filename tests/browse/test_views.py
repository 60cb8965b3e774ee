"""Views of messages: every section as rows, bodies in three forms, all cut at limits, whatever the bytes are."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest

from coldstream.browse.body_view import BodyKind, BodyView
from coldstream.browse.json_text import pretty_json
from coldstream.browse.limits import MAX_UNPACKED_BYTES, ViewLimits
from coldstream.browse.message_view import EntryPlace, MessageView, SectionRow
from coldstream.browse.placed import PlacedMessage, placed_messages
from coldstream.browse.sections_view import MAX_DECODED_BYTES
from coldstream.browse.view_of import NOT_AMQP, view_of
from coldstream.errors import BadCountError, InvalidQueryError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, ChunkHeader, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import entry
from tests.support.amqp_samples import EVERY_SIMPLE_VALUE, MESSAGES, SOME_UUID, encode
from tests.support.browsed import data_message
from tests.support.hostile_text import HOSTILE_BODIES, HOSTILE_TEXTS

LIMITS = ViewLimits()


def chunk_of(*entries: bytes | SubBatch) -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(10), timestamp=TimestampMs(5), epoch=Epoch(1))
    (chunk,) = iter_chunks(data, source="chunk")
    return chunk


HEADER: ChunkHeader = chunk_of(b"x").header


def view(raw: bytes, limits: ViewLimits = LIMITS, *, problem: str | None = None) -> MessageView:
    placed = PlacedMessage(Offset(10), EntryPlace(0), memoryview(raw), problem)
    return view_of(placed, HEADER, entry(10, 20), limits)


def rows(raw: bytes, name: str) -> list[tuple[str, str, str]]:
    (section,) = (one for one in view(raw).sections if one.name == name)
    assert section.problem is None
    return [(row.name, row.type, row.text) for row in section.rows]


def body(raw: bytes, limits: ViewLimits = LIMITS) -> BodyView:
    found = view(raw, limits).body
    assert found is not None
    return found


def test_every_section_is_there_in_order_with_names_types_and_texts() -> None:
    raw = MESSAGES["every section"]
    assert [section.name for section in view(raw).sections] == [
        "header",
        "delivery-annotations",
        "message-annotations",
        "properties",
        "application-properties",
        "footer",
    ]
    assert rows(raw, "header") == [
        ("durable", "boolean", "true"),
        ("priority", "ubyte", "5"),
        ("ttl", "uint", "60000"),
        ("first-acquirer", "boolean", "false"),
        ("delivery-count", "uint", "2"),
    ]
    assert ("message-id", "string", "id-2") in rows(raw, "properties")
    assert ("x-list", "list", '[1, "two"]') in rows(raw, "message-annotations")
    assert rows(raw, "footer")[0][0] == "x-crc"
    found = view(raw)
    assert (found.raw_bytes, found.problem, found.is_erased) == (len(raw), None, False)
    assert (found.offset, found.chunk_id, found.timestamp) == (10, 10, 5)


def test_every_simple_type_has_its_own_name() -> None:
    types = {
        name: (type_, text) for name, type_, text in rows(MESSAGES["application properties"], "application-properties")
    }
    assert types == {
        "null": ("null", "null"),
        "true": ("boolean", "true"),
        "false": ("boolean", "false"),
        "ubyte": ("ubyte", "255"),
        "ushort": ("ushort", "65535"),
        "uint-0": ("uint", "0"),
        "uint-small": ("uint", "255"),
        "uint": ("uint", "4294967295"),
        "ulong-0": ("ulong", "0"),
        "ulong-small": ("ulong", "255"),
        "ulong": ("ulong", "18446744073709551615"),
        "byte": ("byte", "-128"),
        "short": ("short", "-32768"),
        "int-small": ("int", "-128"),
        "int": ("int", "-2147483648"),
        "long-small": ("long", "-128"),
        "long": ("long", "-9223372036854775808"),
        "float": ("float", "0.5"),
        "double": ("double", "0.1"),
        "timestamp": ("timestamp", "2025-11-21T04:40:00.123Z"),
        "uuid": ("uuid", str(SOME_UUID)),
        "binary": ("binary", "0x00ff"),
        "binary-long": ("binary", "0x" + (bytes(range(256)) * 2)[:256].hex()),
        "string": ("string", "grün"),
        "string-long": ("string", EVERY_SIMPLE_VALUE["string-long"]),
        "symbol": ("symbol", "symbol"),
    }


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES)
def test_typed_elements_are_what_the_decoder_decodes(raw: bytes) -> None:
    for section in view(raw).sections:
        assert section.problem is None


@pytest.mark.parametrize("raw", MESSAGES.values(), ids=MESSAGES)
def test_a_message_that_is_cut_anywhere_is_shown_with_what_is_wrong(raw: bytes) -> None:
    for size in range(len(raw)):
        found = view(raw[:size])
        assert found.raw_bytes == size
        assert found.problem is None or found.body is not None


@pytest.mark.parametrize("seed", range(300))
def test_no_bytes_make_a_view_fail(seed: int) -> None:
    rng = random.Random(seed)
    raw = bytearray(rng.choice(list(MESSAGES.values())))
    for _ in range(rng.randrange(1, 6)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    found = view(bytes(raw))
    if found.body is not None:
        for shown in (found.body.text, found.body.json, found.body.hex_dump):
            assert shown is None or isinstance(shown, str)


def test_a_value_that_is_long_is_cut_and_tells_how_long_it_is() -> None:
    raw = encode(application_properties={"long": "ä" * 1000, "binary": bytes(1000)})
    (section,) = view(raw, ViewLimits(value_characters=10)).sections
    assert section.rows == (
        SectionRow("long", "string", "ä" * 10, 1000, is_cut=True),
        SectionRow("binary", "binary", "0x" + "00" * 5, 2002, is_cut=True),
    )


def test_a_section_of_many_values_shows_the_first_and_counts_all() -> None:
    raw = encode(application_properties={f"k{number}": number for number in range(300)})
    (section,) = view(raw, ViewLimits(section_rows=7)).sections
    assert (len(section.rows), section.count) == (7, 300)


def test_a_section_that_is_huge_is_not_decoded() -> None:
    raw = encode(application_properties={"k": "x" * (MAX_DECODED_BYTES + 1)}, body=b"body")
    (section,) = view(raw).sections
    assert (section.rows, section.count) == ((), 0)
    assert section.problem is not None
    assert "is not decoded" in section.problem
    assert body(raw).data == b"body"
    huge = encode(value="x" * (MAX_DECODED_BYTES + 1))
    assert (body(huge).type, body(huge).is_cut, body(huge).size_bytes) == ("too large to decode", True, len(huge) - 3)


def test_a_damaged_section_shows_what_comes_before_the_damage_and_the_body_all_the_same() -> None:
    # A map of two strings and a key of an unknown type; then a data section.
    raw = bytes.fromhex("005374c10a04a10161a10162") + b"\x3f\x40\x40" + data_message(b"body")
    raw = raw[:4] + bytes((len(raw[:15]) - 5,)) + raw[5:]
    (section,) = view(raw).sections
    assert section.rows == (SectionRow("a", "string", "b", 1),)
    assert section.problem is not None
    assert body(raw).data == b"body"


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("005374c1020140", "expected an even number"),
        ("005373c00f0e" + "40" * 14, "expected at most 13"),
        ("005374c1020340", "fewer elements than it counts"),
        ("005374c10402404040", "end of an AMQP list or map"),
        ("005374c10302403f", "constructor of an AMQP value"),
    ],
)
def test_a_section_that_contradicts_itself_says_how(section: str, problem: str) -> None:
    found = view(bytes.fromhex(section) + data_message(b"x"))
    (one,) = found.sections
    assert one.problem is not None
    assert problem in one.problem
    assert found.body is not None


def test_a_string_that_is_not_utf_8_is_shown_in_hexadecimal() -> None:
    raw = bytes.fromhex("005374c107 02 a10161 a101ff".replace(" ", ""))
    ((name, type_, text),) = rows(raw, "application-properties")
    assert (name, type_, text) == ("a", "string, not UTF-8", "0xff")


def test_bytes_that_are_not_amqp_are_the_body() -> None:
    found = view(b"plain text")
    assert (found.problem, found.sections) == (NOT_AMQP, ())
    assert found.body == BodyView(BodyKind.RAW, b"plain text", 10)


@pytest.mark.parametrize(
    ("raw", "kind", "data", "type_", "is_rendered"),
    [
        (MESSAGES["data"], "data", b"hello", "binary", False),
        (MESSAGES["two data sections"], "data", b"onetwo", "binary", False),
        (MESSAGES["value string"], "value", "grün".encode(), "string", False),
        (MESSAGES["value null"], "value", b"null", "null", True),
        (MESSAGES["value map"], "value", b'{"a": [1, "two", {"three": 3}], "b": true}', "map", True),
        (MESSAGES["sequence"], "sequence", b'[1, "two", null]', "list", True),
        (MESSAGES["two sequences"], "sequence", b'[1, 2, "three"]', "list", True),
        (encode(value=b"\xff\x00"), "value", b"\xff\x00", "binary", False),
    ],
)
def test_bodies_of_every_kind(raw: bytes, kind: str, data: bytes, type_: str, *, is_rendered: bool) -> None:
    assert body(raw) == BodyView(BodyKind(kind), data, len(data), is_rendered, type_)


def test_a_message_without_a_body_has_none() -> None:
    assert view(b"").body is None
    assert view(encode(application_properties={"a": 1})).body is None


def test_a_message_whose_sub_batch_cannot_be_unpacked_is_only_its_place() -> None:
    found = view(b"", problem="it is broken")
    assert (found.problem, found.body, found.sections, found.raw_bytes) == ("it is broken", None, (), 0)


def test_an_erased_message_is_told_only_in_an_erased_fragment() -> None:
    placed = PlacedMessage(Offset(10), EntryPlace(0), memoryview(ERASED_MESSAGE))
    assert not view_of(placed, HEADER, entry(10, 20), LIMITS).is_erased
    assert view_of(placed, HEADER, replace(entry(10, 20), erased=True), LIMITS).is_erased


# Bodies


@pytest.mark.parametrize("data", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
def test_a_hostile_body_is_shown_as_it_is(data: bytes) -> None:
    whole = body(data_message(data), ViewLimits(body_bytes=1 << 20))
    assert whole.data == data
    assert whole.text in {None, data.decode(errors="replace")}
    if whole.json is not None:
        assert "".join(whole.json.split()) == "".join(data.decode().split())
        assert json.loads(whole.json, parse_int=str, parse_float=str) == json.loads(
            data, parse_int=str, parse_float=str
        )
    assert bytes.fromhex("".join(line[10:59] for line in whole.hex_lines())) == data
    cut = body(data_message(data), ViewLimits(body_bytes=100))
    assert (cut.data, cut.size_bytes, cut.is_cut) == (data[:100], len(data), len(data) > 100)


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_names_and_values_are_shown_as_they_are(text: str) -> None:
    raw = encode(application_properties={text: text})
    assert rows(raw, "application-properties") == [(text, "string", text)]


def test_text_that_is_cut_within_a_character_leaves_that_out() -> None:
    for size in range(1, 9):
        found = body(data_message("ääää".encode()), ViewLimits(body_bytes=size))
        assert found.text == "ä" * (size // 2)
    broken = body(data_message("ä".encode()[:1]))
    assert (broken.is_cut, broken.text) == (False, None)


def test_json_is_indented_and_its_tokens_stay_as_they_are() -> None:
    text = b'{"a":[1,2.50,-1E+2,[],{}],"b\\u0041":"x,:{}[]\\"y","c":{"d":null},"a":true}'
    assert pretty_json(text) == (
        '{\n  "a": [\n    1,\n    2.50,\n    -1E+2,\n    [],\n    {}\n  ],\n'
        '  "b\\u0041": "x,:{}[]\\"y",\n  "c": {\n    "d": null\n  },\n  "a": true\n}'
    )


@pytest.mark.parametrize("data", [b"", b"1", b'"text"', b"{", b"[1,]", b'{"a":NaN}', b"[1] 2", b"\xff", b"null"])
def test_what_is_no_json_object_or_array_is_not_shown_as_one(data: bytes) -> None:
    assert pretty_json(data) is None


@pytest.mark.parametrize("seed", range(100))
def test_indented_json_means_the_same(seed: int) -> None:
    rng = random.Random(seed)

    def value(depth: int) -> object:
        match rng.randrange(7 if depth else 4):
            case 0:
                return rng.choice([None, True, False, 0, -1, 1.5, 1e300])
            case 1 | 2 | 3:
                return rng.choice(list(HOSTILE_TEXTS.values()))
            case 4 | 5:
                return {rng.choice(list(HOSTILE_TEXTS.values())): value(depth - 1) for _ in range(rng.randrange(4))}
            case _:
                return [value(depth - 1) for _ in range(rng.randrange(4))]

    one = [value(4)]
    for separators in ((",", ":"), (" ,\n", " : ")):
        text = json.dumps(one, separators=separators, ensure_ascii=rng.random() < 0.5)
        found = pretty_json(text.encode())
        assert found is not None
        assert json.loads(found) == one
        assert "\n" in found


def test_json_that_indentation_would_blow_up_is_left_as_it_is() -> None:
    deep = b"[" * 400 + b"1," * 20_000 + b"1" + b"]" * 400
    assert pretty_json(deep) == deep.decode()


def test_a_hex_dump_has_positions_bytes_and_printable_characters() -> None:
    assert BodyView(BodyKind.RAW, b"<b>\x00\xff" + b"x" * 12, 17).hex_dump == (
        "00000000  3c 62 3e 00 ff 78 78 78  78 78 78 78 78 78 78 78 |<b>..xxxxxxxxxxx|\n"
        "00000010  78                                               |x|"
    )


@pytest.mark.parametrize(
    "fields", [{"body_bytes": 0}, {"body_bytes": 1 << 30}, {"section_rows": 0}, {"value_characters": 0}]
)
def test_no_view_is_without_limits(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidQueryError):
        ViewLimits(**fields)


# Places of messages in a chunk


@pytest.mark.parametrize("compression", list(Compression))
def test_placed_messages_are_what_the_reader_yields(compression: Compression) -> None:
    packed = [b"message %d" % number for number in range(5)]
    chunk = chunk_of(b"one", make_sub_batch(packed, compression), make_sub_batch([], compression), b"two")
    wanted = [(message.offset, message.raw) for message in messages(chunk, source="chunk")]
    for start in range(18):
        found = list(placed_messages(chunk, source="chunk", from_offset=Offset(start)))
        assert [(one.offset, bytes(one.raw)) for one in found] == [one for one in wanted if one[0] >= start]
    all_ = list(placed_messages(chunk, source="chunk", from_offset=Offset(0)))
    name = compression.name.lower()
    assert [(one.place.number, one.place.compression, one.place.index) for one in all_] == [
        (0, None, 0),
        *((1, name, index) for index in range(5)),
        (3, None, 0),
    ]


@pytest.mark.parametrize(
    ("batch", "whole", "problem"),
    [
        (SubBatch(6, 3, 10, memoryview(b"??????????"), 0), 0, "compression of a sub-batch"),
        (SubBatch(1, 3, 10, memoryview(b"not gzip"), 0), 0, "gzip"),
        (SubBatch(4, 3, MAX_UNPACKED_BYTES + 1, memoryview(b"x"), 0), 0, "more than is unpacked"),
        (SubBatch(0, 3, 9, memoryview(b"\0\0\0\x01a\0\0\0\x01b"), 0), 2, "messages in a sub-batch"),
        (SubBatch(0, 3, 9, memoryview(b"\0\0\0\x01a\0\0\0\x09b"), 0), 1, "runs past|to end by"),
    ],
)
def test_what_a_publisher_packed_badly_is_a_problem_of_its_messages_alone(
    batch: SubBatch, whole: int, problem: str
) -> None:
    chunk = chunk_of(b"before", batch, b"after")
    found = list(placed_messages(chunk, source="chunk", from_offset=Offset(0)))
    assert [one.offset for one in found] == [10, 11, 12, 13, 14]
    assert [one.problem is None for one in found] == [True, *(number < whole for number in range(3)), True]
    assert all(re.search(problem, one.problem) for one in found if one.problem is not None)
    tail = list(placed_messages(chunk, source="chunk", from_offset=Offset(13)))
    assert [one.offset for one in tail] == [13, 14]


def test_entries_that_contradict_the_header_of_their_chunk_are_damage() -> None:
    chunk = chunk_of(b"one", b"two")
    wrong = replace(chunk, header=replace(chunk.header, records=1))
    found = placed_messages(wrong, source="chunk", from_offset=Offset(0))
    assert next(found).offset == 10
    with pytest.raises(BadCountError, match="records in a chunk"):
        next(found)
