"""What has been taken from followers and is being given out: the same for both faces of the consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from coldstream.consumer.batch import ChunkBatch
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """A message, and the stream that it is of: of a super stream, the partition."""

    stream: str
    message: Message


@dataclass(slots=True)
class StreamProgress:
    """How far a stream has been read: the offset after the last item given, and the gaps passed over."""

    position: Offset | None = None
    gaps: list[Gap] = field(default_factory=list)


class BatchItems:
    """Gives out portion after portion, as messages or as chunks, and keeps account of it in `streams`.

    `messages` and `chunks` go on where they were left: an iteration may be given up between any two items.
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams: dict[str, StreamProgress] = {}
        self.stream = ""
        self.messages: Iterator[Message] = iter(())
        self.chunks: Iterator[Chunk] = iter(())
        self._items: Literal["messages", "chunks"] | None = None
        self.expect(streams)

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were passed over, of all streams."""
        return list(chain.from_iterable(progress.gaps for progress in self.streams.values()))

    def expect(self, streams: Iterable[str]) -> None:
        """Keep account of these."""
        self.streams = {stream: StreamProgress() for stream in streams}

    def begin(self, items: Literal["messages", "chunks"]) -> None:
        """Refuse to give out messages where chunks were, and the other way round: some would come twice."""
        if self._items not in (None, items):
            raise RuntimeError(f"a consumer that gave out {self._items} does not give out {items}")
        self._items = items

    def load(self, portion: ChunkBatch) -> None:
        """Go on with a portion, after everything of the one before was given out."""
        self.stream = portion.stream
        progress = self.streams[portion.stream]
        if portion.gap is not None:
            progress.gaps.append(portion.gap)
        self.messages = _messages(portion, progress)
        self.chunks = _chunks(portion, progress)


def _messages(portion: ChunkBatch, progress: StreamProgress) -> Iterator[Message]:
    for chunk in portion.chunks:
        for message in messages(chunk, source=portion.source, from_offset=portion.from_offset):
            progress.position = Offset(message.offset + 1)
            yield message
        progress.position = chunk.header.next_offset


def _chunks(portion: ChunkBatch, progress: StreamProgress) -> Iterator[Chunk]:
    for chunk in portion.chunks:
        progress.position = chunk.header.next_offset
        yield chunk
