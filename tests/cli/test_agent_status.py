from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from coldstream.agent.monitor.http import StatusServer
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.status import AgentStatus
from coldstream.cli.agent_status import status
from coldstream.errors import ColdstreamError, InvalidSettingError, UnavailableError
from coldstream.manifest.stream import Incarnation
from coldstream.terminal.exits import ExitCode, advice, exit_code
from coldstream.terminal.output import Format
from tests.support.agent_status import NOW, agent_status, stream_status


class Agent:
    """An agent that answers with a snapshot."""

    def __init__(self) -> None:
        self.metrics = AgentMetrics()
        self.server = StatusServer(self.metrics, lambda: 0.0, host="127.0.0.1", port=0)
        self.url = f"http://127.0.0.1:{self.server.port}"


@pytest.fixture
def agent() -> Iterator[Agent]:
    found = Agent()
    with found.server:
        yield found


def test_the_stream_that_is_farthest_behind_comes_first(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    agent.metrics.show(
        agent_status(
            stream_status(name="late", oldest_unarchived_at=NOW - 60_000),
            stream_status(name="done", archived_to=1100, retention_left_s=None),
            stream_status(
                name="latest",
                oldest_unarchived_at=NOW - 7_200_000,
                complete_from=90,
                last_failure="S3 does not answer",
            ),
            stream_status(vhost=None, name=None, incarnation=Incarnation("__new_1"), oldest_unarchived_at=None),
        )
    )
    status(url=agent.url)
    assert capsys.readouterr().out == (
        "vhost  stream   state      behind  offsets behind  pinned   only here  retention left  complete from"
        "  failure\n"
        "/      latest   announced  2 h                400  2.9 KiB  1000 B     60 min          90           "
        "  S3 does not answer\n"
        "/      late     announced  60 s               400  2.9 KiB  1000 B     60 min          -              -\n"
        "/      done     announced  0 s                  0  2.9 KiB  1000 B     -               -              -\n"
        "-      __new_1  announced  -                  400  2.9 KiB  1000 B     60 min          -              -\n"
    )


def test_totals_and_problems_are_said(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    agent.metrics.show(agent_status(stream_status(), stream_status(archived_to=1100), problems=("no \x1b[31mAWS",)))
    status(url=f"{agent.url}/")
    assert capsys.readouterr().err == (
        "2 streams, 1 of them not archived to the end; 5.9 KiB pinned, 2.0 KiB of it held here only;"
        " 40.0 GiB of 100.0 GiB free\n"
        "coldstream 0.1.0 on node-1 at 2025-11-21T04:40:00.000Z, up for 2 h;"
        " AWS answered never yet, the broker never yet\n"
        "recovery log: 190 objects, complete 20 s ago\n"
        "problem: no \\x1b[31mAWS\n"
    )


def test_as_json_it_is_what_the_agent_said(agent: Agent, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    shown = agent_status(stream_status(name="grün 注文"))
    agent.metrics.show(shown)
    status(url=agent.url, output=Format.JSON)
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert AgentStatus.from_json(out, source="") == shown
    assert json.loads(out)["streams"][0]["name"] == "grün 注文"


def failed(url: str) -> ColdstreamError:
    with pytest.raises(ColdstreamError) as raised:
        status(url=url)
    return raised.value


def test_an_agent_that_cannot_be_reached_is_exit_code_6() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        err = failed(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert isinstance(err, UnavailableError)
    assert exit_code(err) is ExitCode.UNAVAILABLE
    assert "is an agent running? `coldstream agent` starts one" in (advice(err) or "")
    assert "coldstream up" not in (advice(err) or "")


def test_an_agent_that_starts_is_exit_code_6(agent: Agent) -> None:
    err = failed(agent.url)
    assert "the agent is starting" in str(err)
    assert exit_code(err) is ExitCode.UNAVAILABLE


def test_another_service_is_not_an_agent(agent: Agent) -> None:
    assert "answered 404" in str(failed(f"{agent.url}/elsewhere"))


@pytest.mark.parametrize("url", ["", "localhost:9478", "ftp://localhost", "http://", "http://[::1"])
def test_what_is_no_url_is_wrong_usage(url: str) -> None:
    err = failed(url)
    assert isinstance(err, InvalidSettingError)
    assert exit_code(err) is ExitCode.USAGE
