"""Members of a group in a world of their own: one table, one true time, and whatever befalls them between two calls.

A member's coroutines wait for nothing but calls to the table. Here each call is three moments: it is sent, it takes
effect, it is answered. Between any two of them anything else may happen: other members' calls, hours, death. A call
may get lost before it takes effect, or its answer; a call of somebody who died may still take effect. A look at the
group shows heartbeats as old as the moment at which it was sent, and the group's item as of its end.

After each moment the world holds what it sees against the promises: `_check`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import (
    InvalidInputError,
    LostRaceError,
    NotOwnerError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.groups.group_items import GROUP, GroupName, look_at_group
from coldstream.groups.group_state import GroupState
from coldstream.groups.positions import GroupPosition, position_key
from coldstream.groups.session import GroupSession
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset

NAME = GroupName("/", "orders", "billing")
PARTITION = NAME.partition
LEASE_S = 3.0
INTERVAL_S = 1.0
SOON_S = 0.05

OWNED_WITHIN_S = 2.1 * LEASE_S
"""How long after the last trouble every partition is owned by somebody who lives. Two leases, and the world's steps."""

BALANCED_WITHIN_S = OWNED_WITHIN_S + 4 * INTERVAL_S


class SentCall:
    """A call that a coroutine waits for."""

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.call, self.args, self.kwargs = call, args, kwargs
        self.outcome: tuple[Any, Exception | None] | None = None
        self.seen_beats: Any = None

    def __await__(self) -> Generator[SentCall, Any, Any]:
        return (yield self)


async def send(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return await SentCall(call, args, kwargs)


@dataclass
class Running:
    """A coroutine, and the call that it waits for."""

    work: Coroutine[SentCall, Any, Any]
    sent: SentCall


@dataclass
class GroupActor:
    """A process: its session, what it is doing, and what its program has read."""

    number: int
    member: str
    session: GroupSession
    clock_ahead_s: float
    running: dict[str, Running] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=lambda: {"beat": 0.0, "turn": 0.0})
    stalled_until: float = 0.0
    is_dead: bool = False
    read_to: dict[tuple[int, int], int] = field(default_factory=dict)


