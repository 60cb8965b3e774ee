"""Ranges fetched ahead, in order, in bounded memory: pages from the resolver, and the bytes of their ranges.

The next page is asked for once half of this one was consumed, and has twice as many ranges: who wants one message costs
one small page, who reads on soon does with few of them.

Nothing here has a thread of its own: what is asked for next is decided when the consumer takes the range before.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.client import ResolverClient
from coldstream.read.fetch import RangeBatch, RangeFetcher
from coldstream.resolve.answer import Answer, Continue, Range, RangesQuery
from coldstream.units import Offset

FIRST_RANGES = 4
"""Of the first page: each costs a signature, and the sooner they are there, the sooner bytes flow."""

EXPIRY_MARGIN_S = 30.0
"""A URL that is good for less than that is not begun with."""


@dataclass(frozen=True, slots=True)
class _Page:
    """An answer, and until which `time.monotonic()` its URLs are good; None where the clocks disagree too much."""

    answer: Answer
    good_until: float | None


class Prefetcher:
    """Gives range after range from where it was last sent by `seek`, and at the end what follows them.

    Holds, or has under way, at most `prefetch_bytes` of chunks, or one range where that is larger.
    """

    def __init__(
        self, client: ResolverClient, fetcher: RangeFetcher, query: RangesQuery, *, prefetch_bytes: int
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._query = query
        self._prefetch_bytes = prefetch_bytes
        self._page: Future[_Page] | None = None
        self._good_until: float | None = None
        self._page_ranges = FIRST_RANGES
        self._cursor: str | None = None
        self._unread = 0
        self._waiting: deque[Range] = deque()
        self._under_way: deque[tuple[int, Future[RangeBatch]]] = deque()
        self._bytes_ahead = 0
        self._end: Gap | Offset | None = None
        self.stream: StreamId | None = None
        self.seek(query.start)

    def seek(self, start: OffsetSpec | Continue) -> None:
        """Drop everything, and go on from `start`, of the incarnation that was first answered with."""
        for _, future in self._under_way:
            future.cancel()
        self._under_way.clear()
        self._waiting.clear()
        self._bytes_ahead = 0
        self._cursor = None
        self._ask(start)

    def take(self) -> RangeBatch | Gap | Offset:
        """Wait for the next range; after the last, return the gap or the tail. Raises what resolving or fetching do."""
        # Who comes back has consumed what was taken before.
        if self._cursor is not None and len(self._waiting) + len(self._under_way) <= self._unread:
            self._ask(Continue(self._cursor))
        self._fill()
        if self._under_way:
            size, future = self._under_way.popleft()
            self._bytes_ahead -= size
            return future.result()
        assert self._end is not None
        return self._end

    def _fill(self) -> None:
        """Put ranges under way while there is room, and turn to the next page; wait for it if there is nothing else."""
        while True:
            while self._waiting:
                size = self._waiting[0].data_bytes
                if self._under_way and self._bytes_ahead + size > self._prefetch_bytes:
                    return
                part = self._waiting.popleft()
                self._under_way.append((size, self._fetcher.fetch(part, self._good_until)))
                self._bytes_ahead += size
            if self._page is None:
                return
            if self._under_way and (not self._page.done() or self._page.exception() is not None):
                return
            self._turn(self._page.result())

    def _turn(self, page: _Page) -> None:
        answer = page.answer
        self.stream = answer.stream
        self._good_until = page.good_until
        self._waiting.extend(answer.ranges)
        self._end = answer.gap if answer.gap is not None else answer.tail
        self._page = None
        self._cursor = answer.cursor
        self._unread = len(answer.ranges) // 2

    def _ask(self, start: OffsetSpec | Continue) -> None:
        self._cursor = None
        life = self._query.incarnation if self.stream is None else self.stream.incarnation
        bounds = replace(self._query.bounds, max_ranges=min(self._page_ranges, self._query.bounds.max_ranges))
        self._page_ranges = 2 * bounds.max_ranges
        query = replace(self._query, start=start, incarnation=life, bounds=bounds)
        self._page = self._fetcher.submit(lambda: self._resolve(query))

    def _resolve(self, query: RangesQuery) -> _Page:
        answer = self._client.ranges(query)
        if not answer.ranges:
            return _Page(answer, None)
        left_s = answer.ranges[0].expires_at / 1000 - time.time() - EXPIRY_MARGIN_S
        return _Page(answer, time.monotonic() + left_s if left_s > 0 else None)
