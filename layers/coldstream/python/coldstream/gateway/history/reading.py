"""One reading of the archive: planned by `read.scan`, fetched ahead in threads, given chunk by chunk.

    plan (table, a thread)  ->  waiting slices  ->  fetches under way (bucket, threads)  ->  the current slice's chunks

Nothing drives this but whoever takes chunks: each step from one slice to the next starts the fetches for which the
budget has room. So a client that stops taking stops the requests once that room is filled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from types import TracebackType
from typing import Self, TypeVar

from coldstream.errors import BadSequenceError, ColdstreamError, CorruptionError, GapError, ObjectNotFoundError
from coldstream.format.chunk import Chunk
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.budget import ReadingBudget
from coldstream.gateway.history.calls import CallThreads
from coldstream.gateway.history.failures import count_failure
from coldstream.manifest.entry import Encoding, Gap
from coldstream.manifest.stream import StreamId
from coldstream.read.http import ClosedError
from coldstream.read.presigned import PresignedReads
from coldstream.read.scan import ScanSlice, iter_slice, plan_scan
from coldstream.store.ports import ManifestReads
from coldstream.units import KIB, MIB, Offset

T = TypeVar("T")

EAGER_CHUNKS = 128
"""Chunks of a slice that are verified in its thread. If there are more they are small, and verified as they are taken:
as values they would take many times the slice's memory, and a thread that runs Python for long holds up the loop."""

MOST_SLICE_BYTES = 8 * MIB
"""A GET takes as much processor time as some of the MiB that it brings: of 4 MiB each, a GiB takes a third more."""

LEAST_SLICE_BYTES = 256 * KIB
MOST_FETCHES = 8
"""GETs of one reading that are under way at a time."""

AHEAD_BYTES = 64 * MIB
"""What one reading holds at most, however much the budget has."""

PLANNED = 32
"""Slices that are planned at a time."""

PAGE_ENTRIES = 16
"""Fragments of one Query: a thousand readings have a page each in memory."""


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """What readings share: the table, how the bucket is reached by one of them, threads for each, and the memory."""

    table: ManifestReads
    objects: Callable[[], PresignedReads]
    lookups: CallThreads
    fetches: CallThreads
    budget: ReadingBudget
    figures: GatewayFigures


@dataclass(slots=True)
class _Fetch:
    """A slice under way, or there."""

    part: ScanSlice
    size: int
    task: asyncio.Task[Iterator[Chunk]]


