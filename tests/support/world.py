"""A stream in memory, at a broker and in an archive, with everything that goes wrong: the world of tested followers.

Time is virtual: a loop that has nothing to do goes straight to the next moment at which it has something to do.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from coldstream.errors import GapError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.writer import make_chunk
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.fetch import RangeBatch
from coldstream.resolve.attach import REMOVED
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

T = TypeVar("T")

STREAM = "orders"
CREDITS = 4
NOTHING = memoryview(b"")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock skips the time in which nothing happens. Raises if nothing can happen any more."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def wait(self, timeout: float | None) -> None:
        if timeout is None:
            raise AssertionError("everything waits for something else")
        self._now += timeout


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # it depends on the system
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.wait(timeout)
        return super().select(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class World:
    """One stream: its log, of which the broker holds the chunks from `kept_from` on, and the archive some.

    `incarnation` counts its declarations; the archive keeps chunks by incarnation. `is_up` says whether the broker
    answers, `answers` whether the resolver does.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.incarnation = 1
        self.exists = True
        self.log: list[Chunk] = []
        self.kept_from = 0
        self.retains = True
        self.archived: dict[int, list[Chunk]] = {}
        self.floors: dict[int, Offset] = {}
        """Of each incarnation, the offset below which the archive had everything removed."""
        self.erased: set[ChunkId] = set()
        """Archived chunks of which messages were erased. What a range has of them says so."""
        self.reasons: dict[int, str] = {}
        self.lost: dict[int, tuple[int, str]] = {}
        """What is reported as lost from a tail on: up to which offset, and why."""
        self.is_up = True
        self.answers = True
        self.now = 1_000
        self.epoch = 1
        self.subscriptions: set[Subscription] = set()
        self.stored: dict[str, int] = {}
        self.probes = 0
        self.is_unaware = rng.random() < 0.3
        """Whether the broker delivers only user chunks, whatever it is asked for."""
        self.lag = 0
        """How many of the last chunks the connected node does not have yet."""

    @property
    def next_offset(self) -> Offset:
        return self.log[-1].header.next_offset if self.log else Offset(0)

    @property
    def held(self) -> list[Chunk]:
        """The chunks of the connected node."""
        return self.log[self.kept_from : len(self.log) - self.lag]

    @property
    def newest(self) -> list[Chunk]:
        """The archived chunks of the incarnation that was archived last."""
        return self.archived[max(self.archived)] if self.archived else []

    def publish(self, messages: int) -> None:
        self._write([b"%d/%d" % (self.incarnation, self.next_offset + at) for at in range(messages)], ChunkType.USER)

    def track(self) -> None:
        self._write([b"tracking"], ChunkType.TRACKING_DELTA)

    def retain(self, chunks: int) -> None:
        """Keep at most so many chunks at the broker."""
        if self.retains:
            self.kept_from = max(self.kept_from, len(self.log) - chunks)

    def archive(self, chunks: int, *, hole: int = 0, reason: str | None = None) -> None:
        """Archive so many chunks more, after leaving out some."""
        done = self.archived.get(self.incarnation, [])
        at = next((n for n, c in enumerate(self.log) if done and c.header.chunk_id >= done[-1].header.next_offset), 0)
        if done and self.log[at].header.chunk_id < done[-1].header.next_offset:
            return
        new = self.log[at + hole : at + hole + chunks]
        if new:
            if hole and done and reason is not None:
                self.reasons[done[-1].header.next_offset] = reason
            self.archived.setdefault(self.incarnation, []).extend(new)

    def erase(self, *numbers: int) -> None:
        """Erase the messages of chunks in the archive."""
        archived = self.archived[self.incarnation]
        for number in numbers:
            before = archived[number].header
            header, data = make_chunk(
                [ERASED_MESSAGE] * before.records,
                chunk_id=before.chunk_id,
                timestamp=before.timestamp,
                epoch=before.epoch,
            )
            archived[number] = Chunk(header, 0, NOTHING, memoryview(data)[48:], NOTHING)
            self.erased.add(header.chunk_id)

    def remove(self, chunks: int) -> None:
        """Have the archive's own retention remove so many chunks."""
        archived = self.archived[self.incarnation]
        self.floors[self.incarnation] = archived[chunks - 1].header.next_offset
        del archived[:chunks]

    def disconnect(self) -> None:
        for subscription in list(self.subscriptions):
            subscription.end(UnavailableError("the connection is lost"))

    def redeclare(self) -> None:
        for subscription in list(self.subscriptions):
            subscription.end(UnavailableError("the stream has changed its members"))
        self.incarnation += 1
        self.log = []
        self.kept_from = self.lag = 0
        self.stored.clear()

    def delete(self) -> None:
        for subscription in list(self.subscriptions):
            subscription.end(StreamNotFoundError("deleted"))
        self.exists = False

    def _write(self, messages: list[bytes], kind: ChunkType) -> None:
        header, data = make_chunk(
            messages,
            chunk_id=ChunkId(self.next_offset),
            timestamp=TimestampMs(self.now),
            epoch=Epoch(self.epoch),
            kind=kind,
        )
        self.now += self.rng.choice([0, 0, 1, 5])
        self.log.append(Chunk(header, 0, NOTHING, memoryview(data)[48:], NOTHING))
        for subscription in self.subscriptions:
            if self.rng.random() < 0.7:
                subscription.fill()

    def messages(self) -> list[int]:
        """Offsets of all messages of this incarnation."""
        return [
            offset
            for chunk in self.log
            if chunk.header.type is ChunkType.USER
            for offset in range(chunk.header.chunk_id, chunk.header.next_offset)
        ]


