"""`WalWriter`: group commit. All streams of a process share its write-ahead log, and each object's PUT.

What is queued becomes an object when it is large or old enough, or when nothing is in flight (options.WalOptions).
Several objects may be in flight; their chunks are acknowledged in the order of `submit`, each once its object and all
before it are durable. A PUT that meets an object compares nonces: its own is an answer that was lost; any other is a
seal, and the WAL ends there. A PUT that keeps failing leaves a hole. Then the writer seals its own WAL, which decides
what counts, also of PUTs that are still on their way: all below the seal, nothing from it on.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from coldstream.errors import (
    ColdstreamError,
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    WalEndedError,
)
from coldstream.manifest.appender import WalPlace, check_writer
from coldstream.retry import Backoff, retrying
from coldstream.store.wal_object import (
    FIXED_BYTES,
    NONCE_BYTES,
    WalChunk,
    entry_bytes,
    kind_and_nonce,
    wal_object,
)
from coldstream.streams.wal.counters import WalCounters
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.store import WalStore
from coldstream.streams.wal.trimming import WalTrimming
from coldstream.units import ByteRange

Result = TypeVar("Result")

_FIRST_DELAY_S = 0.05
_MAX_CHUNKS = 65_536


class _Fate(Enum):
    """What became of a PUT."""

    OWN = "the object is there"
    ANOTHERS = "another object is there"
    UNKNOWN = "it may or may not be there"


@dataclass(slots=True)
class _Submission:
    """A chunk that waits for its acknowledgement, since `at`, a time of the loop's clock."""

    chunk: WalChunk
    acknowledgement: asyncio.Future[int]
    at: float


@dataclass(slots=True)
class _Flight:
    """An object on its way, or durable behind one that is."""

    submissions: list[_Submission]
    size_bytes: int
    nonce: bytes
    fate: _Fate | None = None
    task: asyncio.Task[None] | None = None


