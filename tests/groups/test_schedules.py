"""Groups under any schedule: by chance, and every one there is of two members within bounds.

What is promised is held against every state in tests/support/group_world.py. COLDSTREAM_GROUP_SCHEDULES plays more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest

from coldstream.errors import LostRaceError
from coldstream.groups.heartbeat import HeartbeatWatch, SessionHeartbeat
from coldstream.groups.positions import GroupPositions
from coldstream.groups.session import GroupSession
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.support.group_world import LEASE_S, GroupActor, GroupWorld, play

SCHEDULES = int(os.environ.get("COLDSTREAM_GROUP_SCHEDULES", "2000"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))
PARTS = 5

SCRIPTS = (("beat", "commit"), ("turn", "commit"), ("commit", "beat"))
"""What a member does that owns everything, while another one joins, and time passes."""


@pytest.mark.parametrize("part", range(PARTS))
def test_any_schedule_keeps_the_promises(part: int) -> None:
    play_all(range(FIRST_SEED + part, FIRST_SEED + SCHEDULES, PARTS))


@pytest.mark.parametrize("script", SCRIPTS, ids="+".join)
def test_every_schedule_of_an_owner_and_one_who_joins_keeps_the_promises(script: tuple[str, ...]) -> None:
    played = 0
    for order in orders("A" * 4 + "B" * 6 + "T"):
        play_out(order, script)
        played += 1
    assert played == 2310


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        play(seed)


def orders(letters: str) -> Iterator[str]:
    """Yield the different orders of some letters."""
    if not letters:
        yield ""
    for letter in sorted(set(letters)):
        yield from (letter + rest for rest in orders(letters.replace(letter, "", 1)))


def play_out(order: str, script: tuple[str, ...]) -> GroupWorld:
    """Begin with a member A that owns two partitions; then let A and B make calls, and time pass, in that order."""
    world = GroupWorld(0, members=1, partitions=2)
    world.is_troubled = False
    a = world.actors[0]
    for work in ("beat", "turn"):
        perform(world, a, work)
    world.read(a)
    b = world.start()
    todo = {"A": (a, iter(script)), "B": (b, iter(("beat", "turn", "turn", "commit")))}
    try:
        for letter in order:
            if letter == "T":
                world.now += 1.3 * LEASE_S
                world.check_owners()
            else:
                advance(world, *todo[letter])
        world.settle()
    except AssertionError as err:
        err.add_note(f"play_out({order!r}, {script!r})")
        raise
    return world


def perform(world: GroupWorld, actor: GroupActor, work: str) -> None:
    advance(world, actor, iter((work,)))
    while actor.running:
        advance(world, actor, iter(()))


def advance(world: GroupWorld, actor: GroupActor, script: Iterator[str]) -> None:
    """Let an actor's call take effect and be answered, up to before its next one."""
    if not actor.running:
        work = next(script, None)
        if work is not None:
            begun: dict[str, Callable[[], Any]] = {
                "beat": actor.session.beat,
                "turn": actor.session.turn,
                "commit": lambda: actor.session.commit(0, Offset(1)),
            }
            world.read(actor)
            world.begin(actor, work, begun[work]())
        return
    (kind,) = actor.running
    world.take_effect(actor.running[kind].sent)
    world.answer(actor, kind)


async def _beat_from_its_end(heartbeat: SessionHeartbeat) -> bool:
    going_on = await BEAT(heartbeat)
    heartbeat._leased_until = heartbeat._clock() + heartbeat._lease_s
    return going_on


async def _fresh_beat(heartbeat: SessionHeartbeat) -> bool:
    heartbeat._begun = None
    return await BEAT(heartbeat)


async def _no_fence(positions: GroupPositions, epochs: dict[int, int]) -> dict[int, Offset | None]:
    committed = await positions.committed()
    return {number: committed.get(number) for number in epochs}


def _delete_anyhow(table: MemoryTable, item: StateItem) -> None:
    table._states.pop((item.partition, item.key), None)


