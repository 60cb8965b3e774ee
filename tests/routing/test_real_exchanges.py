"""Every exchange that routes to partitions, on a real broker of each release: each key goes where we say."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from coldstream.manifest.shard_map import ShardHash
from coldstream.routing.consistent import HashOn, HashProperty
from coldstream.routing.message import Binding, Destination, DestinationKind, HeaderValue, RoutedMessage
from coldstream.routing.router import router_of
from tests.support.broker import Broker

COUNT = 100_000
FEWER = 10_000
"""Where other tests show how a key is hashed, and it has only to be found."""

WAIT_S = 120.0
QUEUES = ("größe", "b", "a", "Z")


@pytest.fixture
def channel(any_broker: Broker) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters(any_broker.host, any_broker.amqp_port, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


@pytest.fixture(scope="module")
def version(any_broker: Broker) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", any_broker.ctl("version"))
    assert found is not None
    return int(found[1]), int(found[2])


def some_keys(count: int = COUNT) -> list[str]:
    chance = random.Random(14)
    letters = "abc019.-#* éößñжд日本語🎉"
    found = [
        "",
        "a" * 255,
        "ö" * 127,
        *("".join(chance.choices(letters, k=chance.randrange(1, 30))) for _ in range(count)),
    ]
    return found[:count]


class Exchange:
    """An exchange with its bindings in order, and what its queues got: the body of a message is its number."""

    def __init__(self, channel: BlockingChannel, kind: str, arguments: dict[str, str] | None = None) -> None:
        self.channel = channel
        self.name = f"routing {uuid.uuid4()}"
        self.bindings: list[Binding] = []
        self.queues: dict[Destination, str] = {}
        channel.exchange_declare(self.name, kind, arguments=arguments)

    def bind(self, name: str, key: str, *, by_exchange: bool = False) -> None:
        queue = f"{self.name} {name}"
        self.channel.queue_declare(queue)
        if by_exchange:
            inner = f"{self.name} {name} inner"
            self.channel.exchange_declare(inner, "fanout")
            self.channel.queue_bind(queue, inner)
            self.channel.exchange_bind(inner, self.name, key)
            found = Destination(inner, DestinationKind.EXCHANGE)
        else:
            self.channel.queue_bind(queue, self.name, key)
            found = Destination(queue)
        self.queues[found] = queue
        self.bindings.append(Binding(found, key))

    def sent(
        self, messages: list[RoutedMessage], properties: Callable[[RoutedMessage], pika.BasicProperties]
    ) -> list[Destination]:
        for number, message in enumerate(messages):
            self.channel.basic_publish(self.name, message.routing_key, str(number).encode(), properties(message))
        self._wait_for(len(messages))
        where: dict[int, Destination] = {}
        for destination, queue in self.queues.items():
            count = self._count(queue)
            if count:
                for _method, _, body in self.channel.consume(queue, auto_ack=True):
                    assert int(body) not in where
                    where[int(body)] = destination
                    count -= 1
                    if not count:
                        break
                self.channel.cancel()
        return [where[number] for number in range(len(messages))]

    def _wait_for(self, number: int) -> None:
        """Wait until the queues hold so many: a queue tells its count before it takes in what is on its way to it."""
        deadline = time.monotonic() + WAIT_S
        while (held := sum(map(self._count, self.queues.values()))) != number:
            assert time.monotonic() < deadline, f"{held} of {number} messages came"
            time.sleep(0.1)

    def _count(self, queue: str) -> int:
        found: int = self.channel.queue_declare(queue, passive=True).method.message_count
        return found


def no_properties(message: RoutedMessage) -> pika.BasicProperties:
    return pika.BasicProperties()


def check(
    exchange: Exchange,
    hash_: ShardHash,
    messages: list[RoutedMessage],
    version: tuple[int, int],
    *,
    properties: Callable[[RoutedMessage], pika.BasicProperties] = no_properties,
    hash_on: HashOn | None = None,
) -> None:
    router = router_of(hash_, exchange.bindings, hash_on=hash_on, version=version)
    expected = [router.destinations(message) for message in messages]
    assert [(one,) for one in exchange.sent(messages, properties)] == expected


def test_modulus(channel: BlockingChannel, version: tuple[int, int]) -> None:
    exchange = Exchange(channel, "x-modulus-hash")
    for number, name in enumerate(QUEUES):
        exchange.bind(name, "#", by_exchange=number == 1)
    check(exchange, ShardHash.MODULUS, [RoutedMessage(key) for key in some_keys()], version)


def test_consistent_with_weights(channel: BlockingChannel, version: tuple[int, int]) -> None:
    exchange = Exchange(channel, "x-consistent-hash")
    for number, name in enumerate(QUEUES):
        exchange.bind(name, str(number + 1), by_exchange=number == 1)
    check(exchange, ShardHash.CONSISTENT, [RoutedMessage(key) for key in some_keys()], version)


@pytest.mark.parametrize("name", HashProperty)
def test_consistent_by_property(name: HashProperty, channel: BlockingChannel, version: tuple[int, int]) -> None:
    exchange = Exchange(channel, "x-consistent-hash", {"hash-property": name.value})
    for queue in QUEUES:
        exchange.bind(queue, "2")
    keys = some_keys(FEWER)
    if name is HashProperty.TIMESTAMP:
        messages = [RoutedMessage("", timestamp=number * 977) for number in range(len(keys))]
    else:
        messages = [RoutedMessage("", **{name.value: key.encode()}) for key in keys]

    def properties(message: RoutedMessage) -> pika.BasicProperties:
        found = getattr(message, name.value)
        if found is None:
            return pika.BasicProperties()
        return pika.BasicProperties(**{name.value: found.decode() if isinstance(found, bytes) else found})

    messages.append(RoutedMessage(""))
    on = HashOn(property=name)
    check(exchange, ShardHash.CONSISTENT, messages, version, properties=properties, hash_on=on)


def test_consistent_by_header(channel: BlockingChannel, version: tuple[int, int]) -> None:
    exchange = Exchange(channel, "x-consistent-hash", {"hash-header": "key"})
    for queue in QUEUES:
        exchange.bind(queue, "2")
    texts = [RoutedMessage("", headers={"key": HeaderValue("longstr", key.encode())}) for key in some_keys(FEWER)]

    def properties(message: RoutedMessage) -> pika.BasicProperties:
        return pika.BasicProperties(headers={"key": message.headers["key"].value.decode()})

    on = HashOn(header="key")
    check(exchange, ShardHash.CONSISTENT, texts, version, properties=properties, hash_on=on)


def test_super_stream_by_binding_key(channel: BlockingChannel, version: tuple[int, int]) -> None:
    exchange = Exchange(channel, "direct")
    for name in QUEUES:
        exchange.bind(name, name)
    messages = [RoutedMessage(name) for name in QUEUES * 100]
    check(exchange, ShardHash.BINDING_KEY, messages, version)


def test_random_sends_each_message_to_one_of_its_destinations(
    channel: BlockingChannel, version: tuple[int, int]
) -> None:
    exchange = Exchange(channel, "x-random")
    for number, name in enumerate(QUEUES):
        exchange.bind(name, "", by_exchange=number == 1)
    where = exchange.sent([RoutedMessage("same")] * 1000, no_properties)
    assert set(where) == {one.destination for one in exchange.bindings}
    router = router_of(ShardHash.RANDOM, exchange.bindings, version=version, random=random.Random(1))
    ours = [router.destinations(RoutedMessage("same")) for _ in range(1000)]
    assert {one for (one,) in ours} == set(where)


def test_every_key_goes_to_one_of_two_inner_exchanges_while_both_are_bound(
    channel: BlockingChannel, version: tuple[int, int]
) -> None:
    exchange = Exchange(channel, "x-modulus-hash")
    exchange.bind("v1", "#", by_exchange=True)
    messages = [RoutedMessage(key) for key in some_keys(2000)]
    check(exchange, ShardHash.MODULUS, messages, version)
    exchange.bind("v2", "#", by_exchange=True)
    check(exchange, ShardHash.MODULUS, messages, version)
    check(exchange, ShardHash.MODULUS, messages, version)
    channel.exchange_unbind(exchange.bindings.pop(0).destination.name, exchange.name, "#")
    check(exchange, ShardHash.MODULUS, messages, version)
