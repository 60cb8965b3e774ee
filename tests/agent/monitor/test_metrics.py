from __future__ import annotations

import errno

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coldstream.agent.monitor.exposition_format import ExpositionFormat
from coldstream.agent.monitor.metrics import AgentMetrics, Service, failure_kind
from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    InvalidSettingError,
    LostRaceError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import now_ms
from tests.support.agent_status import NOW, ORDERS, agent_status, stream_status

STREAM = StreamId("/", "orders", ORDERS)
LATER = StreamId("/", "orders", Incarnation("__orders_1763800000000000000"))
LABELS = {"vhost": "/", "stream": "orders"}

PLAIN = ExpositionFormat.wanted("")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(metrics: AgentMetrics) -> Samples:
    """Read back what Prometheus would be given; no series may be there twice."""
    samples: Samples = {}
    for family in text_string_to_metric_families(metrics.text(PLAIN).decode()):
        for sample in family.samples:
            key = (sample.name.removeprefix("coldstream_agent_"), frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_what_happens_is_counted_by_stream() -> None:
    metrics = AgentMetrics()
    for size_bytes in (100, 50):
        metrics.staged(STREAM, size_bytes)
        metrics.announced(STREAM, size_bytes)
    metrics.archived(STREAM, 100)
    metrics.quarantined(STREAM)
    metrics.lost(STREAM, 12)
    samples = scrape(metrics)
    expected = {
        "staged_segments": 2,
        "staged_bytes": 150,
        "announced_segments": 2,
        "announced_bytes": 150,
        "archived_segments": 1,
        "archived_bytes": 100,
        "quarantined_segments": 1,
        "lost_offsets": 12,
    }
    assert {name: value(samples, f"{name}_total", **LABELS) for name in expected} == expected


def test_gauges_are_those_of_the_last_snapshot() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status(pinned_bytes=1)))
    metrics.show(agent_status(stream_status()))
    samples = scrape(metrics)
    assert value(samples, "pinned_bytes", **LABELS) == 3000
    assert value(samples, "pinned_segments", **LABELS) == 3
    assert value(samples, "orphaned_bytes", **LABELS) == 1000
    assert value(samples, "lag_offsets", **LABELS) == 400
    assert value(samples, "oldest_unarchived_timestamp_seconds", **LABELS) == (NOW - 90_000) / 1000
    assert value(samples, "retention_left_seconds", **LABELS) == 3600
    assert value(samples, "streams") == 1
    assert value(samples, "unnamed_streams") == 0
    assert value(samples, "disk_free_bytes") == 40 << 30
    assert value(samples, "disk_size_bytes") == 100 << 30
    assert value(samples, "max_lag_seconds") == 60
    assert value(samples, "build_info", version="0.1.0") == 1


def test_the_lag_in_seconds_grows_also_while_no_snapshot_comes() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status(oldest_unarchived_at=now_ms() - 90_000)))
    lag_s = value(scrape(metrics), "lag_seconds", **LABELS)
    assert lag_s is not None
    assert 90 <= lag_s < 100


def test_what_is_not_known_is_absent() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status(oldest_unarchived_at=None, retention_left_s=None), max_lag_s=None))
    samples = scrape(metrics)
    assert value(samples, "pinned_bytes", **LABELS) == 3000
    for name in ("lag_seconds", "oldest_unarchived_timestamp_seconds", "retention_left_seconds"):
        assert value(samples, name, **LABELS) is None
    assert value(samples, "max_lag_seconds") is None
    assert value(samples, "last_contact_timestamp_seconds", service="aws") is None


def test_before_the_first_snapshot_there_is_something_to_scrape() -> None:
    metrics = AgentMetrics()
    assert metrics.status is None
    assert any(name.startswith("process_") for name, _ in scrape(metrics))


def test_counters_of_a_new_stream_begin_at_0() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status()))
    assert value(scrape(metrics), "archived_segments_total", **LABELS) == 0


def test_incarnations_of_the_same_names_count_as_one() -> None:
    metrics = AgentMetrics()
    metrics.archived(STREAM, 100)
    metrics.archived(LATER, 10)
    metrics.show(
        agent_status(
            stream_status(retention_left_s=5000.0),
            stream_status(
                incarnation=LATER.incarnation,
                archived_to=None,
                pinned_bytes=7,
                oldest_unarchived_at=NOW - 1000,
                retention_left_s=60.0,
            ),
        )
    )
    samples = scrape(metrics)
    assert value(samples, "archived_bytes_total", **LABELS) == 110
    assert value(samples, "pinned_bytes", **LABELS) == 3007
    assert value(samples, "lag_offsets", **LABELS) == 1400
    assert value(samples, "oldest_unarchived_timestamp_seconds", **LABELS) == (NOW - 90_000) / 1000
    assert value(samples, "retention_left_seconds", **LABELS) == 60
    lag_s = value(samples, "lag_seconds", **LABELS)
    assert lag_s is not None
    assert lag_s >= (now_ms() - NOW + 89_000) / 1000


