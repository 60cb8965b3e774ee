"""What a worker answers by HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.worker import status_server
from coldstream.worker.metrics import WorkerMetrics
from coldstream.worker.status_server import WorkerStatusServer


@pytest.fixture
def metrics() -> WorkerMetrics:
    return WorkerMetrics()


@pytest.fixture
def server(metrics: WorkerMetrics) -> Iterator[WorkerStatusServer]:
    with WorkerStatusServer(metrics, host="127.0.0.1", port=0) as running:
        yield running


def get(server: WorkerStatusServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


def test_metrics_are_text_that_prometheus_reads(server: WorkerStatusServer) -> None:
    status, text = get(server, "/metrics")
    assert status == 200
    assert "# TYPE coldstream_jobs gauge" in text
    assert all(len(line.split()) >= 2 for line in text.splitlines())


def test_a_table_that_does_not_answer_makes_it_not_ready_and_stays_healthy(
    server: WorkerStatusServer, metrics: WorkerMetrics
) -> None:
    assert get(server, "/readyz")[0] == get(server, "/healthz")[0] == 200
    metrics.table_failed("the table is down")
    status, text = get(server, "/readyz")
    assert (status, json.loads(text)["problems"]) == (503, ["the table is down"])
    assert get(server, "/healthz")[0] == 200
    metrics.looked()
    assert get(server, "/readyz")[0] == 200


def test_a_loop_that_hangs_is_not_healthy(server: WorkerStatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "STALLED_S", -1.0)
    assert get(server, "/healthz")[0] == 503
    assert get(server, "/nothing")[0] == 404


def test_an_address_that_is_taken_is_told(server: WorkerStatusServer, metrics: WorkerMetrics) -> None:
    with pytest.raises(InvalidSettingError, match="cannot listen"):
        WorkerStatusServer(metrics, host="127.0.0.1", port=server.port)
