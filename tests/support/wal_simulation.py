"""A write-ahead log's writer and its sealers in virtual time, against a store that delays, loses and reorders.

The writer is the real one, on an event loop whose clock jumps to the next event. What it has done in threads, and the
sealers, are actors: threads of which one runs at a time, until its next request or sleep. A seed gives one history, and
gives the same one again.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

import coldstream.streams.wal.seal as sealing
from coldstream.errors import ColdstreamError, ObjectExistsError, OutcomeUnknownError, UnavailableError, WalEndedError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.store import wal_window
from coldstream.store.wal_object import WalHeader, WalObjectKind, parse_header
from coldstream.streams.wal import trimming
from coldstream.streams.wal.memory_store import MemoryWals, MemoryWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import ByteRange
from tests.support.wal_chunks import plain_chunk

Call = Callable[[], Any]


class StuckError(AssertionError):
    """Nothing can happen any more, and somebody still waits."""


class ViolationError(AssertionError):
    """A promise of the write-ahead log was broken."""


class Killed(BaseException):
    """The actor's process ended here. No Exception: nothing that it catches hides it."""


class _NoSelector(selectors.SelectSelector):
    """Waits for nothing but the clock, which it sets forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError("nobody has anything left to do")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, and the actors that run beside it, one at a time."""

    def __init__(self) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)
        self._threads = ThreadPoolExecutor(64)
        self._baton = threading.Semaphore(0)
        self._actor = threading.local()
        self._alive: set[Actor] = set()

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def done(outcome: Actor) -> None:
            if future.done():
                return
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.result)

        self.act(partial(func, *args), done)
        return future

    def act(self, call: Call, done: Callable[[Actor], None] | None = None) -> Actor:
        """Have an actor make a call, from now on."""
        actor = Actor(self, call, done)
        self.call_soon(self._start, actor)
        return actor

    def pause(self, seconds: float) -> None:
        """Have the actor that runs go on later."""
        actor = self.current()
        self.call_later(seconds, self._resume, actor)
        self.rest(actor)

    def current(self) -> Actor:
        return cast("Actor", self._actor.me)

    def rest(self, actor: Actor) -> None:
        """Hand the baton back, and wait for it."""
        self._baton.release()
        actor.turn.acquire()
        if actor.is_killed:
            raise Killed

    def wake(self, actor: Actor) -> None:
        self.call_soon(self._resume, actor)

    def _start(self, actor: Actor) -> None:
        self._alive.add(actor)
        self._threads.submit(self._run_actor, actor)
        self._baton.acquire()

    def _resume(self, actor: Actor) -> None:
        actor.turn.release()
        self._baton.acquire()

    def _run_actor(self, actor: Actor) -> None:
        self._actor.me = actor
        try:
            actor.result = actor.call()
        except Exception as err:  # noqa: BLE001  what an actor raises is for whoever asked it
            actor.error = err
        except Killed:
            actor.is_killed = True
        finally:
            actor.is_done = True
            self._alive.discard(actor)
            if actor.done is not None:
                self.call_soon(actor.done, actor)
            for waiting in actor.waiting:
                self.wake(waiting)
            self._baton.release()

    def close(self) -> None:
        while self._alive:
            actor = self._alive.pop()
            actor.is_killed = True
            self._resume(actor)
        self._threads.shutdown()
        super().close()


class Actor:
    """A call in a thread of its own, and, for who waits for it, its future."""

    def __init__(self, loop: VirtualLoop, call: Call, done: Callable[[Actor], None] | None) -> None:
        self.loop, self.call, self.done = loop, call, done
        self.turn = threading.Semaphore(0)
        self.is_done = self.is_killed = False
        self.result: Any = None
        self.error: Exception | None = None
        self.waiting: list[Actor] = []

    def cancel(self) -> bool:
        return False


class _Future:
    """What the pool of an actor gives it: the actor waits for another one."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def result(self) -> Any:
        loop = self._actor.loop
        while not self._actor.is_done:
            self._actor.waiting.append(loop.current())
            loop.rest(loop.current())
        if self._actor.is_killed:
            raise Killed
        if self._actor.error is not None:
            raise self._actor.error
        return self._actor.result

    def cancel(self) -> bool:
        return False


class _Pool:
    """A pool of threads, for an actor."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def submit(self, call: Call) -> _Future:
        return _Future(self._loop.act(call))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@dataclass(frozen=True)
