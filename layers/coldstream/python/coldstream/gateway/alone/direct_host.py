"""`DirectHost`: the direct streams of this process, to append to and to read.

A stream is opened when a publisher is declared, and closed when none has been there for a while. To open it is to take
it over from whoever had it, which its epoch makes safe. The process that loses it is told by its next append; it ends
its publishers with a MetadataUpdate, as a broker does when a leader moves, and leaves the stream alone for a pause. A
stream that is only read is looked at by snapshots, of which all subscriptions share the newest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.gateway.alone.open_direct import Names, OpenDirect
from coldstream.gateway.alone.snapshots import StreamSnapshots
from coldstream.manifest.stream import Incarnation
from coldstream.streams import DirectStream, StreamClient
from coldstream.units import Offset

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.25
_LOOK_S = 1.0
"""How old a snapshot may be that tells where a stream begins and ends."""


class DirectHost:
    """The streams. For one event loop."""

    def __init__(self, client: StreamClient, *, poll_s: float, close_after_s: float, takeover_pause_s: float) -> None:
        self.client = client
        self._poll_s = poll_s
        self._close_after_s = close_after_s
        self._takeover_pause_s = takeover_pause_s
        self._open: dict[Names, OpenDirect] = {}
        self._opening: dict[Names, asyncio.Task[OpenDirect]] = {}
        self._closing: dict[Names, asyncio.Task[None]] = {}
        self._snapshots = StreamSnapshots(client)
        self._elsewhere_until: dict[Names, float] = {}

    # To append.

    async def acquire(self, vhost: str, name: str) -> OpenDirect:
        """Open a stream to append to it, or take the one that is open; `release` gives it back.

        Raises StreamNotFoundError; UnavailableError while it is left to another process, or cannot be opened.
        """
        names = (vhost, name)
        while True:
            found = self._open.get(names)
            if found is None:
                found = await self._shared_opening(names)
            elif not found.handle.is_sealed:
                await self._check_still_ours(found)
            if not found.is_lost:
                found.publishers += 1
                return found

    async def _check_still_ours(self, opened: OpenDirect) -> None:
        """See whether others have opened a stream that has been open here: else its publishers' last ids are old."""
        try:
            await opened.handle.check_owner()
        except StreamClosedError as err:
            self.lose(opened, err)

    def release(self, opened: OpenDirect) -> None:
        """End the use by a publisher."""
        opened.publishers -= 1
        opened.released_at = time.monotonic()

    def lose(self, opened: OpenDirect, err: ColdstreamError) -> None:
        """Give a stream up after an append failed: the next publisher opens it again."""
        if opened.is_lost:
            return
        _LOG.warning("lost a direct stream", extra={"stream": opened.names[1], "error": str(err)})
        opened.is_lost = True
        if isinstance(err, ExpiredEpochError):
            self._elsewhere_until[opened.names] = time.monotonic() + self._takeover_pause_s
        if self._open.get(opened.names) is opened:
            del self._open[opened.names]
        opened.announce()
        for tell in tuple(opened.on_lost):
            tell()

    async def create(self, vhost: str, name: str) -> None:
        """Create a stream. Raises StreamExistsError, InvalidInputError, and what the archive fails with."""
        await self.client.create(name, vhost=vhost)

    async def delete(self, vhost: str, name: str) -> None:
        """Delete a stream, and tell its publishers. Raises StreamNotFoundError, HeldError."""
        opened = await self.acquire(vhost, name)
        try:
            await opened.handle.destroy()
        finally:
            self.release(opened)
        self._snapshots.forget(opened.names)
        self.lose(opened, StreamNotFoundError(f"stream {name!r} in vhost {vhost!r} was deleted"))

    def close_idle(self) -> None:
        """Begin to close the streams that nobody has published to for a while."""
        before = time.monotonic() - self._close_after_s
        for names, opened in tuple(self._open.items()):
            if not opened.publishers and opened.released_at < before:
                self._begin_to_close(names)
        now = time.monotonic()
        self._elsewhere_until = {names: until for names, until in self._elsewhere_until.items() if until > now}

    async def close(self) -> None:
        """Close all streams: everything that was appended is in the archive then."""
        for task in self._opening.values():
            task.cancel()
        await _ended(self._opening.values())
        await self._snapshots.close()
        for names in tuple(self._open):
            self._begin_to_close(names)
        await _ended(self._closing.values())
        await self.client.close()

    # To read.

    async def look(self, vhost: str, name: str) -> DirectStream:
        """Return a handle that is good to read: this process's own, or a snapshot that is a second old at most.

        Raises StreamNotFoundError.
        """
        opened = self._open.get((vhost, name))
        if opened is not None:
            # Nobody may have published here since another process took it over.
            await self._check_owner(opened)
        return await self._look((vhost, name), _LOOK_S)

    async def beyond(self, vhost: str, name: str, incarnation: Incarnation, offset: Offset) -> DirectStream:
        """Return a handle that has more than `offset`, once there is one.

        Raises StreamNotFoundError, also if the stream is created anew: offsets of one say nothing of the other.
        """
        names = (vhost, name)
        pause_s = _FIRST_PAUSE_S
        while True:
            opened = self._open.get(names)
            news = None if opened is None else opened.news
            handle = await self._look(names, pause_s)
            if handle.stream.incarnation != incarnation:
                raise StreamNotFoundError(f"{handle.stream} was created anew")
            if handle.confirmed > offset:
                return handle
            if opened is not None and news is not None:
                # Others may have taken it over, and nobody publishes here just now who would notice.
                await _wait(news, self._poll_s)
                await self._check_owner(opened)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._poll_s)

    def drop(self, handle: DirectStream) -> None:
        """Use a handle no more that is closed."""
        self._snapshots.drop(handle)
        for opened in tuple(self._open.values()):
            if opened.handle is handle:
                self.lose(opened, StreamClosedError(str(handle.stream), "is closed"))

    async def _look(self, names: Names, within_s: float) -> DirectStream:
        opened = self._open.get(names)
        if opened is not None:
            return opened.handle
        return await self._snapshots.look(names, within_s)

    async def _check_owner(self, opened: OpenDirect) -> None:
        if opened.is_lost or time.monotonic() - opened.checked_at < self._poll_s:
            return
        opened.checked_at = time.monotonic()  # one looks for all who wait
        try:
            snapshot = await self._snapshots.fresh(opened.names)
        except StreamNotFoundError as err:
            self.lose(opened, err)
            raise
        if snapshot.stream.incarnation != opened.handle.stream.incarnation:
            self.lose(opened, StreamNotFoundError(f"{snapshot.stream} was created anew"))
        elif snapshot.epoch > opened.handle.epoch:
            self.lose(opened, ExpiredEpochError(str(snapshot.stream), opened.handle.epoch, snapshot.epoch))

    # Opening and closing.

    async def _shared_opening(self, names: Names) -> OpenDirect:
        left_s = self._elsewhere_until.get(names, 0.0) - time.monotonic()
        if left_s > 0:
            raise UnavailableError(f"another process has taken stream {names[1]!r} over")
        task = self._opening.get(names)
        if task is None:
            task = self._opening[names] = asyncio.create_task(self._open_stream(names))
            task.add_done_callback(lambda done: self._opened(names, done))
        return await asyncio.shield(task)

    async def _open_stream(self, names: Names) -> OpenDirect:
        closing = self._closing.get(names)
        if closing is not None:
            await _ended([closing])
        try:
            handle = await self.client.open_stream(names[1], vhost=names[0])
        except StreamDeletedError as err:
            raise StreamNotFoundError(str(err)) from err
        opened = self._open[names] = OpenDirect(names, handle)
        self._snapshots.forget(names)
        return opened

    def _opened(self, names: Names, done: asyncio.Task[OpenDirect]) -> None:
        self._opening.pop(names, None)
        if not done.cancelled():
            done.exception()

    def _begin_to_close(self, names: Names) -> None:
        opened = self._open.pop(names)
        opened.is_lost = True
        task = self._closing[names] = asyncio.create_task(self._close(opened))
        task.add_done_callback(lambda _: self._closing.pop(names, None))

    async def _close(self, opened: OpenDirect) -> None:
        try:
            await opened.handle.close()
        except ColdstreamError as err:  # whoever opens it next recovers what is not in the manifest
            _LOG.warning("could not close a direct stream", extra={"stream": opened.names[1], "error": str(err)})
        opened.announce()


async def _ended(tasks: Iterable[asyncio.Task[object]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(event: asyncio.Event, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        pass
