"""Names are found beside real brokers of each release, however little of them a directory's name keeps."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pika
import pytest

from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.disk.disk_discovery import DiskDiscovery
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof import broker as proof
from coldstream.agent.proof.broker import BrokerConnections
from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.agent.proof.names import candidates, encode_names, may_encode
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.live.address import BrokerAddress
from coldstream.live.delivered import is_same
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from tests.support.broker import Broker

VHOSTS = ["/", "a b.c_d", "grün/2 ", "_x_"]
NAMES = ["a.b %c", "über: 注文\t*", "_under__scores_", "a/b", "plain", "x" * 200]
SEGMENT_BYTES = 100_000


class Bus:
    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        pass


@asynccontextmanager
async def running(broker: Broker, state: Path, **settings: Any) -> AsyncIterator[Agent]:
    """An agent beside a broker, with an archive that takes nothing."""
    management = ManagementClient(broker.management_url)
    address = BrokerAddress.from_uri(broker.stream_uri)
    options = AgentOptions(state=state, broker=address, data=broker.data_directory, **settings)
    archive = ArchiveClient(MemoryTable(), MemoryObjects(), Bus(), Keys(), BandwidthLimit(None))
    metrics = AgentMetrics()
    connections = BrokerConnections(address, metrics)
    agent = Agent(options, archive, connections, StreamListing(management), metrics)
    task = asyncio.create_task(agent.run(DiskDiscovery(agent.options)))
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connections.close()
        management.close()


async def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.02)


def archiver_of(agent: Agent, directory: Path) -> StreamArchiver:
    return next(archiver for incarnation, archiver in agent.archivers.items() if incarnation == directory.name)


def publish(broker: Broker, vhost: str, messages: dict[str, bytes]) -> None:
    """Publish a message to each of some streams."""
    with broker.connect(vhost) as streams:
        for name, message in messages.items():
            streams.publish(name, [message])


def declare(broker: Broker, vhost: str, names: list[str]) -> None:
    with broker.connect(vhost) as streams:
        for name in names:
            streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)


def delete(broker: Broker, name: str) -> None:
    with broker.connect() as streams:
        streams.delete_stream(name)


def first_chunk(directory: Path) -> ChunkHeader | None:
    raw = (directory / f"{0:020}.segment").read_bytes()[SEGMENT_HEADER_BYTES:][:CHUNK_HEADER_BYTES]
    return ChunkHeader.from_bytes(raw, source=str(directory), position=0) if raw else None


def twins(broker: Broker, names: list[str]) -> dict[str, Path]:
    """Declare streams, and fan one message out to them, until they have got it in the same millisecond."""
    parameters = pika.ConnectionParameters(broker.host, broker.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare("all", "fanout")
        for _ in range(20):
            for name in names:
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
                channel.queue_bind(name, "all")
            channel.basic_publish("all", "", b"the same")
            directories = {name: broker.stream_directory(name) for name in names}
            deadline = time.monotonic() + 30
            while None in (found := [first_chunk(path) for path in directories.values()]):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            one, other = (chunk for chunk in found if chunk is not None)
            if is_same(one, other):
                return directories
            for name in names:
                channel.queue_delete(name)
    raise AssertionError("the two never got it in the same millisecond")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Attempts to connect, by vhost."""
    attempts: Counter[str] = Counter()

    class Counting(proof.LiveConnection):
        async def __aenter__(self) -> Self:
            attempts[self._vhost] += 1
            return await super().__aenter__()

    monkeypatch.setattr(proof, "LiveConnection", Counting)
    return attempts


@pytest.mark.parametrize(
    ("vhost", "name"),
    [("/", "names.of-a=stream_1"), ("grün/1 ", "über: 注文\t*"), ("a_b", "c_d"), ("e\u0301", "👩\u200d👧🇩🇪x")],
)
def test_a_real_broker_writes_names_so(any_broker: Broker, vhost: str, name: str) -> None:
    if vhost != "/":
        any_broker.add_vhost(vhost)
    with any_broker.connect(vhost) as streams:
        streams.create_stream(name, max_segment_bytes=1_000_000)
    directory = any_broker.told_directory(name, vhost).name
    text = directory.rpartition("_")[0]
    assert may_encode(text, vhost, name)
    if any_broker.release.suite is None or f"{vhost}{name}".isascii():
        assert text == encode_names(vhost, name)
    assert candidates(directory, [BrokerStream("/", "other"), BrokerStream(vhost, name)]) == [(vhost, name)]


