"""A disk that is nearly full: pins are let go when told to, the oldest first, and never what the broker still has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coldstream.agent import agent as agent_module
from coldstream.agent import disk_guard
from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.disk_discovery import DiskDiscovery
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.live.address import BrokerAddress
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from tests.support.node import Node, NodeStream

LIMIT = 1000


class Bus:
    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        raise UnavailableError("AWS cannot be reached")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "stream")
    yield node
    node.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "GUARD_S", 0.02)
    monkeypatch.setattr(agent_module, "SHOW_S", 0.02)


def make(tmp_path: Path, node: Node, release_below_bytes: int | None) -> Agent:
    options = AgentOptions(
        state=tmp_path / "state",
        broker=BrokerAddress.from_uri("rabbitmq-stream://localhost"),
        data=node.data,
        scan_s=0.05,
        release_below_bytes=release_below_bytes,
    )
    archive = ArchiveClient(MemoryTable(), MemoryObjects(), Bus(), Keys(), BandwidthLimit(None))
    return Agent(options, archive, node, StreamListing(None), AgentMetrics())


@asynccontextmanager
async def running(agent: Agent, node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(agent.run(DiskDiscovery(agent.options)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pinned(tmp_path: Path, stream: NodeStream) -> list[int]:
    return sorted(int(path.stem) for path in (tmp_path / "state/pins" / stream.incarnation).glob("*.segment"))


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.01)


async def fill(tmp_path: Path, node: Node) -> NodeStream:
    """Publish, and let retention delete all but two segments once they are pinned."""
    stream = node.declare("orders")
    stream.publish(400)
    await until(lambda: pinned(tmp_path, stream) == [int(path.stem) for path in stream.segments])
    stream.retain(2)
    return stream


async def test_the_oldest_pins_that_the_broker_has_deleted_go_until_there_is_room(tmp_path, node, monkeypatch):
    agent = make(tmp_path, node, LIMIT)
    stream: NodeStream | None = None

    def free_bytes(_: Path) -> int:
        return LIMIT if stream is None or len(pinned(tmp_path, stream)) <= 5 else LIMIT - 1

    monkeypatch.setattr(disk_guard, "_free_bytes", free_bytes)
    async with running(agent, node):
        stream = await fill(tmp_path, node)
        await until(lambda: len(pinned(tmp_path, stream)) == 5)
        await asyncio.sleep(0.1)
        left = pinned(tmp_path, stream)
        assert len(left) == 5
        (archiver,) = agent.archivers.values()
        (first, *_, last) = archiver.identity.lost
        assert first.first_offset == 0
        assert last.next_offset == left[0]
        assert "was nearly full" in first.reason


async def test_what_the_broker_still_has_is_never_let_go(tmp_path, node, monkeypatch):
    agent = make(tmp_path, node, LIMIT)
    monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: LIMIT - 1)
    async with running(agent, node):
        stream = node.declare("orders")
        stream.publish(400)
        await until(lambda: agent.metrics.status is not None and agent.metrics.status.problems)
        assert any("no pin is left" in problem for problem in agent.metrics.status.problems)
        await until(lambda: pinned(tmp_path, stream) == [int(path.stem) for path in stream.segments])


async def test_without_being_told_nothing_is_let_go(tmp_path, node, monkeypatch):
    agent = make(tmp_path, node, None)
    monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 0)
    async with running(agent, node):
        stream = await fill(tmp_path, node)
        await asyncio.sleep(0.2)
        assert pinned(tmp_path, stream)[0] == 0


async def test_two_agents_do_not_share_a_state_directory(tmp_path, node):
    async with running(make(tmp_path, node, None), node):
        await asyncio.sleep(0.05)
        other = make(tmp_path, node, None)
        with pytest.raises(InvalidSettingError, match="another agent runs"):
            await other.run(DiskDiscovery(other.options))
