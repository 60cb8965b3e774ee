"""A chaos run: the schedule is carried out, everything is healed, and what came out is compared with what went in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.manifest.spec import FIRST
from coldstream.read.reader import Reader
from tests.chaos.messages import STREAM, message
from tests.chaos.readers import Reading
from tests.chaos.schedule import Step, schedule
from tests.chaos.world import World

TURN_S = 0.1
TELL_EVERY_S = 5.0
SETTLE_S = 120.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to."""

    seconds: float
    published: int
    archived_to: int
    chunks: int
    objects: int
    readings: int
    delivered: int
    connections: int
    agent_starts: int
    requests: dict[str, int]
    redriven: int
    settled_s: float

    def __str__(self) -> str:
        requests = ", ".join(f"{count:,} {what}" for what, count in sorted(self.requests.items()))
        return (
            f"{self.published:,} messages published over {self.connections} connections in {self.seconds:.0f} s,"
            f" and {self.delivered:,} given to {self.readings} consumers;"
            f" the archive reaches to offset {self.archived_to:,}: {self.chunks:,} chunks in {self.objects:,} objects;"
            f" the agent was started {self.agent_starts} times; requests to AWS: {requests};"
            f" {self.redriven} dead letters put back; all was settled after {self.settled_s:.0f} s"
        )


class ChaosError(AssertionError):
    """A promise was broken. Says the seed, and what was done until then."""


def run(seed: int, seconds: float, directory: Path, *options: str, say: Say = lambda _: None) -> Summary:
    """Do a run, with `options` for the agent. Raises ChaosError."""
    done: list[Step] = []
    with World(seed, directory, *options) as world:
        try:
            _carry_out(world, schedule(seed, seconds), seconds, done, say)
            say("all is healed; waiting until everything has arrived")
            return _settle(world, seconds, has_max_lag="--max-lag" in options)
        except Exception as err:
            told = [f"seed {seed}, {seconds:g} s, {' '.join(options)}: {err}", "done:", *map(str, done), "now:"]
            raise ChaosError("\n".join([*told, world.describe()])) from err


def _carry_out(world: World, steps: list[Step], seconds: float, done: list[Step], say: Say) -> None:
    started = tell_at = time.monotonic()
    left = list(steps)
    while (now := time.monotonic()) - started < seconds:
        if left and left[0].at_s <= now - started:
            step = left.pop(0)
            done.append(step)
            say(str(step))
            world.apply(step)
            continue
        world.tend()
        _check_living(world)
        if now >= tell_at:
            say(_progress(world, now - started))
            tell_at = now + TELL_EVERY_S
        time.sleep(TURN_S)
    world.heal()


def _progress(world: World, seconds: float) -> str:
    living = ", ".join(f"{reading.last:,}" for reading in world.readers.living)
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(world.aws.counts.items()))
    return f"{seconds:6.1f} s  {world.publisher.confirmed:,} confirmed; consumers at {living}; requests: {counts}"


def _check_living(world: World) -> None:
    problems = [f"{reading}: {reading.problem}" for reading in world.readers.living if reading.problem is not None]
    assert not problems, "; ".join(problems)
    assert world.publisher.problem is None, world.publisher.problem


def _settle(world: World, seconds: float, *, has_max_lag: bool) -> Summary:
    """Wait until everything that was published is where it should be, and compare."""
    since = time.monotonic()
    world.readers.hurry()
    have_begun = partial(_have_begun, world)  # one that begins at the end wants something to come after it
    _wait(world, have_begun, "not all consumers were given something")
    world.publisher.finish()
    _wait(world, world.publishing.done, "not all messages were confirmed")
    world.publishing.result()
    published = world.publisher.confirmed
    for reading in world.readers.living:
        has_all = partial(_has_all, reading, published)
        _wait(world, has_all, f"{reading} did not get all {published} messages")
    steady = world.readers.readings[0]
    end = steady.offsets[-1] + 1 if has_max_lag else world.newest_segment()
    archived: list[Chunk] = []

    def is_archived() -> bool:
        archived[:] = _archive(world)
        return bool(archived) and archived[-1].header.next_offset >= end

    _wait(world, is_archived, f"the archive does not reach to offset {end}", every_s=1.0)
    world.stack.wait_idle(SETTLE_S)
    world.tend()
    settled_s = time.monotonic() - since
    archived[:] = _archive(world)
    _check_archive(world, archived, published)
    offset_of = dict(enumerate(steady.offsets, 1))
    found = {message_.offset for chunk in archived for message_ in messages(chunk, source="archive")}
    assert found == {offset for offset in steady.offsets if offset < archived[-1].header.next_offset}
    readings = list(world.readers.readings.values())
    problems = [problem for reading in readings if (problem := reading.check(offset_of)) is not None]
    assert not problems, "\n".join(problems)
    assert world.stack.dead_letters() == 0
    return Summary(
        seconds=seconds,
        published=published,
        archived_to=archived[-1].header.next_offset,
        chunks=len(archived),
        objects=sum("/data/" in key for key in world.objects()),
        readings=len(readings),
        delivered=sum(len(reading.offsets) for reading in readings),
        connections=world.publisher.connections,
        agent_starts=world.agent_starts,
        requests=dict(world.aws.counts),
        redriven=world.redriven,
        settled_s=settled_s,
    )


def _have_begun(world: World) -> bool:
    return all(reading.first is not None for reading in world.readers.living)


def _has_all(reading: Reading, published: int) -> bool:
    return reading.last >= published


def _wait(world: World, condition: Callable[[], bool], what: str, every_s: float = TURN_S) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not condition():
        world.tend()
        _check_living(world)
        assert time.monotonic() < deadline, f"{what}, {SETTLE_S:.0f} s after all was healed"
        time.sleep(every_s)


def _archive(world: World) -> list[Chunk]:
    with Reader(world.stack.resolver_url, "/", STREAM, FIRST) as reader:
        return list(reader.chunks())


def _check_archive(world: World, archived: list[Chunk], published: int) -> None:
    """Check that the archive has every offset up to its end, once, and every message as it was published."""
    next_offset, number = 0, 0
    for chunk in archived:
        header = chunk.header
        assert header.chunk_id == next_offset, f"the archive goes on with offset {header.chunk_id} after {next_offset}"
        next_offset = header.next_offset
        if header.type is not ChunkType.USER:
            continue
        for found in messages(chunk, source="archive"):
            number += 1
            assert found.raw == message(world._seed, number), f"offset {found.offset} is not message {number}"
    assert number <= published
    with Reader(world.stack.resolver_url, "/", STREAM, FIRST) as reader:
        in_manifest = {batch.range.key for batch in reader.batches()}
    in_bucket = {key for key in world.objects() if "/data/" in key}
    assert in_bucket == in_manifest, f"objects that no entry names: {sorted(in_bucket ^ in_manifest)}"
    assert not [key for key in world.objects() if "/quarantine/" in key or key.startswith("quarantine/")]