class GroupWorld:
    """`log` tells what happened, to whoever looks into a failure."""

    def __init__(self, seed: int, *, members: int, partitions: int) -> None:
        self.rng = random.Random(seed)
        self.table = MemoryTable()
        self.now = 0.0
        self.numbers = list(range(partitions))
        self.actors: list[GroupActor] = []
        self.lost: list[SentCall] = []
        self.log: list[str] = []
        self.is_troubled = True
        self._sessions = 0
        self._state = GroupState()
        self._item: StateItem | None = None
        self._position_items: dict[int, StateItem] = {}
        self._positions: dict[int, GroupPosition] = {}
        self._delivered = dict.fromkeys(range(64), 0)
        for _ in range(members):
            self.start()

    # Who is there.

    def start(self, member: str | None = None) -> GroupActor:
        number = len(self.actors)
        ahead = self.rng.uniform(-1000, 1000)
        session = GroupSession(
            self.table,
            NAME,
            member or f"member-{number}",
            self.numbers,
            lease_s=LEASE_S,
            calls=send,
            clock=lambda: self.now + ahead,
            new_session=self._new_session,
        )
        due = {"beat": self.now, "turn": self.now}
        actor = GroupActor(number, member or f"member-{number}", session, ahead, due=due)
        self.actors.append(actor)
        return actor

    def _new_session(self) -> str:
        self._sessions += 1
        return f"{self._sessions:032x}"

    @property
    def living(self) -> list[GroupActor]:
        return [actor for actor in self.actors if not actor.is_dead]

    def kill(self, actor: GroupActor) -> None:
        self._say(f"{actor.member} dies")
        actor.is_dead = True
        for one in actor.running.values():
            one.work.close()
            if one.sent.outcome is None:
                self.lost.append(one.sent)
        actor.running.clear()

    # What they do.

    def begin(self, actor: GroupActor, kind: str, work: Coroutine[SentCall, Any, Any]) -> None:
        self._resume(actor, kind, work, None, None)

    def begin_due(self, actor: GroupActor) -> None:
        for kind, at in list(actor.due.items()):
            if at <= self.now and kind not in actor.running:
                actor.due[kind] = self.now + INTERVAL_S
                self.begin(actor, kind, actor.session.beat() if kind == "beat" else actor.session.turn())

    def take_effect(self, sent: SentCall, fate: str = "") -> None:
        """Let a call happen at the table, unless its fate is that it never gets there."""
        if fate == "lost":
            sent.outcome = None, UnavailableError("nothing was answered")
            return
        if fate == "conflict":
            sent.outcome = None, LostRaceError("another transaction")
            return
        try:
            sent.outcome = sent.call(*sent.args, **sent.kwargs), None
        except (LostRaceError, UnavailableError) as err:
            sent.outcome = None, err
        else:
            if sent.seen_beats is not None and sent.outcome[0] is not None:
                view = sent.outcome[0]
                sent.outcome = type(view)(view.revision, view.state, sent.seen_beats), None
            if fate == "unanswered":
                sent.outcome = None, OutcomeUnknownError("no answer came")
            elif fate == "repeated":  # the SDK sent it again, and that was refused
                sent.outcome = None, LostRaceError("it is there")
        self._check()

    def answer(self, actor: GroupActor, kind: str) -> None:
        """Let a coroutine go on with the answer, up to its next call or its end."""
        running = actor.running.pop(kind)
        assert running.sent.outcome is not None
        value, err = running.sent.outcome
        self._resume(actor, kind, running.work, value, err)
        self.check_owners()

    def _resume(  # noqa: C901  one branch for each end
        self, actor: GroupActor, kind: str, work: Coroutine[SentCall, Any, Any], value: Any, err: Exception | None
    ) -> None:
        try:
            sent = work.send(value) if err is None else work.throw(err)
        except StopIteration as end:
            if kind == "turn" and end.value:
                actor.due["turn"] = self.now + SOON_S
            if kind == "turn" and not actor.session.has_heartbeat:
                actor.due["beat"] = self.now
            if kind == "turn":
                silence = self.now + max(SOON_S, actor.session.next_silence_s())
                actor.due["turn"] = min(actor.due["turn"], silence)
        except (LostRaceError, UnavailableError, OutcomeUnknownError):
            if kind in actor.due:
                actor.due[kind] = self.now + SOON_S
        except NotOwnerError:
            pass
        except InvalidInputError:  # another process is that member
            self._say(f"{actor.member} is refused")
            self.kill(actor)
        else:
            if sent.call is look_at_group and self.is_troubled and self.rng.random() < 0.3:
                sent.seen_beats = look_at_group(*sent.args, **sent.kwargs).beats
            actor.running[kind] = Running(work, sent)

    def read(self, actor: GroupActor) -> None:
        """Have its program read a message of each partition that it owns, and perhaps commit one."""
        for number, owned in actor.session.owned.items():
            if not actor.session.owns(number):
                continue
            at = actor.read_to.setdefault((number, owned.epoch), owned.committed or 0)
            assert at <= self._delivered[number], f"{actor.member} begins partition {number} after unread messages"
            actor.read_to[number, owned.epoch] = at + 1
            self._delivered[number] = max(self._delivered[number], at + 1)

    def commit(self, actor: GroupActor) -> None:
        """Have its program commit how far it is with one partition, perhaps of an epoch that is over."""
        if actor.read_to and "commit" not in actor.running:
            number, epoch = self.rng.choice(list(actor.read_to))
            offset = Offset(self.rng.randint(0, actor.read_to[number, epoch]))
            self.begin(actor, "commit", actor.session.commit(number, offset))

    def give_back(self, actor: GroupActor) -> None:
        for number in actor.session.leaving:
            actor.session.done_with(number)
            actor.due["turn"] = self.now

    # What is promised.

    def _check(self) -> None:
        self._check_state()
        self._check_positions()

    def check_owners(self) -> None:
        for number in self.numbers:
            owners = [actor.member for actor in self.living if actor.session.owns(number)]
            assert len(owners) <= 1, f"two owners: {owners} of partition {number} at {self.now:.2f}"

    def _check_state(self) -> None:
        item = self.table._states.get((PARTITION, GROUP))
        if item is None or item is self._item:
            return
        self._item = item
        state = GroupState.from_bytes(item.data, source="the group")
        if state == self._state:
            return
        before = {one.number: one for one in self._state.partitions}
        for one in state.partitions:
            was = before.get(one.number)
            if was is not None and one.owner != was.owner and one.owner is not None:
                assert one.epoch > was.epoch, f"partition {one.number} has another owner in the same epoch"
            assert was is None or one.epoch >= was.epoch, f"the epoch of partition {one.number} goes back"
            assert was is None or one.epoch > was.epoch or one.owner in (was.owner, None)
        self._state = state

    def _check_positions(self) -> None:
        for number in self.numbers:
            item = self.table._states.get((PARTITION, position_key(number)))
            if item is None or item is self._position_items.get(number):
                continue
            self._position_items[number] = item
            now, was = GroupPosition.from_item(item), self._positions.get(number)
            if was is not None and now != was:
                assert now.epoch >= was.epoch, f"an older epoch wrote the position of partition {number}"
                assert (now.offset or 0) >= (was.offset or 0), f"the position of partition {number} goes back"
            if now != was:
                began = [one.session.owned[number].epoch for one in self.living if number in one.session.owned]
                assert now.epoch >= max(began, default=0), f"an older epoch wrote the position of partition {number}"
                assert (now.offset or 0) <= self._delivered[number], f"unread messages of {number} are committed"
            self._positions[number] = now

    # What befalls them.

    def trouble(self, moments: int) -> None:
        """Let so many things happen, by chance."""
        for _ in range(moments):
            self._happen()
            self.check_owners()

    def _happen(self) -> None:
        rng = self.rng
        dice = rng.random()
        actor = rng.choice(self.living or [self.start()])
        awake = actor.stalled_until <= self.now
        if dice < 0.6:
            self.begin_due(actor) if awake else None
            self._progress(actor, awake=awake)
        elif dice < 0.68:
            self.read(actor) if awake else None
        elif dice < 0.74:
            self.commit(actor) if awake else None
        elif dice < 0.79:
            self.give_back(actor) if awake else None
        elif dice < 0.95:
            self.now += rng.choice((0.05, 0.3, 0.8))
        elif dice < 0.97:
            actor.stalled_until = self.now + rng.uniform(0, 2.5 * LEASE_S)
            self._say(f"{actor.member} is stalled until {actor.stalled_until:.2f}")
        elif dice < 0.98 and len(self.living) > 1:
            self.kill(actor)
        elif dice < 0.99 and len(self.living) < 4:
            # As a process of its own, as one that died and comes back, or as one that lives.
            self.start(rng.choice((None, rng.choice(self.actors).member)))
        elif self.lost:
            self.take_effect(self.lost.pop())

    def _progress(self, actor: GroupActor, *, awake: bool) -> None:
        if not actor.running:
            return
        kind = self.rng.choice(list(actor.running))
        sent = actor.running[kind].sent
        if sent.outcome is None:
            fates = {"lost": 4, "unanswered": 4, "conflict": 2, "repeated": 3, "": 87}
            (fate,) = self.rng.choices(list(fates), list(fates.values()))
            writes = sent.call in (self.table.put_state, self.table.delete_state)
            self._say(f"{actor.member}: {kind} {getattr(sent.call, '__name__', '')} {fate}")
            self.take_effect(sent, fate if writes or fate == "lost" else "")
        elif awake:
            self.answer(actor, kind)

    def settle(self) -> None:
        """End all trouble; hold what comes of it against what is promised then."""
        self.is_troubled = False
        for actor in self.living:
            actor.stalled_until = 0
        begun = self.now
        self._be_quiet_until(begun + OWNED_WITHIN_S)
        if not self.living:  # the last one was refused, as another process of its name had lived until just now
            self.start()
            begun = self.now
            self._be_quiet_until(begun + OWNED_WITHIN_S)
        for number in self.numbers:
            owners = [actor.member for actor in self.living if actor.session.owns(number)]
            assert len(owners) == 1, (
                f"partition {number} is owned by {owners}, {OWNED_WITHIN_S} s after the last trouble"
            )
        self._be_quiet_until(begun + BALANCED_WITHIN_S)
        loads = sorted(len(actor.session.owned) for actor in self.living)
        assert loads[-1] - loads[0] <= 1, f"the loads are {loads}"
        assert sum(loads) == len(self.numbers)

    def _be_quiet_until(self, end: float) -> None:
        while self.now < end:
            for actor in self.living:
                self.begin_due(actor)
                self.give_back(actor)
                while actor.running:
                    kind = next(iter(actor.running))
                    sent = actor.running[kind].sent
                    if sent.outcome is None:
                        self.take_effect(sent)
                    if kind in actor.running:
                        self.answer(actor, kind)
            due = [at for actor in self.living for at in actor.due.values()]
            self.now = min(end, max(self.now + 0.01, min(due, default=end)))
            self.check_owners()

    def _say(self, what: str) -> None:
        self.log.append(f"{self.now:.2f} {what}")


def play(seed: int, moments: int = 120) -> GroupWorld:
    """Play a schedule by chance. A failure's note says how to play it again."""
    rng = random.Random(seed)
    world = GroupWorld(seed, members=rng.randint(1, 3), partitions=rng.randint(1, 5))
    try:
        world.trouble(moments)
        world.settle()
    except AssertionError as err:
        err.add_note(f"play({seed}, {moments})")
        raise
    finally:
        for actor in world.living:
            for one in actor.running.values():
                one.work.close()
    return world
