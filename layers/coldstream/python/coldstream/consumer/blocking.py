"""The consumer for programs without asyncio: the same one, in an event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from coldstream.consumer.batch import ChunkBatch
from coldstream.consumer.consumer import ARCHIVE_WAIT_S, Consumer
from coldstream.consumer.items import MessageDelivery, StreamProgress
from coldstream.format.amqp.message import Message
from coldstream.format.chunk import Chunk
from coldstream.live.address import BrokerAddress
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.read.client import ResolverClient
from coldstream.read.http import ClosedError
from coldstream.units import MIB, Offset

T = TypeVar("T")

CHECK_EVERY_S = 1.0
"""Whether the loop's thread is still there, while something is waited for."""


class BlockingConsumer:
    """Reads as `Consumer` does, with the same arguments and attributes.

    Use it as a context manager, from one thread. Chunks cross over from the loop's thread, and messages are unpacked in
    the caller's. `close`, from any thread, ends a wait for the next message with ClosedError.
    """

    def __init__(
        self,
        stream: str,
        start: OffsetSpec = FIRST,
        *,
        resolver: str | ResolverClient,
        broker: str | BrokerAddress,
        vhost: str = "/",
        name: str | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        super_stream: bool = False,
        archive_wait_s: float = ARCHIVE_WAIT_S,
        connections: int = 4,
        prefetch_bytes: int = 64 * MIB,
        range_bytes: int = 8 * MIB,
    ) -> None:
        self._consumer = Consumer(
            stream,
            start,
            resolver=resolver,
            broker=broker,
            vhost=vhost,
            name=name,
            on_gap=on_gap,
            super_stream=super_stream,
            archive_wait_s=archive_wait_s,
            connections=connections,
            prefetch_bytes=prefetch_bytes,
            range_bytes=range_bytes,
        )
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taking: Future[ChunkBatch] | None = None
        self._thread = threading.Thread(target=self._work, name="coldstream-consumer", daemon=True)

    @property
    def position(self) -> Offset | None:
        """As `Consumer.position`."""
        return self._consumer.position

    @property
    def gaps(self) -> list[Gap]:
        """As `Consumer.gaps`."""
        return self._consumer.gaps

    @property
    def streams(self) -> dict[str, StreamProgress]:
        """As `Consumer.streams`."""
        return self._consumer.streams

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._started.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        self._thread.join()

    def close(self) -> None:
        """End everything that runs for it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    def messages(self) -> Iterator[Message]:
        """Yield messages, as `Consumer.messages`."""
        intake = self._consumer.intake
        intake.begin("messages")
        while True:
            for message in intake.messages:  # noqa: UP028  it must outlive this generator
                yield message
            intake.load(self._take())

    def deliveries(self) -> Iterator[MessageDelivery]:
        """Yield messages together with the stream that each is of, as `Consumer.deliveries`."""
        for message in self.messages():
            yield MessageDelivery(self._consumer.intake.stream, message)

    def chunks(self) -> Iterator[Chunk]:
        """Yield user chunks, as `Consumer.chunks`."""
        intake = self._consumer.intake
        intake.begin("chunks")
        while True:
            for chunk in intake.chunks:  # noqa: UP028  it must outlive this generator
                yield chunk
            intake.load(self._take())

    def store_offset(self, done: int | Message | MessageDelivery, *, stream: str | None = None) -> None:
        """Store an offset, as `Consumer.store_offset`."""
        self._result(self._submit(self._consumer.store_offset(done, stream=stream)))

    def _take(self) -> ChunkBatch:
        """Wait for the next portion; where that was interrupted, for the one that was asked for then."""
        if self._taking is None:
            self._taking = self._submit(self._consumer.take())
        portion = self._result(self._taking)
        self._taking = None
        return portion

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin work in the loop. Raises ClosedError, and RuntimeError outside the context."""
        try:
            if self._loop is None:
                raise RuntimeError("a consumer is read within its context")
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as err:
            work.close()
            if self._loop is None:
                raise
            raise ClosedError from err

    def _result(self, asked: Future[T]) -> T:
        while not wait({asked}, CHECK_EVERY_S).done:
            if not self._thread.is_alive():
                raise ClosedError  # asked for in the moment that the loop ended
        try:
            return asked.result()
        except CancelledError as err:
            raise ClosedError from err

    def _work(self) -> None:
        running = self._run()
        try:
            asyncio.run(running)
        except Exception as err:
            running.close()
            if self._started.done():
                raise
            self._started.set_exception(err)  # as where no event loop can be made

    async def _run(self) -> None:
        async with self._consumer:
            self._started.set_result(asyncio.get_running_loop())
            await self._stop.wait()
