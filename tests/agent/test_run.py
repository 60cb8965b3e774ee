"""The agent as a process, where nothing that it depends on answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from coldstream.agent import run
from coldstream.agent.options import AgentOptions
from coldstream.agent.stream_file import RememberedStream, StreamFile
from coldstream.live.address import BrokerAddress
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset
from tests.support.agent import AgentProcess
from tests.support.node import Node


@pytest.fixture
def mute() -> Iterator[tuple[str, list[socket.socket]]]:
    """An address that takes every connection and says nothing; and the connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", taken
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in taken:
        connection.close()


def test_an_agent_that_nobody_answers_ends_at_once_when_it_is_told_to(tmp_path: Path, mute) -> None:
    address, connections = mute
    node = Node(tmp_path / "stream")
    stream = node.declare("orders")
    stream.publish(100)
    node.close()
    # Its names are known, so that AWS is asked.
    named = RememberedStream(StreamId("/", "orders", stream.incarnation), Offset(0), ())
    StreamFile(tmp_path / "state/streams", stream.incarnation).save(named)
    environment = {
        "COLDSTREAM_BUCKET": "bucket",
        "COLDSTREAM_TABLE": "table",
        "COLDSTREAM_EVENT_BUS": "bus",
        "COLDSTREAM_MANAGEMENT": f"http://guest:guest@{address}",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://{address}",
    }
    agent = AgentProcess(environment, tmp_path / "state", f"rabbitmq-stream://{address}", "--data", node.data)
    with agent:
        deadline = time.monotonic() + 20
        while len(connections) < 3:
            assert time.monotonic() < deadline, agent.log.read_text()
            time.sleep(0.05)
        started = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - started < 6
    assert agent.log.read_text().rstrip().endswith("INFO ended")


@pytest.mark.parametrize(("told", "expected"), [(None, "eu"), ("us", "us"), ("", "")])
async def test_the_cluster_that_the_agent_is_told_goes_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None, expected: str
) -> None:
    class Told(Exception):  # noqa: N818  no error: the end of the test
        pass

    class Asked:
        @classmethod
        def from_environment(cls, environment: Mapping[str, str], *_: object) -> None:
            raise Told(environment["COLDSTREAM_CLUSTER"])

    monkeypatch.setattr(run, "ArchiveClient", Asked)
    address = BrokerAddress.from_uri("rabbitmq-stream://localhost")
    options = AgentOptions(state=tmp_path / "state", broker=address, data=tmp_path / "data", cluster=told)
    with pytest.raises(Told, match=f"^{expected}$"):
        await run.run_agent(options, {"COLDSTREAM_CLUSTER": "eu"})
