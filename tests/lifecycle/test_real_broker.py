"""Retention, truncation, deletion and its undoing on a real broker's streams, with an agent that goes on archiving."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import coldstream
from coldstream.cli.stores import open_stores
from coldstream.errors import StreamNotFoundError
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.policies import set_policy
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.entry import Head
from coldstream.manifest.policy import Policy
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.read.reader import Reader
from coldstream.store.streams import select_streams
from coldstream.units import Offset
from tests.support.agent import AgentProcess
from tests.support.broker import Broker

WAIT_S = 90
NAME = "life.of-its-own"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def stores(stack: EmulatedStack, monkeypatch: pytest.MonkeyPatch) -> LifecycleStores:
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    return open_stores()


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


class Life:
    """The stream, at the broker and in the archive."""

    def __init__(self, broker: Broker, stack: EmulatedStack, stores: LifecycleStores) -> None:
        self.broker = broker
        self.stack = stack
        self.stores = stores
        self.published: list[bytes] = []
        self._stream: StreamId | None = None

    def publish(self, messages: int) -> None:
        new = [b"%d:" % number + bytes(500) for number in range(len(self.published), len(self.published) + messages)]
        with self.broker.connect() as streams:
            for start in range(0, messages, 20):
                streams.publish(NAME, new[start : start + 20])
        self.published += new

    @property
    def rolled(self) -> int:
        """The offset up to which the broker has rolled segments."""
        return max(int(path.stem) for path in self.broker.stream_directory(NAME).glob("*.segment"))

    @property
    def stream(self) -> StreamId:
        """The stream, also while it is deleted."""
        if self._stream is None:
            (self._stream,) = select_streams(self.stores.table, "/", [NAME])
        return self._stream

    @property
    def head(self) -> Head:
        head = self.stores.table.head(self.stream.incarnation)
        assert head is not None
        return head

    def wait_archived(self, agent: AgentProcess) -> None:
        """Wait until the archive has what has rolled."""

        def is_archived() -> bool:
            try:
                return (self.head.next_offset or 0) >= self.rolled
            except StreamNotFoundError:
                return False

        until(is_archived, lambda: f"not archived up to {self.rolled}: {agent.log.read_text()[-3000:]}")

    def archived(self) -> list[tuple[int, bytes]]:
        with Reader(self.stack.resolver_url, "/", NAME, FIRST) as reader:
            return [(int(message.offset), bytes(message.raw)) for message in reader.messages()]

    def consumed(self, first: int) -> list[tuple[int, bytes]]:
        """Read all there is from an offset on, from the archive and then from the broker, as a consumer does."""
        found: list[tuple[int, bytes]] = []
        with coldstream.BlockingConsumer(
            NAME,
            AtOffset(Offset(first)),
            resolver=self.stack.resolver_url,
            broker=self.broker.stream_uri,
            archive_wait_s=20.0,
        ) as consumer:
            overdue = threading.Timer(WAIT_S, consumer.close)
            overdue.start()
            try:
                for message in consumer.messages():
                    found.append((int(message.offset), bytes(message.raw)))
                    if message.offset == len(self.published) - 1:
                        break
            finally:
                overdue.cancel()
        return found

    def assert_whole_from(self, first: int) -> None:
        """What is below an offset is gone, and the rest is there, in the archive and for a consumer."""
        expected = list(enumerate(self.published))[first:]
        archived = self.archived()
        assert archived == expected[: len(archived)]
        assert len(archived) >= self.rolled - first
        assert self.consumed(first) == expected


def test_a_stream_lives_through_retention_truncation_deletion_and_undeletion(
    broker: Broker, stack: EmulatedStack, stores: LifecycleStores, tmp_path: Path
) -> None:
    life = Life(broker, stack, stores)
    options = ("--data", broker.data_directory, "--include", NAME)
    with broker.connect() as streams:
        streams.create_stream(NAME, max_segment_bytes=100_000)
    with AgentProcess(stack.environment, tmp_path / "state", broker.stream_uri, *options) as agent:
        life.publish(2000)
        life.wait_archived(agent)
        keep_bytes = life.head.object_bytes // 2
        set_policy(stores, Policy("half", "*/*", max_bytes=keep_bytes))
        (report,) = run_retention(stores, [life.stream], dry_run=False)
        floor = report.removal.first_offset
        assert report.removal.fragments > 0
        assert floor is not None
        assert life.head.object_bytes <= keep_bytes
        life.assert_whole_from(floor)
    # An agent that knows of nothing announces every segment that the broker still has.
    with AgentProcess(stack.environment, tmp_path / "another state", broker.stream_uri, *options) as agent:
        life.publish(500)
        life.wait_archived(agent)
        life.assert_whole_from(floor)
        removal = truncate(stores, life.stream.incarnation, up_to_offset(Offset(1800)), why="too old", by="me")
        assert removal.first_offset is not None
        assert floor < removal.first_offset <= 1800
        life.assert_whole_from(removal.first_offset)
        delete_stream(stores, life.stream.incarnation, grace_ms=DAY_MS, by="me")
        until(lambda: is_gone(life), lambda: "a deleted stream can be read")
        tail = life.head.next_offset
        life.publish(500)
        staged = stores.keys.staging(life.stream.incarnation)
        until(lambda: agent.is_running and not list(stores.objects.listed(staged)), lambda: "staged, and left")
        assert life.head.next_offset == tail
        undelete_stream(stores, life.stream.incarnation, by="me")
    # What was published meanwhile the agent took for archived; when it starts, it finds that it is not.
    with AgentProcess(stack.environment, tmp_path / "another state", broker.stream_uri, *options) as agent:
        life.publish(500)
        life.wait_archived(agent)
        until(lambda: not life.head.gaps, lambda: agent.log.read_text()[-3000:])
        life.assert_whole_from(removal.first_offset)
        (swept,) = tend(stores, [life.stream])
        assert swept.error is None
        assert swept.objects == 0  # a URL of before the removal may still be valid
    assert stack.dead_letters() == 0


def is_gone(life: Life) -> bool:
    try:
        life.archived()
    except StreamNotFoundError:
        return True
    return False
