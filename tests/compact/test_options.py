"""Options: what can be said, and what cannot."""

from __future__ import annotations

import pytest

from coldstream.compact.arguments import CompactArguments
from coldstream.compact.options import CompactOptions
from coldstream.errors import InvalidSettingError
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import CompactionPolicy
from coldstream.units import MIB, TimestampMs

GIVEN = {"older_than": "1h", "target_size": "512MiB", "encoding": "identity", "level": 3}


def test_units_are_understood() -> None:
    options = CompactOptions.parse(older_than="0.5h", target_size="1.5GiB", encoding="zstd-seekable", level=19)
    assert options == CompactOptions(1_800_000, 1536 * MIB, Encoding.ZSTD_SEEKABLE, 19)
    assert options.policy(TimestampMs(2_000_000)) == CompactionPolicy(
        TimestampMs(200_000), 1536 * MIB, Encoding.ZSTD_SEEKABLE
    )


@pytest.mark.parametrize(
    ("older_than", "milliseconds"), [("0s", 0), ("30d", 2_592_000_000), ("90", 90_000), ("36500d", 3_153_600_000_000)]
)
def test_times_to_the_border_are_taken(older_than: str, milliseconds: int) -> None:
    assert CompactOptions.parse(**GIVEN | {"older_than": older_than}).older_than_ms == milliseconds  # type: ignore[arg-type]


@pytest.mark.parametrize(("url_expiry", "milliseconds"), [("1s", 3_601_000), ("3600", 7_200_000), ("7d", 608_400_000)])
def test_what_is_merged_stays_for_an_hour_longer_than_urls_are_valid(url_expiry: str, milliseconds: int) -> None:
    assert CompactOptions.parse(**GIVEN | {"url_expiry": url_expiry}).grace_ms == milliseconds  # type: ignore[arg-type]
    assert CompactOptions.parse(**GIVEN).grace_ms == 608_400_000  # type: ignore[arg-type]


@pytest.mark.parametrize(("target_size", "target_bytes"), [("64KiB", 65536), ("4GiB", 1 << 32), ("1000000", 10**6)])
def test_sizes_to_the_border_are_taken(target_size: str, target_bytes: int) -> None:
    assert CompactOptions.parse(**GIVEN | {"target_size": target_size}).target_bytes == target_bytes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("older_than", "-1s"),
        ("older_than", "soon"),
        ("older_than", ""),
        ("older_than", "1e400d"),
        ("older_than", "9" * 400),
        ("older_than", "36501d"),
        ("older_than", "\N{ARABIC-INDIC DIGIT ONE}h"),
        ("target_size", "0"),
        ("target_size", "65535"),
        ("target_size", "5GiB"),
        ("target_size", "9" * 400),
        ("target_size", "-1MiB"),
        ("target_size", "big"),
        ("encoding", "zstd"),
        ("encoding", "gzip\x1b"),
        ("encoding", ""),
        ("url_expiry", "0s"),
        ("url_expiry", "604801"),
        ("url_expiry", "a while"),
        ("level", 0),
        ("level", 20),
        ("level", -1),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_option(option: str, value: str | int) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        CompactOptions.parse(**GIVEN | {option: value})  # type: ignore[arg-type]
    assert refused.value.field == f"--{option.replace('_', '-')}"


@pytest.mark.parametrize("level", [1, 19])
def test_levels_to_the_border_are_taken(level: int) -> None:
    assert CompactOptions.parse(**GIVEN | {"level": level}).level == level  # type: ignore[arg-type]


def test_who_says_nothing_gets_what_is_promised() -> None:
    options = CompactOptions.of(CompactArguments())
    assert options == CompactOptions(3_600_000, 512 * MIB, Encoding.IDENTITY, 3, 608_400_000)


def test_all_that_a_user_says_is_checked_and_kept() -> None:
    said = CompactArguments(
        older_than="2s", target_size="1MiB", encoding="zstd-seekable", level=9, url_expiry="1s", dry_run=True
    )
    assert CompactOptions.of(said) == CompactOptions(2000, MIB, Encoding.ZSTD_SEEKABLE, 9, 3_601_000)


def test_who_says_nothing_names_no_stream_and_means_it() -> None:
    arguments = CompactArguments()
    assert (arguments.every, arguments.dry_run) == (False, False)
