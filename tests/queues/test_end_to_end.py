"""Queues of a real broker into an emulated archive, by the command line, which is killed again and again."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from coldstream.errors import QueueTakenError
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST
from coldstream.queues.pika_queue import PikaQueue
from coldstream.read.reader import Reader
from tests.support.broker import Broker, find_rabbitmq
from tests.support.fixtures import do_without

PACKAGES = Path(__file__).parents[2] / "layers/coldstream/python"
NAMES = (f"sharded queues {number}" for number in itertools.count())
MESSAGES = 3000
KILLS = 6


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}) as running:
        yield running


class ShardingBroker(Broker):
    """A broker that has the exchange of the sharding plugin."""

    def _configure(self) -> None:
        super()._configure()
        (self._directory / "enabled_plugins").write_text("[rabbitmq_stream,rabbitmq_sharding].\n")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with ShardingBroker() as running:
        yield running


def uri(broker: Broker) -> str:
    return f"amqp://guest:guest@{broker.host}:{broker.amqp_port}"


def begin(stack: EmulatedStack, broker: Broker, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | stack.environment | {"PYTHONPATH": str(PACKAGES), "COLDSTREAM_AMQP_BROKER": uri(broker)}
    command = [sys.executable, "-m", "coldstream.cli.main", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def coldstream(stack: EmulatedStack, broker: Broker, *arguments: str) -> list[dict[str, object]]:
    process = begin(stack, broker, *arguments)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in out.splitlines()]


def sharded(broker: Broker, name: str, exchange_type: str = "x-modulus-hash") -> list[str]:
    """Declare an exchange with two queues, and return their names."""
    queues = [f"sharding: {name} - {number}" for number in range(2)]
    with pika.BlockingConnection(pika.URLParameters(uri(broker))) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, exchange_type, durable=True)
        for queue in queues:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, name, "#")
    return queues


def publish(broker: Broker, exchange: str, numbers: range, pause_every: int = 0) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri(broker))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            properties = pika.BasicProperties(headers={"number": number}, delivery_mode=2)
            channel.basic_publish(exchange, f"key {number % 17}", b"%d" % number, properties)
            if pause_every and number % pause_every == 0:
                connection.sleep(0.1)


def read(stack: EmulatedStack, queue: str) -> list[tuple[int, str, int]]:
    """Return what is archived of a queue: the number in the body, the routing key, the number in the header."""
    with Reader(stack.resolver_url, "/", queue, FIRST) as reader:
        return [
            (
                int(message.body),
                (message.message_annotations or {})["x-routing-key"],
                (message.application_properties or {})["number"],
            )
            for message in reader.messages()
        ]


def ready(broker: Broker, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(uri(broker))) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def test_killed_at_random_it_archives_each_message_once_and_in_order(stack: EmulatedStack, broker: Broker) -> None:
    rng = random.Random(7)
    name = next(NAMES)
    queues = sharded(broker, name)
    options = ["shards", "archive", *itertools.chain(*(("--queue", queue) for queue in queues)), "--output", "json"]
    publisher = threading.Thread(target=publish, args=(broker, name, range(MESSAGES), 50))
    publisher.start()
    for _ in range(KILLS):
        process = begin(stack, broker, *options, "--batch-messages", str(rng.randrange(1, 60)), "--batch-age", "100ms")
        time.sleep(rng.uniform(1.5, 3.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    publisher.join()
    ended = coldstream(stack, broker, *options, "--once")
    assert [one["error"] for one in ended] == [None, None]
    archived = [read(stack, queue) for queue in queues]
    assert all(archived)
    for found in archived:
        assert [number for number, _, _ in found] == sorted(number for number, _, _ in found)
        assert all(key == f"key {number % 17}" and header == number for number, key, header in found)
    assert sorted(number for found in archived for number, _, _ in found) == list(range(MESSAGES))
    assert [ready(broker, queue) for queue in queues] == [0, 0]


def test_a_signal_ends_it_after_the_batch_that_is_under_way(stack: EmulatedStack, broker: Broker) -> None:
    name = next(NAMES)
    queues = sharded(broker, name, "fanout")
    publish(broker, name, range(10))
    process = begin(stack, broker, "shards", "archive", "--queue", queues[0], "--output", "json", "--batch-age", "60s")
    with pika.BlockingConnection(pika.URLParameters(uri(broker))) as connection:
        channel = connection.channel()
        while channel.queue_declare(queues[0], passive=True).method.message_count:
            connection.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()
    assert json.loads(out)["messages"] == 10
    assert [number for number, _, _ in read(stack, queues[0])] == list(range(10))
    assert ready(broker, queues[0]) == 0


def test_lost_connections_lose_and_double_nothing(stack: EmulatedStack, broker: Broker) -> None:
    name = next(NAMES)
    queues = sharded(broker, name, "fanout")
    options = ("shards", "archive", "--queue", queues[0], "--output", "json", "--batch-messages", "7")
    publish(broker, name, range(300))
    process = begin(stack, broker, *options)
    for _ in range(3):
        time.sleep(2)
        broker.ctl("close_all_connections", "as asked for by a test")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    coldstream(stack, broker, *options, "--once")
    shown = coldstream(stack, broker, "read", queues[0], "--from", "first")
    assert [number for number, _, _ in read(stack, queues[0])] == list(range(300)) == [one["offset"] for one in shown]


def test_a_queue_that_somebody_consumes_is_refused(broker: Broker) -> None:
    (queue, _) = sharded(broker, next(NAMES), "fanout")
    first = PikaQueue(uri(broker), "/", queue)
    try:
        with pytest.raises(QueueTakenError, match="another consumer"):
            PikaQueue(uri(broker), "/", queue)
    finally:
        first.close()


def test_what_is_archived_is_replayed_as_it_was_published(stack: EmulatedStack, broker: Broker) -> None:
    name = next(NAMES)
    queues = sharded(broker, name, "fanout")
    publish(broker, name, range(5))
    coldstream(stack, broker, "shards", "archive", "--queue", queues[0], "--once", "--output", "json")
    coldstream(stack, broker, "replay", queues[0], "--to-exchange", name, "--output", "json")
    with pika.BlockingConnection(pika.URLParameters(uri(broker))) as connection:
        channel = connection.channel()
        found = [channel.basic_get(queues[1], auto_ack=True) for _ in range(10)]
    for number, (method, properties, body) in enumerate(found):
        assert (method.routing_key, body) == (f"key {number % 5 % 17}", b"%d" % (number % 5))
        assert (properties.headers["number"], properties.delivery_mode) == (number % 5, 2)
