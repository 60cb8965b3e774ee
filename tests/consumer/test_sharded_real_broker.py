"""A super stream of a real broker that grows while it is published to and read, archived and live."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import coldstream
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.shard_changes import bound, doubled, first_map, identified, sealed
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import stream_from_directory
from coldstream.read.sharded import ShardedReader
from coldstream.routing.murmur3 import partition_of
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs, now_ms
from tests.support.broker import Broker
from tests.support.streams import StreamConnection
from tests.support.written_maps import map_writer

SEGMENT_BYTES = 100_000
KEYS = [f"key-{number}" for number in range(12)]
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def streams(broker: Broker) -> Iterator[StreamConnection]:
    with broker.connect() as connection:
        yield connection


class Scene:
    """A super stream of two partitions, its map, and how many messages of each key were published."""

    def __init__(self, stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> None:
        self.name = f"grown-{next(_NAMES)}"
        self.stack, self.broker, self.streams = stack, broker, streams
        self.written = dict.fromkeys(KEYS, 0)
        self.ends: dict[str, int] = {}
        broker.ctl(
            "eval",
            f'rabbit_stream_manager:create_super_stream(<<"/">>, <<"{self.name}">>,'
            f' [<<"{self.name}-0">>, <<"{self.name}-1">>], {self._arguments}, [<<"0">>, <<"1">>], <<"guest">>).',
        )
        names = [Partition(0, f"{self.name}-{at}") for at in range(2)]
        found = first_map(
            "/", self.name, ShardKind.SUPER_STREAM, ShardHash.MURMUR3, partitions=names, definition="{}", at=now_ms()
        )
        self.map = found
        self.write_map(found, ShardEventKind.DECLARE)
        self.write_map(bound(found, now_ms()), ShardEventKind.DECLARE)

    @property
    def _arguments(self) -> str:
        return (
            f'#{{<<"stream-max-segment-size-bytes">> => <<"{SEGMENT_BYTES}">>, <<"max-length-bytes">> => <<"300000">>}}'
        )

    def write_map(self, found: ShardMap, kind: ShardEventKind) -> None:
        with self._environment():
            map_writer(DynamoTable(self.stack.environment["COLDSTREAM_TABLE"])).write(found, kind, now_ms())
        self.map = found

    def publish(self, rounds: int, partitions: int) -> None:
        """Publish so many messages of each key, by the clients' hash over a number of partitions."""
        for _ in range(rounds):
            for key in KEYS:
                stream = f"{self.name}-{partition_of(key, partitions)}"
                body = f"{key}/{self.written[key]}:".encode() + bytes(500)
                self.ends[stream] = self.ends.get(stream, 0) + self.streams.publish(stream, [body])
                self.written[key] += 1

    def double(self) -> None:
        added = [f"{self.name}-{at}" for at in (2, 3)]
        for name in added:
            self.streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=300_000)
        self.write_map(doubled(self.map, [Partition(0, name) for name in added], "{}", now_ms()), ShardEventKind.DOUBLE)
        self.write_map(bound(self.map, now_ms()), ShardEventKind.BIND)

    def seal(self) -> None:
        ends = {number: Offset(self.ends[f"{self.name}-{number}"]) for number in (0, 1)}
        self.write_map(sealed(self.map, ends), ShardEventKind.SEAL)

    def archive(self) -> None:
        """Archive what has rolled, of all partitions."""
        with self._environment():
            announcer = Announcer.from_environment()
            for partition in self.map.partitions:
                directory = self.broker.stream_directory(partition.name)
                stream = stream_from_directory(directory.name, name=partition.name, vhost="/")
                announcer.announce(stream, find_rolled(directory), lambda _: None)
            self.stack.wait_idle(60)

    def first_at_broker(self, number: int) -> int:
        directory = self.broker.stream_directory(f"{self.name}-{number}")
        return min(int(path.stem) for path in directory.glob("*.segment"))

    @contextmanager
    def consumer(self, start: object = FIRST, **options: object) -> Iterator[coldstream.BlockingConsumer]:
        with coldstream.BlockingConsumer(
            self.name,
            start,  # type: ignore[arg-type]
            resolver=self.stack.resolver_url,
            broker=self.broker.stream_uri,
            archive_wait_s=20.0,
            **options,  # type: ignore[arg-type]
        ) as consumer:
            overdue = threading.Timer(90, consumer.close)
            overdue.start()
            try:
                yield consumer
            finally:
                overdue.cancel()

    @contextmanager
    def _environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.stack.environment.items():
                patch.setenv(name, value)
            yield


