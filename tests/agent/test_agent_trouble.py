"""What goes wrong in the agent itself ends neither it nor what else it does."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from coldstream.agent import agent as agent_module
from coldstream.agent import disk_guard
from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient, StoppedError
from coldstream.agent.archiver_pool import ArchiverPool
from coldstream.agent.disk import disk_discovery, pins
from coldstream.agent.disk.disk_discovery import DiskDiscovery
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.status import AgentStatus
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof import stream_listing as naming_module
from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.errors import BrokerRefusedError, InvalidSettingError, LoginRefusedError, UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.live.address import BrokerAddress
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from tests.support.node import Node


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


def make(tmp_path: Path, node: Node, *, naming: StreamListing | None = None, **settings: Any) -> Agent:
    options = AgentOptions(
        state=tmp_path / "state",
        broker=BrokerAddress.from_uri("rabbitmq-stream://localhost"),
        data=node.data,
        **({"scan_s": 0.05} | settings),
    )
    archive = ArchiveClient(MemoryTable(), MemoryObjects(), Bus(), Keys(), BandwidthLimit(None))
    return Agent(options, archive, node, naming or StreamListing(None), AgentMetrics())


@asynccontextmanager
async def running(agent: Agent, node: Node) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(agent.run(DiskDiscovery(agent.options)))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.01)


def shown(agent: Agent) -> AgentStatus | None:
    return agent.metrics.status


async def test_a_bug_in_what_is_shown_is_told_and_does_not_end_it(tmp_path, node, monkeypatch):
    calls: list[object] = []

    def failing(self: AgentOptions) -> tuple[tuple[str, str], ...]:
        calls.append(self)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return ()

    monkeypatch.setattr(AgentOptions, "shown", failing)
    agent = make(tmp_path, node)
    async with running(agent, node):
        await until(lambda: (found := shown(agent)) is not None and not found.problems)
        assert agent.metrics._failures.labels("", "", "unexpected")._value.get() == 1


async def test_once_it_ends_nobody_asks_an_archive_that_takes_no_requests_any_more(tmp_path, node):
    agent = make(tmp_path, node)
    archive = agent._archive

    async def at_work() -> None:
        while not archive._stopped.is_set():  # noqa: ASYNC110  it has to be at work in each turn of the loop
            await asyncio.sleep(0)
        await archive.newest_incarnation("/", "orders")

    async with running(agent, node) as task:
        await until(lambda: shown(agent) is not None or task.done())
        work = asyncio.create_task(at_work())
        agent.archivers._tasks[Incarnation("orders")] = work
    assert work.cancelled()


async def test_a_data_directory_that_cannot_be_read_is_told_and_read_again(tmp_path, node, monkeypatch):
    node.declare("orders").publish(100)
    names = disk_discovery._directory_names
    is_readable = False

    def failing(*arguments: Any) -> list[str]:
        if not is_readable:
            raise OSError(errno.EMFILE, "Too many open files")
        # One that the watch has not told of, and of which nothing is here: it ends, and is started by each list.
        return [*names(*arguments), "__gone_1763700000000000099"]

    begun: list[bool] = []
    start = ArchiverPool.start

    def noting(self: ArchiverPool, *arguments: Any, is_backfill: bool) -> object:
        begun.append(is_backfill)
        return start(self, *arguments, is_backfill=is_backfill)

    monkeypatch.setattr(disk_discovery, "_directory_names", failing)
    monkeypatch.setattr(ArchiverPool, "start", noting)
    agent = make(tmp_path, node)
    async with running(agent, node) as task:
        await until(lambda: ((found := shown(agent)) is not None and found.problems) or task.done())
        assert not task.done()
        assert "Too many open files" in shown(agent).problems[0]
        begun.clear()
        is_readable = True
        await until(lambda: True in begun)
        await until(lambda: begun[-1] is False)
        await until(lambda: not shown(agent).problems)


async def test_what_cannot_be_pinned_when_it_is_told_does_not_end_the_watch(tmp_path, node, monkeypatch):
    segment_files = pins.segment_files
    is_broken = True

    def failing(directory: Path):
        if is_broken:
            raise OSError(errno.EMFILE, "Too many open files")
        return segment_files(directory)

    agent = make(tmp_path, node, scan_s=60)
    async with running(agent, node):
        monkeypatch.setattr(pins, "segment_files", failing)
        stream = node.declare("orders")
        stream.publish(100)
        await asyncio.sleep(0.3)
        is_broken = False
        stream.publish(100)
        directory = tmp_path / "state/pins" / stream.incarnation
        await until(lambda: len(list(directory.glob("*.segment"))) == len(stream.segments))


async def test_no_more_is_let_go_at_once_than_was_missing(tmp_path, node, monkeypatch):
    """Where space is free only some time after the last name of a file is gone."""
    monkeypatch.setattr(agent_module, "GUARD_S", 60)
    agent = make(tmp_path, node, release_below_bytes=1000)
    monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 1000)
    async with running(agent, node):
        stream = node.declare("orders")
        stream.publish(400)
        directory = tmp_path / "state/pins" / stream.incarnation
        before = len(stream.segments)
        await until(lambda: [len(one.disk.segments) for one in agent.archivers.values()] == [before])
        stream.retain(2)
        monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 1000 - 25_000)
        await agent.disk_guard.release_pins()
        assert len(list(directory.glob("*.segment"))) == before - 2


async def test_more_free_space_than_the_disk_has_is_refused(tmp_path, node):
    space = os.statvfs(tmp_path)
    agent = make(tmp_path, node, release_below_bytes=space.f_blocks * space.f_frsize)
    async with asyncio.timeout(5):
        with pytest.raises(InvalidSettingError, match="--release-pins-below"):
            await agent.run(DiskDiscovery(agent.options))


async def test_a_stream_that_is_gone_shows_no_more(tmp_path, node, monkeypatch):
    forgotten: list[str] = []
    monkeypatch.setattr(AgentMetrics, "forget", lambda _, incarnation: forgotten.append(incarnation))
    stream = node.declare("orders")
    agent = make(tmp_path, node)
    async with running(agent, node):
        await until(lambda: (found := shown(agent)) is not None and found.streams)
        node.delete("orders")
        await until(lambda: not shown(agent).streams)
        assert forgotten == [stream.incarnation]


async def test_an_agent_that_ends_ends_what_it_stages(tmp_path, node):
    agent = make(tmp_path, node)
    async with running(agent, node):
        await until(lambda: shown(agent) is not None)
    with pytest.raises(StoppedError):
        agent._archive._before_bytes(1)
    assert not any(thread.name == "segment watch" for thread in threading.enumerate())


async def test_the_oldest_of_all_streams_is_let_go_first(tmp_path, node, monkeypatch):
    monkeypatch.setattr(agent_module, "GUARD_S", 60)
    agent = make(tmp_path, node, release_below_bytes=1000)
    monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 1000)
    async with running(agent, node):
        streams = {name: node.declare(name) for name in ("a", "b", "c")}
        for at, stream in enumerate(streams.values()):
            stream.publish(200)
            for path in stream.segments:
                os.utime(path, (10_000 - at, 10_000 - at))
        segments = {stream.incarnation: len(stream.segments) for stream in streams.values()}
        await until(lambda: {name: len(one.disk.segments) for name, one in agent.archivers.items()} == segments)
        for stream in streams.values():
            stream.retain(1)
        monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 999)
        await agent.disk_guard.release_pins()
        left = {
            name: len(list((agent.state.pins / one.incarnation).glob("*.segment"))) for name, one in streams.items()
        }
        assert left == {name: segments[one.incarnation] - (name == "c") for name, one in streams.items()}


async def test_that_no_pin_can_be_let_go_is_said_for_as_long_as_it_is_so(tmp_path, node, monkeypatch):
    agent = make(tmp_path, node, release_below_bytes=1000)
    monkeypatch.setattr(disk_guard, "_free_bytes", lambda _: 999)
    async with running(agent, node):
        stream = node.declare("orders")
        stream.publish(200)
        await until(lambda: [len(one.disk.segments) for one in agent.archivers.values()] == [len(stream.segments)])
        with pytest.raises(UnavailableError, match="no pin is left"):
            await agent.disk_guard.release_pins()


async def test_a_management_api_that_is_away_is_a_problem_until_it_is_back(tmp_path, node, monkeypatch):
    monkeypatch.setattr(naming_module, "RETRY_S", 0.0)
    is_away = True

    class Management:
        def streams(self) -> list[BrokerStream]:
            if is_away:
                raise UnavailableError("the management API is away")
            return []

    agent = make(tmp_path, node, naming=StreamListing(cast(ManagementClient, Management())))
    async with running(agent, node):
        await until(lambda: (found := shown(agent)) is not None and found.problems == ("the management API is away",))
        is_away = False
        await until(lambda: not shown(agent).problems)


async def test_news_of_a_stream_are_looked_at_without_a_scan(tmp_path, node):
    stream = node.declare("orders")
    stream.publish(10)
    agent = make(tmp_path, node, scan_s=60)
    async with running(agent, node):
        await until(lambda: [len(one.disk.segments) for one in agent.archivers.values()] == [1])
        stream.publish(200)
        await until(lambda: [len(one.disk.segments) for one in agent.archivers.values()] == [len(stream.segments)])


async def test_pins_of_a_stream_that_is_excluded_are_let_go(tmp_path, node):
    stream = node.declare("orders")
    stream.publish(200)
    agent = make(tmp_path, node, rules=Rules(exclude=("orders",)))
    async with running(agent, node):
        await until(lambda: agent.archivers.is_excluded(stream.incarnation))
        await until(lambda: not (agent.state.pins / stream.incarnation).exists())
        assert not agent.archivers
        # As one is that was made while it was not known yet that it is excluded.
        (agent.state.pins / stream.incarnation).mkdir()
        await until(lambda: not (agent.state.pins / stream.incarnation).exists())


async def test_a_state_directory_that_cannot_hold_pins_is_refused_before_anything_begins(tmp_path, node, monkeypatch):
    def check_links(data: Path, pins: Path) -> None:
        raise InvalidSettingError("--state", f"{pins} is on another file system than {data}")

    monkeypatch.setattr(disk_discovery, "check_links", check_links)
    async with asyncio.timeout(5):
        agent = make(tmp_path, node)
        with pytest.raises(InvalidSettingError, match="another file system"):
            await agent.run(DiskDiscovery(agent.options))


async def test_a_login_that_is_refused_is_told_while_no_stream_asks_for_anything(tmp_path, node, monkeypatch):
    monkeypatch.setattr(agent_module, "LOGIN_S", 0.02)
    refused = [True]

    async def login() -> None:
        if refused:
            raise LoginRefusedError("user or password are wrong")

    monkeypatch.setattr(node, "login", login)
    agent = make(tmp_path, node)
    async with running(agent, node):
        await until(lambda: agent.metrics.status and agent.metrics.status.problems == ("user or password are wrong",))
        assert agent.metrics.status.is_login_refused
        refused.clear()
        await until(lambda: agent.metrics.status.problems == ())
        assert not agent.metrics.status.is_login_refused


async def test_streams_that_are_refused_are_a_problem_of_the_agent_as_well(tmp_path, node, monkeypatch):
    stream = node.declare("orders")
    stream.publish(30)
    is_refused = [True]
    probe = node.probe

    async def refusing(*arguments: Any) -> Any:
        if is_refused:
            raise BrokerRefusedError("no permission to read")
        return await probe(*arguments)

    monkeypatch.setattr(node, "probe", refusing)
    agent = make(tmp_path, node)
    async with running(agent, node):
        await until(lambda: agent.metrics.status and agent.metrics.status.problems)
        assert "refuses streams, and they are not archived: 1, such as" in agent.metrics.status.problems[0]
        assert "no permission to read" in agent.metrics.status.problems[0]
        assert agent.metrics.status.streams[0].state == "refused"
        is_refused.clear()
        await until(lambda: agent.metrics.status.problems == ())
