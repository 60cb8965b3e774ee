"""The faces for programs without asyncio: an event loop in a thread, which runs a `StreamClient`.

The caller's threads and the loop's exchange only coroutines, by `run_coroutine_threadsafe`, and their results.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from coldstream.errors import StreamClosedError
from coldstream.format.amqp.message import Message
from coldstream.manifest.stream import StreamId
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch
from coldstream.streams.client import OpenMode, StreamClient
from coldstream.streams.fetched import FetchedBatch
from coldstream.streams.handle import FETCH_BYTES, DirectStream
from coldstream.streams.metrics import StreamMetrics
from coldstream.streams.names import StreamInfo
from coldstream.streams.options import StreamOptions
from coldstream.streams.wal.store import WalStore
from coldstream.units import Epoch, Offset

T = TypeVar("T")
Item = TypeVar("Item")


class _LoopThread:
    """An event loop in a thread of its own, for the threads of one process.

    The thread is a daemon, so that a program that never closes its client can still exit; it is stopped then. What is
    under way when it stops is cancelled, and its callers get StreamClosedError: nobody waits for ever.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        # Between it and the thread: nothing is given to a loop that has stopped.
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._live, name="coldstream-streams", daemon=True)
        started = threading.Event()
        self._on_start = started.set
        self._thread.start()
        started.wait()
        _RUNNING.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return what it returns.

        Raises StreamClosedError after `stop`, and in a process that was forked, where the thread is not.
        """
        try:
            future = self._submit(work)
        except BaseException:
            work.close()  # or Python warns that it was never awaited
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise StreamClosedError("the client", "is closed") from None
        except BaseException:
            future.cancel()  # KeyboardInterrupt ends the wait, and with it what was waited for
            raise

    def iterate(self, items: AsyncGenerator[Item, None]) -> Iterator[Item]:
        """Yield what an asynchronous generator yields, one at a time."""

        async def following() -> Item | None:
            return await anext(items, None)

        async def close() -> None:
            await items.aclose()

        try:
            while (item := self.run(following())) is not None:
                yield item
        finally:
            if self.is_running:
                with suppress(StreamClosedError):  # since then
                    self.run(close())

    @property
    def is_running(self) -> bool:
        """Whether `stop` was not called yet, and this is the process of the thread."""
        return not self._is_stopped and self._process == os.getpid()

    def stop(self) -> None:
        """End the loop and its thread; again is nothing."""
        if self._process != os.getpid():
            return  # whoever held the lock when this process was forked never lets it go here
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._process != os.getpid():
            raise StreamClosedError("the client", "was opened by the process that this one was forked from")
        with self._lock:
            if self._is_stopped:
                raise StreamClosedError("the client", "is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _live(self) -> None:
        # It cancels what is left once `_serve` returns, waits for that, and closes the loop.
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._on_start()
        await self._stopped.wait()


_RUNNING: WeakSet[_LoopThread] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop the threads of clients that were not closed, while they still run.

    A generator that is finalized later would wait for ever for one that does not.
    """
    for one in tuple(_RUNNING):
        one.stop()