class Subscription:
    """What the broker sends, as far as there are credits; it skips silently what retention has deleted."""

    def __init__(self, world: World, cursor: int) -> None:
        self._world = world
        self._cursor = cursor
        self._arrived: deque[Chunk] = deque()
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self.next_offset = Offset(0)

    def fill(self) -> None:
        world = self._world
        while len(self._arrived) < CREDITS and self._cursor < len(world.log) - world.lag and self._error is None:
            self._cursor = max(self._cursor, world.kept_from)
            chunk = world.log[self._cursor]
            self._cursor += 1
            if chunk.header.type is ChunkType.USER:
                self._arrived.append(chunk)
                self.next_offset = chunk.header.next_offset
        self._changed.set()

    def leave_out(self) -> None:
        """Go on after the last chunk, as a node does that has deleted the others."""
        self._cursor = len(self._world.log)
        self._arrived.clear()

    @property
    def is_over(self) -> bool:
        return self._error is not None

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        self._changed.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Chunk:
        while True:
            self.fill()
            if self._arrived:
                if self._world.rng.random() < 0.3:
                    await asyncio.sleep(0)
                return self._arrived.popleft()
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()


class FakeBroker:
    """Implements `BrokerSource`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.renewed = 0

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec) -> AsyncIterator[Subscription]:
        await self._answer()
        subscription = Subscription(self._world, self._attach(spec))
        self._world.subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._world.subscriptions.discard(subscription)

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        await self._answer()
        self._world.probes += 1
        at = self._attach(spec)
        found = [chunk for chunk in self._all_held()[at:] if chunk is not None and chunk.header.type is ChunkType.USER]
        await asyncio.sleep(self._world.rng.choice([0, 0.1]) if found else 3)
        return found[0] if found else None

    async def first_offset(self, stream: str) -> Offset | None:
        if self._world.is_unaware:
            first = await self.probe(stream, FIRST)
            return None if first is None else Offset(first.header.chunk_id)
        await self._answer()
        self._world.probes += 1
        held = self._world.held
        await asyncio.sleep(self._world.rng.choice([0, 0.1]) if held else 3)
        return Offset(held[0].header.chunk_id) if held else None

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        await self._answer()
        stored = self._world.stored.get(reference)
        return None if stored is None else Offset(stored)

    async def renew(self) -> None:
        self.renewed += 1

    async def _answer(self) -> None:
        await asyncio.sleep(self._world.rng.choice([0, 0, 0.001, 0.2]))
        if not self._world.is_up:
            raise UnavailableError("no broker to connect to")
        if not self._world.exists:
            raise StreamNotFoundError("no such stream")

    def _all_held(self) -> list[Chunk | None]:
        world = self._world
        return [None] * min(world.kept_from, len(world.log)) + world.held  # type: ignore[return-value]

    def _attach(self, spec: OffsetSpec) -> int:
        held = self._all_held()
        end = len(held)
        match spec:
            case AtEnd("first"):
                return self._world.kept_from
            case AtEnd("last"):
                users = (n for n in reversed(range(end)) if held[n] and held[n].header.type is ChunkType.USER)
                return next(users, end)
            case AtEnd():
                return end
            case AtOffset(offset):
                return next((n for n, c in enumerate(held) if c and c.header.next_offset > offset), end)
            case AtTimestamp(timestamp):
                return next((n for n, c in enumerate(held) if c and c.header.timestamp >= timestamp), end)


class FakeArchive:
    """Implements `ArchiveSource`."""

    def __init__(self, world: World) -> None:
        self._world = world

    @asynccontextmanager
    async def read(
        self, start: OffsetSpec, incarnation: Incarnation | None, *, chunk: bool = False
    ) -> AsyncIterator[FakeReading]:
        yield FakeReading(self._world, start, incarnation)


class FakeReading:
    """Implements `ArchiveReading`, by the rules of the resolver and the reader."""

    def __init__(self, world: World, start: OffsetSpec, incarnation: Incarnation | None) -> None:
        self._world = world
        self._start = start
        self._incarnation = None if incarnation is None else int(incarnation)
        self.stream: StreamId | None = None
        self.tail: Offset | None = None
        self.floor: Offset | None = None

    async def batches(self) -> AsyncIterator[RangeBatch]:
        world, rng = self._world, self._world.rng
        spec: OffsetSpec = self._start
        expected: int | None = None
        while True:
            await asyncio.sleep(rng.choice([0, 0, 0.01, 0.5]))
            if not world.answers or rng.random() < 0.02:
                raise UnavailableError("the resolver does not answer")
            if not world.archived:
                raise StreamNotFoundError("not archived")
            number = self._incarnation = self._incarnation or max(world.archived)
            self.stream = StreamId("/", STREAM, Incarnation(str(number)))
            chunks, floor = world.archived[number], world.floors.get(number, Offset(0))
            at = self._attach(chunks, spec)
            if isinstance(spec, AtOffset) and spec.offset < floor:
                if expected is not None:
                    first = chunks[0].header.chunk_id if chunks else floor
                    raise GapError(STREAM, spec.offset, first, REMOVED)
                self.floor = floor
            if at == len(chunks):
                tail = chunks[-1].header.next_offset if chunks else floor
                if (lost := world.lost.get(tail)) is not None and not (
                    isinstance(spec, AtOffset) and spec.offset > tail
                ):
                    raise GapError(STREAM, tail, *lost)
                self.tail = tail
                return
            first = chunks[at].header.chunk_id
            before = chunks[at - 1].header.next_offset if at else None
            is_asked = first > (spec.offset if isinstance(spec, AtOffset) else first - 1)
            if before is not None and before < first and is_asked:
                raise GapError(STREAM, before, first, world.reasons.get(before))
            size = rng.randrange(1, 5)
            end = at + 1
            while (
                end < min(at + size, len(chunks)) and chunks[end].header.chunk_id == chunks[end - 1].header.next_offset
            ):
                end += 1
            assert expected is None or first == expected
            erased = any(one.header.chunk_id in world.erased for one in chunks[at:end])
            yield RangeBatch(SimpleNamespace(key="fragment", erased=erased), chunks[at:end])  # type: ignore[arg-type]
            expected = chunks[end - 1].header.next_offset
            spec = AtOffset(Offset(expected))

    def _attach(self, chunks: list[Chunk], spec: OffsetSpec) -> int:
        end = len(chunks)
        match spec:
            case AtEnd("first"):
                return 0
            case AtEnd("last"):
                return next((n for n in reversed(range(end)) if chunks[n].header.type is ChunkType.USER), end)
            case AtEnd():
                return end
            case AtOffset(offset):
                return next((n for n, c in enumerate(chunks) if c.header.next_offset > offset), end)
            case AtTimestamp(timestamp):
                return next((n for n, c in enumerate(chunks) if c.header.timestamp >= timestamp), end)
