"""A sharded stream of classic queues on a real broker: declared, archived, grown, halved, and read by its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.local.stack import EmulatedStack
from tests.queues.test_end_to_end import PACKAGES, publish, ready, uri
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.shard_brokers import PLUGINS

NAME = "clicks"


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}) as running:
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Broker(management=True, plugins=PLUGINS) as running:
        yield running


class CommandLine:
    """The command line with the settings of an archive and a broker."""

    def __init__(self, stack: EmulatedStack, broker: Broker) -> None:
        self._environment = {
            **os.environ,
            **stack.environment,
            "PYTHONPATH": str(PACKAGES),
            "COLDSTREAM_AMQP_BROKER": uri(broker),
            "COLDSTREAM_BROKER": broker.stream_uri,
            "COLDSTREAM_MANAGEMENT": broker.management_url,
        }

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "coldstream.cli.main", *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *arguments: str) -> str:
        process = self.begin(*arguments)
        out, errors = process.communicate(timeout=240)
        assert process.returncode == 0, (arguments, out.decode(), errors.decode())
        return out.decode() + errors.decode()


def queue_names(broker: Broker) -> list[str]:
    shown = broker.ctl("list_queues", "name", "--formatter", "json")
    return sorted(one["name"] for one in json.loads(shown))


def wait_until_empty(broker: Broker) -> None:
    deadline = time.monotonic() + 60
    while any(ready(broker, name) for name in queue_names(broker)):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_it_grows_and_halves_while_its_queues_are_archived(
    stack: EmulatedStack, broker: Broker, tmp_path: Path
) -> None:
    coldstream = CommandLine(stack, broker)

    def definition(shards: int) -> str:
        path = tmp_path / f"{shards}.toml"
        path.write_text(f'[[shards]]\nname = "{NAME}"\nkind = "queues"\nhash = "modulus"\nshards = {shards}\n')
        return str(path)

    coldstream("shards", "apply", definition(2))
    publish(broker, NAME, range(200))
    archiver = coldstream.begin("shards", "archive", NAME, "--output", "json", "--batch-age", "100ms")
    coldstream("shards", "apply", definition(4), "--wait", "2m")
    publish(broker, NAME, range(200, 400))
    wait_until_empty(broker)  # the queues that are new, too
    archiver.send_signal(signal.SIGTERM)
    out, errors = archiver.communicate(timeout=60)
    assert archiver.returncode == 0, errors.decode()
    ended = [json.loads(line) for line in out.splitlines()]
    assert len(ended) == 4
    assert sum(one["messages"] for one in ended) == 400
    assert all(one["error"] is None and one["messages"] for one in ended)

    publish(broker, NAME, range(400, 500))
    four = queue_names(broker)
    told = coldstream("shards", "apply", definition(2), "--wait", "40s")  # readers have 30 s to learn of it
    assert "waiting for sharding" in told
    assert queue_names(broker) == four
    publish(broker, NAME, range(500, 600))
    coldstream("shards", "archive", NAME, "--once")
    coldstream("shards", "apply", definition(2), "--wait", "2m")
    assert queue_names(broker) == four[:2]

    by_key: dict[str, list[int]] = defaultdict(list)
    for line in coldstream("read", NAME, "--from", "first", "--order", "key").splitlines():
        if line.startswith("{"):
            read = json.loads(line)
            number = read["application_properties"]["number"]
            by_key[read["message_annotations"]["x-routing-key"]].append(number)
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(600))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert by_key.keys() == {f"key {number}" for number in range(17)}
