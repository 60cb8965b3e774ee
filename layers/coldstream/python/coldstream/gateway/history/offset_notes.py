"""Offsets that clients stored, written a little later: the last of each reference, every few seconds at most."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from coldstream.errors import ColdstreamError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.calls import CallThreads
from coldstream.gateway.history.failures import count_failure
from coldstream.gateway.history.stored_offsets import StoredOffset, write_offset
from coldstream.manifest.stream import Incarnation
from coldstream.retry import Backoff
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset, TimestampMs, now_ms

log = logging.getLogger(__name__)

WRITE_EVERY_S = 5.0
"""The least time between two writes of one reference."""

MOST_NOTES = 20_000
"""References that are kept, pending ones and those whose revision is known; 300 bytes each."""

WARN_EVERY_S = 60.0
AT_A_TIME = 8
FLUSH_S = 10.0

NoteKey = tuple[str, str, str]
"""Vhost, stream and reference."""


@dataclass(slots=True)
class _PendingNote:
    offset: Offset
    incarnation: Incarnation | None
    at: TimestampMs
    due: float


class OffsetNotes:
    """Keeps what is noted, and writes it, on one event loop.

    `incarnation` tells the incarnation whose offsets a stream's are; None if it is not archived, and then there is
    nothing to write them beside. While nothing is noted, nothing runs.
    """

    def __init__(
        self,
        table: ManifestTable,
        calls: CallThreads,
        incarnation: Callable[[str, str], Awaitable[Incarnation | None]],
        figures: GatewayFigures,
        *,
        write_every_s: float = WRITE_EVERY_S,
        now: Callable[[], TimestampMs] = now_ms,
    ) -> None:
        self._table = table
        self._calls = calls
        self._incarnation = incarnation
        self._figures = figures
        self._write_every_s = write_every_s
        self._now = now
        self._pending: OrderedDict[NoteKey, _PendingNote] = OrderedDict()
        self._writing: dict[NoteKey, _PendingNote] = {}
        self._written: OrderedDict[NoteKey, tuple[float, StoredOffset]] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._flushes = asyncio.Event()
        self._silent_until = 0.0

    def note(self, key: NoteKey, offset: Offset, incarnation: Incarnation | None = None) -> None:
        """Note an offset: it takes the place of the one before, whichever is greater.

        With the `incarnation` that it is an offset of, it is written beside that, also if there is a newer one by then.
        """
        before, written = self._pending.get(key), self._written.get(key)
        # A clock that is set back must not make what was stored later seem earlier.
        at = self._now() if written is None else TimestampMs(max(self._now(), written[1].at + 1))
        if before is not None:
            before.offset, before.incarnation, before.at = offset, incarnation, TimestampMs(max(at, before.at))
            return
        now = asyncio.get_running_loop().time()
        # A reference that was not written lately waits, too: a client that reads fast stores many in the same second.
        due = now + self._write_every_s / 5 if written is None else max(now, written[0] + self._write_every_s)
        self._pending[key] = _PendingNote(offset, incarnation, at, due)
        while len(self._pending) > MOST_NOTES:
            dropped, _ = self._pending.popitem(last=False)
            self._warn(f"offset of {dropped[2]!r} for stream {dropped[1]!r} is not stored: too many wait")
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def noted(self, key: NoteKey, incarnation: Incarnation | None = None) -> Offset | None:
        """Return what is noted and not written yet, None if nothing is, or if it is of another `incarnation`."""
        note = self._pending.get(key) or self._writing.get(key)
        if note is None or (incarnation is not None and note.incarnation not in {None, incarnation}):
            return None
        return note.offset

    async def flush(self) -> None:
        """Write everything that is noted, as far as that is possible in ten seconds."""
        self._flushes.set()
        try:
            task = self._task
            if task is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_S):
                        await asyncio.shield(task)
        finally:
            self._flushes.clear()

    def close(self) -> None:
        """Write nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        """Write what is due, until nothing is noted."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(0.5, 10)
        try:
            while self._pending:
                now = math.inf if self._flushes.is_set() else loop.time()
                due = [key for key, note in self._pending.items() if note.due <= now]
                if not due:
                    # By time alone: to look through all of them for each that comes takes the loop's time from others.
                    await self._pause(self._write_every_s / 20)
                    continue
                for first in range(0, len(due), AT_A_TIME):
                    some = due[first : first + AT_A_TIME]
                    if not all(await asyncio.gather(*(self._write(key) for key in some))):
                        await asyncio.sleep(backoff.next_delay_s())
                        break
                    backoff.reset()
        finally:
            self._task = None

    async def _pause(self, wait_s: float) -> None:
        """Wait for some time, or until a flush begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._flushes.wait()

    async def _write(self, key: NoteKey) -> bool:
        """Write one note; put it back, unless there is a later one, and return False if that fails."""
        note = self._pending.pop(key, None)
        if note is None:  # dropped meanwhile
            return True
        self._writing[key] = note
        try:
            vhost, stream, reference = key
            newest = await self._incarnation(vhost, stream)
            if newest is not None:
                # What was stored of a stream that was declared anew since says nothing of the new one.
                incarnation = note.incarnation or newest
                revision = self._revision(key, incarnation)
                new = StoredOffset(incarnation, reference, note.offset, note.at, revision)
                there = await self._calls(write_offset, self._table, new)
                self._written[key] = asyncio.get_running_loop().time(), there
                self._written.move_to_end(key)
                while len(self._written) > MOST_NOTES:
                    self._written.popitem(last=False)
        except ColdstreamError as err:
            count_failure(self._figures, err)
            self._warn(f"offset of {reference!r} for stream {stream!r} in vhost {vhost!r} is not stored: {err}")
            if err.retryable:
                self._pending.setdefault(key, note)
            return not err.retryable
        finally:
            del self._writing[key]
        return True

    def _warn(self, what: str) -> None:
        """Log a failure, once a minute: without a permission, say, each of thousands would fail every five seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until:
            self._silent_until = now + WARN_EVERY_S
            log.warning("%s", what)

    def _revision(self, key: NoteKey, incarnation: Incarnation) -> int:
        written = self._written.get(key)
        return written[1].revision if written is not None and written[1].incarnation == incarnation else 0