def _write_anyhow(table: MemoryTable, *changed: StateItem) -> None:
    table._states |= {(item.partition, item.key): item for item in changed}


async def _dead_at_first_sight(session: GroupSession, view: Any) -> list[str]:
    dead = await DEAD(session, view)
    present = {one.session for one in view.beats} | {session.session}
    return [*dead, *(seat.session for seat in view.state.seats if seat.session not in present)]


async def _never_told(_: GroupSession, __: Any) -> list[str]:
    return []


async def _commit_anything(positions: GroupPositions, number: int, epoch: int, offset: Offset) -> None:
    known = positions._known.get(number)
    if known is not None:
        positions._known[number] = type(known)(known.number, known.epoch, None, known.revision)
    with suppress(LostRaceError):
        await COMMIT(positions, number, epoch, offset)


BEAT, DEAD, COMMIT = SessionHeartbeat.beat, GroupSession._dead, GroupPositions.commit

GUARDS: dict[str, tuple[str, object, str]] = {
    "a lease ends": (
        "coldstream.groups.heartbeat.SessionHeartbeat.is_leased",
        lambda heartbeat: heartbeat._leased_until is not None,
        "two owners",
    ),
    "a lease counts from the start of its beat": (
        "coldstream.groups.heartbeat.SessionHeartbeat.beat",
        _beat_from_its_end,
        "two owners",
    ),
    "a repeated beat counts from its first attempt": (
        "coldstream.groups.heartbeat.SessionHeartbeat.beat",
        _fresh_beat,
        "two owners",
    ),
    "a silent member is watched for longer than its lease": (
        "coldstream.groups.heartbeat.HeartbeatWatch.PATIENCE",
        0.5,
        "two owners",
    ),
    "a heartbeat is deleted as it was seen": (
        "coldstream.store.memory.table.MemoryTable.delete_state",
        _delete_anyhow,
        "two owners",
    ),
    "items are written over the revision that was read": (
        "coldstream.store.memory.table.MemoryTable.put_state",
        _write_anyhow,
        "two owners|goes back|older epoch|another owner",
    ),
    "a new owner fences the earlier ones off": (
        "coldstream.groups.positions.GroupPositions.raise_epochs",
        _no_fence,
        "an older epoch",
    ),
    "a missing heartbeat is looked for again": (
        "coldstream.groups.session.GroupSession._dead",
        _dead_at_first_sight,
        "two owners",
    ),
    "the dead are removed": (
        "coldstream.groups.session.GroupSession._dead",
        _never_told,
        "after the last trouble",
    ),
    "a position never goes back": (
        "coldstream.groups.positions.GroupPositions.commit",
        _commit_anything,
        "goes back",
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_without_it_a_schedule_breaks_a_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, instead, told = GUARDS[name]
    monkeypatch.setattr(target, instead)
    with pytest.raises(AssertionError, match=told):
        play_all(range(5000))


def test_two_processes_with_one_name_are_one_member_and_the_later_is_refused() -> None:
    world = GroupWorld(0, members=1, partitions=3)
    world._be_quiet_until(LEASE_S)
    later = world.start("member-0")
    world._be_quiet_until(4 * LEASE_S)
    assert later.is_dead
    assert len(world.actors[0].session.owned) == 3


def test_a_process_that_comes_back_under_its_name_waits_for_the_lease_of_the_one_that_died() -> None:
    world = GroupWorld(0, members=1, partitions=3)
    world._be_quiet_until(LEASE_S)
    world.kill(world.actors[0])
    later = world.start("member-0")
    world._be_quiet_until(2 * LEASE_S)
    assert not later.session.owned
    world.settle()
    assert len(later.session.owned) == 3
    assert {one.epoch for one in later.session.owned.values()} == {2}


def test_the_orders_are_all_there_are() -> None:
    assert sorted(orders("AABT")) == sorted({"".join(one) for one in permutations("AABT")})


def test_heartbeats_are_watched_for_longer_than_a_lease() -> None:
    assert HeartbeatWatch.PATIENCE > 1
