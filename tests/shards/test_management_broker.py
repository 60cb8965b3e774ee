"""What sharding asks of a broker, asked of a real one of each release."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pika
import pytest
from rstream import Producer

from coldstream.errors import BrokerRefusedError, NotFoundError, StreamNotFoundError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerNode, BrokerQueue
from coldstream.shards.management_broker import ManagementShardBroker
from tests.support.broker import Broker
from tests.support.releases import Release
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker

STREAM = {"x-stream-max-segment-size-bytes": 1_000_000}


@pytest.fixture(scope="module")
def sharding(broker_release: Release) -> Iterator[Broker]:
    with Broker(release=broker_release, management=True, plugins=PLUGINS) as running:
        yield running


@pytest.fixture
def asked(sharding: Broker) -> ManagementShardBroker:
    return shard_broker(sharding)


def stream(name: str) -> BrokerQueue:
    return BrokerQueue(name, "stream", arguments=STREAM)


def test_nodes_are_listed_with_whether_they_run(sharding: Broker, asked: ManagementShardBroker) -> None:
    assert asked.nodes() == (BrokerNode(sharding.node, is_running=True),)


@pytest.mark.parametrize("kind", ["direct", "x-modulus-hash", "x-consistent-hash", "x-random"])
def test_an_exchange_is_declared_again_and_deleted(asked: ManagementShardBroker, kind: str) -> None:
    exchange = BrokerExchange(f"again ü/{kind}", kind, arguments={"x-super-stream": True} if kind == "direct" else {})
    assert asked.exchange(exchange.name) is None
    asked.declare_exchange(exchange)
    asked.declare_exchange(exchange)
    assert asked.exchange(exchange.name) == exchange
    asked.delete_exchange(exchange.name)
    asked.delete_exchange(exchange.name)
    assert asked.exchange(exchange.name) is None


def test_an_exchange_that_differs_is_refused(asked: ManagementShardBroker) -> None:
    asked.declare_exchange(BrokerExchange("differs", "direct"))
    with pytest.raises(BrokerRefusedError, match="inequivalent"):
        asked.declare_exchange(BrokerExchange("differs", "fanout"))


def test_an_exchange_of_no_plugin_is_refused(asked: ManagementShardBroker) -> None:
    with pytest.raises(BrokerRefusedError, match="x-unheard-of"):
        asked.declare_exchange(BrokerExchange("unknown type", "x-unheard-of"))


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_queue_is_declared_on_its_node_again_and_deleted(
    sharding: Broker, asked: ManagementShardBroker, kind: str
) -> None:
    name = f"sharding: on ü - {sharding.node} - {kind}"
    queue = BrokerQueue(
        name, "stream" if kind == "stream" else "classic", sharding.node, STREAM if kind == "stream" else {}
    )
    asked.declare_queue(queue)
    asked.declare_queue(queue)
    found = asked.queues([name, "not there"])
    assert list(found) == [name]
    assert (found[name].type, found[name].arguments, found[name].node) == (queue.type, queue.arguments, sharding.node)
    asked.delete_queue(name)
    asked.delete_queue(name)
    assert asked.queues([name]) == {}


def test_a_stream_that_differs_and_one_on_no_node_are_refused(asked: ManagementShardBroker) -> None:
    asked.declare_queue(stream("as it is"))
    with pytest.raises(BrokerRefusedError, match="inequivalent"):
        asked.declare_queue(BrokerQueue("as it is", "stream"))
    with pytest.raises(BrokerRefusedError, match="nowhere"):
        asked.declare_queue(BrokerQueue("placed", "stream", "rabbit@nowhere"))


def test_bursts_bind_and_unbind_in_order(asked: ManagementShardBroker) -> None:
    asked.declare_exchange(BrokerExchange("burst", "direct", arguments={"x-super-stream": True}))
    asked.declare_exchange(BrokerExchange("burst inner", "fanout"))
    bindings = []
    for number in range(20):
        asked.declare_queue(stream(f"burst-{number}"))
        bindings.append(BrokerBinding(f"burst-{number}", str(number), {"x-stream-partition-order": number}))
    inner = BrokerBinding("burst inner", "x", destination_type="exchange")
    asked.bind("burst", [*bindings, inner])
    asked.bind("burst", [*bindings, inner])
    assert sorted(asked.bindings("burst"), key=repr) == sorted([*bindings, inner], key=repr)
    asked.unbind("burst", [*bindings[10:], inner])
    asked.unbind("burst", [*bindings[10:], inner])
    assert sorted(asked.bindings("burst"), key=repr) == sorted(bindings[:10], key=repr)


def test_clients_see_the_partitions_in_their_order(sharding: Broker, asked: ManagementShardBroker) -> None:
    asked.declare_exchange(BrokerExchange("seen", "direct", arguments={"x-super-stream": True}))
    names = [f"seen-{number}" for number in range(12)]
    for name in names:
        asked.declare_queue(stream(name))
    asked.bind(
        "seen", [BrokerBinding(name, str(at), {"x-stream-partition-order": at}) for at, name in enumerate(names)]
    )

    async def partitions() -> tuple[str, ...]:
        async with LiveConnection(BrokerAddress.from_uri(sharding.stream_uri), "/") as connection:
            return await connection.partitions("seen")

    deadline = time.monotonic() + 30
    while list(asyncio.run(partitions())) != names:  # with Khepri, a node shows bindings a moment after it took them
        assert time.monotonic() < deadline


def test_what_is_not_there_cannot_be_bound(asked: ManagementShardBroker) -> None:
    asked.declare_exchange(BrokerExchange("lonely", "direct"))
    with pytest.raises(NotFoundError, match="no queue"):
        asked.bind("lonely", [BrokerBinding("no such queue", "0")])
    with pytest.raises(NotFoundError, match="no exchange"):
        asked.bind("no such exchange", [BrokerBinding("as it is", "0")])


def test_a_stream_ends_after_its_last_message_and_not_after_tracking(
    sharding: Broker, asked: ManagementShardBroker
) -> None:
    asked.declare_queue(stream("ends"))
    assert asked.end("ends") == 0
    with sharding.connect() as streams:
        streams.publish("ends", [b"one", b"two", b"three"])
        assert asked.end("ends") == 3

        async def store() -> None:
            async with LiveConnection(BrokerAddress.from_uri(sharding.stream_uri), "/") as connection:
                await connection.store_offset("ends", "reader", connection_offset)

        connection_offset = 1
        asyncio.run(store())
        assert asked.end("ends") == 3
    with pytest.raises(StreamNotFoundError):
        asked.end("no such stream")


def test_publishers_come_with_their_connection_and_client(sharding: Broker, asked: ManagementShardBroker) -> None:
    asked.declare_queue(stream("published"))

    async def publish() -> None:
        producer = Producer(
            sharding.host, sharding.stream_port, username="guest", password="guest", connection_name="program"
        )
        async with producer:
            await producer.send_wait("published", b"one", publisher_name="reference")
            (found,) = [one for one in await asyncio.to_thread(asked.publishers) if one.stream == "published"]
            assert found.reference == "reference"
            assert found.client == "guest from 127.0.0.1 as 'program'"
            assert found.connected_at > 0
            assert found.connection in await asyncio.to_thread(asked.connections)

    asyncio.run(publish())


def test_a_modulus_exchange_leads_on_to_exchanges_and_counts_them(
    sharding: Broker, asked: ManagementShardBroker
) -> None:
    """While both versions are bound, a key goes to one of both, and always the same."""
    for name in ("moved", "moved.v1", "moved.v2"):
        asked.declare_exchange(BrokerExchange(name, "x-modulus-hash"))
    for name in ("v1 0000", "v2 0000"):
        asked.declare_queue(BrokerQueue(name, "classic"))
        asked.bind(f"moved.{name[:2]}", [BrokerBinding(name, "0000")])
    asked.bind("moved", [BrokerBinding(name, "1", destination_type="exchange") for name in ("moved.v1", "moved.v2")])
    with pika.BlockingConnection(pika.URLParameters(amqp_uri(sharding))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(2):
            for key in range(50):
                channel.basic_publish("moved", str(key), str(key).encode(), mandatory=True)
        taken = {}
        for name in ("v1 0000", "v2 0000"):
            taken[name] = []
            while (message := channel.basic_get(name, auto_ack=True))[0] is not None:
                taken[name].append(int(message[2]))
    assert sorted(taken["v1 0000"] + taken["v2 0000"]) == sorted([*range(50), *range(50)])
    assert not set(taken["v1 0000"]) & set(taken["v2 0000"])
    assert taken["v1 0000"]
    assert taken["v2 0000"]