class Faults:
    """How often a request fails, in each way; and how long it takes at most, seconds."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    delay_s: float = 0.05
    stall: float = 0.0
    """How often a request is held up for seconds, on its way there or back."""


CALM = Faults()


class FaultyStore:
    """A `WalStore` whose requests take time and fail, as one process sees it."""

    def __init__(self, loop: VirtualLoop, wals: MemoryWals, dice: random.Random, faults: Faults) -> None:
        self.loop, self.dice, self.faults = loop, dice, faults
        self.inner = MemoryWalStore(wals)
        self.is_away = False
        self.requests_left = -1
        """Pauses until the process is killed; never if negative."""

    @property
    def kind(self) -> WalKind:
        return WalKind.MEMORY

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        self._request(lambda: self.inner.create(place, sequence, body), writes=True)

    def sequences(self, place: WalPlace) -> Sequence[int]:
        """List in two pages, of two moments: in order as S3 does, or in any as S3 Express does."""
        everything = self._request(lambda: list(self.inner.sequences(place)))
        border = self.dice.choice([*everything, 0])
        is_first: Callable[[int], bool] = (
            (lambda at: at <= border) if self.dice.random() < 0.7 else (lambda at: hash((at, border)) % 2 == 0)
        )
        first = [at for at in everything if is_first(at)]
        second = self._request(lambda: list(self.inner.sequences(place)))
        found = first + [at for at in second if not is_first(at)]
        self.dice.shuffle(found)
        return found

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        return cast("bytes", self._request(lambda: self.inner.read(place, sequence, byte_range)))

    def delete(self, place: WalPlace, sequences: Sequence[int]) -> None:
        some = [at for at in sequences if self.dice.random() < 0.9]
        is_partial = len(some) < len(sequences) and self.dice.random() < self.faults.refused
        self._request(lambda: self.inner.delete(place, some if is_partial else sequences), writes=True)
        if is_partial:
            raise UnavailableError("some were not deleted")

    def epochs(self, writer: str) -> Sequence[int]:
        return cast("Sequence[int]", self._request(lambda: self.inner.epochs(writer)))

    def _request(self, effect: Call, *, writes: bool = False) -> Any:
        self._pause()
        if self.is_away:
            self.loop.pause(1)
            raise UnavailableError("the store is away")
        roll = self.dice.random() - self.faults.refused
        if roll < 0:
            raise UnavailableError("refused")
        if writes and (roll := roll - self.faults.late) < 0:
            self.loop.call_later(self.dice.expovariate(1.0), _regardless, effect)
            self._pause()
            raise UnavailableError("no answer yet")
        if writes and roll - self.faults.lost < 0:
            _regardless(effect)
            self._pause()
            raise self.dice.choice([UnavailableError, OutcomeUnknownError])("the answer was lost")
        try:
            return effect()
        finally:
            self._pause()

    def _pause(self) -> None:
        if self.requests_left == 0:
            raise Killed
        self.requests_left -= 1
        is_stalled = self.dice.random() < self.faults.stall
        self.loop.pause(self.dice.uniform(0.5, 5) if is_stalled else self.dice.uniform(0, self.faults.delay_s))


def _regardless(effect: Call) -> None:
    """Have an effect of which nobody hears."""
    with suppress(ObjectExistsError):
        effect()


@dataclass
class World:
    """One history, and what is to be judged of it."""

    seed: int
    is_small: bool = True
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    wals: MemoryWals = field(default_factory=dict)
    outcomes: list[tuple[int, int | Exception]] = field(default_factory=list)
    """Offset, and sequence or error, in the order in which the futures were resolved."""
    flushed: set[int] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        most = 2 if self.is_small else 16
        self.options = WalOptions(
            max_bytes=self.dice.choice([1, 1, 400]),
            interval_s=self.dice.choice([0.0, 0.05, 0.3]),
            eager=self.dice.random() < 0.7,
            in_flight=self.dice.randint(1, most),
            attempts=self.dice.choice([1, 2, 4]),
            max_delay_s=0.5,
        )
        trouble = self.dice.choice([0.0, 0.02, 0.1])
        self.faults = Faults(
            *(self.dice.random() * trouble for _ in range(3)), stall=self.dice.choice([0.0, 0.005, 0.03])
        )

    def store(self, faults: Faults | None = None) -> FaultyStore:
        return FaultyStore(self.loop, self.wals, self.dice, self.faults if faults is None else faults)

    async def play(self) -> None:
        dice = self.dice
        self.writer_store = self.store()
        try:
            writer = await WalWriter.begin(self.writer_store, "me", self.options, cast("Executor", None))
        except ColdstreamError:
            return
        self.writer = writer
        self.submitted = 0
        sealers = [self.loop.create_task(self._seal_some_time()) for _ in range(dice.choice([0, 1, 1, 2, 3]))]
        if dice.random() < 0.15:
            self.loop.call_later(dice.uniform(0, 4), setattr, self.writer_store, "is_away", True)
            self.loop.call_later(dice.uniform(2, 60), setattr, self.writer_store, "is_away", False)
        futures = []
        for _ in range(dice.randint(1, 30)):
            futures += [self._submit() for _ in range(dice.choice([1, 1, 2, 5]))]
            await asyncio.sleep(dice.choice([0, 0.01, 0.1, 0.3]))
        await asyncio.wait(futures)
        await asyncio.wait_for(asyncio.gather(*sealers), 500)
        await asyncio.sleep(20)  # what is late arrives
        self.is_clean = False
        if dice.random() < 0.3:
            await writer.close()
            # Even if it could not delete all of them, or they came back: what is left is worth nothing.
            self.is_clean = writer.ended is None and not writer.abandoned and len(self.flushed) == self.submitted
            await asyncio.sleep(20)
        for _ in range(2):
            await self._seal(self.store(CALM))

    def _submit(self) -> asyncio.Future[int]:
        offset = self.submitted
        self.submitted += 1
        future = self.writer.submit(plain_chunk(offset))
        future.add_done_callback(lambda done: self._resolved(offset, done))
        return future

    def _resolved(self, offset: int, future: asyncio.Future[int]) -> None:
        error = future.exception()
        self.outcomes.append((offset, future.result() if error is None else cast("Exception", error)))
        if error is None and self.dice.random() < 0.95:
            self.loop.call_later(self.dice.choice([0, 0.01, 0.3]), self._flush, offset, future.result())

    def _flush(self, offset: int, sequence: int) -> None:
        self.flushed.add(offset)
        self.writer.flushed(sequence)

    async def _seal_some_time(self) -> None:
        await asyncio.sleep(self.dice.uniform(0, 5))
        store = self.store()
        if self.dice.random() < 0.3:
            store.requests_left = self.dice.randint(0, 20)
        await self._seal(store)

    async def _seal(self, store: FaultyStore) -> None:
        over = self.loop.create_future()

        def done(actor: Actor) -> None:
            if actor.error is None and actor.result is not None:
                self.ends.append(actor.result)
            elif actor.error is not None and not isinstance(actor.error, UnavailableError):
                over.set_exception(actor.error)
                return
            over.set_result(None)

        self.loop.act(partial(sealing.seal, store, self.writer.place), done)
        await over

    def judge(self) -> None:
        """Raise ViolationError unless every promise was kept."""
        if not hasattr(self, "writer"):
            return
        end = self._end()
        readable = self._readable(end)
        self._require([offset for offset, _ in self.outcomes] == list(range(self.submitted)), "resolved out of order")
        sequences = [outcome for _, outcome in self.outcomes if isinstance(outcome, int)]
        self._require(sequences == sorted(sequences), "sequences fall")
        self._require(
            all(isinstance(outcome, int) for _, outcome in self.outcomes[: len(sequences)]), "one after a failure"
        )
        self._require(len(readable) == len(set(readable)), "a chunk is there twice")
        for offset, outcome in self.outcomes:
            if isinstance(outcome, int):
                self._require(end is None or outcome < end, f"{offset} was acknowledged at {outcome}, the end is {end}")
                self._require(offset in readable or offset in self.flushed, f"{offset} was acknowledged and is lost")
            elif isinstance(outcome, WalEndedError):
                self._require(offset not in readable, f"{offset} was refused and is there")
            else:
                self._require(self.writer.abandoned, f"{offset} failed with {outcome!r}")
        if self.writer.ended is not None:
            self._require(self.writer.ended == end, f"the writer's end is {self.writer.ended}, not {end}")

    def _end(self) -> int | None:
        if self.is_clean:
            return None  # nothing is left, and nothing was refused; sealers found this or that
        self._require(len(set(self.ends)) == 1, f"sealers disagree: {self.ends}")
        return self.ends[0]

    def _readable(self, end: int | None) -> list[int]:
        """Return the offsets of the chunks in objects below the end."""
        objects = self._objects(WalObjectKind.BATCHES)
        return [
            one.first_offset for sequence, header in objects if end is None or sequence < end for one in header.entries
        ]

    def _objects(self, kind: WalObjectKind) -> Iterator[tuple[int, WalHeader]]:
        for (_, _, sequence), body in sorted(self.wals.items()):
            header = parse_header(body, source="simulation")
            if header.kind is kind:
                yield sequence, header

    def _require(self, holds: object, what: str) -> None:
        if not holds:
            raise ViolationError(f"seed {self.seed}: {what}")


@contextmanager
def _in_virtual_time(world: World) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "ThreadPoolExecutor", lambda _: _Pool(world.loop))
        patch.setattr(sealing, "time", SimpleNamespace(sleep=world.loop.pause))
        if world.is_small:
            # The proportions of `wal_window`, so small that few objects reach the bounds.
            patch.setattr(sealing, "REACH", 4)
            patch.setattr(wal_window, "REACH", 4)
            patch.setattr(trimming, "KEPT", min(trimming.KEPT, 8))
        yield


def play(seed: int, *, is_small: bool = True) -> World:
    """Play the history of a seed, and judge it."""
    random.seed(seed)
    world = World(seed, is_small)
    try:
        with _in_virtual_time(world):
            asyncio.set_event_loop(world.loop)
            world.loop.run_until_complete(world.play())
        world.judge()
    finally:
        asyncio.set_event_loop(None)
        world.loop.close()
    return world
