"""Nothing acknowledged is lost, and nothing comes twice, whoever recovers a stream, dies, or goes on as a zombie."""

from __future__ import annotations

import random

import pytest

from coldstream.manifest.entry import JournalKind
from tests.support.direct_processes import (
    SMALL,
    STREAMS,
    DirectWorld,
    Process,
    one_thread_each,
    quietly,
    random_schedule,
)
from tests.support.flushing import entries
from tests.support.interleavings import Schedule

NAMES = ["a", "b", "c"]


def play(seed: int) -> DirectWorld:
    dice = random.Random(seed)
    world = DirectWorld(seed)
    for name in NAMES:
        world.stage.add(name, lambda name=name: quietly(lambda: world.process(name)), ())
    schedule = random_schedule(dice, NAMES)
    try:
        world.stage.play(schedule)
        world.judge()
    except AssertionError as err:
        raise AssertionError(f"seed {seed}, {schedule}: {err}") from err
    return world


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_every_promise_is_kept_whoever_acts_when(start: int) -> None:
    with one_thread_each():
        acknowledged = sum(len(play(seed).acknowledged) for seed in range(start, start + 50))
    assert acknowledged > 300


def left_open(world: DirectWorld) -> None:
    """Have a process append to a stream, flush some of it, append more, and die."""
    process = Process(world, "a", random.Random(3))
    process.open(STREAMS[0])
    for count in (9, 14):
        process.flush(STREAMS[0])
        for _ in range(count):
            process.append(STREAMS[0])


def recovered_twice(first: str) -> DirectWorld:
    """Play a recovery as a schedule says, then one that nobody disturbs."""
    world = DirectWorld(1)
    left_open(world)
    for name in ("b", "c"):
        world.stage.add(
            name, lambda name=name: quietly(lambda: Process(world, name, random.Random(2)).open(STREAMS[0])), ()
        )
    world.stage.play(Schedule.parse(first))
    world.judge()
    return world


def test_wherever_a_recovery_dies_the_next_one_knows_every_batch_and_every_publisher() -> None:
    with one_thread_each():
        calls = len(recovered_twice("b").stage.actors["b"].calls)
        assert calls > 40
        for count in range(1, calls):
            recovered_twice(f"b={count}! c b")


def test_two_recoveries_at_a_time_make_one_history() -> None:
    with one_thread_each():
        calls = len(recovered_twice("b").stage.actors["b"].calls)
        for count in range(1, calls):
            for stop in range(1, calls, 11):
                recovered_twice(f"b={count} c={stop} b c")


def test_a_recovery_comes_into_the_manifest_at_once_in_fragments_of_the_size() -> None:
    with one_thread_each():
        world = DirectWorld(1)
        left_open(world)
        before = len(entries(world.archive, STREAMS[0]))
        Process(world, "b", random.Random(2)).open(STREAMS[0])
        after = entries(world.archive, STREAMS[0])
        assert len(after) - before > 3
        assert all(one.data_bytes <= 3 * SMALL for one in after[before:])
        (committed,) = (
            one
            for one in world.table.journal(STREAMS[0].incarnation)
            if one.kind is JournalKind.FRAGMENT_COMMITTED and one.first_offset == after[before].first_offset
        )
        assert committed.next_offset == after[-1].next_offset
