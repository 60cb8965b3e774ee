"""The protocol of a queue's archiver: whatever dies when, each message is archived once, and in order."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from coldstream.errors import InvalidInputError, ObjectNotFoundError, QueueTakenError
from coldstream.queues.archiver import BatchLimits, QueueArchiver
from coldstream.queues.delivery import Delivery
from coldstream.queues.state import QueueFence, find_state
from coldstream.units import Offset
from tests.queues.fake import NO_PROPERTIES, Death, World

UNIQUE = [b"%d" % number for number in range(7)]
ALIKE = [b"ping"] * 7
LIMITS = BatchLimits(max_messages=3)


def drain(world: World, limits: BatchLimits = LIMITS) -> None:
    """Run one archiver until the queue is empty, or it dies."""
    announcer_ = world.announcer()
    fence = QueueFence(announcer_.table, "/", "orders")
    fence.expect_delivery()
    source = world.source()
    try:
        QueueArchiver(source, fence, announcer_, limits).run(once=True)
    finally:
        source.close()


def steps_of_a_run(bodies: list[bytes], limits: BatchLimits) -> int:
    world = World()
    world.queue.publish(*bodies)
    drain(world, limits)
    assert world.archived() == bodies
    return world.steps


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("bodies", [UNIQUE, ALIKE], ids=["unique", "alike"])
def test_a_death_at_any_call_neither_loses_nor_doubles_a_message(bodies: list[bytes], size: int) -> None:
    limits = BatchLimits(max_messages=size)
    for deadly in range(steps_of_a_run(bodies, limits)):
        world = World()
        world.queue.publish(*bodies)
        world.steps_left = deadly
        with pytest.raises(Death):
            drain(world, limits)
        world.steps_left = None
        drain(world, limits)
        assert (world.archived(), world.queue.ready, world.quarantined) == (bodies, [], [])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_deaths_at_any_two_calls_lose_no_message_of_many_alike(size: int) -> None:
    bodies, limits = ALIKE[:4], BatchLimits(max_messages=size)
    for first in range(steps_of_a_run(bodies, limits)):
        for second in range(0, 40, 3):
            world = World()
            world.queue.publish(*bodies)
            for deadly in (first, second):
                world.steps_left = deadly
                with suppress(Death):
                    drain(world, limits)
            world.steps_left = None
            drain(world, limits)
            assert len(world.archived()) >= len(bodies), (first, second)
            assert not world.queue.ready


@pytest.mark.parametrize("seed", range(60))
def test_many_deaths_while_messages_come(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    published: list[bytes] = []
    for _ in range(12):
        new = [b"ping" if rng.random() < 0.5 else b"%d" % rng.randrange(1000) for _ in range(rng.randrange(5))]
        new = [body + b" %d" % (len(published) + at) for at, body in enumerate(new)]
        world.queue.publish(*new)
        published += new
        world.steps_left = rng.randrange(80)
        try:
            drain(world, BatchLimits(max_messages=rng.randrange(1, 5)))
        except Death:
            if rng.random() < 0.5:
                world.handle()
    world.steps_left = None
    drain(world)
    # Who dies twice while batches of a message or two are settled may archive them twice, and never loses one.
    assert list(dict.fromkeys(world.archived())) == published
    assert len(world.archived()) - len(published) <= 4
    assert (world.queue.ready, world.quarantined) == ([], [])


def test_a_message_of_higher_priority_may_overtake_what_is_delivered_again() -> None:
    world = World()
    world.queue.publish(*UNIQUE[:3])
    die_before_settled(world)
    urgent = replace(Delivery(0, False, b"orders", b"key", NO_PROPERTIES, b"urgent"), properties=b"\x08\x00\x09")
    world.queue.ready.insert(0, urgent)
    drain(world)
    assert world.archived() == [*UNIQUE[:3], b"urgent"]
    assert not world.queue.ready


def test_what_expired_before_it_was_delivered_again_is_not_missed() -> None:
    world = World()
    world.queue.publish(*UNIQUE[:3])
    die_before_settled(world)
    del world.queue.ready[0]
    world.queue.publish(b"later")
    drain(world)
    assert world.archived() == [*UNIQUE[:3], b"later"]


def die_before_settled(world: World) -> None:
    """Run an archiver that dies when its batch is archived, and on the queue."""
    source = world.source()
    source.settle = lambda _: (_ for _ in ()).throw(Death)  # type: ignore[method-assign]
    announcer_ = world.announcer()
    with pytest.raises(Death):
        QueueArchiver(source, QueueFence(announcer_.table, "/", "orders"), announcer_, LIMITS).run(once=True)
    source.close()


def test_an_archiver_that_lost_the_fence_announces_nothing() -> None:
    world = World()
    world.queue.publish(*UNIQUE)
    fence = QueueFence(world.archive.table, "/", "orders")
    fence.take(1)
    QueueFence(world.archive.table, "/", "orders").take(2)
    stale = QueueArchiver(world.source(), fence, world.announcer(), LIMITS)
    with pytest.raises(QueueTakenError, match="taken it over"):
        stale._archive(stale._collected(once=True, should_stop=lambda: False))
    assert not world.events


def test_a_copy_that_somebody_deletes_is_staged_again() -> None:
    world = World()
    world.queue.publish(*UNIQUE[:3])
    handle = world.handle
    deleted: list[str] = []

    def delete_once() -> None:
        if not deleted:
            deleted.append(world.archive.keys.staged(world.stream.incarnation, Offset(0), Offset(3)))
            world.archive.objects.delete(deleted[0])
        with suppress(ObjectNotFoundError):  # the first event ends in the dead-letter queue
            handle()

    world.handle = delete_once  # type: ignore[method-assign]
    drain(world)
    assert deleted
    assert world.archived() == UNIQUE[:3]


def test_a_message_with_malformed_headers_stays_on_the_queue_and_is_named() -> None:
    world = World()
    world.queue.ready.append(Delivery(0, False, b"", b"orders", b"\x20\x00\x00\x00\x00\x09", b"body"))
    with pytest.raises(InvalidInputError, match="queue 'orders' in vhost '/', delivery 1"):
        drain(world)
    assert len(world.queue.ready) == 1


def test_the_epoch_rises_with_each_archiver_and_the_stream_stays() -> None:
    world = World()
    names = set()
    for epoch in range(1, 4):
        world.queue.publish(b"%d" % epoch)
        drain(world)
        state = find_state(world.archive.table, "/", "orders")
        assert state is not None
        assert (state.epoch, state.settled, state.intent) == (epoch, epoch, None)
        names.add(state.stream.incarnation)
    assert len(names) == 1
    assert world.stream.incarnation.startswith("__orders_")


def test_a_queue_that_is_declared_again_after_a_halving_deleted_it_begins_a_new_stream() -> None:
    world = World()
    world.queue.publish(b"before")
    drain(world)
    before = world.stream
    fence = QueueFence(world.archive.table, "/", "orders", frozenset({before.incarnation}))
    after = fence.take(now_ns := 1_763_700_000_000_000_000)
    assert after.stream.incarnation != before.incarnation
    assert after.stream.incarnation.endswith(str(now_ns))
    assert (after.settled, after.epoch) == (0, 2)
    assert fence.take(now_ns + 1).stream == after.stream
