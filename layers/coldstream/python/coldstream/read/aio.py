"""The reader for asyncio: each range is fetched in a thread, and messages are decoded in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk
from coldstream.read.fetch import RangeBatch
from coldstream.read.reader import BaseReader


class AsyncReader(BaseReader):
    """Reads as `Reader` does, with the same parameters and attributes.

    Use it as a context manager: Python closes an async iterator that is just dropped only when the event loop gets to
    it. Cancelling the task ends what is under way.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def batches(self) -> AsyncIterator[RangeBatch]:
        """Yield chunks range by range, as `Reader.batches` does."""
        async for batch in self._steps():
            self._pass(batch.chunks[-1])
            yield batch

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yield chunks of every type, as `Reader.chunks` does."""
        async for batch in self._steps():
            for chunk in batch.chunks:
                self._pass(chunk)
                yield chunk

    async def messages(self) -> AsyncIterator[Message]:
        """Yield messages, as `Reader.messages` does."""
        async for batch in self._steps():
            for chunk in batch.chunks:
                for message in messages(chunk, source=batch.range.key, from_offset=self.from_offset):
                    self._message = message
                    yield message
                self._pass(chunk)

    async def _steps(self) -> AsyncIterator[RangeBatch]:
        batches = self._batches()
        try:
            # None is the end: a future cannot carry StopIteration, and the task would fail or wait for ever.
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            # A cancelled task leaves `next` running in its thread, and a generator that runs cannot be closed. Closing
            # the reader makes it raise there, so that the thread ends soon.
            self.close()
