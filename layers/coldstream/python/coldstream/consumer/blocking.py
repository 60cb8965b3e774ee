"""The consumer for programs without asyncio: an event loop in a thread, and plain iterators.

Two threads meet here. The loop's thread runs the followers and owns everything asynchronous. The caller's thread takes
one batch at a time from it and unpacks the messages, so that decoding costs the loop nothing. They exchange only
coroutines, by `run_coroutine_threadsafe`, and futures.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from coldstream.consumer.base import BaseConsumer
from coldstream.consumer.batch import BatchItem
from coldstream.consumer.items import MessageDelivery
from coldstream.format.amqp.message import Message
from coldstream.format.chunk import Chunk
from coldstream.read.http import ClosedError

T = TypeVar("T")

CHECK_EVERY_S = 1.0
"""How often a waiting caller looks whether the loop's thread is still there."""


class BlockingConsumer(BaseConsumer):
    """Reads as `Consumer` does, with the same parameters and attributes.

    Use it as a context manager, and from one thread. `close` may be called from any thread; it ends a wait for the next
    message with ClosedError.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _pending: Future[BatchItem] | None = None
    _stop: asyncio.Event

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a consumer can be entered only once")
        self._stop = asyncio.Event()
        started: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon: a program that never leaves the context can still exit.
        self._thread = threading.Thread(target=self._work, args=(started,), name="coldstream-consumer", daemon=True)
        self._thread.start()
        self._loop = started.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """End everything that runs for this consumer; returns at once. Safe from any thread."""
        if self._loop is not None:
            # An asyncio.Event belongs to the loop's thread: set from this one, it might not wake the loop.
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    def messages(self) -> Iterator[Message]:
        """Yield messages, as `Consumer.messages` does."""
        items = self._items
        items.begin("messages")
        while True:
            # `yield from` would close the iterator when the caller leaves its loop, and lose the rest of the batch.
            for message in items.messages:  # noqa: UP028
                yield message
            items.load(self._next())

    def deliveries(self) -> Iterator[MessageDelivery]:
        """Yield messages together with their streams, as `Consumer.deliveries` does."""
        for message in self.messages():
            yield MessageDelivery(self._items.stream, message, self._items.partition)

    def chunks(self) -> Iterator[Chunk]:
        """Yield user chunks, as `Consumer.chunks` does."""
        items = self._items
        items.begin("chunks")
        while True:
            for chunk in items.chunks:  # noqa: UP028  as in `messages`
                yield chunk
            items.load(self._next())

    def store_offset(self, done: int | Message | MessageDelivery, *, stream: str | None = None) -> None:
        """Store an offset, as `Consumer.store_offset` does."""
        self._result(self._submit(self._store_offset(done, stream)))

    def _next(self) -> BatchItem:
        """Wait for the next batch."""
        # A wait that KeyboardInterrupt ended leaves its request behind, and that request will take a batch out of the
        # queue. A second request would get the batch after it, so the first one is waited for again.
        if self._pending is None:
            self._pending = self._submit(self._take())
        item = self._result(self._pending)
        self._pending = None
        return item

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop. Raises ClosedError, and RuntimeError outside of the context."""
        try:
            if self._loop is None:
                raise RuntimeError("a consumer is read within its context")
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as err:
            work.close()  # or Python warns that it was never awaited
            if self._loop is None:
                raise
            raise ClosedError from err

    def _result(self, future: Future[T]) -> T:
        # A coroutine submitted at the moment the loop ends is never run, and its future never done. So do not wait
        # without end: look now and then whether the thread is still there.
        while not wait({future}, CHECK_EVERY_S).done:
            if self._thread is None or not self._thread.is_alive():
                raise ClosedError
        try:
            return future.result()
        except CancelledError as err:
            raise ClosedError from err

    def _work(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        running = self._run(started)
        try:
            asyncio.run(running)
        except Exception as err:
            running.close()
            if started.done():
                raise
            # Without this, `__enter__` would wait for ever for a loop that could not be made.
            started.set_exception(err)

    async def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._start()
        try:
            # After `_start`: the caller goes on at once, and `_take` has to find the tasks.
            started.set_result(asyncio.get_running_loop())
            await self._stop.wait()
        finally:
            await self._shut_down()
