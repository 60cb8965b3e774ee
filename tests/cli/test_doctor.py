"""`coldstream doctor` on the emulated AWS, where some services are, and some are not."""

from __future__ import annotations

import socket

import pytest

from coldstream.agent.monitor.http import StatusServer
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import now_ms
from tests.cli.conftest import Cli
from tests.support.agent_status import agent_status, stream_status


@pytest.fixture
def place(table_name: str, dynamo_table: DynamoTable, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)


def test_it_looks_at_everything_and_says_what_to_do(place: None, cli: Cli) -> None:
    done = cli("doctor", "--stack", "tide", "--event-bus", "default", "--output", "json")
    found = {one["what"]: one for one in done.json}
    assert found["it can be listed"]["verdict"] == "ok"
    assert found["it can be queried"]["verdict"] == "ok"
    assert found["no alarm rings"]["verdict"] == "unknown"  # the emulated AWS has no stack of that name
    assert found["a rule sends events to the queue"]["verdict"] == "bad"
    assert found["no event failed for good"]["verdict"] == "unknown"
    assert found["the last scrub found no damage"]["todo"] == "coldstream scrub"
    assert done.code == 1


def test_it_ends_with_exit_code_0_if_nothing_is_bad(place: None, cli: Cli) -> None:
    done = cli("doctor")
    assert (done.code, " 0 bad" in f" {done.err.splitlines()[-1]}") == (0, True)


def test_settings_that_are_missing_are_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_BUCKET", raising=False)
    one, agents = (done := cli("doctor", "-o", "json")).json
    assert (done.code, one["part"], one["verdict"]) == (1, "settings", "bad")
    assert "COLDSTREAM_BUCKET" in one["found"]
    assert agents["part"] == "agents"


def test_a_bucket_that_is_not_there_is_bad_and_the_rest_is_looked_at(
    place: None, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_BUCKET", "no-such-bucket")
    found = cli("doctor", "-o", "json").json
    assert [one["verdict"] for one in found if one["part"] == "bucket"] == ["bad"]
    assert [one["verdict"] for one in found if one["part"] == "table"][:2] == ["ok", "ok"]


def test_agents_are_asked_and_one_that_does_not_answer_is_unknown(place: None, cli: Cli) -> None:
    metrics = AgentMetrics()
    metrics.show(agent_status(stream_status(last_failure="S3 does not answer"), at=now_ms()))
    with StatusServer(metrics, lambda: 0.0, host="127.0.0.1", port=0) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        silent = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = cli("doctor", "--agent", f"http://127.0.0.1:{server.port}", "--agent", silent, "-o", "json")
    agents = [one for one in done.json if one["part"] == "agents"]
    assert "unknown" in {one["verdict"] for one in agents if silent in one["what"]}
    assert "node-1: orders in vhost /: S3 does not answer" in {one["found"] for one in agents}


def test_what_is_no_address_of_an_agent_is_wrong_usage(place: None, cli: Cli) -> None:
    done = cli("doctor", "--agent", "node-1")
    assert (done.code, done.out) == (2, "")
    assert "--agent" in done.err
