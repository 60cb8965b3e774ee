"""The machine: from a state of the world by one request of one actor to the next state.

A state is a tuple of numbers: those of the three stores, what was told, the time, the faults that are left, and each
actor's node. Everything behind a number is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from coldstream.errors import OutcomeUnknownError, UnavailableError
from coldstream.units import TimestampMs
from tests.explore.bucket_store import BucketStore
from tests.explore.interning import Numbered
from tests.explore.log_store import LogStore
from tests.explore.names_store import NamesStore
from tests.explore.programs import Programs
from tests.explore.requests import Part, Refusal, Request
from tests.explore.runs import End, How
from tests.explore.schedules import Fate, Move
from tests.explore.site import Surroundings
from tests.explore.world import World

State = tuple[int, ...]
LOG, NAMES, BUCKET, TOLD, NOW, FAULTS, NODES = range(7)

_CRASHES, LOSSES, REFUSALS, _PARTS, _STEPS = 1, 8, 64, 512, 4096
"""What one of each counts in the faults that are left."""

STEPS_MS = -3 * 24 * 3_600_000, 3 * 24 * 3_600_000
"""How far a host's clock steps: back or forth, by more than any grace or event lasts. Its next reading is right again,
which is the step back."""


class Violation(AssertionError):  # noqa: N818  what is found, not what failed
    """An invariant is broken, or an actor failed. `moves` are what led there, once that is known."""

    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody outside was told, the messages that were seen to be erased, and the names given to each actor."""

    facts: frozenset[tuple[str, str]] = frozenset()
    erased: frozenset[int] = frozenset()
    names: tuple[int, ...] = ()

    @property
    def is_looking(self) -> bool:
        """Whether somebody looks at the archive, whose answer is held against all moments of that."""
        return any(" by " in what for what, _ in self.facts)


