"""Garbage is collected while processes append, stall, recover each other's streams and die: nothing is lost by it."""

from __future__ import annotations

import random

import pytest

from tests.support.direct_processes import DirectWorld, one_thread_each, quietly, random_schedule

NAMES = ["a", "b", "garbage"]


def play(seed: int) -> DirectWorld:
    dice = random.Random(seed)
    world = DirectWorld(seed)

    def collecting() -> None:
        for _ in range(6):
            quietly(world.collect)

    for name in ("a", "b"):
        world.stage.add(name, lambda name=name: quietly(lambda: world.process(name)), ())
    world.stage.add("garbage", collecting, ())
    schedule = random_schedule(dice, NAMES)
    try:
        world.stage.play(schedule)
        world.judge()
        world.collect()
        world.judge()
    except AssertionError as err:
        raise AssertionError(f"seed {seed}, {schedule}: {err}") from err
    return world


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_every_promise_is_kept_whatever_is_collected(start: int) -> None:
    with one_thread_each():
        worlds = [play(seed) for seed in range(start, start + 50)]
    assert sum(len(one.acknowledged) for one in worlds) > 200
    assert sum(one.objects.requests["DeleteObjects"] for one in worlds) > 20