class PlannedReading:
    """Implement `ChunkReading` for `stream`, from `start` up to `end`. `ended` is called once, when it is closed."""

    def __init__(
        self,
        access: ReadingParts,
        stream: StreamId,
        start: Offset,
        end: Offset | None,
        ended: Callable[[PlannedReading], None],
    ) -> None:
        self._access = access
        self._stream = stream
        self._at = start
        self._is_attached = False  # a chunk was given: the next one has to begin at `_at`
        self._end = end
        self._ended = ended
        self._objects = access.objects()
        self._share = access.budget.join(self._give_up)
        self._plan: Iterator[ScanSlice | Gap] | None = None
        self._planning: asyncio.Task[list[ScanSlice | Gap]] | None = None
        self._is_planned = False
        self._waiting: deque[ScanSlice | Gap] = deque()
        self._fetches: deque[_Fetch] = deque()
        self._window = 1  # grows with each slice that is taken: who reads on gets more at a time
        self._current: _Fetch | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._retried_at: Offset | None = None
        self._failure: ColdstreamError | None = None
        self._is_awaited = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Begin to plan; the first fetch starts when somebody waits for it."""
        self._ask_plan()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Chunk:
        """Wait for the next chunk."""
        while (chunk := self.take()) is None:
            if not await self._turn():
                raise StopAsyncIteration
        return chunk

    def take(self) -> Chunk | None:
        """Return the next chunk if it is there."""
        try:
            chunk = next(self._chunks, None)
            if chunk is None and self._turn_at_once():
                chunk = next(self._chunks, None)
        except CorruptionError as err:
            self._try_again_or_fail(err)
            return None
        if chunk is None:
            return None
        header = chunk.header
        if self._is_attached and Offset(header.chunk_id) != self._at:
            source = "" if self._current is None else self._current.part.key
            self._fail(BadSequenceError(source, chunk.position, "chunk id", expected=self._at, found=header.chunk_id))
            return None
        self._is_attached = True
        self._at = header.next_offset
        # With each: a slice of small chunks may be taken from for long.
        self._access.budget.touch(self._share)
        return chunk

    def close(self) -> None:
        """End what is under way: requests, the plan, and whoever waits."""
        if self._is_closed:
            return
        self._is_closed = True
        # The connections first: the threads of calls that hang are free again then.
        self._objects.close()
        for task in (self._planning, *(fetch.task for fetch in self._fetches)):
            if task is not None:
                task.cancel()
        self._chunks = iter(())
        self._fetches.clear()
        self._waiting.clear()
        self._current = None
        self._access.budget.leave(self._share)
        self._ended(self)

    def _turn_at_once(self) -> bool:
        """Turn to the next slice if it is fetched."""
        if not self._fetches or not _is_answered(self._fetches[0].task):
            return False
        self._turn_to_next()
        return True

    async def _turn(self) -> bool:
        """Wait until there is something to take; return False at the end. Raises what ends the reading."""
        if self._failure is not None:
            raise self._failure
        self._check_open()
        self._release()
        self._access.budget.touch(self._share)
        self._is_awaited = True
        try:
            if not self._fetches and not await self._begin_next():
                return False
            await asyncio.shield(self._fetches[0].task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._check_open()  # `close` cancelled what is waited for here
            raise
        except (CorruptionError, ObjectNotFoundError) as err:
            self._try_again_or_fail(err)
            return True
        except ColdstreamError as err:
            self._fail(err)
            return True
        finally:
            self._is_awaited = False
        return True

    def _turn_to_next(self) -> None:
        """Make the slice that is fetched the current one, and start what may be fetched instead."""
        self._release()
        self._current = self._fetches.popleft()
        self._chunks = self._current.task.result()
        self._window = min(2 * self._window, MOST_FETCHES)
        self._fetch_ahead()

    def _try_again_or_fail(self, err: ColdstreamError) -> None:
        """Plan and fetch again from the next offset, once for each: only what fails twice is so in the archive.

        Bytes may be damaged on their way here, and a compaction replaces objects that are in the plan.
        """
        if self._retried_at == self._at:
            self._fail(err)
        else:
            self._retried_at = self._at
            self._start_over()

    def _fail(self, err: ColdstreamError) -> None:
        """End the reading with an error, which whoever waits for a chunk gets."""
        count_failure(self._access.figures, err)
        self._start_over()
        self._failure = err

    async def _begin_next(self) -> bool:
        """Start the fetch that comes next, whatever it waits for; return False at the end of the plan."""
        while not self._waiting:
            if self._is_planned:
                return False
            self._ask_plan()
            assert self._planning is not None
            await asyncio.shield(self._planning)
            self._take_plan()
        found = self._waiting[0]
        if isinstance(found, Gap):
            raise GapError(str(self._stream), max(found.first_offset, self._at), found.next_offset, found.reason)
        await self._access.budget.wait(self._share, _size_of(found))
        self._start(found)
        self._fetch_ahead()
        return True

    def _fetch_ahead(self) -> None:
        """Start fetches for as long as there is room, and ask for more of the plan in time."""
        while self._fetches_under_way() < (1 if self._access.fetches.is_crowded else self._window):
            if not self._waiting and self._planning is not None and _is_answered(self._planning):
                self._take_plan()
            found = self._waiting[0] if self._waiting else None
            if not isinstance(found, ScanSlice):
                break
            size = _size_of(found)
            if self._share.held_bytes + size > AHEAD_BYTES or not self._access.budget.take(self._share, size):
                break
            self._start(found)
        if len(self._waiting) < PLANNED // 4:
            self._ask_plan()

    def _fetches_under_way(self) -> int:
        return sum(1 for fetch in self._fetches if not fetch.task.done())

    def _start(self, part: ScanSlice) -> None:
        """Fetch the first of the waiting slices, for which the share has the memory."""
        self._waiting.popleft()
        task = asyncio.ensure_future(self._fetch(part))
        task.add_done_callback(_look_at)
        self._fetches.append(_Fetch(part, _size_of(part), task))

    async def _fetch(self, part: ScanSlice) -> Iterator[Chunk]:
        return await self._access.fetches(_fetch_slice, self._objects, part)

    def _release(self) -> None:
        """Give back the current slice."""
        self._chunks = iter(())
        if self._current is not None:
            self._access.budget.give(self._share, self._current.size)
            self._current = None

    def _give_up(self, keeps_current: bool) -> None:  # noqa: FBT001  the budget's
        """Free what was read ahead and is not under way, the last first; and the current slice if nobody takes from it.

        What was freed is fetched again when its turn comes.
        """
        kept = 1 if self._is_awaited or (keeps_current and self._current is None) else 0
        while len(self._fetches) > kept and self._fetches[-1].task.done():
            self._drop(self._fetches.pop())
        if keeps_current:
            return
        if self._current is not None and not self._fetches:
            part = self._current.part
            if self._at < part.end:
                self._waiting.appendleft(replace(part, start=max(part.start, self._at)))
            self._release()
        self._window = 1

    def _drop(self, fetch: _Fetch) -> None:
        self._waiting.appendleft(fetch.part)
        self._access.budget.give(self._share, fetch.size)

    def _ask_plan(self) -> None:
        if self._planning is None and not self._is_planned and not self._is_closed:
            self._planning = asyncio.ensure_future(self._more_of_plan())
            self._planning.add_done_callback(_look_at)

    async def _more_of_plan(self) -> list[ScanSlice | Gap]:
        if self._plan is None:
            fair = min(self._access.budget.fair_bytes, AHEAD_BYTES)
            self._plan = plan_scan(
                self._access.table,
                self._stream,
                self._at,
                self._end,
                exactly=True,
                slice_bytes=max(LEAST_SLICE_BYTES, min(fair // MOST_FETCHES, MOST_SLICE_BYTES)),
                page_entries=PAGE_ENTRIES,
            )
        plan = self._plan
        return await self._access.lookups(lambda: list(islice(plan, PLANNED)))

    def _take_plan(self) -> None:
        """Take over the part of the plan that was asked for, if it is there. Raises what planning does."""
        planning = self._planning
        if planning is None or not planning.done():
            return
        self._planning = None
        try:
            found = planning.result()
        except BaseException:
            # A generator that raised has ended. The next question begins where the chunks that were taken end.
            self._plan = None
            raise
        self._is_planned = len(found) < PLANNED
        self._waiting.extend(found)

    def _start_over(self) -> None:
        """Drop everything that is there, planned or under way: the next plan begins at the next offset."""
        self._release()
        for fetch in self._fetches:
            fetch.task.cancel()
            self._access.budget.give(self._share, fetch.size)
        self._fetches.clear()
        self._waiting.clear()
        if self._planning is not None:
            self._planning.cancel()
        self._plan, self._planning, self._is_planned = None, None, False

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError


def _fetch_slice(objects: PresignedReads, part: ScanSlice) -> Iterator[Chunk]:
    """Read a slice and return its chunks: if they are few, all verified, else the first of them."""
    chunks = iter_slice(objects, part)
    first = list(islice(chunks, EAGER_CHUNKS))
    return iter(first) if len(first) < EAGER_CHUNKS else chain(first, chunks)


def _size_of(part: ScanSlice) -> int:
    """Return the memory that reading a slice takes."""
    return part.data_bytes + (0 if part.encoding is Encoding.IDENTITY else len(part.byte_range))


def _is_answered(task: asyncio.Task[T]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _look_at(task: asyncio.Task[T]) -> None:
    """Take note of an error that nobody may come for: the reading was closed, or ended before."""
    if not task.cancelled():
        task.exception()
