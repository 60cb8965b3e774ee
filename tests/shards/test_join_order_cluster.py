"""Messages are published behind x-modulus-hash without a break, while a node joins with shards, and leaves."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import pika
import pytest
from pika.exceptions import NackError, UnroutableError

from coldstream.errors import UnavailableError
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_changes import sealed
from coldstream.manifest.shard_map import ShardKind, ShardMap
from coldstream.shards.apply import ApplyReport, apply_shards
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.shard_maps import find_map
from coldstream.units import Offset, now_ms
from tests.shards.conftest import defined
from tests.support.broker import Broker, find_rabbitmq
from tests.support.cluster import Cluster
from tests.support.fixtures import do_without
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker

KEYS = 40
WAIT_S = 120.0
SEEDS = 20
BODY = re.compile(rb"(\d+)/(\d+)$")

Message = tuple[int, int]
"""A key, and the number of its message."""


class AmqpPublisher:
    """A stock AMQP 0.9.1 client that publishes each key's messages in laps, one at a time, until it is told to stop."""

    def __init__(self, broker: Broker, exchange: str, first: int = 0) -> None:
        self._broker, self._exchange = broker, exchange
        self._stopping = threading.Event()
        # One that waits for a confirm that never comes ends with the tests.
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._error: Exception | None = None
        self.laps = first
        self.confirmed: set[Message] = set()
        self.refused: set[Message] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)

    def go_on(self, laps: int) -> None:
        """Wait until so many laps more are confirmed."""
        wanted = self.laps + laps
        wait(lambda: self.laps >= wanted or not self._thread.is_alive(), f"{laps} laps")
        assert self._error is None, self._error

    def _run(self) -> None:
        try:
            with pika.BlockingConnection(pika.URLParameters(amqp_uri(self._broker))) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while not self._stopping.is_set():
                    for key in range(KEYS):
                        self._publish(channel, (key, self.laps))
                    self.laps += 1
        except Exception as err:  # noqa: BLE001  `go_on` raises it
            self._error = err

    def _publish(self, channel: object, message: Message) -> None:
        key, number = message
        try:
            # Persistent: others go with the node.
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish(self._exchange, str(key), f"{key}/{number}".encode(), persistent, mandatory=True)
        except (NackError, UnroutableError):
            self.refused.add(message)
        else:
            self.confirmed.add(message)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Cluster(3, management=True, plugins=PLUGINS) as running:
        # Of three nodes that all know streams: 3.10 declares none at a node that comes after the first one.
        with running.nodes[0].connect() as streams:
            streams.create_stream("the first", max_segment_bytes=1_000_000)
        running.wait_replicated("the first")
        yield running


@pytest.mark.parametrize("kind", [ShardKind.STREAMS, ShardKind.QUEUES])
def test_keys_keep_their_order_while_a_node_joins_and_nothing_is_lost_when_it_leaves(
    cluster: Cluster, kind: ShardKind
) -> None:
    first, _, third = cluster.nodes
    context = ShardContext(MemoryTable(), MemoryObjects(), Keys(""), shard_broker(first), now_ms)
    name = f"published {kind}"
    options = "replicas = 3\n" if kind is ShardKind.STREAMS else ""
    definition = defined(f'name = "{name}"\nkind = "{kind}"\nshards_per_node = 2\n{options}')
    third.stop()
    wait_running(context, 2)
    apply_until_told(context, definition)
    with AmqpPublisher(first, name) as publisher:
        publisher.go_on(5)
        third.start()
        wait_running(context, 3)
        apply_until_told(context, definition)
        publisher.go_on(5)
        joined = find_map(context.table, "/", name)
        assert joined is not None
        assert len(joined.current) == 6
        assert not publisher.refused
    third.stop()
    wait_running(context, 2)
    gone = settled(context, definition).gone
    assert [told.startswith(f"node {third.node} does not run") for told in gone] == [True]
    # Of queues the order is promised up to here: those of a node that is away are counted out.
    with AmqpPublisher(first, name, publisher.laps) as later:
        later.go_on(5)
    confirmed = publisher.confirmed | later.confirmed
    assert not publisher.refused | later.refused
    third.start()
    wait_running(context, 3)
    held = {one.number: read(first, context, joined, one.name) for one in joined.partitions}
    messages = [message for some in held.values() for message in some]
    assert sorted(messages) == sorted(confirmed)
    parents = {edge.parent for edge in joined.lineage}
    ends = {number: Offset(len(held[number])) for number in parents}
    if kind is ShardKind.STREAMS:
        assert {edge.parent: edge.seal for edge in joined.lineage} == ends
    else:
        # What the archive has of a queue decides its seal: here all of what was in it.
        joined = sealed(joined, ends)
        held = {number: [one for one in some if one[1] < publisher.laps] for number, some in held.items()}
    for seed in range(SEEDS):
        check_order(read_by_key(joined, held, seed), held)


def read_by_key(found: ShardMap, held: Mapping[int, list[Message]], seed: int) -> list[Message]:
    """Read all partitions by chance, in the order of keys."""
    dice = random.Random(seed)
    order = KeyOrder(found, {})
    given: list[Message] = []
    while left := [number for number, some in held.items() if order.position(number) < len(some)]:
        allowed = [number for number in left if order.may_read(number, order.position(number))]
        assert allowed, f"nothing may be read of {left}"
        number = dice.choice(allowed)
        for _ in range(dice.randrange(1, 50)):
            at = order.position(number)
            if at < len(held[number]) and order.may_read(number, at):
                given.append(held[number][at])
                order.read_to(number, Offset(at + 1))
    return given


def check_order(given: list[Message], held: Mapping[int, list[Message]]) -> None:
    numbers: dict[int, list[int]] = {}
    for key, number in given:
        numbers.setdefault(key, []).append(number)
    where = {message: number for number, some in held.items() for message in some}
    mixed = {key: [(one, where[key, one]) for one in some] for key, some in numbers.items() if some != sorted(some)}
    assert not mixed, f"messages out of order, and their partitions, by key: {mixed}"


def read(broker: Broker, context: ShardContext, found: ShardMap, name: str) -> list[Message]:
    """Return what a partition holds, in its order."""
    if found.kind is ShardKind.STREAMS:
        with broker.connect() as streams:
            bodies = [body for _, body in streams.read(name, context.broker.end(name))]
    else:
        with pika.BlockingConnection(pika.URLParameters(amqp_uri(broker))) as connection:
            channel = connection.channel()
            bodies = []
            while (message := channel.basic_get(name))[0] is not None:
                bodies.append(message[2])
    matches = [BODY.search(body) for body in bodies]
    return [(int(match[1]), int(match[2])) for match in matches if match is not None]


def apply_until_told(context: ShardContext, definition: ShardDefinition) -> None:
    """Apply until nothing is left to do but what the archive of queues has to do."""
    wait(
        lambda: all("archive" in told for told in settled(context, definition).waiting), "the definition to be applied"
    )


def settled(context: ShardContext, definition: ShardDefinition) -> ApplyReport:
    """Apply, again while a node that has just come or gone refuses."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return apply_shards(context, definition)
        except UnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def wait_running(context: ShardContext, number: int) -> None:
    def is_so() -> bool:
        try:
            return sum(one.is_running for one in context.broker.nodes()) == number
        except UnavailableError:
            return False

    wait(is_so, f"{number} nodes to run")


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
