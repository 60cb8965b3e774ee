"""A growth run: 2 partitions to 4, to 8, and back to 4, with everything killed by chance meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.growth.check import problems_of
from tests.growth.world import GrowthWorld
from tests.support.releases import HOST_RELEASE, Release

TARGETS = (4, 8, 4)
ALONE_S = 100.0
"""How long a change may wait for producers that are killed by chance, until all of them are restarted on purpose."""


@dataclass(frozen=True, slots=True)
class GrowthSummary:
    """What a run came to."""

    seconds: float
    published: int
    read: int
    again: int
    kills: dict[str, int]
    versions: int
    by_word: int
    forgotten: float
    change_s: tuple[float, ...]

    def __str__(self) -> str:
        killed = ", ".join(f"{what} {count} times" for what, count in self.kills.items())
        took = ", ".join(f"{seconds:.0f} s" for seconds in self.change_s)
        return (
            f"{self.published:,} messages confirmed in {self.seconds:.0f} s, {self.read:,} read, {self.again:,} of them"
            f" published again after a kill; killed: {killed}; {self.versions} versions, whose changes took {took},"
            f" {self.by_word} sealed by the operator's word; the broker has forgotten {self.forgotten:.0%}"
        )


class GrowthError(AssertionError):
    """A promise was broken. Says the seed, and how things were."""


def run(
    seed: int, seconds: float, directory: Path, *, release: Release = HOST_RELEASE, say: Callable[[str], None] = print
) -> GrowthSummary:
    """Do a run of at least so many seconds. Raises GrowthError."""
    with GrowthWorld(directory, seed, release=release, say=say) as world:
        try:
            return _run(world, seconds)
        except Exception as err:
            raise GrowthError(f"seed {seed}: {err}\n{world.describe()}") from err


def _run(world: GrowthWorld, seconds: float) -> GrowthSummary:
    began = time.monotonic()
    by_word, change_s = 0, []
    for number, shards in enumerate(TARGETS):
        _publish_until(world, began + seconds * (number + 0.5) / len(TARGETS))
        changed = time.monotonic()
        by_word += not _change(world, shards)
        change_s.append(time.monotonic() - changed)
    _publish_until(world, began + seconds)
    lines = world.finish()
    problems = problems_of(lines, world.confirmed)
    assert not problems, "\n".join(problems)
    return GrowthSummary(
        seconds=time.monotonic() - began,
        published=world.published,
        read=len(lines),
        again=len(lines) - world.published,
        kills=world.kills,
        versions=len(world.map.versions),
        by_word=by_word,
        forgotten=world.forgotten(),
        change_s=tuple(change_s),
    )


def _publish_until(world: GrowthWorld, until: float) -> None:
    """Publish, killing a producer or the reader every few seconds."""
    while time.monotonic() < until:
        _kill_one(world)
        pause = min(until, time.monotonic() + world.random.uniform(2, 12))
        world.run(lambda pause=pause: time.monotonic() > pause, "nothing")  # type: ignore[misc]


def _change(world: GrowthWorld, shards: int) -> bool:
    """Change the number of partitions, killing the command, too; return whether it was done without anybody's word.

    In half of the changes producers are restarted once, after the bindings: those are told from the ones before. The
    others are killed at any time, so that some may know a part of the bindings. A halving always takes the word.
    """
    is_orderly = world.random.random() < 0.5
    is_growth = shards > len(world.map.current)
    for _ in range(world.random.randrange(1, 4)):
        world.kill_apply(shards, world.random.uniform(0.3, 15.0))
        if not is_orderly:
            _kill_one(world)
    world.change_while_publishing(shards)
    _restart_all(world)
    until = time.monotonic() + ALONE_S
    while is_growth and time.monotonic() < until:
        world.change_while_publishing(shards)
        if _is_done(world, shards):
            return True
        if not is_orderly:
            _kill_one(world)
        pause = time.monotonic() + world.random.uniform(2, 8)
        world.run(lambda pause=pause: time.monotonic() > pause, "nothing")  # type: ignore[misc]
    _restart_all(world)
    world.change_while_publishing(shards, "--producers-restarted", "--wait", "120s")
    assert _is_done(world, shards), world.map
    return False


def _restart_all(world: GrowthWorld) -> None:
    for number in range(len(world.producers)):
        world.kill_producer(number)


def _is_done(world: GrowthWorld, shards: int) -> bool:
    found = world.map
    ended = (one for one in found.partitions if one.number not in found.newest.partitions)
    return not found.is_changing and len(found.current) == shards and all(one.deleted_at is not None for one in ended)


def _kill_one(world: GrowthWorld) -> None:
    number = world.random.randrange(len(world.producers) + 1)
    if number == len(world.producers):
        world.kill_reader()
    else:
        world.kill_producer(number)