def test_a_stream_without_names_shows_by_its_directory() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status(vhost=None, name=None)))
    samples = scrape(metrics)
    assert value(samples, "unnamed_streams") == 1
    assert value(samples, "pinned_bytes", vhost="", stream=ORDERS) == 3000


def test_streams_that_are_refused_are_not_those_without_names() -> None:
    metrics = AgentMetrics()
    nameless = {"vhost": None, "name": None}
    streams = [
        stream_status(state="refused", **nameless),
        stream_status(state="refused"),
        stream_status(state="empty", **nameless),
        stream_status(state="unnamed", **nameless),
    ]
    metrics.show(agent_status(*streams, refused_streams=2, is_login_refused=True))
    samples = scrape(metrics)
    assert value(samples, "refused_streams") == 2
    assert value(samples, "unnamed_streams") == 1
    assert value(samples, "broker_login_refused") == 1


def test_what_is_counted_of_a_stream_without_names_stands_under_its_directory_until_it_has_them() -> None:
    metrics = AgentMetrics()
    metrics.lost(ORDERS, 7)
    metrics.failed(AccessDeniedError("no"), ORDERS)
    samples = scrape(metrics)
    assert value(samples, "lost_offsets_total", vhost="", stream=ORDERS) == 7
    assert value(samples, "failures_total", vhost="", stream=ORDERS, kind="denied") == 1
    metrics.forget(ORDERS)
    assert value(scrape(metrics), "lost_offsets_total", vhost="", stream=ORDERS) is None


def test_a_stream_that_is_gone_leaves_nothing_behind() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status()))
    metrics.archived(STREAM, 100)
    metrics.failed(UnavailableError("no"), STREAM)
    metrics.show(agent_status())
    metrics.forget(ORDERS)
    assert not [labels for _, labels in scrape(metrics) if ("stream", "orders") in labels]


def test_counters_of_a_stream_that_is_declared_again_begin_at_0_again() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status()))
    metrics.archived(STREAM, 100)
    metrics.forget(ORDERS)
    metrics.show(agent_status(stream_status(incarnation=LATER.incarnation)))
    assert value(scrape(metrics), "archived_bytes_total", **LABELS) == 0


def test_counters_stay_while_another_incarnation_of_the_stream_is_here() -> None:
    metrics = AgentMetrics()
    metrics.archived(STREAM, 100)
    metrics.archived(LATER, 10)
    metrics.forget(ORDERS)
    assert value(scrape(metrics), "archived_bytes_total", **LABELS) == 110
    metrics.forget(LATER.incarnation)
    assert value(scrape(metrics), "archived_bytes_total", **LABELS) is None


def test_a_stream_that_was_never_counted_can_be_forgotten() -> None:
    AgentMetrics().forget(ORDERS)


def test_failures_are_counted_by_kind_with_the_stream_or_without() -> None:
    metrics = AgentMetrics()
    metrics.failed(UnavailableError("no"), STREAM)
    metrics.failed(AccessDeniedError("no"))
    metrics.failed(AccessDeniedError("no"))
    samples = scrape(metrics)
    assert value(samples, "failures_total", **LABELS, kind="unavailable") == 1
    assert value(samples, "failures_total", vhost="", stream="", kind="denied") == 2


@pytest.mark.parametrize(
    ("err", "kind"),
    [
        (AccessDeniedError(""), "denied"),
        (UnavailableError(""), "unavailable"),
        (OutcomeUnknownError(""), "unavailable"),
        (LostRaceError(""), "unavailable"),
        (StreamNotFoundError(""), "not_found"),
        (BadCrcError("file", 0, "crc"), "corruption"),
        (InvalidSettingError("x", "y"), "settings"),
        (OSError(errno.ENOSPC, "full"), "disk"),
        (ZeroDivisionError(), "unexpected"),
    ],
)
def test_each_error_has_its_kind(err: Exception, kind: str) -> None:
    assert failure_kind(err) == kind


def test_contacts_show_in_metrics_and_in_the_status() -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status())
    before = now_ms()
    metrics.contacted(Service.AWS)
    status = metrics.status
    assert status is not None
    assert status.broker_contact_at is None
    assert status.aws_contact_at is not None
    assert status.aws_contact_at >= before
    samples = scrape(metrics)
    assert value(samples, "last_contact_timestamp_seconds", service="aws") == status.aws_contact_at / 1000
    assert value(samples, "last_contact_timestamp_seconds", service="broker") is None


def test_names_that_are_not_words_come_out_escaped() -> None:
    metrics = AgentMetrics()
    name = 'a"b\\c\nd 注文'
    metrics.show(agent_status(stream_status(name=name)))
    assert value(scrape(metrics), "pinned_bytes", vhost="/", stream=name) == 3000
