from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.units import (
    MAX_TIMESTAMP_MS,
    MIN_TIMESTAMP_MS,
    ByteRange,
    TimestampMs,
    format_timestamp,
    is_relative,
    parse_time,
    parse_timestamp,
)


def test_a_byte_range_is_half_open_and_its_header_inclusive() -> None:
    assert len(ByteRange(10, 25)) == 15
    assert ByteRange(10, 25).http == "bytes=10-24"
    assert ByteRange(0, 1).http == "bytes=0-0"


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (5, 4), (-1, 3)])
def test_a_byte_range_has_a_byte_and_begins_at_nought_or_later(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="byte range"):
        ByteRange(start, end)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1769851800000", 1_769_851_800_000),
        ("-5", -5),
        (" 7 ", 7),
        (str(MIN_TIMESTAMP_MS), MIN_TIMESTAMP_MS),
        (str(MAX_TIMESTAMP_MS), MAX_TIMESTAMP_MS),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T09:30:00Z", 1_769_851_800_000),
        ("2026-01-31t09:30:00z", 1_769_851_800_000),
        ("2026-01-31 09:30:00.123Z", 1_769_851_800_123),
        ("2026-01-31T11:30:00+02:00", 1_769_851_800_000),
        ("2026-01-31T04:00:00-05:30", 1_769_851_800_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_timestamp_is_milliseconds_or_a_time_with_its_offset(text: str, milliseconds: int) -> None:
    assert parse_timestamp(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T09:30:00.0001Z",
        "2026-01-31T09:30:00.000001Z",
        "2026-01-31T09:30:00.0000001Z",
        "2026-01-31T09:30:00.000000001Z",
        "2026-01-31T09:30:00.001000000Z",
    ],
)
def test_a_time_finer_than_a_millisecond_is_rounded_up(text: str) -> None:
    assert parse_timestamp(text) == 1_769_851_800_001


def test_a_time_before_1970_is_rounded_up_too() -> None:
    assert parse_timestamp("1969-12-31T23:59:59.9990001Z") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "--5",
        "+5",
        "1_000",
        "1e3",
        "٣",
        "now",
        "2026-01-31",
        "20260131T",
        "2026-01-31T09:30:00",
        "2026-02-30T09:30:00Z",
        "2026-01-31T25:00:00Z",
        "9999-12-31T23:59:59.9999999-14:00",
        str(MAX_TIMESTAMP_MS + 1),
        str(MIN_TIMESTAMP_MS - 1),
        "9" * 5000,
    ],
)
def test_what_is_no_timestamp_is_refused_briefly(text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # one reason for each
        parse_timestamp(text)
    assert len(str(caught.value)) < 400


NOW = TimestampMs(1_769_851_800_120)  # 2026-01-31T09:30:00.120Z


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", "2026-01-31T09:30:00.120Z"),
        ("today", "2026-01-31T00:00:00.000Z"),
        ("yesterday", "2026-01-30T00:00:00.000Z"),
        ("-0s", "2026-01-31T09:30:00.120Z"),
        ("-20ms", "2026-01-31T09:30:00.100Z"),
        ("-90s", "2026-01-31T09:28:30.120Z"),
        ("-30m", "2026-01-31T09:00:00.120Z"),
        ("-1h", "2026-01-31T08:30:00.120Z"),
        ("-0.5h", "2026-01-31T09:00:00.120Z"),
        (" -2d ", "2026-01-29T09:30:00.120Z"),
        ("now-1h", "2026-01-31T08:30:00.120Z"),
        ("2026-01-30", "2026-01-30T00:00:00.000Z"),
        ("2026-01-30T09:30:00+01:00", "2026-01-30T08:30:00.000Z"),
        ("5", "1970-01-01T00:00:00.005Z"),
    ],
)
def test_a_time_may_be_given_as_people_say_it(text: str, time: str) -> None:
    assert format_timestamp(parse_time(text, NOW)) == time


@pytest.mark.parametrize("text", ["now", "today", "yesterday", "-1h", "now-1h"])
def test_what_is_another_time_tomorrow_is_relative(text: str) -> None:
    assert is_relative(text)


@pytest.mark.parametrize("text", ["2026-01-30", "2026-01-30T09:30:00Z", "5", "-5", "first"])
def test_what_is_the_same_time_tomorrow_is_not(text: str) -> None:
    assert not is_relative(text)


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "Now", "1h", "+1h", "-1 h", "--1h", "-1y", "now-", "now+1h", "2026-1-3", "2026-02-30"]
)
def test_what_people_say_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # one reason for each
        parse_time(text, NOW)


def test_a_timestamp_is_written_in_utc_with_milliseconds() -> None:
    assert format_timestamp(TimestampMs(1_769_851_800_120)) == "2026-01-31T09:30:00.120Z"
    assert format_timestamp(TimestampMs(-1)) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize("timestamp", [MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS, 253_402_300_800_000, -62_135_596_800_001])
def test_a_timestamp_that_no_calendar_reaches_is_written_as_milliseconds(timestamp: int) -> None:
    assert format_timestamp(TimestampMs(timestamp)) == str(timestamp)


@given(st.integers(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS))
def test_what_is_written_is_read_back(timestamp: int) -> None:
    assert parse_timestamp(format_timestamp(TimestampMs(timestamp))) == timestamp
