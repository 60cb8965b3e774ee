"""Quiet streams at a real broker: a slice after a longer span, and the recovery log for a node that is lost before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import StreamNotFoundError
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST
from coldstream.read.reader import Reader
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from tests.support.agent import PACKAGES, AgentProcess
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without

pytestmark = pytest.mark.broker

STREAMS = ("quiet-1", "quiet.2", "quiet-3")
MESSAGES = 7
WAIT_S = 90


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}) as running:
        yield running


@pytest.fixture
def node() -> Iterator[Broker]:
    """A broker of its own: the test loses what is on its disk."""
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Broker() as running:
        yield running


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def archived(stack: EmulatedStack, name: str) -> list[bytes]:
    try:
        with Reader(stack.resolver_url, "/", name, FIRST) as reader:
            return [message.raw for message in reader.messages()]
    except StreamNotFoundError:
        return []


def spans(stack: EmulatedStack) -> list[str]:
    objects = S3Objects(stack.environment["COLDSTREAM_BUCKET"])
    return list(objects.keys(Keys(stack.environment.get("COLDSTREAM_PREFIX", "")).all_spans))


def recover(stack: EmulatedStack, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "coldstream.cli.main", "recover", "-o", "json", *options]
    environment = os.environ | stack.environment | {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_what_was_confirmed_longer_ago_than_the_lag_survives_the_node_and_its_disk(
    node: Broker, stack: EmulatedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    sent: dict[str, list[bytes]] = {name: [] for name in STREAMS}
    state = tmp_path / "state"
    uri = f"rabbitmq-stream://guest:guest@{node.host}:{node.stream_port}"
    options = ["--data", node.data_directory, "--max-lag", "3s", "--quiet-span", "1d"]
    with node.connect("/") as streams:
        for name in STREAMS:
            streams.create_stream(name, max_segment_bytes=1_000_000)
        agent = AgentProcess(stack.environment, state, uri, *options)
        with agent:
            agent.wait_ready()
            for number in range(MESSAGES):
                for name in STREAMS:
                    message = b"%s %d" % (name.encode(), number)
                    streams.publish(name, [message])  # returns when it is confirmed
                    sent[name].append(message)
                time.sleep(0.7)
            confirmed_at = time.time() * 1000
            until(
                lambda: (status := agent.status()) is not None and (status.logged_at or 0) > confirmed_at,
                "the log is not complete",
            )
            status = agent.status()
            assert status is not None
            assert status.log_objects == len(spans(stack)) > 0
            assert not status.problems
            assert all(archived(stack, name) == [] for name in STREAMS)
            # The node is lost, with the agent's directory.
            agent.kill()
    directories = [node.stream_directory(name) for name in STREAMS]
    node.kill()
    for directory in (state, *directories):
        shutil.rmtree(directory)
    there = recover(stack, "--dry-run")
    assert len(there["streams"]) == len(STREAMS)
    assert all(archived(stack, name) == [] for name in STREAMS)
    done = recover(stack)
    assert not done["kept"]
    assert done["deleted"] == there["objects"]
    for name in STREAMS:
        assert archived(stack, name) == sent[name]
    assert spans(stack) == []
    assert recover(stack)["objects"] == 0
