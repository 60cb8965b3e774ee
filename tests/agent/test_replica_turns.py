"""One agent of a cluster stages a slice that all of them have pinned; the others stage it if that one is away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent import replica_turns
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archive_reads import StagingActivity
from coldstream.agent.replica_turns import ReplicaTurns
from coldstream.errors import UnavailableError
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset
from tests.support.replica import Replica
from tests.support.replicas import CountingObjects, ReplicaNode, replica_rigs
from tests.support.rig import Rig
from tests.support.segments import STREAM

SLICE = SegmentSlice(Path("segment"), Offset(100), Offset(200), 8, 1000)
TURN_S = 0.2


@pytest.fixture(autouse=True)
def turns_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_turns, "TURN_S", TURN_S)
    monkeypatch.setattr(replica_turns, "MAX_POLL_S", 0.02)
    monkeypatch.setattr(replica_turns, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(replica_turns, "PLACE_S", 0.0)


class Archive(ArchiveClient):
    """What others have brought so far; `looks` counts the reads of the manifest."""

    def __init__(self) -> None:
        self.covered = Offset(100)
        self.activity = [StagingActivity(is_staged=False, parts=0)]
        self.looks = 0

    async def covered_to(self, incarnation: Incarnation, first_offset: Offset, limit: Offset) -> Offset:
        self.looks += 1
        return min(self.covered, limit)

    async def staging(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> StagingActivity:
        return self.activity.pop(0) if len(self.activity) > 1 else self.activity[0]


class Waiter:
    """The turns of a node, and how long it waited."""

    def __init__(self, place: int, *, every_ms: int | None = None) -> None:
        self.archive = Archive()
        self.node: Any = ReplicaNode(None, place, 3)  # type: ignore[arg-type]  # no stream is asked for
        self.turns = ReplicaTurns(self.archive, self.node, every_ms)

    async def waited_s(self) -> float:
        now = asyncio.get_running_loop().time
        begun = now()
        async with asyncio.timeout(30):
            await self.turns.wait(SLICE, STREAM)
        return now() - begun


async def test_the_leaders_agent_stages_at_once_and_asks_for_nothing():
    waiter = Waiter(0)
    assert await waiter.waited_s() < TURN_S
    assert waiter.archive.looks == 0


@pytest.mark.parametrize("place", [1, 2])
async def test_another_stages_after_the_turns_of_those_before_it(place):
    waited_s = await Waiter(place).waited_s()
    assert place * TURN_S <= waited_s < (place + 1) * TURN_S + 5


async def test_a_slice_that_the_manifest_covers_is_left():
    waiter = Waiter(2)
    waiter.archive.covered = Offset(150)
    waiting = asyncio.create_task(waiter.waited_s())
    await asyncio.sleep(0.05)
    assert not waiting.done(), "half of it is no more than none"
    waiter.archive.covered = Offset(250)
    assert await waiting < 2 * TURN_S


async def test_an_upload_that_grows_is_waited_for_and_one_that_stalls_is_not():
    waiter = Waiter(1)
    waiter.archive.activity = [StagingActivity(is_staged=False, parts=parts) for parts in (1, 3, 4, 4)]
    assert await waiter.waited_s() >= 4 * TURN_S


async def test_a_copy_that_is_staged_is_waited_for_once_more_and_then_announced():
    waiter = Waiter(1)
    waiter.archive.activity = [StagingActivity(is_staged=True, parts=0)]
    assert 2 * TURN_S <= await waiter.waited_s() < 3 * TURN_S + 5


async def test_after_turns_that_nobody_took_nobody_is_waited_for():
    waiter = Waiter(1)
    assert await waiter.waited_s() >= TURN_S
    assert await waiter.waited_s() < TURN_S


async def test_an_upload_that_stalled_shows_an_agent_so_the_next_slice_waits_again():
    waiter = Waiter(1)
    waiter.archive.activity = [StagingActivity(is_staged=False, parts=2)]
    assert await waiter.waited_s() >= TURN_S
    assert await waiter.waited_s() >= TURN_S


@pytest.mark.parametrize(("every_ms", "turn_s"), [(1000, 0.5), (100, 0.3)])
async def test_with_a_max_lag_a_turn_is_half_a_span_but_not_too_short(every_ms, turn_s, monkeypatch):
    monkeypatch.setattr(replica_turns, "TURN_S", 20.0)
    monkeypatch.setattr(replica_turns, "MIN_TURN_S", 0.3)
    assert turn_s <= await Waiter(1, every_ms=every_ms).waited_s() < 15


async def test_a_broker_that_does_not_tell_makes_nobody_wait():
    class Silent(ReplicaNode):
        async def place(self, vhost: str, name: str) -> int:
            raise UnavailableError("down")

    waiter = Waiter(1)
    turns = ReplicaTurns(waiter.archive, Silent(None, 1, 3), None)  # type: ignore[arg-type]
    await turns.wait(SLICE, STREAM)
    assert waiter.archive.looks == 0


async def run_all(rigs: list[Rig], stack: AsyncExitStack) -> None:
    for rig in rigs:
        await stack.enter_async_context(rig.running())


def sent(rig: Rig) -> int:
    objects = rig.archive.objects
    assert isinstance(objects, CountingObjects)
    return objects.staged_bytes


@pytest.mark.usefixtures("quick")
async def test_three_agents_stage_each_byte_once(tmp_path: Path, stream: Replica, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica_turns, "TURN_S", 30.0)
    rigs = list(replica_rigs(tmp_path, stream, 3))
    stream.publish(200, size=60)
    async with AsyncExitStack() as stack:
        await run_all(rigs, stack)
        for rig in rigs:
            await rig.catches_up()
    assert len(rigs[0].bus.announced) == len(set(rigs[0].bus.announced)) == len(stream.segments) - 1
    assert sent(rigs[0]) == sum(path.stat().st_size for path in stream.segments[:-1])


@pytest.mark.usefixtures("quick")
async def test_the_pins_are_held_until_the_manifest_covers_them(tmp_path: Path, stream: Replica):
    rigs = list(replica_rigs(tmp_path, stream, 2))
    rigs[0].functions_run = rigs[1].functions_run = False
    stream.publish(200, size=60)
    rolled = [int(path.stem) for path in stream.segments[:-1]]
    async with AsyncExitStack() as stack:
        await run_all(rigs, stack)
        await rigs[1].until(lambda: len(rigs[0].bus.announced) >= 1 and len(rigs[1].pins) > len(rolled))
        for path in stream.segments[:-1]:
            stream.delete_file(path)
        await asyncio.sleep(0.1)
        assert rigs[1].pins[:-1] == rolled
        rigs[0].functions_run = True
        for rig in rigs:
            await rig.catches_up()


@pytest.mark.usefixtures("quick")
async def test_if_the_agent_that_staged_is_gone_another_stages(tmp_path: Path, stream: Replica):
    leader, other = replica_rigs(tmp_path, stream, 2)
    leader.functions_run = other.functions_run = False
    stream.publish(200, size=60)
    async with leader.running():
        await leader.until(lambda: leader.bus.announced)
    leader.bus.waiting.clear()  # its event is lost, too
    other.functions_run = True
    async with other.running():
        await other.catches_up()
    assert other.bus.lost == []


@pytest.mark.usefixtures("quick")
async def test_a_leader_without_an_agent_costs_one_wait(tmp_path: Path, stream: Replica):
    _, other = replica_rigs(tmp_path, stream, 2)
    stream.publish(300, size=60)
    assert len(stream.segments) > 5
    async with other.running():
        now = asyncio.get_running_loop().time
        begun = now()
        await other.until(lambda: other.archived)
        assert now() - begun >= TURN_S
        await other.catches_up()
