"""Messages and chunks out of one batch after another, for both faces of the consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from coldstream.consumer.batch import ChunkBatch, SkippedGap
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """A message and its stream; in a super stream, its partition."""

    stream: str
    message: Message


@dataclass(slots=True)
class StreamProgress:
    """How far a stream has been read: the offset after the last item given out, and the gaps that were skipped."""

    position: Offset | None = None
    gaps: list[Gap] = field(default_factory=list)


class BatchItems:
    """The messages, or the chunks, of the batch that was loaded last; `streams` says how far each stream is.

    `messages` and `chunks` are iterators that outlive the loop over them: a caller may leave at any item, and the next
    loop goes on with the one after it. `stream` is the stream of the batch.
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams: dict[str, StreamProgress] = {}
        self.stream = ""
        self.messages: Iterator[Message] = iter(())
        self.chunks: Iterator[Chunk] = iter(())
        self._kind: Literal["messages", "chunks"] | None = None
        self.expect(streams)

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were skipped, of all streams."""
        return list(chain.from_iterable(progress.gaps for progress in self.streams.values()))

    def expect(self, streams: Iterable[str]) -> None:
        """Set the streams that batches may be of."""
        self.streams = {stream: StreamProgress() for stream in streams}

    def begin(self, kind: Literal["messages", "chunks"]) -> None:
        """Raise RuntimeError if the other kind was given out before: some messages would come twice."""
        if self._kind not in (None, kind):
            raise RuntimeError(f"a consumer that gave out {self._kind} does not give out {kind}")
        self._kind = kind

    def load(self, item: ChunkBatch | SkippedGap) -> None:
        """Go on with the next batch. The one before has to be exhausted: what is left of it is lost."""
        progress = self.streams[item.stream]
        match item:
            case SkippedGap():
                progress.gaps.append(item.gap)
            case ChunkBatch():
                self.stream = item.stream
                self.messages = _messages(item, progress)
                self.chunks = _chunks(item, progress)


def _messages(batch: ChunkBatch, progress: StreamProgress) -> Iterator[Message]:
    for chunk in batch.chunks:
        for message in messages(chunk, source=batch.source, from_offset=batch.from_offset):
            # Before the yield: whoever stores the position while handling the message stores one that includes it.
            progress.position = Offset(message.offset + 1)
            yield message
        # A chunk may hold no message at or after `from_offset`; it was read all the same.
        progress.position = chunk.header.next_offset


def _chunks(batch: ChunkBatch, progress: StreamProgress) -> Iterator[Chunk]:
    for chunk in batch.chunks:
        progress.position = chunk.header.next_offset
        yield chunk
