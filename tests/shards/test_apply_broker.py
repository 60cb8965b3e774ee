"""Definitions brought about on a real broker of each release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pika
import pytest

from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.shards.apply import apply_shards
from coldstream.shards.context import ShardContext
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.shard_maps import find_map
from coldstream.units import now_ms
from tests.shards.conftest import defined
from tests.shards.test_apply import KINDS
from tests.support.broker import Broker
from tests.support.releases import HOST_RELEASE, Release
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker


@pytest.fixture(scope="module")
def sharding(broker_release: Release) -> Iterator[Broker]:
    with Broker(release=broker_release, management=True, plugins=PLUGINS) as running:
        yield running


def context_on(broker: Broker, table: MemoryTable | None = None) -> ShardContext:
    return ShardContext(table or MemoryTable(), MemoryObjects(), Keys(""), shard_broker(broker), now_ms)


def of_test(kind: str) -> str:
    return KINDS[kind].replace('"orders"', f'"orders {kind}"')


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_declared_once_and_then_left_alone(sharding: Broker, kind: str) -> None:
    context = context_on(sharding)
    told = apply_shards(context, defined(of_test(kind)), dry_run=True).done
    assert context.broker.exchange(f"orders {kind}") is None
    assert apply_shards(context, defined(of_test(kind))).done == told
    again = apply_shards(context, defined(of_test(kind)))
    assert (again.done, again.waiting, again.gone) == ((), (), ())


def test_a_message_is_routed_to_the_partition_of_its_version(sharding: Broker) -> None:
    context = context_on(sharding)
    definition = defined('name = "routed"\nkind = "streams"\nshards = 4\nmax_segment_bytes = 1_000_000')
    apply_shards(context, definition)
    with pika.BlockingConnection(pika.URLParameters(amqp_uri(sharding))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key in range(100):
            channel.basic_publish("routed", str(key), b"x", mandatory=True)
    found = find_map(context.table, "/", "routed")
    assert found is not None
    ends = [context.broker.end(one.name) for one in found.current]
    assert sum(ends) == 100
    assert all(ends)


def test_clients_see_a_super_stream(sharding: Broker) -> None:
    apply_shards(context_on(sharding), defined('name = "seen"\nkind = "super-stream"\nshards = 11'))

    async def partitions() -> tuple[str, ...]:
        async with LiveConnection(BrokerAddress.from_uri(sharding.stream_uri), "/") as connection:
            return await connection.partitions("seen")

    deadline = time.monotonic() + 30
    while asyncio.run(partitions()) != tuple(f"seen-{number}" for number in range(11)):
        assert time.monotonic() < deadline


def test_what_the_sharding_plugin_made_is_adopted(sharding: Broker) -> None:
    context = context_on(sharding)
    sharding.ctl("set_policy", "--apply-to", "exchanges", "of-plugin", "^of-plugin$", '{"shards-per-node": 3}')
    with pika.BlockingConnection(pika.URLParameters(amqp_uri(sharding))) as connection:
        connection.channel().exchange_declare("of-plugin", "x-modulus-hash", durable=True)
    deadline = time.monotonic() + 30
    while len(context.broker.bindings("of-plugin")) < 3:
        assert time.monotonic() < deadline
    before = context.broker.bindings("of-plugin")
    definition = defined('name = "of-plugin"\nkind = "queues"\nshards_per_node = 3')
    apply_shards(context, definition)
    assert context.broker.bindings("of-plugin") == before
    assert apply_shards(context, definition).done == ()


def test_a_super_stream_of_the_stock_tool_is_adopted(sharding: Broker) -> None:
    if sharding.release != HOST_RELEASE:
        pytest.skip("one release tells")
    context = context_on(sharding)
    sharding.tool("rabbitmq-streams", "add_super_stream", "stock", "--partitions", "3")
    before = context.broker.bindings("stock")
    definition = defined('name = "stock"\nkind = "super-stream"\nshards = 3')
    apply_shards(context, definition)
    assert context.broker.bindings("stock") == before
    assert apply_shards(context, definition).done == ()