class WalWriter:
    """The writer of one WAL, for one event loop. `begin` makes one. The store's calls run in an executor's threads.

    `on_ended` is called once, in the loop, when the WAL has ended or is abandoned: after the last acknowledgement, and
    before the first failure, so that the owner can have the next WAL at hand.
    """

    def __init__(
        self, store: WalStore, place: WalPlace, options: WalOptions, executor: Executor, counters: WalCounters
    ) -> None:
        self.place = place
        self.options = options
        self.counters = counters
        self.on_ended: Callable[[], None] | None = None
        self.ended: int | None = None
        self.abandoned = False
        self._store = store
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Submission] = deque()
        self._queued_bytes = 0
        self._flights: dict[int, _Flight] = {}
        # The next sequence to send, and the first that is not acknowledged; 0 was created by `begin`.
        self._next = 1
        self._first = 1
        # Nothing is sent any more: a PUT met another's object, or failed for good.
        self._is_over = False
        self._reason: Exception | None = None
        self._sealing: asyncio.Task[None] | None = None
        self._pump_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._trimming = WalTrimming(store, place, executor, self.counters)

    @classmethod
    async def begin(
        cls,
        store: WalStore,
        writer_name: str,
        options: WalOptions,
        executor: Executor,
        *,
        counters: WalCounters | None = None,
    ) -> WalWriter:
        """Begin the next WAL of a writer: create its first object, at the epoch after the greatest.

        A name is used by one client, and never again: after a clean close nothing of a WAL is left, the next one would
        have its epoch, and what comes late for the old one would count in the new. `counters` go on from an earlier WAL
        of the client. Cost: one LIST, one PUT. Raises UnavailableError, OutcomeUnknownError and InvalidNameError.
        """
        loop = asyncio.get_running_loop()
        place = await loop.run_in_executor(executor, _reserve, store, writer_name, options)
        writer = cls(store, place, options, executor, WalCounters() if counters is None else counters)
        writer.counters.wals += 1
        return writer

    @property
    def queued_bytes(self) -> int:
        """Bytes of the chunks that are not in an object yet."""
        return self._queued_bytes

    @property
    def in_flight(self) -> int:
        """Objects that are sent and not acknowledged."""
        return len(self._flights)

    @property
    def untrimmed_bytes(self) -> int:
        """Bytes of the acknowledged objects from the first on that holds a chunk which is not flushed."""
        return self._trimming.unflushed_bytes

    @property
    def oldest_sequence(self) -> int:
        """The first acknowledged object that holds a chunk which is not flushed; the next one if there is none."""
        return self._trimming.oldest

    def submit(self, chunk: WalChunk) -> asyncio.Future[int]:
        """Queue a chunk. The future gives the sequence of its object, once that and all before it are durable.

        Futures are resolved in the order of the calls. They fail with WalEndedError if the WAL ends before the chunk's
        object: it is void, and may be submitted to another WAL. They fail with OutcomeUnknownError if the writer had
        to abandon the WAL: whoever seals it learns what became of the chunk.
        """
        acknowledgement: asyncio.Future[int] = self._loop.create_future()
        if self.ended is not None or self.abandoned:
            acknowledgement.set_exception(self._failure())
            return acknowledgement
        self._queue.append(_Submission(chunk, acknowledgement, self._loop.time()))
        self._queued_bytes += _weight(chunk)
        self._idle.clear()
        if self._pump_handle is None:
            # Not at once: what else is submitted in this turn of the loop goes into the same object.
            self._pump_handle = self._loop.call_soon(self._pump)
        return acknowledgement

    def flushed(self, sequence: int, chunks: int = 1) -> None:
        """Take note that chunks of an acknowledged object are in the manifest, or that their stream is gone.

        Objects all of whose chunks are, are deleted in the background, in order of sequence, but for the newest.
        """
        self._trimming.flushed(sequence, chunks)

    async def settle(self) -> None:
        """Wait until every chunk that was submitted before has its answer."""
        flights = list(self._flights.values())
        waiting = [*(flights[-1].submissions if flights else ()), *self._queue]
        if waiting:
            await asyncio.wait([waiting[-1].acknowledgement])

    async def close(self, *, delete_all: bool = True) -> None:
        """Wait until nothing is queued or in flight, then delete all objects, if none is needed any more.

        Some are if a chunk was not flushed, if the WAL has ended, or was abandoned: then all stay, as they do without
        `delete_all`, if a head may still name this WAL: then it must be there to be read. A failure to delete
        leaves them to the garbage collection, and raises nothing. Call `submit` no more.
        """
        await self._idle.wait()
        if self._sealing is not None:
            await asyncio.wait([self._sealing])
        await self._trimming.close(delete_all=delete_all and not self._is_over)

    def _pump(self) -> None:
        """Send what is to be sent now."""
        self._pump_handle = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # What is durable behind a hole counts as in flight, too: sealers rely on the bound (`window`).
        while self._queue and len(self._flights) < self.options.in_flight and not self._is_over:
            due_s = self._queue[0].at + self.options.interval_s - self._loop.time()
            is_due = self._queued_bytes >= self.options.max_bytes or due_s <= 0
            if not is_due and not (self.options.eager and not self._flights):
                self._timer = self._loop.call_later(due_s, self._pump)
                return
            self._send()

    def _send(self) -> None:
        submissions: list[_Submission] = []
        size = 0
        while self._queue and len(submissions) < _MAX_CHUNKS:
            weight = _weight(self._queue[0].chunk)
            if submissions and size + weight > self.options.max_bytes:
                break
            size += weight
            submissions.append(self._queue.popleft())
        self._queued_bytes -= size
        flight = _Flight(submissions, size, os.urandom(NONCE_BYTES))
        self._flights[self._next] = flight
        flight.task = self._loop.create_task(self._fly(self._next, flight))
        self._next += 1

    async def _fly(self, sequence: int, flight: _Flight) -> None:
        try:
            fate = await self._put(sequence, flight)
        except Exception as err:  # noqa: BLE001  whatever it is, callers wait for their futures
            self._reason, fate = err, _Fate.UNKNOWN
        if self._flights.get(sequence) is not flight:
            return  # a seal has decided meanwhile
        flight.fate = fate
        if fate is not _Fate.OWN:
            self._is_over = True
        if fate is _Fate.UNKNOWN:
            self._give_up()
        else:
            self._settle()

    async def _put(self, sequence: int, flight: _Flight) -> _Fate:
        """Create an object, and return what became of it; after the last attempt that may be unknown."""
        backoff = Backoff(_FIRST_DELAY_S, max(_FIRST_DELAY_S, self.options.max_delay_s))
        # The same bytes in each attempt: one that was given up may still arrive.
        # Made here, not in a thread: copying holds the interpreter's lock, and each change of threads may wait for it.
        body = wal_object(flight.nonce, [one.chunk for one in flight.submissions])
        for attempt in range(self.options.attempts):
            if attempt:
                self.counters.retries += 1
                await asyncio.sleep(min(backoff.next_delay_s(), self.options.max_delay_s))
            self.counters.puts += 1
            self.counters.put_bytes += len(body)
            try:
                is_own = await self._run(_create_own, self._store, self.place, sequence, body, flight.nonce)
            except (UnavailableError, OutcomeUnknownError, ObjectNotFoundError, CorruptionError) as err:
                # Corruption: the bytes did not arrive as they were sent, and the store refused them.
                self._reason = err
            else:
                self.counters.collisions += not is_own
                return _Fate.OWN if is_own else _Fate.ANOTHERS
        return _Fate.UNKNOWN

    def _settle(self) -> None:
        """Acknowledge what is durable up to the first object that is not, and end the WAL if that is another's."""
        while (flight := self._flights.get(self._first)) is not None and flight.fate is _Fate.OWN:
            self._acknowledge(flight)
        if flight is not None and flight.fate is _Fate.ANOTHERS:
            self._end(self._first)
        elif self._queue:
            self._pump()
        elif not self._flights:
            self._idle.set()

    def _acknowledge(self, flight: _Flight) -> None:
        del self._flights[self._first]
        # Before the futures: whoever waits for one may say that the chunk is flushed.
        self._trimming.add(len(flight.submissions), flight.size_bytes)
        now = self._loop.time()
        self.counters.objects += 1
        self.counters.chunks += len(flight.submissions)
        for one in flight.submissions:
            self.counters.ack.observe(now - one.at)
            if not one.acknowledgement.done():  # the caller may have cancelled it
                one.acknowledgement.set_result(self._first)
        self._first += 1

    def _give_up(self) -> None:
        """Have the WAL sealed, since a PUT's outcome is unknown: the seal decides it."""
        if self._sealing is None and self.ended is None:
            self._sealing = self._loop.create_task(self._seal())

    async def _seal(self) -> None:
        try:
            end = await self._run(seal, self._store, self.place)
        except Exception as err:  # noqa: BLE001  whatever it is, callers wait for their futures
            if self.ended is None:
                self._reason = err
                self.abandoned = True
                self.counters.abandoned += 1
                self._fail_all()
            return
        while self._first < end and self._first in self._flights:
            self._acknowledge(self._flights[self._first])
        self._end(end)

    def _end(self, sequence: int) -> None:
        if self.ended is None:
            self.ended = sequence
            self._fail_all()

    def _fail_all(self) -> None:
        """Fail all that is not acknowledged, in order."""
        if self.on_ended is not None:
            self.on_ended()
        flights = list(self._flights.values())
        waiting = [one for flight in flights for one in flight.submissions] + list(self._queue)
        self._flights.clear()
        self._queue.clear()
        self._queued_bytes = 0
        for flight in flights:
            if flight.task is not None and flight.fate is None:
                flight.task.cancel()
        for one in waiting:
            if not one.acknowledgement.done():
                one.acknowledgement.set_exception(self._failure())
        self._idle.set()

    def _failure(self) -> ColdstreamError:
        """Return the error of what was not acknowledged, a new one each time: tracebacks are added to it."""
        if self.ended is not None:
            return WalEndedError(str(self.place), self.ended)
        failure = OutcomeUnknownError(f"the write-ahead log {self.place} was abandoned: {self._reason}")
        failure.__cause__ = self._reason
        return failure

    async def _run(self, call: Callable[..., Result], *arguments: object) -> Result:
        return await self._loop.run_in_executor(self._executor, partial(call, *arguments))