@pytest.fixture
def scene(stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> Scene:
    return Scene(stack, broker, streams)


def numbers_by_key(bodies: list[bytes]) -> dict[str, list[int]]:
    taken: dict[str, list[int]] = {key: [] for key in KEYS}
    for body in bodies:
        key, _, number = body.partition(b":")[0].decode().partition("/")
        taken[key].append(int(number))
    return taken


def bodies_of(consumer: coldstream.BlockingConsumer, messages: int) -> list[bytes]:
    return [bytes(message.raw) for message in itertools.islice(consumer.messages(), messages)]


def test_growth_across_retention_gives_each_message_once_and_each_key_in_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.consumer.sharded.MAP_EVERY_S", 0.5)
    for _ in range(3):
        scene.publish(50, partitions=2)
        scene.archive()
    assert scene.first_at_broker(0) > 0
    with scene.consumer() as consumer:
        bodies = bodies_of(consumer, 12 * 100)
        position = consumer.position
        assert isinstance(position, coldstream.ShardPosition)
        scene.double()
        scene.publish(20, partitions=4)
        bodies += bodies_of(consumer, 12 * 50)
        scene.seal()
        scene.publish(30, partitions=4)
        bodies += bodies_of(consumer, 12 * 50)
        everything = {key: list(range(200)) for key in KEYS}
        assert numbers_by_key(bodies) == everything
        end = consumer.position
        assert isinstance(end, coldstream.ShardPosition)
        assert sum(end.offsets.values()) == 12 * 200
        assert set(consumer.streams) == {f"{scene.name}-{number}" for number in range(4)}
    with scene.consumer(position) as consumer:  # of the version before
        left = 12 * 200 - sum(position.offsets.values())
        again = numbers_by_key(bodies_of(consumer, left))
        assert all(numbers == list(range(200 - len(numbers), 200)) for numbers in again.values())
        assert consumer.position == end
    with scene.consumer(order="arrival") as consumer:
        arrived = numbers_by_key(bodies_of(consumer, 12 * 200))
        assert {key: sorted(numbers) for key, numbers in arrived.items()} == everything


def test_the_archive_alone_is_read_in_the_order_of_keys_as_far_as_it_goes(scene: Scene) -> None:
    scene.publish(60, partitions=2)
    scene.double()
    scene.seal()
    for _ in range(3):
        scene.archive()
        scene.publish(60, partitions=4)
    scene.archive()
    with coldstream.ResolverClient(scene.stack.resolver_url) as client:
        found = client.shard_map("/", scene.name)
        assert found is not None
        with ShardedReader(client, found) as reader:
            given = list(reader.messages())
            assert reader.held == ()
            position = reader.position
        assert position is not None
        keys = numbers_by_key([bytes(message.raw) for _, message in given])
        assert all(numbers == list(range(len(numbers))) for numbers in keys.values())
        assert {stream for stream, _ in given} == {f"{scene.name}-{number}" for number in range(4)}
        with ShardedReader(client, found, position) as reader:
            assert list(reader.messages()) == []
            assert reader.position == position
        for order in ("time", "arrival"):
            with ShardedReader(client, found, order=order) as reader:
                times = [message.timestamp for _, message in reader.messages()]
            assert len(times) == len(given)
            assert order == "arrival" or times == sorted(times)
    with scene.consumer(position) as consumer:
        bodies = [bytes(message.raw) for _, message in given]
        bodies += bodies_of(consumer, 12 * 240 - len(given))
    assert numbers_by_key(bodies) == {key: list(range(240)) for key in KEYS}


def test_a_parent_that_is_deleted_at_the_broker_is_read_from_the_archive(scene: Scene) -> None:
    scene.publish(60, partitions=2)
    scene.archive()
    parent = scene.map.partitions[1]
    directory = scene.broker.stream_directory(parent.name)
    with coldstream.ResolverClient(scene.stack.resolver_url) as client:
        archived = client.describe("/", parent.name).head.next_offset
    scene.double()
    scene.ends[parent.name] = archived  # what is not archived of it was never there
    scene.seal()
    scene.streams.delete_stream(parent.name)
    incarnation = stream_from_directory(directory.name, name=parent.name, vhost="/").incarnation
    scene.write_map(
        identified(scene.map, {1: incarnation}, deleted={1: TimestampMs(now_ms())}), ShardEventKind.IDENTIFY
    )
    of_parent = sum(1 for key in KEYS if partition_of(key, 2) == 1)
    with scene.consumer(name="billing") as consumer:
        given = [
            delivery.stream for delivery in itertools.islice(consumer.deliveries(), archived + 60 * (12 - of_parent))
        ]
    assert given.count(parent.name) == archived
