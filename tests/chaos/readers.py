"""Consumers of a chaos run, and what each was given: every message from its start on, once, in order, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import Literal

from coldstream.consumer.consumer import Consumer
from coldstream.errors import UnavailableError
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.chaos.messages import STREAM, message, number_of

log = logging.getLogger(__name__)

STORE_EVERY = 40

Place = Literal["first", "next"] | float


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer begins, and how fast it reads at most.

    `place` is "first", "next", or how much of the stream so far to leave out, from 0 to 1. One with a name goes on
    behind the offset stored under it.
    """

    place: Place
    name: str | None = None
    per_s: int | None = None

    def spec(self, end: int) -> OffsetSpec:
        """Return the offset spec, in a stream that is about so long."""
        if isinstance(self.place, float):
            return AtOffset(Offset(int(self.place * end)))
        return FIRST if self.place == "first" else NEXT


@dataclass(slots=True)
class Reading:
    """What one consumer was given: `offsets[i]` is that of message number `first + i`.

    When it began, `committed` messages were confirmed, and any of `stored` may have been stored under its name.
    `problem` is the first thing that was not as it should be.
    """

    name: str
    spec: OffsetSpec
    committed: int
    stored: frozenset[int] = field(default=frozenset(), repr=False)
    first: int | None = None
    offsets: list[int] = field(default_factory=list, repr=False)
    problem: str | None = None

    @property
    def last(self) -> int:
        """The number of the last message; 0 before the first."""
        return 0 if self.first is None else self.first + len(self.offsets) - 1

    def take(self, seed: int, offset: int, raw: bytes) -> None:
        """Take the next message."""
        number = number_of(raw)
        if raw != message(seed, number):
            self._wrong(f"offset {offset} is not a message that was published: {raw[:40]!r}")
        if self.first is None:
            self.first = number
        elif number != self.last + 1:
            self._wrong(f"message {number} at offset {offset} came after message {self.last}")
        elif offset <= self.offsets[-1]:
            self._wrong(f"offset {offset} came after offset {self.offsets[-1]}")
        self.offsets.append(offset)

    def check(self, offset_of: dict[int, int]) -> str | None:
        """Return what is wrong, all being over; `offset_of` has every message's offset by its number."""
        if self.first is not None:
            for number, offset in enumerate(self.offsets, self.first):
                if offset_of.get(number) != offset:
                    self._wrong(f"message {number} came at offset {offset}, and is at {offset_of.get(number)}")
            if not self._began_well(offset_of):
                self._wrong(f"it began with message {self.first} at offset {self.offsets[0]}")
        return None if self.problem is None else f"{self}: {self.problem}"

    def _began_well(self, offset_of: dict[int, int]) -> bool:
        assert self.first is not None
        before = offset_of.get(self.first - 1, -1)
        if any(before <= offset < self.offsets[0] for offset in self.stored):
            return True
        match self.spec:
            case AtOffset(offset):
                return before < offset <= self.offsets[0]
            case _:
                return self.first == 1 if self.spec == FIRST else self.first > self.committed

    def _wrong(self, problem: str) -> None:
        self.problem = self.problem or problem


class Readers:
    """All the consumers of a run. Used within one event loop.

    `stored` are the offsets that may be stored at the broker, by the consumer's name: one that is killed forgets some.
    """

    def __init__(self, seed: int, *, resolver: str, broker: str) -> None:
        self._seed = seed
        self._resolver = resolver
        self._broker = broker
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._hurry = False
        self.readings: dict[int, Reading] = {}
        self.stored: dict[str, set[int]] = {}

    @property
    def living(self) -> list[Reading]:
        """Those that were not ended."""
        return [self.readings[key] for key in self._tasks]

    def begin(self, key: int, start: Start, committed: int) -> None:
        """Start a consumer."""
        stored = frozenset(self.stored.get(start.name or "", ()))
        name = f"consumer {key}" if start.name is None else f"consumer {key}, named {start.name}"
        reading = self.readings[key] = Reading(name, start.spec(committed), committed, stored)
        self._tasks[key] = asyncio.create_task(self._read(reading, start))

    async def end(self, key: int) -> None:
        """End a consumer wherever it is."""
        task = self._tasks.pop(key)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def end_all(self) -> None:
        """End all consumers."""
        for key in list(self._tasks):
            await self.end(key)

    def hurry(self) -> None:
        """Let the slow ones read as fast as they can."""
        self._hurry = True

    async def _read(self, reading: Reading, start: Start) -> None:
        consumer = Consumer(
            STREAM,
            reading.spec,
            resolver=self._resolver,
            broker=self._broker,
            name=start.name,
            connections=2,
            prefetch_bytes=1 << 20,
            range_bytes=1 << 18,
        )
        try:
            async with consumer:
                async for found in consumer.messages():
                    reading.take(self._seed, found.offset, found.raw)
                    if start.per_s is not None and not self._hurry:
                        await asyncio.sleep(1 / start.per_s)
                    if start.name is not None and reading.last % STORE_EVERY == 0:
                        await self._store(consumer, start.name, found.offset)
        except Exception as err:
            reading.problem = reading.problem or f"ended with {type(err).__name__}: {err}"
            log.exception("%s", reading)

    async def _store(self, consumer: Consumer, name: str, offset: Offset) -> None:
        self.stored.setdefault(name, set()).add(offset)
        with contextlib.suppress(UnavailableError):
            await consumer.store_offset(offset)
