"""One stream's log at the broker, asked for as long as the broker is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from coldstream.consumer.ports import BrokerSource, ChunkFeed
from coldstream.consumer.retrylog import RetryLog
from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.spec import OffsetSpec
from coldstream.units import Offset

T = TypeVar("T")


class BrokerLog:
    """Asks the broker about one stream. A broker that is away is tried again for ever, at one host after another.

    Whoever gets an answer outside of `ask` calls `recovered` when it proves useful. `on_away` is called before each
    wait for the broker.
    """

    def __init__(self, stream: str, source: BrokerSource, on_away: Callable[[], None] | None = None) -> None:
        self._stream = stream
        self._source = source
        self._on_away = on_away
        self._retry_log = RetryLog(f"stream {stream!r} at the broker")

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what `call` returns, which is called until the broker answers."""
        while True:
            try:
                answer = await call()
            except UnavailableError as err:
                await self.pause(err)
            else:
                self.recovered()
                return answer

    async def pause(self, err: UnavailableError) -> None:
        """Wait before the next attempt, after one that failed. Raises the error if retrying does not help."""
        if not err.retryable:
            raise err
        if self._on_away is not None:
            self._on_away()
        # Close first: the next attempt has to open a connection, to the next host, as this one was of no use.
        await self._source.renew()
        await self._retry_log.pause(err)

    def recovered(self) -> None:
        """Record that the broker is of use again."""
        self._retry_log.recovered()

    def subscribe(self, spec: OffsetSpec) -> AbstractAsyncContextManager[ChunkFeed]:
        """Return the chunks from where `spec` attaches."""
        return self._source.subscribe(self._stream, spec)

    async def probe(self, spec: OffsetSpec) -> ChunkHeader | None:
        """Return the header of the first user chunk for a spec, or None if none comes soon."""
        chunk = await self._source.probe(self._stream, spec)
        return None if chunk is None else chunk.header

    async def stored_offset(self, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name, or None if there is none."""
        return await self._source.query_offset(self._stream, reference)

    async def reaches_back_to(self, offset: Offset) -> bool:
        """Tell whether the broker still has everything from an offset on."""
        first_offset = await self._source.first_offset(self._stream)
        if first_offset is None:
            # Silence proves nothing: False would say that retention has deleted the offset.
            raise UnavailableError(f"stream {self._stream!r}: the broker delivers nothing of what it has")
        return first_offset <= offset
