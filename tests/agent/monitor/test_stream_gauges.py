"""Gauges of streams: made anew of what changed, and of what lags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.agent.monitor import stream_gauges
from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.monitor.stream_gauges import StreamGauges
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs
from tests.support.agent_status import NOW, stream_status


def quiet(name: str, **fields: Any) -> StreamStatus:
    """Make a snapshot of a stream of which all is archived."""
    done: dict[str, Any] = {"archived_to": Offset(1100), "oldest_unarchived_at": None, "retention_left_s": None}
    return stream_status(name=name, incarnation=Incarnation(f"__{name}_1"), **done | fields)


def values(gauges: StreamGauges, *streams: StreamStatus, now: TimestampMs = NOW) -> dict[str, dict[str, float]]:
    """Return the samples of each gauge by stream."""
    families = gauges.families(streams, now)
    return {family.name: {stream: value for (_, stream), value in samples} for family, samples in families}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the streams whose gauges are made."""
    names: list[str] = []
    make = stream_gauges._row

    def noting(labels: tuple[str, str], *arguments: Any) -> Any:
        names.append(labels[1])
        return make(labels, *arguments)

    monkeypatch.setattr(stream_gauges, "_row", noting)
    return names


def test_gauges_are_made_anew_of_the_streams_that_changed(made: list[str]) -> None:
    gauges, orders, parcels = StreamGauges("a_"), quiet("orders"), quiet("parcels")
    first = values(gauges, orders, parcels)
    assert values(gauges, orders, parcels) == first
    assert made == ["orders", "parcels"]
    grown = values(gauges, orders, replace(parcels, pinned_bytes=7))
    assert made == ["orders", "parcels", "parcels"]
    assert grown["a_pinned_bytes"] == {"orders": 3000, "parcels": 7}
    assert grown["a_lag_offsets"] == first["a_lag_offsets"] == {"orders": 0, "parcels": 0}


def test_what_a_stream_lags_grows_with_the_time_though_its_status_is_the_same() -> None:
    gauges, late = StreamGauges("a_"), stream_status()
    assert values(gauges, late)["a_lag_seconds"] == {"orders": 90}
    assert values(gauges, late, quiet("parcels"), now=TimestampMs(NOW + 5000))["a_lag_seconds"] == {
        "orders": 95,
        "parcels": 0,
    }


def test_another_incarnation_of_the_same_names_changes_their_gauges() -> None:
    gauges, one = StreamGauges("a_"), quiet("orders")
    other = replace(one, incarnation=Incarnation("__orders_2"), pinned_bytes=5)
    assert values(gauges, one)["a_pinned_bytes"] == {"orders": 3000}
    assert values(gauges, one, other)["a_pinned_bytes"] == {"orders": 3005}
    assert values(gauges, other)["a_pinned_bytes"] == {"orders": 5}


def test_a_stream_that_is_gone_has_no_gauges() -> None:
    gauges = StreamGauges("a_")
    values(gauges, quiet("orders"), quiet("parcels"))
    assert {tuple(samples) for samples in values(gauges, quiet("parcels")).values()} <= {("parcels",), ()}


def test_a_gauge_that_is_not_known_has_no_sample() -> None:
    found = values(StreamGauges("a_"), quiet("orders"))
    assert found["a_oldest_unarchived_timestamp_seconds"] == found["a_retention_left_seconds"] == {}
