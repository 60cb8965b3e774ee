"""AMQP 1.0 values: every type and encoding, and everything that is none."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import BadCountError, BadLengthError, BadVersionError, CorruptionError
from coldstream.format.amqp.types import Char, Decimal, Described, Symbol, Timestamp
from coldstream.format.amqp.values import MAX_DEPTH, MAX_EMPTY_ELEMENTS, decode, decode_prefix, skip

SOURCE = "ström"
SOME_UUID = UUID("12345678-1234-5678-1234-567812345678")
LIST8, MAP8, ARRAY8, LIST32, MAP32, ARRAY32 = 0xC0, 0xC1, 0xE0, 0xD0, 0xD1, 0xF0


def value_of(data: bytes | str) -> Any:
    content = bytes.fromhex(data) if isinstance(data, str) else data
    return decode(content, 0, len(content), source=SOURCE)


def exactly(value: Any) -> Any:
    """Return the value with its types, so that 1, 1.0, True and Timestamp(1) all differ."""
    if isinstance(value, list | tuple):
        return (type(value), [exactly(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(exactly(key), exactly(item)) for key, item in value.items()])
    if isinstance(value, Described):
        return (Described, exactly(value.descriptor), exactly(value.value))
    if isinstance(value, float):
        return (float, struct.pack(">d", value))
    return (type(value), value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("40", None),
        ("41", True),
        ("42", False),
        ("5601", True),
        ("5600", False),
        ("50ff", 255),
        ("60ffff", 65_535),
        ("43", 0),
        ("52ff", 255),
        ("70ffffffff", 4_294_967_295),
        ("44", 0),
        ("53ff", 255),
        ("80ffffffffffffffff", 18_446_744_073_709_551_615),
        ("5180", -128),
        ("618000", -32_768),
        ("5480", -128),
        ("7180000000", -2_147_483_648),
        ("5580", -128),
        ("818000000000000000", -9_223_372_036_854_775_808),
        ("723f000000", 0.5),
        ("823fe0000000000000", 0.5),
        ("727f800000", math.inf),
        ("742240000a", Decimal.fromhex("2240000a")),
        ("84223800000000000a", Decimal.fromhex("223800000000000a")),
        ("942208000000000000000000000000000a", Decimal.fromhex("2208000000000000000000000000000a")),
        ("7300000041", Char("A")),
        ("730001f600", Char("😀")),
        ("830000019aa43d6e00", Timestamp(0x19AA43D6E00)),
        ("83ffffffffffffffff", Timestamp(-1)),
        ("9812345678123456781234567812345678", SOME_UUID),
        ("a000", b""),
        ("a00200ff", b"\x00\xff"),
        ("b0000000020001", b"\x00\x01"),
        ("a100", ""),
        ("a1056772c3bc6e", "grün"),
        ("b1000000056772c3bc6e", "grün"),
        ("a303612f62", Symbol("a/b")),
        ("b300000003612f62", Symbol("a/b")),
        ("45", []),
        ("c00100", []),
        ("c0040254ff40", [-1, None]),
        ("d0000000070000000254ff40", [-1, None]),
        ("c10100", {}),
        ("c10602a1016b5407", {"k": 7}),
        ("d10000000900000002a1016b5407", {"k": 7}),
        ("e0020071", ()),
        ("e00402540102", (1, 2)),
        ("f0000000070000000254ff01", (-1, 1)),
        ("005354a10178", Described(0x54, "x")),
        ("00a30161a10178", Described(Symbol("a"), "x")),
        ("e0050200537f40", (Described(0x7F, None), Described(0x7F, None))),
        ("e0080200a3016154ff01", (Described(Symbol("a"), -1), Described(Symbol("a"), 1))),
        ("e00702c00201400100", ([None], [])),
    ],
)
def test_a_value_of_each_encoding(data, value):
    assert exactly(value_of(data)) == exactly(value)


def test_the_example_of_the_specification():
    data = (
        b"\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies"
        b"\xe0\x25\x02\xa3\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
    )
    authors = (Symbol("Rob J. Godfrey"), Symbol("Rafael H. Schloming"))
    book = Described(Symbol("example:book:list"), ["AMQP for & by Dummies", authors, None])
    assert exactly(value_of(data)) == exactly(book)


@pytest.mark.parametrize("constructor", ["a1", "a3"])
def test_text_that_is_not_utf8_comes_out_as_its_bytes(constructor):
    assert value_of(f"{constructor}02fffe") == b"\xff\xfe"


def compound(code: int, count: int, content: bytes) -> bytes:
    """Encode a list, map or array; of an array, `content` begins with the constructor."""
    if code & 0x10:
        return struct.pack(">BII", code, len(content) + 4, count) + content
    return struct.pack(">BBB", code, len(content) + 1, count) + content


def test_a_map_whose_key_no_dict_can_hold_is_a_tuple_of_pairs():
    assert value_of(compound(MAP8, 4, b"\x45\x54\x01" + b"\x40\x41")) == (([], 1), (None, True))


def test_of_equal_keys_the_last_one_counts():
    assert value_of(compound(MAP8, 4, b"\x54\x01\x54\x02" + b"\x54\x01\x41")) == {1: True}


def test_a_value_in_the_middle_of_bytes_says_where_it_ends():
    assert decode_prefix(b"..\xa1\x02hi..", 2, source=SOURCE) == ("hi", 6)


NO_VALUES = {
    "nothing": (b"", BadLengthError, 0),
    "unknown constructor": (b"\x5f\x00", BadVersionError, 0),
    "unknown constructor in a list": (compound(LIST8, 1, b"\x5f\x00"), BadVersionError, 3),
    "boolean 2": (b"\x56\x02", CorruptionError, 1),
    "half a surrogate pair": (b"\x73\x00\x00\xd8\x00", CorruptionError, 1),
    "code point past the last": (b"\x73\x00\x11\x00\x00", CorruptionError, 1),
    "short string": (b"\xa1\x03a", BadLengthError, 1),
    "short long binary": (b"\xb0\xff\xff\xff\xffa", BadLengthError, 1),
    "short uuid": (b"\x98\x01\x02", BadLengthError, 1),
    "short number": (b"\x70\x01", BadLengthError, 0),
    "something behind": (b"\x40\x40", BadLengthError, 0),
    "list that ends before its size does": (compound(LIST8, 1, b"\x40\x40"), BadLengthError, 1),
    "list that runs past its size": (b"\xc0\x02\x01\xa1\x01a", BadLengthError, 1),
    "list of more values than bytes": (compound(LIST8, 255, b"\x40"), BadCountError, 1),
    "list of four billion values": (compound(LIST32, 0xFFFFFFFF, b"\x40"), BadCountError, 1),
    "map with a key but no value": (compound(MAP8, 1, b"\x40"), BadCountError, 1),
    "array that ends before its size does": (compound(ARRAY8, 1, b"\x50\x01\x02"), BadLengthError, 1),
    "array of more elements than bytes": (compound(ARRAY32, 0xFFFFFFFF, b"\x50\x01"), BadLengthError, 0),
    "array of unknown elements": (compound(ARRAY8, 0, b"\x5f"), BadVersionError, 3),
    "array without a constructor": (compound(ARRAY8, 0, b""), BadLengthError, 0),
    "array of the twice described": (compound(ARRAY8, 1, b"\x00\x44\x00\x44\x40"), BadVersionError, 5),
    "array described by null": (compound(ARRAY8, 1, b"\x00\x40\x40"), BadVersionError, 4),
    "array of four billion nulls": (compound(ARRAY32, 0xFFFFFFFF, b"\x40"), BadCountError, 1),
    "descriptor without a value": (b"\x00\x44", BadLengthError, 0),
}


@pytest.mark.parametrize(("data", "error", "position"), NO_VALUES.values(), ids=list(NO_VALUES))
def test_what_is_no_value_is_told_with_its_position(data, error, position):
    with pytest.raises(error) as caught:
        value_of(data)
    assert (caught.value.source, caught.value.position) == (SOURCE, position)


def nested_lists(depth: int) -> bytes:
    data = b"\x40"
    for _ in range(depth):
        data = compound(LIST32, 1, data)
    return data


def test_values_may_be_nested_as_deep_as_the_bound_says():
    value = value_of(nested_lists(MAX_DEPTH))
    for _ in range(MAX_DEPTH):
        (value,) = value
    assert value is None


@pytest.mark.parametrize(
    "nested",
    [lambda depth: b"\x00\x44" * depth + b"\x40", lambda depth: b"\x00" * depth + b"\x44" + b"\x40" * depth],
    ids=["values", "descriptors"],
)
def test_described_values_may_be_nested_as_deep_either_way(nested):
    def depth(value):
        return 1 + max(depth(value.descriptor), depth(value.value)) if isinstance(value, Described) else 0

    assert depth(value_of(nested(MAX_DEPTH))) == MAX_DEPTH
    with pytest.raises(BadLengthError):
        value_of(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "data",
    [
        nested_lists(MAX_DEPTH + 1),
        nested_lists(10_000),
        b"\x00\x44" * 10_000 + b"\x40",
        b"\x00" * 10_000,
        compound(ARRAY8, 1, b"\xe0") + compound(ARRAY8, 1, b"\xe0")[1:] * 200,
    ],
    ids=["one deeper", "lists", "described values", "descriptors", "arrays"],
)
def test_values_nested_deeper_are_refused(data):
    with pytest.raises(BadLengthError):
        value_of(data)


def test_elements_without_content_are_bounded_over_all_arrays_of_a_value():
    half = compound(ARRAY32, MAX_EMPTY_ELEMENTS // 2, b"\x41")
    first, second = value_of(compound(LIST32, 2, half * 2))
    assert first == second == (True,) * (MAX_EMPTY_ELEMENTS // 2)
    with pytest.raises(BadCountError, match="without content"):
        value_of(compound(LIST32, 3, half * 2 + compound(ARRAY8, 1, b"\x45")))


NUMBERS = [(0x50, "B"), (0x51, "b"), (0x60, "H"), (0x61, "h"), (0x70, "I"), (0x71, "i"), (0x80, "Q"), (0x81, "q")]


def numbers(code: int, layout: str) -> st.SearchStrategy[tuple[Any, int, bytes]]:
    bits = 8 * struct.calcsize(layout)
    least, greatest = (0, 2**bits - 1) if layout.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(least, greatest).map(lambda number: (number, code, struct.pack(f">{layout}", number)))


def sized(code: int, kind: type) -> st.SearchStrategy[tuple[Any, int, bytes]]:
    def encode(value: Any) -> tuple[Any, int, bytes]:
        content = value if kind is bytes else value.encode()
        wide = len(content) > 255 or code & 0x10
        return kind(value), code | 0x10 * bool(wide), len(content).to_bytes(4 if wide else 1) + content

    texts = st.text(st.characters(codec="utf-8"), max_size=300)
    return (st.binary(max_size=300) if kind is bytes else texts).map(encode)


def fixed(code: int, width: int, convert: Any) -> st.SearchStrategy[tuple[Any, int, bytes]]:
    return st.binary(min_size=width, max_size=width).map(lambda content: (convert(content), code, content))


# A value, its constructor, its content.
SIMPLE = st.one_of(
    st.sampled_from([(None, 0x40, b""), (True, 0x41, b""), (False, 0x42, b""), (0, 0x43, b""), (0, 0x44, b"")]),
    st.booleans().map(lambda value: (value, 0x56, bytes((value,)))),
    *(numbers(code, layout) for code, layout in NUMBERS),
    *(numbers(code, "B") for code in (0x52, 0x53)),
    *(numbers(code, "b") for code in (0x54, 0x55)),
    fixed(0x72, 4, lambda content: struct.unpack(">f", content)[0]),
    fixed(0x82, 8, lambda content: struct.unpack(">d", content)[0]),
    *(fixed(code, width, Decimal) for code, width in ((0x74, 4), (0x84, 8), (0x94, 16))),
    fixed(0x83, 8, lambda content: Timestamp(int.from_bytes(content, signed=True))),
    fixed(0x98, 16, lambda content: UUID(bytes=content)),
    st.characters(codec="utf-8").map(lambda char: (Char(char), 0x73, struct.pack(">I", ord(char)))),
    *(sized(code, bytes) for code in (0xA0, 0xB0)),
    *(sized(code, str) for code in (0xA1, 0xB1)),
    *(sized(code, Symbol) for code in (0xA3, 0xB3)),
)


def compounds(values: st.SearchStrategy[tuple[Any, bytes]]) -> st.SearchStrategy[tuple[Any, bytes]]:
    def code_for(code: int, count: int, content: bytes) -> int:
        return code | 0x10 * (count > 255 or len(content) > 254)

    def to_list(items: list[tuple[Any, bytes]]) -> tuple[Any, bytes]:
        content = b"".join(data for _, data in items)
        return [value for value, _ in items], compound(code_for(LIST8, len(items), content), len(items), content)

    def to_map(items: dict[str, tuple[Any, bytes]]) -> tuple[Any, bytes]:
        content = b"".join(b"\xa1" + bytes((len(key.encode()),)) + key.encode() + items[key][1] for key in items)
        code = code_for(MAP8, 2 * len(items), content)
        return {key: value for key, (value, _) in items.items()}, compound(code, 2 * len(items), content)

    def to_described(items: tuple[tuple[Any, bytes], tuple[Any, bytes]]) -> tuple[Any, bytes]:
        (descriptor, descriptor_data), (value, data) = items
        return Described(descriptor, value), b"\x00" + descriptor_data + data

    return st.one_of(
        st.lists(values, max_size=5).map(to_list),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), values, max_size=5).map(to_map),
        st.tuples(values, values).map(to_described),
    )


def arrays() -> st.SearchStrategy[tuple[Any, bytes]]:
    def to_array(items: list[tuple[Any, int, bytes]]) -> tuple[Any, bytes]:
        like_first = [(value, content) for value, code, content in items if code == items[0][1]]
        content = bytes((items[0][1],)) + b"".join(content for _, content in like_first)
        return tuple(value for value, _ in like_first), compound(ARRAY32, len(like_first), content)

    return st.lists(SIMPLE, min_size=1, max_size=40).map(to_array)


# A value and its encoding.
VALUES = st.recursive(
    SIMPLE.map(lambda simple: (simple[0], bytes((simple[1],)) + simple[2])) | arrays(), compounds, max_leaves=20
)


@given(VALUES)
def test_every_value_is_decoded_to_itself(case):
    value, data = case
    assert exactly(value_of(data)) == exactly(value)


@given(VALUES, st.binary(max_size=5))
def test_skipping_a_value_ends_where_decoding_it_does(case, behind):
    _, data = case
    assert skip(data + behind, 0) == decode_prefix(data + behind, 0, source=SOURCE)[1] == len(data)


@given(VALUES)
def test_every_beginning_of_a_value_is_refused(case):
    _, data = case
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            value_of(data[:size])


@given(VALUES, st.data())
def test_a_changed_byte_gives_a_value_or_a_corruption_error(case, data):
    changed = bytearray(case[1])
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptionError):
        value_of(bytes(changed))


CONSTRUCTORS = [0x00, 0x40, 0x45, 0x50, 0x56, 0x73, 0x83, 0xA1, 0xA3, 0xB1, LIST8, LIST32, MAP8, MAP32, ARRAY8, ARRAY32]


@given(st.lists(st.sampled_from(CONSTRUCTORS) | st.integers(0, 255), max_size=60).map(bytes))
def test_garbage_gives_a_value_or_a_corruption_error(data):
    with suppress(CorruptionError):
        value_of(data)