def _weight(chunk: WalChunk) -> int:
    return entry_bytes(chunk.incarnation) + len(chunk.data)


def _create_own(store: WalStore, place: WalPlace, sequence: int, body: bytes, nonce: bytes) -> bool:
    """Create an object; return whether the one that is there now is this one. Another GET if one was there."""
    try:
        store.create(place, sequence, body)
    except ObjectExistsError:
        view = store.read(place, sequence, ByteRange(0, FIXED_BYTES))
        return kind_and_nonce(view, source=f"{place}/{sequence}")[1] == nonce
    return True


def _reserve(store: WalStore, writer: str, options: WalOptions) -> WalPlace:
    """Create the first object, of no chunks, of the next epoch that nobody else took."""
    nonce = os.urandom(NONCE_BYTES)
    body = wal_object(nonce, ())
    again = retrying(
        (UnavailableError, OutcomeUnknownError, ObjectNotFoundError),
        attempts=options.attempts,
        first_delay_s=_FIRST_DELAY_S,
        max_delay_s=max(_FIRST_DELAY_S, options.max_delay_s),
    )
    check_writer(writer)
    epoch = 1 + max(again(store.epochs, writer), default=0)
    while not again(_create_own, store, WalPlace(store.kind, writer, epoch), 0, body, nonce):
        epoch += 1
    return WalPlace(store.kind, writer, epoch)
