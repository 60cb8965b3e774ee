"""Numbers, sizes, times and names as pages write them."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from coldstream.console import words
from coldstream.units import TimestampMs
from tests.support.hostile_text import HOSTILE_TEXTS

NOW = TimestampMs(1_763_700_000_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (1234, "1.2k"),
        (99_949, "99.9k"),
        (99_950, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (12_300_000, "12.3M"),
        (10**18, "1.0E"),
    ],
)
def test_a_count_in_three_digits(value: int | None, text: str) -> None:
    assert words.short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (102_348, "99.9 KiB"),
        (102_400, "100 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_a_size_in_three_digits(value: int | None, text: str) -> None:
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "$0"), (0.00001, "< $0.0001"), (0.0042, "$0.0042"), (0.01, "$0.01"), (1234.5, "$1,234.50"), (None, "\u2013")],
)
def test_money_to_what_counts(value: float | None, text: str) -> None:
    assert words.money(value) == text


def test_a_share_is_never_all_or_nothing_if_it_is_not() -> None:
    found = [words.percent(share) for share in (0.0, 0.001, 0.5, 0.996, 1.0, None)]
    assert found == ["0 %", "< 1 %", "50 %", "> 99 %", "100 %", "\u2013"]


def test_times_are_in_utc_and_those_outside_of_years_are_numbers() -> None:
    assert words.moment_ms(TimestampMs(1_763_700_000_007)) == "2025-11-21 04:40:00.007"
    assert words.moment(TimestampMs(1 << 62)) == str(1 << 62)


@pytest.mark.parametrize(
    ("past_ms", "text"),
    [
        (0, "now"),
        (999, "now"),
        (5_000, "5 s ago"),
        (90_000, "1 min ago"),
        (7_300_000, "2 h ago"),
        (86_400_000, "1 day ago"),
        (30 * 86_400_000, "30 days ago"),
        (-5_000, "in 5 s"),
    ],
)
def test_how_long_ago(past_ms: int, text: str) -> None:
    assert words.ago(TimestampMs(NOW - past_ms), NOW) == text


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_a_hostile_text_is_escaped_isolated_and_seen(text: str) -> None:
    shown = words.visible(text)
    assert isinstance(shown, Markup)
    assert shown.startswith("<bdi>")
    assert shown.endswith("</bdi>")
    inside = str(shown)[5:-6].replace('<span class="esc">', "").replace("</span>", "")
    assert "<" not in inside
    for seen in (inside, words.plain(text)):
        assert all(char.isprintable() for char in seen)


def test_spaces_that_nobody_would_see_are_shown() -> None:
    assert "\u2420" in words.visible(" a")
    assert "\u2420" in words.visible("a  b")
    assert "\u2420" not in words.visible("a b")


def test_a_long_text_is_cut_and_says_how_long_it_is() -> None:
    assert "1000 characters" in words.visible("x" * 1000, 10)
    assert words.plain("x" * 1000, 10) == "x" * 10 + "\u2026"
