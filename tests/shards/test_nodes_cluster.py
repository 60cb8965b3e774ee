"""Shards of every node of a real cluster: one node joins, with shards of its own, and one leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pika
import pytest

from coldstream.shards.apply import apply_shards
from coldstream.shards.context import ShardContext
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.shard_maps import find_map
from coldstream.units import now_ms
from tests.shards.conftest import defined
from tests.support.broker import Broker, find_rabbitmq
from tests.support.cluster import Cluster
from tests.support.fixtures import do_without
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker

KEYS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Cluster(3, management=True, plugins=PLUGINS) as running:
        yield running


def publish(broker: Broker, exchange: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(amqp_uri(broker))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key in range(KEYS):
            channel.basic_publish(exchange, str(key), str(key).encode(), mandatory=True)


def taken(broker: Broker, queues: Iterable[str]) -> list[int]:
    """Return how many messages each queue has."""
    with pika.BlockingConnection(pika.URLParameters(amqp_uri(broker))) as connection:
        channel = connection.channel()
        return [channel.queue_declare(name, passive=True).method.message_count for name in queues]


def wait_running(context: ShardContext, number: int) -> None:
    for _ in range(120):
        if sum(one.is_running for one in context.broker.nodes()) == number:
            return
        context.pause(0.5)
    raise AssertionError(context.broker.nodes())


def test_a_node_that_joins_gets_shards_and_one_that_leaves_keeps_its_place(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    context = ShardContext(MemoryTable(), MemoryObjects(), Keys(""), shard_broker(first), now_ms)
    definition = defined('name = "joined"\nkind = "queues"\nshards_per_node = 2\nhash = "random"')
    streams = defined('name = "streams"\nkind = "streams"\nshards = 4\nreplicas = 1')
    third.stop()
    wait_running(context, 2)
    apply_shards(context, definition)
    apply_shards(context, streams)
    before = find_map(context.table, "/", "joined")
    placed = find_map(context.table, "/", "streams")
    assert before is not None
    assert placed is not None
    for found in (before, placed):
        there = context.broker.queues(one.name for one in found.current)
        assert [there[one.name].node for one in found.current] == [one.node for one in found.current]
        assert {one.node for one in found.current} == {first.node, second.node}
    publish(first, "joined")

    third.start()
    wait_running(context, 3)
    apply_shards(context, definition)
    publish(first, "joined")
    after = find_map(context.table, "/", "joined")
    assert after is not None
    assert not after.is_changing
    assert after.newest.partitions == (0, 1, 2, 3, 4, 5)
    assert [one.node for one in after.current[4:]] == [third.node] * 2
    held = taken(first, (one.name for one in after.current))
    assert sum(held) == 2 * KEYS  # none is lost, and none is there twice
    assert all(held)
    assert apply_shards(context, definition).done == ()

    third.stop()
    wait_running(context, 2)
    shown = {one.destination for one in context.broker.bindings("joined.v2")}
    assert shown == {one.name for one in after.current[:4]}  # so the exchange counts without them
    report = apply_shards(context, definition)
    assert len(report.gone) == 1
    assert report.gone[0].startswith(f"node {third.node} does not run, with 2 of 6 partitions")
    assert find_map(context.table, "/", "joined") == after
    third.start()
