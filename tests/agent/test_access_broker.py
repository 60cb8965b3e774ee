"""A login that a real broker refuses, and streams that it does not let the user read, are told at once."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.monitor.check import Check, CheckOutcome
from coldstream.agent.monitor.check_broker import check_broker
from coldstream.agent.options import AgentOptions
from coldstream.live.address import BrokerAddress
from tests.support.agent import AgentProcess
from tests.support.broker import HOST, Broker
from tests.support.releases import HOST_RELEASE, RABBITMQ_4_3

PASSWORD = "a pass/word:@ü"
QUOTED = "a%20pass%2Fword%3A%40%C3%BC"
ARCHIVE = {
    # Nothing of AWS is needed to be refused by the broker.
    "COLDSTREAM_BUCKET": "bucket",
    "COLDSTREAM_TABLE": "table",
    "COLDSTREAM_EVENT_BUS": "bus",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}


pytestmark = pytest.mark.parametrize(
    "broker_release", [HOST_RELEASE, RABBITMQ_4_3], indirect=True, ids=lambda release: f"rabbitmq-{release.version}"
)


@pytest.fixture(scope="module")
def refusing(any_broker: Broker) -> Broker:
    """A broker with a user who may read some streams of one vhost, and nothing else."""
    any_broker.add_vhost("closed")
    any_broker.ctl("add_user", "reader", PASSWORD)
    any_broker.ctl("set_user_tags", "reader", "monitoring")
    any_broker.ctl("set_permissions", "-p", "/", "reader", "^$", "^$", "^open")
    with any_broker.connect() as streams:
        for name in ("open-one", "secret.one"):
            streams.create_stream(name, max_segment_bytes=100_000)
            streams.publish(name, [b"message"])
    with any_broker.connect("closed") as streams:
        streams.create_stream("shut", max_segment_bytes=100_000)
        streams.publish("shut", [b"message"])
    return any_broker


@pytest.fixture
def agent(refusing: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AgentProcess]:
    """An agent that logs in as it is told."""
    state = tmp_path / "state"
    uri = f"rabbitmq-stream://{request.param}@{HOST}:{refusing.stream_port}"
    management = refusing.management_url.replace("guest:guest", f"reader:{QUOTED}")
    options = ("--data", refusing.data_directory, "--management", management)
    names = ("--include", "open*", "--include", "secret*", "--include", "shut", "--scan", "200ms")
    with AgentProcess(ARCHIVE, state, uri, *options, *names) as running:
        running.wait_ready()
        yield running


def get(agent: AgentProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{agent._port()}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


def until(condition: Callable[[], Any], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


@pytest.mark.parametrize("agent", ["reader:wrong"], indirect=True)
def test_a_wrong_password_is_told_by_log_status_metrics_and_readiness(agent: AgentProcess) -> None:
    until(lambda: "user or password are wrong" in agent.log.read_text(), agent.log.read_text)
    until(lambda: (status := agent.status()) is not None and status.is_login_refused, agent.log.read_text)
    status = agent.status()
    assert status is not None
    assert any("user 'reader'" in problem and "password are wrong" in problem for problem in status.problems)
    assert "coldstream_agent_broker_login_refused 1.0" in get(agent, "/metrics")[1]
    code, text = get(agent, "/healthz")
    assert (code, json.loads(text)["healthy"]) == (200, True)  # a restart would not help
    assert "password are wrong" in text
    assert get(agent, "/readyz")[0] == 503
    assert PASSWORD not in agent.log.read_text()
    assert ":wrong" not in agent.log.read_text()


@pytest.mark.parametrize("agent", [f"reader:{QUOTED}"], indirect=True)
def test_streams_that_may_not_be_read_are_told_by_log_status_metrics_and_readiness(agent: AgentProcess) -> None:
    until(
        lambda: "coldstream_agent_refused_streams 1.0" in get(agent, "/metrics")[1],
        lambda: agent.log.read_text() + get(agent, "/status")[1],
    )
    status = agent.status()
    assert status is not None
    assert {stream.state for stream in status.streams if "secret" in stream.incarnation} == {"refused"}
    assert {stream.name for stream in status.streams} >= {"open-one"}
    assert any("refuses streams, and they are not archived: 1, such as" in problem for problem in status.problems)
    failures = {stream.incarnation.split("_1")[0]: stream.last_failure for stream in status.streams}
    assert "lacks a permission, for reading `read`" in str(failures["__secret_one"])
    assert "vhosts alone in which it has permissions" in str(failures["closed_shut"])
    assert 'kind="denied"' in get(agent, "/metrics")[1]
    assert "lacks a permission" in agent.log.read_text()
    assert get(agent, "/healthz")[0] == 200
    assert get(agent, "/readyz")[0] == 503


def options(refusing: Broker, tmp_path: Path, user: str, **settings: Any) -> AgentOptions:
    given = {"data": refusing.data_directory, "management": refusing.management_url} | settings
    address = BrokerAddress.from_uri(f"rabbitmq-stream://{user}@{HOST}:{refusing.stream_port}")
    return AgentOptions(state=tmp_path, broker=address, **given)


def outcomes(checks: list[Check], wanted: CheckOutcome) -> dict[str, str]:
    return {check.what: f"{check.finding} -> {check.advice}" for check in checks if check.outcome is wanted}


async def test_the_check_tells_of_a_login_that_is_refused(refusing: Broker, tmp_path: Path) -> None:
    failed = outcomes(await check_broker(options(refusing, tmp_path, "reader:wrong")), CheckOutcome.FAILED)
    ((what, found),) = failed.items()
    assert "takes the login" in what
    assert "user or password are wrong" in found
    assert "rabbitmqctl list_users" in found


async def test_the_check_tells_of_each_stream_that_may_not_be_read_and_how_to_allow_it(
    refusing: Broker, tmp_path: Path
) -> None:
    checks = await check_broker(options(refusing, tmp_path, f"reader:{QUOTED}"))
    failed = outcomes(checks, CheckOutcome.FAILED)
    assert "stream 'secret.one' in vhost '/' can be read" in failed
    assert "rabbitmqctl set_permissions -p '/' 'reader'" in failed["stream 'secret.one' in vhost '/' can be read"]
    assert not any("open-one" in what for what in failed)
    assert "rabbitmqctl set_permissions -p 'closed' 'reader'" in failed["vhost 'closed' can be read"]
    assert any("takes the login" in what for what in outcomes(checks, CheckOutcome.OK))


async def test_the_check_is_content_with_a_user_who_may_read_all(refusing: Broker, tmp_path: Path) -> None:
    checks = await check_broker(options(refusing, tmp_path, "guest:guest"))
    assert [check.outcome for check in checks] == [CheckOutcome.OK] * 3
    assert "that are to be archived" in checks[-1].finding


async def test_the_check_tells_what_it_cannot_see_without_a_management_api(refusing: Broker, tmp_path: Path) -> None:
    checks = await check_broker(options(refusing, tmp_path, "guest:guest", management=None))
    assert [check.outcome for check in checks] == [CheckOutcome.OK, CheckOutcome.UNKNOWN, CheckOutcome.UNKNOWN]
    wrong = refusing.management_url.replace("guest:guest", "guest:wrong")
    checks = await check_broker(options(refusing, tmp_path, "guest:guest", management=wrong))
    assert [check.outcome for check in checks] == [CheckOutcome.OK, CheckOutcome.FAILED, CheckOutcome.UNKNOWN]
    assert "tag monitoring" in str(checks[1].advice)


async def test_the_check_tells_of_a_broker_that_does_not_answer(refusing: Broker, tmp_path: Path) -> None:
    address = BrokerAddress.from_uri(f"rabbitmq-stream://guest:guest@{HOST}:1,{HOST}:{refusing.stream_port}")
    wanted = AgentOptions(state=tmp_path, broker=address, data=refusing.data_directory)
    checks = await check_broker(wanted)
    assert [check.outcome for check in checks[:2]] == [CheckOutcome.FAILED, CheckOutcome.OK]
    assert "rabbitmq_stream enabled" in str(checks[0].advice)
