"""Which incarnations of which streams the protocol source follows, and what becomes of those that it leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.agent import agent as agent_module
from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.losses import UNSEEN
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.recording import protocol_discovery, recorder
from coldstream.agent.recording.protocol_discovery import ProtocolDiscovery
from coldstream.agent.stream_file import PendingLoss, RememberedStream
from coldstream.errors import BrokerRefusedError, StreamNotFoundError, UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.format.chunk import Chunk
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset
from tests.support.protocol_log import Log
from tests.support.rig import Bus, make_quick
from tests.support.segments import MemoryArchive

ORDERS = ("/", "orders")


def incarnation(timestamp: int) -> Incarnation:
    return Incarnation(f"__orders_{timestamp * 10**6 + crc32(b'/' + bytes(1) + b'orders') % 10**6:019}")


class World:
    """A broker with one stream, or none, and an archive; agents come and go."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.log: Log | None = Log()
        self.is_listed = False
        self.scan_s = 0.02
        self.streams = (ORDERS,)
        self.archive = MemoryArchive()
        self.bus = Bus(self.archive)
        self.bugs: list[Exception] = []

    def connect(self, *_: object, **__: object):
        if self.bugs:
            raise self.bugs.pop()
        if self.log is None:
            raise UnavailableError("down")
        return self.log.connect()

    async def login(self) -> None:
        pass

    async def members(self, vhost: str, name: str) -> int:
        return 1

    async def place(self, vhost: str, name: str) -> int:
        return 0

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        if (vhost, name) != ORDERS:
            raise UnavailableError("not here")
        if self.log is None:
            raise StreamNotFoundError(name)
        at = spec.offset if isinstance(spec, AtOffset) else 0
        return next((chunk for chunk in self.log.users() if chunk.header.next_offset > at), None)

    async def known(self) -> list[BrokerStream]:
        return [BrokerStream(*ORDERS)] if self.is_listed else []

    def declare(self, timestamp: int, chunks: int) -> None:
        """Declare the stream, again if need be, and publish ten messages to a chunk."""
        old, self.log = self.log, Log()
        if old is not None:
            old.is_deleted = True
            old.news.set()
        for _ in range(chunks):
            self.log.add(timestamp=timestamp)

    def archived(self, timestamp: int) -> list[tuple[int, int]]:
        entries = self.archive.table.log_from_offset(incarnation(timestamp), Offset(0), 1000).entries
        return [(int(entry.first_offset), int(entry.next_offset)) for entry in entries]

    def archived_to(self, timestamp: int) -> int:
        reached = 0
        for first, after in self.archived(timestamp):
            assert first == reached, f"a hole before {first}"
            reached = after
        return reached

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[tuple[Agent, ProtocolDiscovery]]:
        address = BrokerAddress.from_uri("rabbitmq-stream://localhost")
        options = AgentOptions(
            self.state,
            address,
            source=SegmentSource.PROTOCOL,
            streams=self.streams,
            management="http://localhost",
            scan_s=self.scan_s,
            segment_bytes=1000,
        )
        archive = ArchiveClient(
            self.archive.table, self.archive.objects, self.bus, self.archive.keys, BandwidthLimit(None)
        )
        metrics = AgentMetrics()
        agent = Agent(options, archive, self, self, metrics)
        discovery = ProtocolDiscovery(options, archive, self, self, metrics)
        tasks = [asyncio.create_task(agent.run(discovery)), asyncio.create_task(self._functions())]
        try:
            yield agent, discovery
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _functions(self) -> None:
        while True:
            self.bus.handle()
            await asyncio.sleep(0.005)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path / "state")
    make_quick(monkeypatch)
    monkeypatch.setattr(protocol_discovery, "LiveConnection", world.connect)
    monkeypatch.setattr(protocol_discovery, "FIRST_DELAY_S", 0.02)
    monkeypatch.setattr(protocol_discovery, "TURN_S", 0.02)
    monkeypatch.setattr(recorder, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(agent_module, "SHOW_S", 0.02)
    return world


async def read_without_aws(world: World, next_offset: int) -> None:
    """Have an agent read that far, with nothing announced, and end it."""
    world.bus.is_down = True
    async with world.agent():
        names = [f"{0:020}.segment", f"{40:020}.segment.part"]
        assert next_offset == 60
        await until(lambda: [path.name for path in sorted(world.state.glob("pins/*/*"))] == names)
        await asyncio.sleep(0.05)
    world.bus.is_down = False


async def test_incarnations_are_archived_each_as_its_own(world: World) -> None:
    world.declare(1000, 8)
    async with world.agent():
        await until(lambda: world.archived_to(1000) == 80)
        world.declare(2000, 12)
        await until(lambda: world.archived_to(2000) == 120)
    assert world.archived_to(1000) == 80


async def test_what_an_earlier_run_left_of_an_incarnation_that_is_gone_since_is_archived(world: World) -> None:
    world.declare(1000, 6)
    await read_without_aws(world, 60)
    world.declare(2000, 8)
    async with world.agent() as (agent, _):
        await until(lambda: world.archived_to(1000) == 60 and world.archived_to(2000) == 80)
        await until(lambda: list(agent.archivers) == [incarnation(2000)])
    assert [path.name for path in (world.state / "pins").iterdir()] == [incarnation(2000)]


@pytest.mark.parametrize("is_listed", [False, True])
async def test_what_an_earlier_run_left_of_a_stream_that_is_deleted_since_is_archived(
    world: World,
    is_listed: bool,  # noqa: FBT001  a case
) -> None:
    world.declare(1000, 6)
    await read_without_aws(world, 60)
    world.log = None
    world.streams, world.is_listed = (), is_listed
    async with world.agent() as (agent, _):
        await until(lambda: world.archived_to(1000) == 60)
        await until(lambda: not agent.archivers)
    assert list((world.state / "pins").iterdir()) == []


async def test_a_deleted_stream_is_asked_for_no_more_until_it_is_listed_again(world: World) -> None:
    world.streams, world.is_listed = (), True
    world.declare(1000, 4)
    async with world.agent() as (_, discovery):
        await until(lambda: world.archived_to(1000) == 40)
        world.is_listed = False
        assert world.log is not None
        deleted, world.log = world.log, None
        deleted.is_deleted = True
        deleted.news.set()
        await until(lambda: not discovery._tasks)
        world.declare(2000, 4)
        world.is_listed = True
        await until(lambda: world.archived_to(2000) == 40)


async def test_what_is_closed_is_archived_at_once_and_what_is_deleted_ends_at_once(world: World) -> None:
    """Not only when somebody looks the next time."""
    world.scan_s = 60
    world.declare(1000, 3)
    async with world.agent() as (agent, _):
        await until(lambda: agent.archivers and agent.archivers[incarnation(1000)].state == "following")
        assert world.log is not None
        world.log.add()
        await until(lambda: world.archived_to(1000) == 40)
        deleted, world.log = world.log, None
        deleted.is_deleted = True
        deleted.news.set()
        await until(lambda: not agent.archivers)


async def test_a_broker_that_does_not_know_a_stream_for_a_moment_costs_nothing(world: World) -> None:
    world.declare(1000, 6)
    async with world.agent():
        for _ in range(3):
            await until(lambda: world.archived_to(1000) > 0)
            assert world.log is not None
            known, world.log = world.log, None
            known.is_deleted = True
            known.news.set()
            world.bus.is_down = True  # so that what is to be ended takes its time
            await asyncio.sleep(0.05)
            world.log = Log(known.chunks)
            world.log.add()
            world.log.add()
            await asyncio.sleep(0.05)
            world.bus.is_down = False
            await asyncio.sleep(0.1)  # it may end now
            world.log.add(b"x" * 1000)
            await until(lambda: world.archived_to(1000) == world.log.next_offset)
    assert world.bus.lost == []


async def test_offsets_that_retention_deletes_before_they_are_read_are_reported_though_no_segment_ends(
    world: World,
) -> None:
    world.declare(1000, 8)
    async with world.agent():
        await until(lambda: world.archived_to(1000) == 80)
        assert world.log is not None
        del world.log.chunks[:]
        world.log.add(chunk_id=130)
        await until(lambda: world.bus.lost)
    assert [loss[:2] for loss in world.bus.lost] == [(80, 130)]
    assert world.archived_to(1000) == 80


async def test_an_incarnation_that_begins_late_is_made_known_before_anything_of_it_is_archived(world: World) -> None:
    """As where retention, while the agent was away, deleted what shows that it is the one of before."""
    world.declare(1000, 8)
    async with world.agent():
        await until(lambda: world.archived_to(1000) == 80)
    assert world.log is not None
    del world.log.chunks[:]
    world.log.add(chunk_id=130, timestamp=2000)
    async with world.agent():
        await until(lambda: world.archive.table.incarnation_of(*ORDERS) == incarnation(2000))
        # It may be the stream of before: then what came behind that is a loss of ours, and rings the alarm.
        await until(lambda: len(world.bus.lost) == 2)
    why = f"deleted by the broker's retention before the agent of {socket.gethostname()} had them"
    assert world.bus.lost == [(0, 80, UNSEEN), (80, 130, why)]
    assert world.archived_to(1000) == 80


@pytest.mark.parametrize("stream", [StreamId(*ORDERS, incarnation(1000)), None])
async def test_losses_that_were_not_told_are_told_after_a_restart(world: World, stream: StreamId | None) -> None:
    world.declare(1000, 8)
    async with world.agent() as (agent, _):
        await until(lambda: world.archived_to(1000) == 80)
    loss = PendingLoss(Offset(90), Offset(95), "the disk was full")
    agent.state.stream_file(incarnation(1000)).save(RememberedStream(stream, Offset(0), (loss,)))
    assert world.log is not None
    world.log.add(b"x" * 1000)  # losses are told where something is archived
    async with world.agent():
        await until(lambda: world.bus.lost)
    assert world.bus.lost == [(90, 95, "the disk was full")]


async def test_a_bug_ends_no_stream_for_good(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.bugs = [RuntimeError("a bug"), RuntimeError("a bug")]
    world.declare(1000, 4)
    async with world.agent():
        await until(lambda: world.archived_to(1000) == 40)
    assert caplog.text.count("RuntimeError: a bug") == 1


async def test_a_failure_is_said_once_while_it_lasts(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.declare(1000, 4)
    world.bugs = [UnavailableError("no broker")] * 4
    async with world.agent():
        await until(lambda: world.archived_to(1000) == 40)
    assert caplog.text.count("no broker") == 1


async def test_streams_that_are_written_alike_and_began_at_once_are_not_mixed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare(1000, 4)
    world.streams = (ORDERS, ("_", "orders"))
    async with world.agent() as (agent, _):
        pass
    other = RememberedStream(StreamId("_", "orders", incarnation(1000)))
    agent.state.stream_file(incarnation(1000)).save(other)
    async with world.agent():
        await until(lambda: "cannot be told from" in caplog.text)
    assert world.archived(1000) == []
    assert agent.state.stream_file(incarnation(1000)).load().stream == other.stream


async def test_a_stream_that_is_refused_is_told_until_it_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare(1000, 8)
    probe = world.probe

    async def refused(*_: object) -> None:
        raise BrokerRefusedError("no permission to read")

    monkeypatch.setattr(world, "probe", refused)
    async with world.agent() as (agent, _):
        await until(lambda: agent.metrics.status and agent.metrics.status.refused_streams == 1)
        assert agent.metrics.status is not None
        assert "1, such as orders: no permission to read" in agent.metrics.status.problems[0]
        assert "no permission to read" in caplog.text
        monkeypatch.setattr(world, "probe", probe)
        await until(lambda: agent.metrics.status and agent.metrics.status.refused_streams == 0)


async def test_a_stream_that_is_refused_while_it_is_followed_is_told_until_it_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions are taken away later, too; the connection ends with the broker's next restart."""
    world.declare(1000, 8)
    probe, connect = world.probe, world.connect
    is_refused = False

    def refused(*_: object, **__: object) -> None:
        nonlocal is_refused
        is_refused = True
        raise BrokerRefusedError("no permission to read")

    async def perhaps(vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        if is_refused:
            raise BrokerRefusedError("no permission to read")
        return await probe(vhost, name, spec)

    monkeypatch.setattr(world, "probe", perhaps)
    monkeypatch.setattr(protocol_discovery, "LiveConnection", refused)
    async with world.agent() as (agent, _):
        await until(lambda: agent.metrics.status and agent.metrics.status.refused_streams == 1)
        monkeypatch.setattr(world, "probe", probe)
        monkeypatch.setattr(protocol_discovery, "LiveConnection", connect)
        await until(lambda: agent.metrics.status and agent.metrics.status.refused_streams == 0)
        await until(lambda: world.archived_to(1000) == 80)
