from __future__ import annotations

import pytest

from coldstream.errors import InvalidQueryError
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec, parse_offset_spec
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Offset, TimestampMs

SPECS = [
    ("first", FIRST),
    ("last", LAST),
    ("next", NEXT),
    ("0", AtOffset(Offset(0))),
    (str(MAX_OFFSET), AtOffset(Offset(MAX_OFFSET))),
    ("timestamp:0", AtTimestamp(TimestampMs(0))),
    ("timestamp:-1000", AtTimestamp(TimestampMs(-1000))),
]


@pytest.mark.parametrize(("text", "spec"), SPECS)
def test_a_spec_is_read_and_written_alike(text: str, spec: OffsetSpec) -> None:
    assert parse_offset_spec(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    "text", ["2026-01-31T09:30:00Z", "timestamp:2026-01-31T09:30:00Z", " timestamp:1769851800000 "]
)
def test_a_time_is_a_timestamp(text: str) -> None:
    assert parse_offset_spec(text) == AtTimestamp(TimestampMs(1_769_851_800_000))


def test_digits_alone_are_an_offset_however_much_they_look_like_a_time() -> None:
    assert parse_offset_spec("1769851800000") == AtOffset(Offset(1_769_851_800_000))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "First",
        "end",
        "-5",
        "5.0",
        "0x10",
        "٣",
        "offset:5",
        "timestamp:",
        "timestamp:first",
        "timestamp:timestamp:5",
        str(MAX_OFFSET + 1),
        f"timestamp:{MAX_TIMESTAMP_MS + 1}",
        "9" * 5000,
    ],
)
def test_what_is_no_spec_is_refused_briefly(text: str) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        parse_offset_spec(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("offset", [-1, MAX_OFFSET + 1])
def test_an_offset_is_unsigned_and_of_64_bits(offset: int) -> None:
    with pytest.raises(InvalidQueryError):
        AtOffset(Offset(offset))


@pytest.mark.parametrize("timestamp", [MIN_TIMESTAMP_MS - 1, MAX_TIMESTAMP_MS + 1])
def test_a_timestamp_is_signed_and_of_64_bits(timestamp: int) -> None:
    with pytest.raises(InvalidQueryError):
        AtTimestamp(TimestampMs(timestamp))


NOW = TimestampMs(1_769_851_800_000)


@pytest.mark.parametrize("text", ["-1h", "now-1h", "timestamp:-1h", "2026-01-31T08:30:00Z"])
def test_a_while_ago_is_a_timestamp_where_it_is_known_what_time_it_is(text: str) -> None:
    assert parse_offset_spec(text, NOW) == AtTimestamp(TimestampMs(NOW - 3_600_000))


@pytest.mark.parametrize("text", ["-1h", "yesterday", "2026-01-31"])
def test_programs_do_not_speak_so(text: str) -> None:
    with pytest.raises(InvalidQueryError):
        parse_offset_spec(text)


def test_digits_alone_are_an_offset_for_people_too() -> None:
    assert parse_offset_spec("2026", NOW) == AtOffset(Offset(2026))
    with pytest.raises(InvalidQueryError):
        parse_offset_spec("-5", NOW)


def test_a_time_without_a_zone_is_refused_with_what_to_add() -> None:
    with pytest.raises(InvalidQueryError, match="no offset from UTC: 2026-01-31T09:30Z is in UTC"):
        parse_offset_spec("2026-01-31T09:30", NOW)