async def test_names_of_every_kind_are_found_in_seconds_by_one_connection_a_vhost(
    any_broker: Broker, tmp_path: Path, connections: Counter[str]
) -> None:
    wanted = {(vhost, name) for vhost in VHOSTS for name in NAMES}
    for vhost in VHOSTS[1:]:
        any_broker.add_vhost(vhost)
    async with running(any_broker, tmp_path / "state", rules=Rules(include_vhost=tuple(VHOSTS))) as agent:
        for vhost in VHOSTS:
            await asyncio.to_thread(declare, any_broker, vhost, NAMES)
            await asyncio.to_thread(publish, any_broker, vhost, {name: f"{vhost} {name}".encode() for name in NAMES})

        def found() -> dict[tuple[str, str], StreamArchiver]:
            named = [(archiver.stream, archiver) for archiver in agent.archivers.values()]
            return {(stream.vhost, stream.name): archiver for stream, archiver in named if stream is not None}

        await until(lambda: wanted <= set(found()))
        for (vhost, name), archiver in found().items():
            if (vhost, name) not in wanted:  # of another test's on the same broker
                continue
            content = (archiver.disk.pins.directory / f"{0:020}.segment").read_bytes()
            assert f"{vhost} {name}".encode() in content
    # Nothing else is tried: a broker refuses a vhost that it does not have after seconds.
    assert set(connections) == set(VHOSTS)
    assert max(connections.values()) == 1


async def test_two_streams_with_the_same_first_chunk_are_told_apart_once_they_differ(
    any_broker: Broker, tmp_path: Path
) -> None:
    directories = await asyncio.to_thread(twins, any_broker, ["orders.eu", "orders_eu"])
    async with running(any_broker, tmp_path / "state", scan_s=0.2) as agent:
        await until(lambda: {path.name for path in directories.values()} <= set(agent.archivers))
        archivers = {name: archiver_of(agent, path) for name, path in directories.items()}
        await until(lambda: all("cannot be told yet" in str(one._search.why) for one in archivers.values()))
        await asyncio.sleep(1)
        assert [archiver.stream for archiver in archivers.values()] == [None, None]
        different = {name: f"only in {name}".encode() for name in directories}
        await asyncio.to_thread(publish, any_broker, "/", different)
        await until(lambda: all(archiver.stream for archiver in archivers.values()))
    assert [archiver.stream.name for archiver in archivers.values() if archiver.stream] == list(archivers)


async def test_of_two_such_streams_the_one_that_is_left_is_named_when_the_other_is_deleted(
    any_broker: Broker, tmp_path: Path
) -> None:
    directories = await asyncio.to_thread(twins, any_broker, ["one.two", "one_two"])
    async with running(any_broker, tmp_path / "state", scan_s=0.2) as agent:
        await until(lambda: {path.name for path in directories.values()} <= set(agent.archivers))
        deleted, left = (archiver_of(agent, path) for path in directories.values())
        await until(lambda: deleted._search.why and left._search.why)
        await asyncio.to_thread(delete, any_broker, "one.two")
        await until(lambda: left.stream is not None and "deleted at the broker before" in str(deleted._search.why))
        assert left.stream is not None
        assert left.stream.name == "one_two"
        assert deleted.stream is None
        assert deleted.disk.pins.space().orphaned_bytes > 0


async def test_a_stream_deleted_before_it_has_names_keeps_its_pins_and_is_told(
    any_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        return None

    await asyncio.to_thread(declare, any_broker, "/", ["short.lived"])
    await asyncio.to_thread(publish, any_broker, "/", {"short.lived": b"never seen again"})
    directory = any_broker.stream_directory("short.lived")
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnections, "probe", nothing)
        async with running(any_broker, tmp_path / "state", scan_s=0.2) as agent:
            await until(lambda: directory.name in agent.archivers)
            archiver = archiver_of(agent, directory)
            await until(lambda: archiver.state == "unnamed")
            await asyncio.to_thread(delete, any_broker, "short.lived")
            await until(lambda: "deleted at the broker before" in str(archiver._search.why))
            status = await archiver.status(None)
            assert "what is pinned here is kept" in str(status.last_failure)
            assert status.orphaned_bytes > 0
    (segment,) = (tmp_path / "state/pins" / directory.name).glob("*.segment")
    assert b"never seen again" in segment.read_bytes()
