"""Ranges fetched ahead, in order, in bounded memory: pages from the resolver, and the bytes of their ranges.

The next page is asked for once the first range of this one was consumed, and has twice as many ranges. So a caller who
wants one message costs one small page, and one who reads on soon needs few pages, and waits for none. What lies past a
caller's appetite is neither asked for nor fetched before its turn comes.

No thread drives this. What to fetch next is decided when the caller takes a range, so a caller who stops taking stops
the fetching, and no state needs a lock.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial

from coldstream.flow.window import Window
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.appetite import Appetite
from coldstream.read.client import ResolverClient
from coldstream.read.fetch import RangeBatch, RangeFetcher
from coldstream.resolve.answer import Answer, Continue, Range, RangesQuery
from coldstream.units import Offset

FIRST_RANGES = 4
"""Ranges in the first page. Each costs a signature, and the sooner the page is there, the sooner bytes flow."""

EXPIRY_MARGIN_S = 30.0
"""Time that a URL must still be good for when its range is begun."""


@dataclass(frozen=True, slots=True)
class _Page:
    """An answer, and the `time.monotonic()` until which its URLs are good; None if the clocks differ too much."""

    answer: Answer
    good_until: float | None


class Prefetcher:
    """Gives one range after another from where `seek` last sent it, and then what follows the last one.

    Has at most `prefetch_bytes` of chunks in memory or under way, or one range if that is larger. `floor` is the first
    that the resolver told: everything below it was removed from the archive.
    """

    def __init__(
        self,
        client: ResolverClient,
        fetcher: RangeFetcher,
        executor: Executor,
        query: RangesQuery,
        *,
        prefetch_bytes: int,
        appetite: Appetite,
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._executor = executor
        self._query = query
        self._page: Future[_Page] | None = None  # asked for, and not turned to yet
        self._good_until: float | None = None
        self._page_ranges = FIRST_RANGES
        self._cursor: str | None = None
        self._ask_below = 0  # the next page is asked for when no more ranges than this are left of the current one
        self._waiting: deque[Range] = deque()
        self._known: tuple[Range, ...] = ()  # of this page and the one before, some of which may be under way
        self._fetches: Window[RangeBatch] = Window(executor, max_weight=prefetch_bytes)
        self._end: Gap | Offset | None = None
        self._appetite = appetite
        self._start = query.start.offset if isinstance(query.start, AtOffset) else None  # None until it is known
        self.stream: StreamId | None = None
        self.floor: Offset | None = None
        self.seek(query.start)

    def seek(self, start: OffsetSpec | Continue) -> None:
        """Drop everything, and go on from `start` in the incarnation that the resolver first answered with."""
        self._fetches.cancel()
        self._waiting.clear()
        self._cursor = None
        # It replaces the page that is under way, whose answer nobody looks at.
        self._ask(start)

    def take(self) -> RangeBatch | Gap | Offset:
        """Wait for the next range; after the last, return the gap or the tail. Raises what resolving or fetching do."""
        # A caller who comes back has consumed the range before, so this is when its memory counts as free.
        left = len(self._waiting) + len(self._fetches)
        if self._cursor is not None and (left == 0 or (left <= self._ask_below and not self._is_enough())):
            self._ask(Continue(self._cursor))
        self._fill()
        if len(self._fetches):
            return self._fetches.take()
        assert self._end is not None
        return self._end

    def archived_to(self, part: Range) -> Offset:
        """Return where the ranges that have to be restored end, from this one on, as far as they are known."""
        end = part.next_offset
        for other in self._known:
            if other.first_offset >= part.first_offset and other.first_offset <= end and other.must_be_restored:
                end = max(end, other.next_offset)
        return end

    def _fill(self) -> None:
        """Start fetches while there is room, and turn to the next page; wait for that if nothing else is under way."""
        while True:
            while self._waiting:
                part = self._waiting[0]
                if not self._fetches.has_room(part.data_bytes):
                    return
                if len(self._fetches) and self._start is not None and self._appetite.ends_before(part, self._start):
                    return
                self._waiting.popleft()
                # `partial` takes the expiry now. A lambda would read it in its thread, and get that of a later page.
                self._fetches.submit(partial(self._fetcher.fetch, part, self._good_until), part.data_bytes)
            if self._page is None:
                return
            # A page that failed raises only after every range before it was taken.
            if len(self._fetches) and (not self._page.done() or self._page.exception() is not None):
                return
            self._turn(self._page.result())

    def _is_enough(self) -> bool:
        """Tell whether the ranges of the pages so far are as much as the caller wants."""
        if not self._known or self._start is None:
            return False
        return self._appetite.ends_in(self._known[-1], self._start)

    def _turn(self, page: _Page) -> None:
        answer = page.answer
        if self._start is None and answer.ranges:
            self._start = answer.ranges[0].first_offset
        self.stream = answer.stream
        self.floor = answer.floor if self.floor is None else self.floor
        self._good_until = page.good_until
        self._known = (*self._known[-len(answer.ranges) :], *answer.ranges)
        self._waiting.extend(answer.ranges)
        self._end = answer.gap if answer.gap is not None else answer.tail
        self._page = None
        self._cursor = answer.cursor
        self._ask_below = len(answer.ranges) - 1

    def _ask(self, start: OffsetSpec | Continue) -> None:
        # Cleared first: while a page is under way, no second one is asked for.
        self._cursor = None
        # Stay with one incarnation: a stream declared again meanwhile has the same offsets and other messages.
        incarnation = self._query.incarnation if self.stream is None else self.stream.incarnation
        bounds = replace(self._query.bounds, max_ranges=min(self._page_ranges, self._query.bounds.max_ranges))
        self._page_ranges = 2 * bounds.max_ranges
        query = replace(self._query, start=start, incarnation=incarnation, bounds=bounds)
        self._page = self._executor.submit(self._resolve, query)

    def _resolve(self, query: RangesQuery) -> _Page:
        answer = self._client.ranges(query)
        if not answer.ranges:
            return _Page(answer, None)
        # The expiry is by the resolver's clock. A clock here that is far ahead would refuse every URL, so if none seems
        # to be good at all, S3 decides.
        left_s = answer.ranges[0].expires_at / 1000 - time.time() - EXPIRY_MARGIN_S
        return _Page(answer, time.monotonic() + left_s if left_s > 0 else None)
