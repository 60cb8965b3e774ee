"""What a name means and where its archive begins and ends, asked once at a time and kept for a moment."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from coldstream.gateway.history.port import StreamBounds
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import newest

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


NAMES_KEPT_S = 10.0
"""How long it may go unnoticed that a name has a newer incarnation."""


@dataclass(frozen=True, slots=True)
class KnownStream:
    """A stream that is archived and not deleted, with its bounds, None while nothing of it is archived.

    `named_at` is when the name was looked up, by the caller's clock.
    """

    stream: StreamId
    bounds: StreamBounds | None
    named_at: float


def find_stream(
    table: ManifestReads, vhost: str, name: str, known: KnownStream | None, now: float
) -> KnownStream | None:
    """Return the newest incarnation of a name with its bounds; the `known` one if that was looked up lately.

    Cost: a GetItem; to look up the name, that of `newest` more.
    """
    if known is not None and now - known.named_at < NAMES_KEPT_S:
        head = table.head(known.stream.incarnation)
        if head is not None and not head.is_deleted:
            return KnownStream(known.stream, _bounds_of(head), known.named_at)
    stream = newest(table, vhost, name)
    head = None if stream is None else table.head(stream.incarnation)
    if head is None or head.is_deleted:
        return None
    return KnownStream(head.stream, _bounds_of(head), now)


def _bounds_of(head: Head) -> StreamBounds | None:
    incarnation, appender = head.stream.incarnation, head.appender
    if head.next_offset is not None:
        # An archive that lost all of its entries has no first offset any more.
        first = head.next_offset if head.first_offset is None else head.first_offset
        return StreamBounds(incarnation, first, head.next_offset, appender is not None)
    return None if appender is None else StreamBounds(incarnation, appender.first, appender.first, is_direct=True)


class KeptAnswers(Generic[Key, Value]):
    """Answers to questions that cost requests, each kept for `kept_s`, at most `most` of them.

    However many ask at a time, one question is under way. Whoever stops waiting does not end it for the others. Errors
    are not kept.
    """

    def __init__(self, ask: Callable[[Key], Awaitable[Value]], *, kept_s: float, most: int = 10_000) -> None:
        self._ask = ask
        self._kept_s = kept_s
        self._most = most
        self._kept: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asked: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, *, fresh: bool = False) -> Value:
        """Return an answer that is not older than `kept_s`; with `fresh`, of a question that begins now or later.

        Raises what the question raises.
        """
        kept = self._kept.get(key)
        if kept is not None and not fresh and asyncio.get_running_loop().time() < kept[0]:
            return kept[1]
        task = self._asked.get(key)
        if task is not None and fresh:
            # It may have been answered before the caller's moment, so the answer after it is the one.
            await asyncio.wait([task])
            task = self._asked.get(key)
        if task is None:
            task = asyncio.ensure_future(self._fetch(key))
            self._asked[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(task)

    def peek(self, key: Key) -> Value | None:
        """Return the last answer, however old, if it is still there."""
        kept = self._kept.get(key)
        return None if kept is None else kept[1]

    def close(self) -> None:
        """Give up the questions that are under way."""
        for task in list(self._asked.values()):
            task.cancel()

    async def _fetch(self, key: Key) -> Value:
        loop = asyncio.get_running_loop()
        # From before the question: the answer may be as old as that.
        until = loop.time() + self._kept_s
        value = await self._ask(key)
        self._kept[key] = until, value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return value

    def _settle(self, key: Key, task: asyncio.Task[Value]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
        if not task.cancelled():
            task.exception()  # if nobody waits any more, the error is of no interest
