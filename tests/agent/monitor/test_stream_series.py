"""The text of streams' series is what prometheus_client makes of the same metrics, to the byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.stream_series import StreamCounters, StreamFamily, StreamTexts

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
NAMES = [("/", "orders"), ("", "__orders_17"), ('v"h\\o\nst', "注文 {}=,")]
VALUES = [0, 1, 0.25, 123456, 1234567.5, 1_763_700_000.123, 1 << 50, 3e-7]


class Families:
    """A collector of the families that it is given."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["prometheus", "openmetrics"])
def test_gauges_are_written_as_prometheus_client_writes_them(accept):
    wanted = ExpositionFormat.wanted(accept)
    samples = [(names, value) for names in NAMES for value in VALUES]
    expected = GaugeMetricFamily("agent_lag", "How far behind.", labels=("vhost", "stream"))
    for names, value in samples:
        expected.add_metric(names, value)
    family = StreamFamily("agent_lag", "How far behind.")
    texts = StreamTexts().texts([(family, samples)], is_openmetrics=wanted.is_openmetrics)
    assert wanted.write(CollectorRegistry(), texts) == wanted.encode(Families(expected))


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["prometheus", "openmetrics"])
def test_counters_are_written_as_prometheus_client_writes_them(accept):
    wanted = ExpositionFormat.wanted(accept)
    counters = StreamCounters({"bytes": "Bytes.", "lost": "Lost."}, "agent_")
    for number, names in enumerate(NAMES):
        counters.count(names, {"bytes": 10 * number})
        counters.count(names, {"bytes": 5, "lost": number})
    expected = {"bytes": [5, 15, 25], "lost": [0, 1, 2]}
    families = []
    for name, values in expected.items():
        family = CounterMetricFamily(f"agent_{name}", f"{name.title()}.", labels=("vhost", "stream"))
        for names, value in zip(NAMES, values, strict=True):
            family.add_metric(names, value)
        families.append(family)
    texts = StreamTexts().texts(counters.families(), is_openmetrics=wanted.is_openmetrics)
    assert wanted.write(CollectorRegistry(), texts) == wanted.encode(Families(*families))


def test_what_changed_since_the_last_time_is_written_anew(monkeypatch):
    counters, texts = StreamCounters({"bytes": "Bytes.", "lost": "Lost."}, "agent_"), StreamTexts()
    counters.count(("/", "orders"), {"bytes": 1})
    first = texts.texts(counters.families(), is_openmetrics=False)
    written: list[str] = []
    write = StreamFamily.text

    def noting(self: StreamFamily, *arguments: Any, is_openmetrics: bool) -> str:
        written.append(self.name)
        return write(self, *arguments, is_openmetrics=is_openmetrics)

    monkeypatch.setattr(StreamFamily, "text", noting)
    assert texts.texts(counters.families(), is_openmetrics=False) == first
    assert written == []
    counters.count(("/", "orders"), {"bytes": 1})
    second = texts.texts(counters.families(), is_openmetrics=False)
    assert written == ["agent_bytes"]
    assert b'agent_bytes_total{stream="orders",vhost="/"} 2.0' in second[0]
    assert texts.texts(counters.families(), is_openmetrics=True) != second


def test_streams_that_come_and_go_leave_nothing_behind():
    family, texts = StreamFamily("agent_lag", "How far behind."), StreamTexts()
    for number in range(50):
        (text,) = texts.texts([(family, [(("/", f"orders-{number}"), 1)])], is_openmetrics=False)
        assert f"orders-{number}".encode() in text
    assert len(texts._labels) <= 3