class BlockingDirectStream:
    """A `DirectStream`, for any thread: each method does what that of its name does, and returns when it is done.

    One thread appends one batch at a time. For many under way at once, use threads, or `StreamClient`.
    """

    def __init__(self, thread: _LoopThread, handle: DirectStream) -> None:
        self._thread = thread
        self._handle = handle

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._handle.name

    @property
    def vhost(self) -> str:
        """The vhost of the name."""
        return self._handle.vhost

    @property
    def stream(self) -> StreamId:
        """The names and the incarnation, as readers of the archive take them."""
        return self._handle.stream

    @property
    def epoch(self) -> Epoch:
        """The epoch of this opening."""
        return self._handle.epoch

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that the stream was created with."""
        return self._handle.properties

    @property
    def start(self) -> Offset:
        """The first offset that can be read."""
        return self._handle.start

    @property
    def confirmed(self) -> Offset:
        """The offset after the last acknowledged batch."""
        return self._handle.confirmed

    @property
    def tail(self) -> Offset:
        """The offset that the next append gets."""
        return self._handle.tail

    @property
    def is_sealed(self) -> bool:
        """Whether the stream takes nothing any more, for good."""
        return self._handle.is_sealed

    @property
    def is_brokers(self) -> bool:
        """Whether it is the archived stream of a broker, which only a snapshot reads."""
        return self._handle.is_brokers

    def append(
        self,
        batch: Batch | Sequence[bytes | Message],
        *,
        expect: Offset | None = None,
        publisher: str | None = None,
        publishing_id: int | None = None,
    ) -> Offset | None:
        """Append a batch, as `DirectStream.append` does."""
        return self._thread.run(
            self._handle.append(batch, expect=expect, publisher=publisher, publishing_id=publishing_id)
        )

    def publisher_id(self, publisher: str) -> int | None:
        """Return the id of a publisher's last message, as `DirectStream.publisher_id` does."""
        return self._thread.run(self._handle.publisher_id(publisher))

    def check_owner(self) -> None:
        """Learn whether others have opened the stream since, as `DirectStream.check_owner` does."""
        self._thread.run(self._handle.check_owner())

    def fetch(self, start: Offset, end: Offset | None = None, max_bytes: int = FETCH_BYTES) -> tuple[FetchedBatch, ...]:
        """Return batches, as `DirectStream.fetch` does."""
        return self._thread.run(self._handle.fetch(start, end, max_bytes))

    def follow(self, start: Offset | None = None) -> Iterator[FetchedBatch]:
        """Yield batches and wait for more, as `DirectStream.follow` does."""
        return self._thread.iterate(self._handle.follow(start))

    def trim(self, to: Offset) -> None:
        """Have the stream start at `to`, as `DirectStream.trim` does."""
        self._thread.run(self._handle.trim(to))

    def flush(self) -> None:
        """Have all that was appended in the archive, as `DirectStream.flush` does."""
        self._thread.run(self._handle.flush())

    def seal(self) -> None:
        """End the stream for good, as `DirectStream.seal` does."""
        self._thread.run(self._handle.seal())

    def close(self) -> None:
        """Close the handle, as `DirectStream.close` does."""
        self._thread.run(self._handle.close())

    def destroy(self) -> None:
        """Delete the stream, as `DirectStream.destroy` does."""
        self._thread.run(self._handle.destroy())


class BlockingKeyValues:
    """`KeyValues`, for any thread."""

    def __init__(self, thread: _LoopThread, client: StreamClient) -> None:
        self._thread = thread
        self._key_values = client.key_values

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, as `KeyValues.get` does."""
        return self._thread.run(self._key_values.get(key))

    def put(self, key: str, value: bytes) -> None:
        """Write a value, as `KeyValues.put` does."""
        self._thread.run(self._key_values.put(key, value))

    def put_if_absent(self, key: str, value: bytes) -> bytes:
        """Write a value unless there is one, as `KeyValues.put_if_absent` does."""
        return self._thread.run(self._key_values.put_if_absent(key, value))

    def delete(self, key: str) -> bool:
        """Delete a key, as `KeyValues.delete` does."""
        return self._thread.run(self._key_values.delete(key))


class BlockingStreamClient:
    """A `StreamClient`, for any thread. Use it as a context manager, or close it.

    A program that ends without that leaves its streams to be recovered by the next opener. A handler of `atexit` is too
    late: Python runs nothing in threads any more. A forked process cannot use it, and makes its own.
    """

    def __init__(
        self,
        archive: DirectArchive,
        options: StreamOptions = StreamOptions(),  # noqa: B008  frozen
        *,
        wal: WalStore | None = None,
    ) -> None:
        self._thread = _LoopThread()
        try:
            self._client = self._thread.run(StreamClient.open(archive, options, wal=wal))
        except BaseException:
            self._thread.stop()
            raise
        self.key_values = BlockingKeyValues(self._thread, self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(
        self,
        name: str,
        *,
        vhost: str = "/",
        first: Offset = Offset(0),  # noqa: B008  a NewType is its value
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a stream, as `StreamClient.create` does."""
        self._thread.run(self._client.create(name, vhost=vhost, first=first, properties=properties))

    def open_stream(
        self, name: str, *, vhost: str = "/", mode: OpenMode = OpenMode.READ_WRITE, force: bool = False
    ) -> BlockingDirectStream:
        """Open a stream, as `StreamClient.open_stream` does."""
        handle = self._thread.run(self._client.open_stream(name, vhost=vhost, mode=mode, force=force))
        return BlockingDirectStream(self._thread, handle)

    def list(self, vhost: str | None = None) -> Iterator[StreamInfo]:
        """Yield the streams of a vhost, or of all, as `StreamClient.list` does."""
        return self._thread.iterate(self._client.list(vhost))

    def metrics(self) -> StreamMetrics:
        """Return what the client has done, and holds now, as `StreamClient.metrics` does."""
        return self._thread.run(self._metrics())

    def close(self) -> None:
        """Close every stream, then the client, as `StreamClient.close` does, and end the thread.

        May be called again, and by several threads. In a process that was forked it does nothing.
        """
        try:
            if self._thread.is_running:
                with suppress(StreamClosedError):  # by another thread, meanwhile
                    self._thread.run(self._client.close())
        finally:
            self._thread.stop()

    async def _metrics(self) -> StreamMetrics:
        return self._client.metrics()
