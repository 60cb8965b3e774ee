"""Predicates: their text, and which messages they hold for."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from rstream._pyamqp.message import Properties

from coldstream.browse.message_view import EntryPlace
from coldstream.browse.placed import PlacedMessage
from coldstream.browse.predicate import (
    BodyCondition,
    Comparison,
    Condition,
    FieldSection,
    JsonCondition,
    MeasuredField,
    NumberCondition,
    Predicate,
    ValueCondition,
)
from coldstream.browse.predicate_match import PredicateMatcher
from coldstream.browse.predicate_text import MAX_CHARACTERS, MAX_CONDITIONS, parse_predicate
from coldstream.browse.sections_view import MAX_DECODED_BYTES
from coldstream.errors import BadLengthError, CorruptionError, InvalidQueryError, PredicateError
from coldstream.units import Offset, TimestampMs
from tests.support.amqp_samples import EVERY_SIMPLE_VALUE, SOME_UUID, encode, typed
from tests.support.browsed import data_message
from tests.support.hostile_text import HOSTILE_BODIES, HOSTILE_TEXTS

TIME = 1_763_700_000_000


def holds(text: str, raw: bytes, *, offset: int = 7) -> bool:
    message = PlacedMessage(Offset(offset), EntryPlace(0), memoryview(raw))
    return PredicateMatcher(parse_predicate(text)).matches(message, TimestampMs(TIME))


def of_json(value: Any) -> bytes:
    return data_message(json.dumps(value).encode())


RICH = encode(
    message_annotations={"x-exchange": "orders", "x-count": 3},
    properties=Properties(message_id="id-1", user_id=b"guest", correlation_id=SOME_UUID, content_type="text/plain"),
    application_properties={"region": "eu", "a b": "c", "n": 5, "flag": True, "nothing": None, "raw": b"\xff"},
    body=b'{"user": {"id": 7, "tags": ["a", "b"]}, "text": "an error here"}',
)


def test_the_example_of_the_grammar_is_read() -> None:
    found = parse_predicate('body~"error" and app.region = "eu" and json:/user/id = 7')
    assert found == Predicate(
        (
            BodyCondition(Comparison.CONTAINS, "error"),
            ValueCondition(FieldSection.APPLICATION, "region", Comparison.EQUALS, "eu"),
            JsonCondition("/user/id", Comparison.EQUALS, 7),
        )
    )
    assert str(found) == 'body ~ "error" and app.region = "eu" and json:/user/id = 7'
    assert holds(str(found), RICH)


@pytest.mark.parametrize(
    "text",
    [
        'body ~ "error"',
        'app.region = "eu"',
        'app.region ~ "e"',
        'app.region != "us"',
        "app.region exists",
        'app."a b" = "c"',
        "app.n = 5",
        "app.n = 5.0",
        "app.n >= 5 and app.n <= 5 and app.n > 4 and app.n < 6 and app.n != 4",
        "app.flag = true",
        "app.flag != 1",
        "app.nothing = null",
        "app.nothing exists",
        'annotation.x-exchange = "orders"',
        "annotation.x-count > 2",
        'properties.message_id = "id-1"',
        'properties.message-id ~ "id"',
        'properties.user_id = "guest"',
        f'properties.correlation_id = "{SOME_UUID}"',
        "json:/user/id = 7",
        "json:/user/id > 6.5",
        "json:/user exists",
        'json:/user/tags/1 = "b"',
        'json:/text ~ "error"',
        'json:"/text" ~ "error"',
        'json:"" exists',
        f"size = {len(RICH)} and size < 1KiB",
        "offset = 7 and offset >= 7 and offset <= 7",
        f"time = {TIME} and time >= 2025-11-21T04:40:00Z and time < 2025-11-21T04:40:00.001Z",
        'time = "2025-11-21T04:40:00Z"',
        '  body\t~\n"error"  ',
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    assert holds(text, RICH)


@pytest.mark.parametrize(
    "text",
    [
        'body = "error"',
        'body ~ "Error"',
        'app.region = "EU"',
        "app.region = 5",
        "app.region > 5",
        'app.other != "eu"',
        "app.other exists",
        "app.other = null",
        "app.flag = 1",
        "app.flag > 0",
        'app.n = "5"',
        'app.raw ~ "a"',
        "properties.to exists",
        'annotation.region = "eu"',
        "json:/user/id = true",
        'json:/user/id = "7"',
        "json:/user/tags/2 exists",
        "json:/user/tags/01 exists",
        "json:/user/tags/-1 exists",
        "json:/user/tags/99999999999999999999 exists",
        "json:/text/0 exists",
        "json:/none = null",
        "size > 10MB",
        "offset > 7",
        "time < 2025-11-21T04:40:00Z",
        'body ~ "error" and app.region = "us"',
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    assert not holds(text, RICH)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("   ", 3),
        ("body", 4),
        ("body ~", 6),
        ("body ~ error", 7),
        ('body ~ "error', 7),
        ('body > "a"', 5),
        ("body exists", 5),
        ('body ~ "a" or body ~ "b"', 11),
        ('body ~ "a" and', 14),
        ('body ~ "a" body', 11),
        ('body ~ "\\x"', 8),
        ('body ~ "\n"', 8),
        ('body ~ "\\ud800"', 15),
        ("app", 0),
        ("app.", 4),
        ('app."" = 1', 4),
        ("app.x", 5),
        ("app.x ? 1", 6),
        ("app.x =", 7),
        ("app.x = yes", 8),
        ("app.x = 1x", 8),
        ("app.x = 'eu'", 8),
        ("app.x ~ 5", 8),
        ('app.x > "a"', 8),
        ("app.x > true", 8),
        ("properties.colour = 1", 11),
        ("json = 1", 0),
        ("json: = 1", 5),
        ("json:user = 1", 5),
        ('json:"user" = 1', 5),
        ('json:"/a~2" = 1', 5),
        ("size = big", 7),
        ("size ~ 5", 5),
        ("offset = -1", 9),
        ("offset = 1.5", 9),
        ("time > yesterday", 7),
        ("time > 2026-01-31T09:30:00", 7),
        ("colour = 1", 0),
        ("<script>", 0),
        ("body~" + '"a"' + ' and body~"a"' * MAX_CONDITIONS, 4 + 4 + 13 * MAX_CONDITIONS - 8),
        ("x" * (MAX_CHARACTERS + 1), MAX_CHARACTERS),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_character(text: str, position: int) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_predicate(text)
    assert caught.value.position == position
    assert caught.value.field == "where"
    assert caught.value.problem.startswith(f"at character {position + 1}: ")
    assert isinstance(caught.value, InvalidQueryError)


def fault_of(text: str) -> int:
    """Return where a text is wrong, 0 if it is not."""
    try:
        parse_predicate(text)
    except PredicateError as err:
        return err.position
    return 0


def random_condition(rng: random.Random) -> Condition:
    text = rng.choice(list(HOSTILE_TEXTS.values()))
    value = rng.choice([text, 0, -5, 1 << 70, 0.5, 1e300, True, False, None])
    comparison = rng.choice([Comparison.EQUALS, Comparison.DIFFERS])
    match rng.randrange(6):
        case 0:
            return BodyCondition(rng.choice([Comparison.EQUALS, Comparison.CONTAINS]), text)
        case 1:
            section = rng.choice([FieldSection.APPLICATION, FieldSection.ANNOTATION])
            return ValueCondition(section, rng.choice([text, "plain", "and", "exists"]), comparison, value)
        case 2:
            pointer = "/" + text.replace("~", "~0").replace("/", "~1")
            return JsonCondition(rng.choice([pointer, "/a/0", "", "/", "/a~1b"]), Comparison.EXISTS)
        case 3:
            return JsonCondition("/a", comparison, value)
        case 4:
            field = rng.choice(list(MeasuredField))
            return NumberCondition(field, rng.choice([Comparison.LESS, Comparison.AT_LEAST]), rng.randrange(1 << 41))
        case _:
            return ValueCondition(FieldSection.PROPERTIES, "message_id", Comparison.CONTAINS, text)


@pytest.mark.parametrize("seed", range(200))
def test_the_text_of_any_predicate_is_read_back(seed: int) -> None:
    rng = random.Random(seed)
    predicate = Predicate(tuple(random_condition(rng) for _ in range(rng.randrange(1, 6))))
    assert parse_predicate(str(predicate)) == predicate


@pytest.mark.parametrize("seed", range(300))
def test_no_text_makes_the_parser_fail_in_another_way(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        '"',
        "body",
        "~",
        "json:",
        "/a",
        "app.",
        "=",
        " ",
        "and",
        "\\",
        "1",
        "-",
        "e9",
        "\0",
        "é",
        "size",
        "<",
        "🐇",
    ]
    text = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 30)))
    assert 0 <= fault_of(text) <= len(text)


@pytest.mark.parametrize("body", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
def test_no_body_makes_a_condition_fail(body: bytes) -> None:
    for text in ("json:/a/b = 1", 'json:"" exists', 'body ~ "x"', "app.x exists"):
        assert holds(text, data_message(body)) in {True, False}
        assert holds(text, b"\x01" + body) in {True, False}


def test_of_bytes_that_are_not_amqp_the_whole_is_the_body() -> None:
    assert holds('body = "plain text"', b"plain text")
    assert holds("json:/a = 1", b'{"a": 1}')
    assert not holds("app.x exists", b"plain text")


def test_a_condition_on_a_damaged_section_is_told_as_damage() -> None:
    broken = bytes.fromhex("005374c1050201") + b"aa\xff"
    with pytest.raises(CorruptionError):
        holds("app.a exists", broken)
    with pytest.raises(CorruptionError):
        holds('body ~ "x"', b"\x00\x53\x75\xb0\x00\x00\x00\xff")
    assert holds("size > 1 and offset = 7", broken), "what needs no section does not decode it"


def test_every_value_compares_with_what_it_is() -> None:
    raw = encode(application_properties=EVERY_SIMPLE_VALUE)
    for text in (
        "app.null = null",
        "app.true = true",
        "app.false = false",
        "app.ulong = 18446744073709551615",
        "app.long = -9223372036854775808",
        "app.float = 0.5",
        "app.timestamp > 1763700000000",
        'app.string = "grün"',
        'app.symbol = "symbol"',
        f'app.uuid = "{SOME_UUID}"',
    ):
        assert holds(text, raw), text


def test_an_amqp_value_is_compared_as_it_is_shown() -> None:
    assert holds('body = "grün"', encode(value="grün"))
    assert holds("json:/a/1 = 2", encode(value={"a": [1, 2]}))
    assert holds('body ~ "two"', encode(sequence=[[1, "two"]]))
    assert not holds('body ~ "x"', encode(application_properties={"k": typed("UINT", 1)}))


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_that_no_number_holds_is_refused_at_its_place(number: str) -> None:
    with pytest.raises(PredicateError) as raised:
        parse_predicate(f"app.a < {number}")
    assert raised.value.position == 8


def test_a_section_that_is_too_large_to_decode_makes_its_message_unreadable() -> None:
    raw = encode(application_properties={"a": "x" * MAX_DECODED_BYTES}, body=b"x")
    with pytest.raises(BadLengthError, match="too large to look into"):
        holds("app.a exists", raw)
    assert holds('body~"x"', raw)
