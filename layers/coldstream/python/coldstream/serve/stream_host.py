"""`StreamHost`: the streams that this process serves, opened when they are first asked for, closed when nobody is.

A request that only reads opens a snapshot, which disturbs nobody: another server, or a program that appends by
`StreamClient`, goes on. A request that writes takes the stream over, which its epoch makes safe: nothing acknowledged
is lost, and the process before notices at its next append, or when it next asks for the epoch. It then answers writes
by 503 for a while, and reads from snapshots: so two servers behind a balancer that sends them requests by chance take
a stream from each other once a pause at most, and never both append to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    StreamNotFoundError,
)
from coldstream.serve.hosted_stream import HostedStream
from coldstream.serve.options import ServeOptions
from coldstream.serve.protocol.lifetime import Lifetime
from coldstream.serve.refusal import ELSEWHERE, GONE, NO_STREAM
from coldstream.serve.side_state import SideState
from coldstream.serve.stream_terms import StreamTerms, source_id_of
from coldstream.streams import DirectArchive, DirectStream, OpenMode, StreamClient
from coldstream.units import TimestampMs, now_ms
from coldstream.web.refusal import Refusal

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
_NOTES_PER_TTL = 10
"""A use is noted in the archive ten times per TTL at most: a stream that dies with its server lives a tenth longer."""


@dataclass(slots=True)
class _CountedLock:
    """A lock of one name, there as long as anybody holds it or waits for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class StreamHost:
    """The streams of one server. For one event loop."""

    def __init__(self, client: StreamClient, archive: DirectArchive, options: ServeOptions) -> None:
        self.client = client
        self._archive = archive
        self.options = options
        self.is_stopping = False
        self._open: dict[str, HostedStream] = {}
        self._locks: dict[str, _CountedLock] = {}
        self._elsewhere_until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def use(self, name: str, *, to_write: bool = False, for_fork: bool = False) -> AsyncIterator[HostedStream]:
        """Serve a stream for the duration of the block; `for_fork` also one that only forks may read.

        Cost: nothing if it is open; otherwise that of opening it, and one or two GetItems. Raises Refusal.
        """
        stream = await self.acquire(name, to_write=to_write, for_fork=for_fork)
        try:
            yield stream
        finally:
            self.release(stream)

    async def acquire(self, name: str, *, to_write: bool = False, for_fork: bool = False) -> HostedStream:
        """Begin to serve a stream; `release` ends it. It is there to write to only if that was said. Raises Refusal."""
        for _ in range(_ATTEMPTS):
            stream = await self._acquire(name, to_write=to_write, for_fork=for_fork)
            try:
                await self.refresh(stream)
                if not stream.is_lost:  # as it is if its name has gone to another one
                    if not for_fork:
                        await self._check_is_there(stream)
                    return stream
            except BaseException:
                self.release(stream)
                raise
            self.release(stream)
        raise Refusal(ELSEWHERE, f"{name!r} is just being replaced")

    async def _acquire(self, name: str, *, to_write: bool, for_fork: bool) -> HostedStream:
        async with self._lock_of(name):
            stream = self._open.get(name)
            if stream is None or stream.is_lost:
                stream = self._open[name] = await self._open_stream(name, to_write=to_write, for_fork=for_fork)
            elif to_write:
                await self._begin_to_write(stream)
            stream.users += 1
            return stream

    def release(self, stream: HostedStream) -> None:
        """End the use of a stream."""
        stream.users -= 1
        stream.released_at = time.monotonic()
        if self._open.get(stream.name) is stream and not stream.users:
            self._open[stream.name] = self._open.pop(stream.name)  # the one used last is last

    async def drop_expired(self) -> None:
        """Delete the streams whose time has come, also those that nobody asks for any more.

        Cost: a Query for about 200 streams, and three or four GetItems for each that has a TTL.
        """
        async for info in self.client.list(self.options.vhost):
            lifetime = StreamTerms.of_properties(info.properties, otherwise="").lifetime
            end = lifetime.ends_at(TimestampMs(0))
            if info.name in self._open or end is None or now_ms() < end:
                continue
            with contextlib.suppress(Refusal):
                async with self.use(info.name):
                    pass  # it is not expired

    async def close_idle(self) -> None:
        """Close the streams that nobody has used for a while, and the least recently used ones if too many are open."""
        now = time.monotonic()
        idle = [(name, one.released_at) for name, one in self._open.items() if not one.users]
        too_many = max(0, len(self._open) - self.options.max_open)
        for at, (name, released_at) in enumerate(idle):
            if at < too_many or released_at < now - self.options.idle_s:
                await self._close(name)
        self._elsewhere_until = {name: until for name, until in self._elsewhere_until.items() if until > now}

    def stop(self) -> None:
        """Let live reads end."""
        self.is_stopping = True
        for stream in self._open.values():
            stream.announce()

    async def close(self) -> None:
        """Close all streams: everything that was appended is in the manifest then."""
        self.stop()
        for stream in list(self._open.values()):
            await self._note_use(stream, force=True)
        self._open.clear()
        await self.client.close()

    def lose(self, stream: HostedStream, err: ColdstreamError) -> None:
        """Give a stream up after an append failed: to another server, or until it is opened again."""
        _LOG.warning("lost a stream", extra={"stream": stream.name, "error": str(err)})
        if isinstance(err, ExpiredEpochError):
            self._elsewhere_until[stream.name] = time.monotonic() + self.options.takeover_pause_s
        stream.lose()

    async def touch(self, stream: HostedStream) -> None:
        """Note that a stream is read or written: its TTL begins anew. Cost: a PUT now and then, if it has a TTL."""
        stream.used, stream.unnoted_ms = now_ms(), 0
        await self._note_use(stream)

    async def check_owner(self, stream: HostedStream, *, within_s: float | None = None) -> None:
        """Make sure that no other server has taken the stream over for longer than `check_owner_s`.

        Cost: a GetItem at most every `check_owner_s`. Raises Refusal.
        """
        if stream.is_snapshot:
            await self.refresh(stream, within_s=within_s)
            if stream.is_lost:
                raise Refusal(ELSEWHERE, f"{stream.name!r} was replaced")
            return
        now = time.monotonic()
        within_s = self.options.check_owner_s if within_s is None else within_s
        if now - stream.checked_at < within_s:
            return
        stream.checked_at = now
        head = await asyncio.to_thread(self._archive.table.head, stream.handle.stream.incarnation)
        if head is None or head.is_deleted or head.appender is None:
            stream.lose()
            raise Refusal(NO_STREAM, f"{stream.name!r} was deleted")
        if head.appender.epoch > stream.handle.epoch:
            self.lose(stream, ExpiredEpochError(stream.name, stream.handle.epoch, head.appender.epoch))
            raise Refusal(ELSEWHERE, f"another server has taken {stream.name!r} over")

    def confirm_owner(self, stream: HostedStream) -> None:
        """Note that an append was acknowledged: nobody else had the stream."""
        stream.checked_at = time.monotonic()

    async def refresh(self, stream: HostedStream, *, within_s: float | None = None) -> None:
        """Look at a stream anew that is only read here, if the last look is older than `refresh_s`.

        Its `is_lost` says after that whether its name has gone to another stream. Cost: that of a snapshot. Raises
        Refusal if there is none any more.
        """
        within_s = self.options.refresh_s if within_s is None else within_s
        if not stream.is_old_snapshot(within_s):
            return
        async with stream.lock:
            if not stream.is_old_snapshot(within_s):
                return  # somebody else looked, or took it over
            looked_at = time.monotonic()
            try:
                seen = await self._snapshot(stream.name)
                is_deleted = not stream.is_archived and await stream.side.is_deleted()
            except StreamNotFoundError as err:
                stream.lose()
                raise Refusal(NO_STREAM, f"there is no stream {stream.name!r}") from err
            if seen.stream.incarnation != stream.handle.stream.incarnation:
                stream.lose()
                return
            has_news = (seen.confirmed, seen.is_sealed) != (stream.handle.confirmed, stream.handle.is_sealed)
            stream.handle, stream.checked_at = seen, looked_at
            if has_news or is_deleted != stream.is_deleted:
                stream.is_deleted = is_deleted
                stream.announce()

    async def delete(self, stream: HostedStream) -> None:
        """Delete a stream: at once, or for everybody but its forks as long as there are any.

        Cost: about ten requests, and with forks that of listing all streams. Raises Refusal, StreamNotFoundError.
        """
        # The mark outlives a refusal, and whoever opens the stream next would carry it out.
        await self.check_owner(stream, within_s=0)
        await stream.side.mark_deleted()
        stream.is_deleted = True
        stream.announce()
        if not await self._has_forks(stream.side):
            await self._destroy(stream)

    async def drop_unused_source(self, name: str, source_id: str) -> None:
        """Destroy a deleted source if no fork of it is left."""
        with contextlib.suppress(Refusal, StreamNotFoundError):
            async with self.use(name, for_fork=True) as source:
                if source.terms.id == source_id and source.is_deleted and not await self._has_forks(source.side):
                    await self._destroy(source)

    async def _destroy(self, stream: HostedStream) -> None:
        async with self._lock_of(stream.name):
            await self._destroy_open(stream)

    async def _destroy_open(self, stream: HostedStream) -> None:
        """Destroy a stream. Call it with the lock of its name held."""
        await self._begin_to_write(stream)
        await stream.handle.destroy()
        self.forget(stream)
        await stream.side.drop()
        if stream.terms.origin is not None:
            await self.drop_unused_source(stream.terms.origin.source, stream.terms.origin.source_id)

    def forget(self, stream: HostedStream) -> None:
        """Take a stream out that is no longer there."""
        if self._open.get(stream.name) is stream:
            del self._open[stream.name]
        stream.lose()

    async def _has_forks(self, side: SideState) -> bool:
        if not await side.has_forks():
            return False
        async for info in self.client.list(self.options.vhost):
            if source_id_of(info.properties) == side.id:
                return True
        return False

    async def _open_stream(self, name: str, *, to_write: bool, for_fork: bool) -> HostedStream:
        handle, is_snapshot = await self._handle(name, to_write=to_write)
        terms = self._terms(name, handle)
        side = SideState(self.client.key_values, terms.id)
        stream = HostedStream(name, handle, terms, side, now_ms(), is_snapshot=is_snapshot, checked_at=time.monotonic())
        if stream.is_archived:
            return stream
        stream.is_deleted = await side.is_deleted()
        if stream.is_deleted and not for_fork and not await self._has_forks(side):
            # Whoever deleted it died before it was destroyed.
            with contextlib.suppress(StreamNotFoundError):
                await self._destroy_open(stream)
            raise Refusal(NO_STREAM, f"there is no stream {name!r}")
        if terms.lifetime.ttl_s is not None:
            stream.noted_used = await side.used()
            if stream.noted_used is None:
                await self._note_use(stream)
            else:
                stream.used = stream.noted_used
                stream.unnoted_ms = self._note_every_ms(terms.lifetime.ttl_s)
        return stream

    async def _handle(self, name: str, *, to_write: bool) -> tuple[DirectStream, bool]:
        """Open a stream, to write to it if that is wanted and can be; the handle, and whether it is a snapshot."""
        if to_write:
            self._check_not_elsewhere(name)
            with contextlib.suppress(StreamNotFoundError):
                return await self.client.open_stream(name, vhost=self.options.vhost), False
        try:
            return await self._snapshot(name), True
        except StreamNotFoundError as err:
            raise Refusal(NO_STREAM, f"there is no stream {name!r}") from err

    def _check_not_elsewhere(self, name: str) -> None:
        left_s = self._elsewhere_until.get(name, 0) - time.monotonic()
        if left_s > 0:
            headers = {"Retry-After": str(math.ceil(left_s))}
            raise Refusal(ELSEWHERE, f"another server has taken {name!r} over", headers)

    async def _begin_to_write(self, stream: HostedStream) -> None:
        """Take a stream over, unless it is here already, or a broker's. Call it with the lock of its name held."""
        if not stream.is_snapshot or stream.is_archived:
            return
        self._check_not_elsewhere(stream.name)
        async with stream.lock:
            try:
                handle = await self.client.open_stream(stream.name, vhost=self.options.vhost)
            except StreamNotFoundError as err:
                stream.lose()
                raise Refusal(NO_STREAM, f"there is no stream {stream.name!r}") from err
            if handle.stream.incarnation != stream.handle.stream.incarnation:
                stream.lose()
                raise Refusal(ELSEWHERE, f"{stream.name!r} was replaced")
            stream.handle, stream.is_snapshot, stream.checked_at = handle, False, time.monotonic()
            stream.announce()

    async def _snapshot(self, name: str) -> DirectStream:
        return await self.client.open_stream(name, vhost=self.options.vhost, mode=OpenMode.SNAPSHOT)

    def _terms(self, name: str, handle: DirectStream) -> StreamTerms:
        otherwise = str(handle.stream.incarnation)
        if handle.is_brokers:
            return StreamTerms(self.options.archived_type(name), Lifetime(), otherwise)
        properties: Mapping[str, str] = handle.properties
        return StreamTerms.of_properties(properties, otherwise=otherwise)

    async def _check_is_there(self, stream: HostedStream) -> None:
        """Raise Refusal if a stream is deleted, or delete it if its time has come."""
        if stream.is_deleted:
            raise Refusal(GONE, f"{stream.name!r} is deleted; forks of it are not")
        end = None if stream.is_archived else stream.terms.lifetime.ends_at(stream.used)
        if end is None or now_ms() < end + stream.unnoted_ms:
            return
        if stream.terms.lifetime.ttl_s is not None:
            # Another server may have noted a later use.
            noted = await stream.side.used()
            if noted is not None and noted > stream.used:
                stream.used = stream.noted_used = noted
                stream.unnoted_ms = self._note_every_ms(stream.terms.lifetime.ttl_s)
                if now_ms() < noted + stream.terms.lifetime.ttl_s * 1000 + stream.unnoted_ms:
                    return
        with contextlib.suppress(Refusal, StreamNotFoundError):
            await self.delete(stream)
        raise Refusal(NO_STREAM, f"{stream.name!r} has expired")

    async def _note_use(self, stream: HostedStream, *, force: bool = False) -> None:
        ttl_s = stream.terms.lifetime.ttl_s
        if ttl_s is None or stream.is_lost or stream.is_archived:
            return
        noted = stream.noted_used
        if noted is None or stream.used - noted >= (1 if force else self._note_every_ms(ttl_s)):
            stream.noted_used = stream.used
            await stream.side.mark_used(stream.used)

    @staticmethod
    def _note_every_ms(ttl_s: int) -> int:
        return ttl_s * 1000 // _NOTES_PER_TTL

    async def _close(self, name: str) -> None:
        async with self._lock_of(name):
            stream = self._open.get(name)
            if stream is None or stream.users:
                return
            del self._open[name]
            try:
                await self._note_use(stream, force=True)
                await stream.handle.close()
            except ColdstreamError as err:  # whoever opens it next recovers what is not in the manifest
                _LOG.warning("could not close a stream", extra={"stream": name, "error": str(err)})

    @asynccontextmanager
    async def _lock_of(self, name: str) -> AsyncIterator[None]:
        counted = self._locks.setdefault(name, _CountedLock())
        counted.users += 1
        try:
            async with counted.lock:
                yield
        finally:
            counted.users -= 1
            if not counted.users:
                del self._locks[name]
