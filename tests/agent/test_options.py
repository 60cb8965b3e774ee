"""What the agent is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.options import AgentOptions, SegmentSource, parse_duration, parse_size
from coldstream.archive.borders import QuietSpans
from coldstream.errors import InvalidSettingError
from coldstream.live.address import BrokerAddress

BROKER = BrokerAddress.from_uri("rabbitmq-stream://user:secret@localhost")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("60", 60), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), (" 5 s", 5)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text, seconds):
    assert parse_duration("--scan", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 weeks", "1e3", "5S", "\u0665s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InvalidSettingError, match=r"--scan: .* is not a duration"):
        parse_duration("--scan", text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500", 500),
        ("500B", 500),
        ("50MB", 50_000_000),
        ("64MiB", 64 << 20),
        ("2GiB", 2 << 30),
        ("1.5kB", 1500),
        ("1T", 10**12),
    ],
)
def test_a_size_has_a_unit_or_is_in_bytes(text, size):
    assert parse_size("--bandwidth", text) == size


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "5 parsecs", "5mb", "0x10"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidSettingError, match=r"--bandwidth: .* is not a size"):
        parse_size("--bandwidth", text)


def test_spans_of_time_are_a_third_of_the_max_lag():
    assert AgentOptions(state=Path("/s"), broker=BROKER, data=Path("/d"), max_lag_s=60).cut_every_ms == 20_000
    assert AgentOptions(state=Path("/s"), broker=BROKER, data=Path("/d")).cut_every_ms is None


def test_the_disk_source_needs_a_directory():
    with pytest.raises(InvalidSettingError, match="--data"):
        AgentOptions(state=Path("/s"), broker=BROKER)


def test_the_protocol_source_needs_to_know_streams():
    with pytest.raises(InvalidSettingError, match="--management, or a --stream"):
        AgentOptions(state=Path("/s"), broker=BROKER, source=SegmentSource.PROTOCOL)


def test_what_is_shown_has_no_secrets():
    options = AgentOptions(
        state=Path("/s"), broker=BROKER, data=Path("/d"), management="http://user:secret@localhost", max_lag_s=60
    )
    assert "secret" not in str(options.shown())
    assert ("max-lag", "60 s") in options.shown()


@pytest.mark.parametrize("text", ["9" * 400 + "s", "999999999999999d"])
def test_a_duration_past_all_clocks_is_refused(text):
    with pytest.raises(InvalidSettingError, match=r"--max-lag: .* is too long"):
        parse_duration("--max-lag", text)


def test_a_size_past_all_disks_is_refused():
    with pytest.raises(InvalidSettingError, match=r"--bandwidth: .* is too large"):
        parse_size("--bandwidth", "9" * 400)


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("--scan", {"scan_s": 0.0}),
        ("--scan", {"scan_s": 3601.0}),
        ("--bandwidth", {"bandwidth_bytes_per_s": 0}),
        ("--segment-size", {"segment_bytes": 0}),
        ("--segment-size", {"segment_bytes": 4 << 30}),
        ("--max-spool", {"segment_bytes": 1000_000, "max_spool_bytes": 999_999}),
        ("--max-lag", {"max_lag_s": 0.0}),
        ("--state", {"state": Path("/d")}),
        ("--state", {"state": Path("/d/coldstream")}),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_option(option, settings):
    with pytest.raises(InvalidSettingError, match=f"^{option}: "):
        AgentOptions(**({"state": Path("/s"), "broker": BROKER, "data": Path("/d")} | settings))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_lag_s": None}, "needs --max-lag"),
        ({"quiet_span_s": 19.0}, "from a third of --max-lag"),
        ({"quiet_span_s": 86_401.0}, "to 86400 s"),
        ({"quiet_below_bytes": 0}, "--quiet-below"),
        ({"quiet_below_bytes": (16 << 20) + 1}, "--quiet-below"),
        ({"source": SegmentSource.PROTOCOL, "management": "http://localhost"}, "disk source"),
    ],
)
def test_spans_of_quiet_streams_that_cannot_be_are_refused(options: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {
        "state": Path("/s"),
        "data": Path("/d"),
        "broker": BROKER,
        "max_lag_s": 60.0,
        "quiet_span_s": 3600.0,
    }
    assert AgentOptions(**given).quiet == QuietSpans(1 << 20, 3_600_000)
    assert AgentOptions(**given).archive_lag_s == 3660
    with pytest.raises(InvalidSettingError, match=problem):
        AgentOptions(**given | options)