class Watch(Protocol):
    """Is told what happens, by numbers, and raises Violation."""

    def changed(self, before: int, after: int) -> None:
        """A transaction was written: from one partition to another."""
        ...

    def deleted(self, keys: tuple[str, ...], partition: int, bucket: int, told: int, now: TimestampMs) -> None:
        """Objects went from a bucket, while the partition was so."""
        ...

    def look(self, partition: int, bucket: int, told: int) -> int:
        """A partition and a bucket are so at a moment; return what was told and seen from then on."""
        ...

    def found(self, what: str, found: Hashable, begun: tuple[int, int], now: tuple[int, int]) -> None:
        """Somebody who looked from one partition and bucket on up to another found this."""
        ...

    def ended(self, state: State) -> None:
        """Everybody is done."""
        ...


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the machine has to know of a request at each step."""

    request: Request
    part: Part
    writes: bool


class Machine:
    """All states and moves of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers = Numbered()
        self.told = Numbered()
        self.log = LogStore(world.stream, self.answers, self._changed, index_lags=world.faults.index_lags)
        self.names = NamesStore(self.answers)
        self.buckets = Numbered()
        self.bucket = BucketStore(self.buckets, self.answers, versioned=world.faults.is_versioned)
        surroundings = Surroundings(world.faults.page, world.faults.is_versioned)
        self.programs = Programs(world.roles, self.answers, surroundings)
        self.watch: Watch | None = None
        self.trying = Move(0)
        self.asking: RequestFacts | None = None
        self._facts: list[RequestFacts] = []
        self._no_answer = self.answers.number(Refusal.of(UnavailableError("no answer came")))
        self._unknown = self.answers.number(Refusal.of(OutcomeUnknownError("no answer came")))
        self._refused = self.answers.number(Refusal.of(UnavailableError("SlowDown")))
        self._looked: dict[tuple[int, int, int], int] = {}
        self._deletions: set[tuple[int, ...]] = set()

    @property
    def start(self) -> State:
        """The first state."""
        world, faults = self.world, self.world.faults
        left = faults.crashes * _CRASHES + faults.losses * LOSSES + faults.refusals * REFUSALS
        left += faults.partial_deletions * _PARTS + faults.clock_steps * _STEPS
        return (
            self.log.begin(world.log, world.log.head.revision if world.log.head else 0, world.recorded),
            self.names.number(world.names),
            self.bucket.number(world.bucket),
            self.told.number(Told(names=(0,) * len(world.roles))),
            world.now,
            left,
            *self.programs.roots,
        )

    def facts(self, node: int) -> RequestFacts:
        """Return what is asked at a node, which is no end."""
        number = self.programs.request[node]
        while number >= len(self._facts):
            request: Request = self.programs.requests.values[len(self._facts)]  # type: ignore[assignment]
            self._facts.append(RequestFacts(request, request.part, request.writes))
        return self._facts[number]

    def end(self, node: int) -> End | None:
        """Return an actor's end, None if it goes on."""
        return self.programs.ends[node]

    def is_over(self, state: State) -> bool:
        """Tell whether everybody is done."""
        return all(self.programs.request[node] < 0 for node in state[NODES:])

    def moves(self, state: State, actor: int) -> Iterator[tuple[Move, State]]:
        """Yield what an actor may do next, and the state after it. Raises Violation; `trying` is then what did it."""
        node = state[NODES + actor]
        if self.programs.request[node] < 0:
            return
        self.trying = Move(actor)
        if self.log.is_half_shown(state[LOG]):
            state = (self.log.settled(state[LOG], actor), *state[1:])
        self.asking = self.facts(node)
        if self.asking.part.is_silent:
            state = self._answer_silent(state, actor, may_begin=True)
            node = state[NODES + actor]
            if self.programs.request[node] < 0:
                yield self.trying, state
                return
        self.asking = facts = self.facts(node)
        if facts.part is Part.WAIT:
            yield Move(actor), self._wait(state, actor, facts.request)
            return
        left = state[FAULTS]
        if facts.part is Part.HOST_CLOCK:
            yield from self._read_host_clock(state, actor)
            return
        for outcome, (after, answer) in enumerate(self._carry_out(state, actor, facts)):
            self.trying = Move(actor, outcome=outcome)
            yield self.trying, self._go(after, actor, answer)
            if left and facts.writes and after[:TOLD] != state[:TOLD]:
                yield from self._fail(after, actor, outcome, is_object=facts.part is Part.BUCKET)
        yield from self._fall_short(state, actor, facts)

    def _fall_short(self, state: State, actor: int, facts: RequestFacts) -> Iterator[tuple[Move, State]]:
        """Yield what becomes of a request that is not carried out, or not all of it."""
        left = state[FAULTS]
        if left % _STEPS >= _PARTS and facts.request.is_of_several:
            yield from self._do_a_part(state, actor, facts)
        if left % _PARTS >= REFUSALS:
            self.trying = Move(actor, Fate.IS_REFUSED)
            refused = (*state[:FAULTS], left - REFUSALS, *state[NODES:])
            yield self.trying, self._go(refused, actor, self._refused)

    def _read_host_clock(self, state: State, actor: int) -> Iterator[tuple[Move, State]]:
        """Yield what a host's clock may say: the time, or it has stepped."""
        now = state[NOW] + self.world.host_ahead_ms
        self.trying = Move(actor)
        yield self.trying, self._go(state, actor, self.answers.number(TimestampMs(now)))
        stepped = (*state[:FAULTS], state[FAULTS] - _STEPS, *state[NODES:])
        for outcome, step in enumerate(STEPS_MS):
            self.trying = Move(actor, Fate.CLOCK_STEPPED, outcome)
            yield self.trying, self._go(stepped, actor, self.answers.number(TimestampMs(now + step)))

    def _do_a_part(self, state: State, actor: int, facts: RequestFacts) -> Iterator[tuple[Move, State]]:
        """Yield what may come of a deletion of several objects of which only some go."""
        number = self.programs.request[state[NODES + actor]]
        ways = self.bucket.carry_out_partly(state[BUCKET], number, facts.request, TimestampMs(state[NOW]))
        for outcome, (bucket, answer) in enumerate(ways):
            self.trying = Move(actor, Fate.DOES_A_PART, outcome)
            after = self._with_bucket(state, bucket)
            yield self.trying, self._go((*after[:FAULTS], after[FAULTS] - _PARTS, *after[NODES:]), actor, answer)

    def _fail(self, after: State, actor: int, outcome: int, *, is_object: bool) -> Iterator[tuple[Move, State]]:
        """Yield what may befall an actor whose request was carried out.

        Only after a write: who dies after a read has done no more than who died after the write before it.
        """
        left = after[FAULTS]
        if left % LOSSES:
            self.trying = Move(actor, Fate.DIES, outcome)
            dead = (*after[:TOLD], self._forgotten(after[TOLD], actor), after[NOW], left - _CRASHES, *after[NODES:])
            yield self.trying, self._at(dead, actor, self.programs.roots[actor])
        if left % REFUSALS >= LOSSES:
            self.trying = Move(actor, Fate.HEARS_NOTHING, outcome)
            lost = (*after[:FAULTS], left - LOSSES, *after[NODES:])
            yield self.trying, self._go(lost, actor, self._no_answer if is_object else self._unknown)

    def _forgotten(self, told: int, actor: int) -> int:
        """Return what was told, without the looks that a process had begun which is no more."""
        known: Told = self.told.values[told]  # type: ignore[assignment]
        left = frozenset(one for one in known.facts if not one[0].endswith(f" by {actor}"))
        return told if left == known.facts else self.told.number(replace(known, facts=left))

    def _wait(self, state: State, actor: int, request: Request) -> State:
        now = state[NOW] + request.args[0]  # type: ignore[operator]
        settled = self.log.settled(state[LOG], -1)  # nothing is being written for so long
        return self._go((settled, *state[1:NOW], now, *state[FAULTS:]), actor, self.answers.number(None))

    def _carry_out(self, state: State, actor: int, facts: RequestFacts) -> Iterator[tuple[State, int]]:
        number = self.programs.request[state[NODES + actor]]
        now = TimestampMs(state[NOW])
        if facts.part is Part.LOG:
            writer = actor if self.world.faults.by_halves else -1
            for outcome, (log, answer) in enumerate(self.log.carry_out(state[LOG], number, facts.request, now, writer)):
                self.trying = Move(actor, outcome=outcome)
                yield self._looked_at(state, (log, *state[1:])), answer
        elif facts.part is Part.BUCKET:
            bucket, answer = self.bucket.carry_out(state[BUCKET], number, facts.request, now)
            yield self._with_bucket(state, bucket), answer
        else:
            names, answer = self.names.carry_out(state[NAMES], number, facts.request)
            yield (state[LOG], names, *state[BUCKET:]), answer

    def _with_bucket(self, state: State, bucket: int) -> State:
        if bucket == state[BUCKET]:
            return state
        keys = self.bucket.deleted.get((state[BUCKET], bucket))
        if keys is not None:
            self._check_deletion(keys, state)
        return self._looked_at(state, (*state[:BUCKET], bucket, *state[TOLD:]))

    def _go(self, state: State, actor: int, answer: int) -> State:
        """Give an actor its answer; what it asks then that is answered at once, is."""
        node = self.programs.after(state[NODES + actor], answer)
        state = self._at(state, actor, node)
        # Who is started again looks at the clock when he is, which may be later; and a look at the archive begins with
        # its first request, for the fewer moments it spans, the stricter it is judged.
        return state if state[NODES + actor] != node else self._answer_silent(state, actor)

    def _answer_silent(self, state: State, actor: int, *, may_begin: bool = False) -> State:
        programs, at = self.programs, NODES + actor
        while programs.request[node := state[at]] >= 0 and (facts := self.facts(node)).part >= Part.CLOCK:
            if facts.request.method == "begins" and not may_begin:
                break
            if facts.part is Part.HOST_CLOCK and state[FAULTS] >= _STEPS:
                break  # it may have stepped
            state, answer = self._silent(state, actor, facts.request)
            following = programs.after(node, answer)
            state = self._at(state, actor, following)
            if state[at] != following:
                break
        return state

    def _silent(self, state: State, actor: int, request: Request) -> tuple[State, int]:
        world = self.world
        match request.part:
            case Part.CLOCK:
                ahead = world.ahead_ms[actor] if world.ahead_ms else 0
                return state, self.answers.number(TimestampMs(state[NOW] + ahead))
            case Part.HOST_CLOCK:
                return state, self.answers.number(TimestampMs(state[NOW] + world.host_ahead_ms))
        told: Told = self.told.values[state[TOLD]]  # type: ignore[assignment]
        if request.part is Part.NAME:
            count = told.names[actor]
            told = replace(told, names=(*told.names[:actor], count + 1, *told.names[actor + 1 :]))
            answer = self.answers.number(f"{chr(ord('a') + actor)}{count}")
        elif request.method == "begins":
            since = f"{self.log.oldest_of(state[LOG])} {state[BUCKET]}"
            told = replace(told, facts=told.facts | {(f"{request.args[0]} by {actor}", since)})
            answer = self.answers.number(None)
        elif request.method == "finds":
            (begun,) = (one for one in told.facts if one[0] == f"{request.args[0]} by {actor}")
            if self.watch is not None:
                partition, bucket = map(int, begun[1].split())
                now = self.log.partition_of(state[LOG]), state[BUCKET]
                self.watch.found(str(request.args[0]), request.args[1], (partition, bucket), now)
            told = replace(told, facts=told.facts - {begun})
            answer = self.answers.number(None)
        else:
            told = replace(told, facts=told.facts | {(request.method, str(request.args[0]))})
            answer = self.answers.number(None)
        return (*state[:TOLD], self.told.number(told), *state[NOW:]), answer

    def _at(self, state: State, actor: int, node: int) -> State:
        end = self.programs.ends[node]
        if end is not None:
            if end.how is How.FAILED:
                raise Violation(f"{self.world.roles[actor].name} failed: {end.told}")
            if end.how is How.AGAIN:
                node = self.programs.roots[actor]
                state = (*state[:TOLD], self._forgotten(state[TOLD], actor), *state[NOW:])
        at = NODES + actor
        return (*state[:at], node, *state[at + 1 :])

    def _looked_at(self, before: State, after: State) -> State:
        if self.watch is None:
            return after
        key = self.log.partition_of(after[LOG]), after[BUCKET], after[TOLD]
        told = self._looked.get(key)
        if told is None:
            told = self._looked[key] = self.watch.look(*key)
        return after if told == after[TOLD] else (*after[:TOLD], told, *after[NOW:])

    def _check_deletion(self, keys: tuple[str, ...], state: State) -> None:
        if self.watch is None:
            return
        partition = self.log.partition_of(state[LOG])
        key = partition, state[BUCKET], state[TOLD], state[NOW], hash(keys)
        if key not in self._deletions:
            self.watch.deleted(keys, partition, state[BUCKET], state[TOLD], TimestampMs(state[NOW]))
            self._deletions.add(key)

    def _changed(self, before: int, after: int) -> None:
        if self.watch is not None:
            self.watch.changed(before, after)
