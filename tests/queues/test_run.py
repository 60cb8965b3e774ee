"""Several queues at once, what is tried again, and which queues a sharded stream has."""

from __future__ import annotations

import threading

import pytest

from coldstream.errors import ColdstreamError, InvalidInputError, NotFoundError, UnavailableError
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.queues import run
from coldstream.queues.archiver import BatchLimits
from coldstream.queues.run import QueuesToArchive, archive_queues, queues_of
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.queues.fake import FakeSource, World
from tests.support.written_maps import map_writer


def test_a_lost_connection_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FIRST_DELAY_S", 0.01)
    world = World()
    world.queue.publish(b"a", b"b", b"c")
    attempts = 0

    def connect(_vhost: str, _queue: str) -> FakeSource:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise UnavailableError("the broker is away")
        return world.source()

    (done,) = archive_queues(world.announcer(), connect, "/", ["orders"], once=True)
    assert (done.messages, done.error, done.problem) == (3, None, None)
    assert world.archived() == [b"a", b"b", b"c"]


def test_a_queue_that_is_gone_ends_and_is_reported() -> None:
    def connect(_vhost: str, _queue: str) -> FakeSource:
        raise NotFoundError("no such queue")

    (done,) = archive_queues(World().announcer(), connect, "/", ["orders"], once=False)
    assert isinstance(done.error, NotFoundError)


def test_what_is_under_way_is_finished_when_it_is_stopped() -> None:
    world = World()
    world.queue.publish(*[b"%d" % number for number in range(10)])
    stopped = threading.Event()
    (done,) = archive_queues(
        world.announcer(),
        lambda _vhost, _queue: world.source(),
        "/",
        ["orders"],
        limits=BatchLimits(max_messages=4),
        stopped=stopped,
        on_batch=lambda _: stopped.set(),
    )
    assert (done.messages, done.error) == (4, None)
    assert [one.body for one in world.queue.ready] == [b"%d" % number for number in range(4, 10)]


@pytest.mark.parametrize("kind", [ShardKind.QUEUES, ShardKind.STREAMS])
def test_a_sharded_stream_has_its_partitions_if_they_are_queues(kind: ShardKind) -> None:
    table = MemoryTable()
    partitions = [Partition(0, "sharding: orders - a - 0"), Partition(1, "sharding: orders - b - 0")]
    made = first_map("/", "orders", kind, ShardHash.MODULUS, partitions=partitions, definition="{}", at=TimestampMs(1))
    map_writer(table).write(made, ShardEventKind.DECLARE, TimestampMs(1))
    if kind is ShardKind.QUEUES:
        assert queues_of(table, "/", "orders").names == tuple(one.name for one in partitions)
        return
    with pytest.raises(InvalidInputError, match="the agent archives"):
        queues_of(table, "/", "orders")


def test_a_name_that_is_no_sharded_stream_is_told() -> None:
    with pytest.raises(NotFoundError, match="--queue"):
        queues_of(MemoryTable(), "/", "orders")


def test_a_queue_that_comes_while_it_runs_is_archived_and_one_that_is_deleted_ends_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "MAP_AGAIN_S", 0.01)
    monkeypatch.setattr(run, "FIRST_DELAY_S", 0.01)
    world = World()
    world.queue.publish(b"a")
    stopped = threading.Event()
    looks: list[str] = []

    def names() -> QueuesToArchive:
        looks.append("")
        return QueuesToArchive(("deleted",) if len(looks) == 1 else ("orders",))

    def connect(_vhost: str, queue: str) -> FakeSource:
        if queue == "deleted":
            raise NotFoundError("no such queue") if len(looks) > 1 else UnavailableError("the broker is away")
        return world.source()

    done = archive_queues(world.announcer(), connect, "/", names, stopped=stopped, on_batch=lambda _: stopped.set())
    assert [(one.queue, one.messages, one.error) for one in done] == [("deleted", 0, None), ("orders", 1, None)]


def test_an_error_is_told_at_once() -> None:
    told: list[ColdstreamError] = []

    def connect(_vhost: str, _queue: str) -> FakeSource:
        raise NotFoundError("no such queue")

    archive_queues(World().announcer(), connect, "/", ["orders"], on_error=told.append)
    assert [type(one) for one in told] == [NotFoundError]
