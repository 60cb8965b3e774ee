"""Changes of sharded streams on a real broker, with the emulated AWS behind them."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
import rstream
from typer.testing import CliRunner

import coldstream
from coldstream.cli.main import app
from coldstream.cli.stores import open_archive
from coldstream.errors import InvalidInputError, ShardChangeError
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import stream_from_directory
from coldstream.routing.murmur3 import partition_of
from coldstream.shards.apply import apply_shards
from coldstream.shards.archived import archived_stream
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.definition_file import definition_of
from coldstream.shards.replay import ArchiveReplay
from coldstream.store.shard_maps import find_map
from coldstream.units import Offset, TimestampMs
from tests.shards.conftest import defined
from tests.support.broker import Broker
from tests.support.shard_brokers import PLUGINS, amqp_uri, shard_broker

KEYS = [f"key-{number}" for number in range(12)]
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def sharding() -> Iterator[Broker]:
    with Broker(management=True, plugins=PLUGINS) as running:
        yield running


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def scene(stack: EmulatedStack, sharding: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    return Scene(stack, sharding, tmp_path)


class Scene:
    """A broker, an archive, and a clock that pauses move."""

    def __init__(self, stack: EmulatedStack, broker: Broker, directory: Path) -> None:
        self.name = f"changed-{next(_NAMES)}"
        self.stack, self.broker, self.directory = stack, broker, directory
        self.archive = open_archive()
        self.ahead_s = 0.0
        self.written = dict.fromkeys(KEYS, 0)

    def now(self) -> TimestampMs:
        return TimestampMs(self.archive.objects.clock() + int(self.ahead_s * 1000))

    def pause(self, seconds: float) -> None:
        self.ahead_s += seconds

    def context(self, *, restarted: bool = False, may_replay: bool = False) -> ShardContext:
        archive = self.archive
        return ShardContext(
            archive.table,
            archive.objects,
            archive.keys,
            shard_broker(self.broker),
            self.now,
            are_producers_restarted=restarted,
            may_replay=may_replay,
            replay=ArchiveReplay(archive.table, archive.objects, self.broker.stream_uri),
            pause=self.pause,
        )

    @property
    def found(self) -> ShardMap:
        found = find_map(self.archive.table, "/", self.name)
        assert found is not None
        return found

    def publish(self, rounds: int, exchange: str | None = None) -> None:
        """Publish so many messages of each key to the newest partitions, or to an exchange."""
        if exchange is not None:
            self._publish_to(exchange, rounds)
            return
        names = [one.name for one in self.found.current]
        messages: dict[str, list[bytes]] = {name: [] for name in names}
        for key in KEYS * rounds:
            properties = rstream.Properties(message_id=key)
            message = rstream.AMQPMessage(properties=properties, body=self._next(key))
            messages[names[partition_of(key, len(names))]].append(bytes(message))
        with self.broker.connect() as streams:
            for name, some in messages.items():
                streams.publish(name, some)

    def archive_all(self) -> None:
        """Archive all partitions to their ends, the segments that are still open included."""
        announcer = Announcer.from_environment()
        for one in (one for one in self.found.partitions if one.deleted_at is None):
            original = self.broker.stream_directory(one.name)
            copy = self.directory / str(next(_NAMES)) / original.name
            shutil.copytree(original, copy)
            end = self.context().broker.end(one.name)
            if end:
                (copy / f"{end:020}.segment").write_bytes(SEGMENT_HEADER)
            stream = stream_from_directory(copy.name, name=one.name, vhost="/")
            announcer.announce(stream, find_rolled(copy), lambda _: None)
        self.stack.wait_idle(60)

    def read(self, messages: int) -> dict[str, list[int]]:
        """Read from the first message on by the logical name; return what came of each key, in order."""
        with coldstream.BlockingConsumer(
            self.name, FIRST, resolver=self.stack.resolver_url, broker=self.broker.stream_uri, archive_wait_s=20.0
        ) as consumer:
            overdue = threading.Timer(300, consumer.close)
            overdue.start()
            taken: dict[str, list[int]] = {key: [] for key in KEYS}
            for message in itertools.islice(consumer.messages(), messages):
                found = re.search(rb"(key-\d+)/(\d+):", bytes(message.raw))
                assert found is not None
                taken[found[1].decode()].append(int(found[2]))
            overdue.cancel()
        return taken

    def _publish_to(self, exchange: str, rounds: int) -> None:
        with pika.BlockingConnection(pika.URLParameters(amqp_uri(self.broker))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for key in KEYS * rounds:
                channel.basic_publish(exchange, key, self._next(key), mandatory=True)

    def _next(self, key: str) -> bytes:
        number = self.written[key]
        self.written[key] += 1
        return f"{key}/{number}:".encode()


def finish(scene: Scene, definition: ShardDefinition) -> None:
    for _ in range(10):
        if not apply_shards(scene.context(restarted=True, may_replay=True), definition).waiting:
            return
        scene.archive_all()
        scene.pause(30)
    raise AssertionError(scene.found)


@pytest.mark.parametrize("kind", ["super-stream", "streams"])
def test_any_other_number_holds_each_message_once_and_each_key_in_order(scene: Scene, kind: str) -> None:
    base = f'name = "{scene.name}"\nkind = "{kind}"\n'
    apply_shards(scene.context(), defined(f"{base}shards = 3"))
    exchange = scene.name if kind == "streams" else None
    scene.publish(20, exchange)
    if exchange is None:
        with pytest.raises(ShardChangeError, match="routing_key_field"):
            apply_shards(scene.context(may_replay=True), defined(f"{base}shards = 5"))
        base += 'routing_key_field = "properties.message_id"\n'
    target = defined(f"{base}shards = 5")
    with pytest.raises(ShardChangeError, match="--replay"):
        apply_shards(scene.context(), target)
    scene.archive_all()
    finish(scene, target)
    found = scene.found
    assert [one.start > 0 for one in found.current].count(True) > 1
    assert sum(one.start for one in found.current) == 12 * 20
    # Whoever replays it again adds nothing.
    context = scene.context(may_replay=True)
    assert context.replay is not None
    for number in range(3):
        source = archived_stream(context.table, found, number)
        head = None if source is None else context.table.head(source.incarnation)
        if source is not None and head is not None and head.next_offset is not None:
            context.replay.replay(source, Offset(0), head.next_offset, found.current, definition_of(found.definition))
    assert [context.broker.end(one.name) for one in found.current] == [one.start for one in found.current]
    scene.publish(20, exchange)
    # The replay is where the new messages of its keys are.
    moved = Counter(one.start < context.broker.end(one.name) for one in found.current if one.start)
    assert set(moved) == {True}
    assert scene.read(12 * 40) == {key: list(range(40)) for key in KEYS}
    assert not context.broker.publishers()


def test_a_message_without_its_key_ends_the_replay_and_names_it(scene: Scene) -> None:
    base = f'name = "{scene.name}"\nkind = "super-stream"\nrouting_key_field = "application_properties.no"\n'
    apply_shards(scene.context(), defined(f"{base}shards = 2"))
    scene.publish(1)
    scene.archive_all()
    with pytest.raises(InvalidInputError, match=r"offset 0 has no application_properties\.no"):
        finish(scene, defined(f"{base}shards = 3"))
    assert all(scene.context().broker.end(one.name) == 0 for one in scene.found.current)


def wait_for_publishers(scene: Scene, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(scene.context().broker.publishers()) != number:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def held(scene: Scene) -> tuple[threading.Event, threading.Thread]:
    """Publish to both partitions by one connection, which stays until the event is set."""
    done, ready = threading.Event(), threading.Event()

    async def publish() -> None:
        async with rstream.Producer(
            scene.broker.host, port=scene.broker.stream_port, username="guest", password="guest", connection_name="shop"
        ) as producer:
            for number in range(2):
                await producer.send_wait(f"{scene.name}-{number}", b"one", publisher_name=f"shop-{number}")
            ready.set()
            await asyncio.to_thread(done.wait, 120)

    thread = threading.Thread(target=asyncio.run, args=(publish(),))
    thread.start()
    assert ready.wait(30)
    return done, thread


def test_growth_waits_for_a_producer_of_before_and_says_so(scene: Scene) -> None:
    base = f'name = "{scene.name}"\nkind = "super-stream"\n'
    apply_shards(scene.context(), defined(f"{base}shards = 2"))
    done, thread = held(scene)
    try:
        wait_for_publishers(scene, 2)
        report = apply_shards(scene.context(), defined(f"{base}shards = 4"))
        assert any(f"{scene.name}-0: producer" in told and "to be restarted" in told for told in report.waiting)
        scene.pause(60)
        assert apply_shards(scene.context(), defined(f"{base}shards = 4")).waiting
        assert scene.found.newest.bound_at is not None
        assert {edge.seal for edge in scene.found.lineage} == {None}
    finally:
        done.set()
        thread.join()
    wait_for_publishers(scene, 0)
    for _ in range(3):
        report = apply_shards(scene.context(), defined(f"{base}shards = 4"))
        scene.pause(60)
    assert report.waiting == ()
    assert {(edge.child, edge.parent, edge.seal) for edge in scene.found.lineage} == {(2, 0, 1), (3, 1, 1)}


def test_the_command_goes_on_at_the_operators_word(scene: Scene) -> None:
    file = scene.directory / "shards.toml"

    def apply(shards: int, *options: str) -> str:
        file.write_text(f'[[shards]]\nname = "{scene.name}"\nkind = "super-stream"\nshards = {shards}\n')
        brokers = ["--management", scene.broker.management_url, "--amqp-broker", amqp_uri(scene.broker)]
        brokers += ["--broker", scene.broker.stream_uri]
        result = CliRunner().invoke(app, ["shards", "apply", str(file), *brokers, *options])
        assert result.exit_code == 0, result.output
        return result.output

    apply(2)
    done, thread = held(scene)
    try:
        wait_for_publishers(scene, 2)
        assert f"{scene.name}: waiting for {scene.name}-0: producer" in apply(4)
        assert scene.found.unsealed
        assert "is sealed off from the one before" in apply(4, "--producers-restarted")
        assert not scene.found.is_changing
    finally:
        done.set()
        thread.join()
