"""Messages and chunks out of one batch after another, for both faces of the consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal, TypeVar

from coldstream.consumer.batch import BatchItem, ChunkBatch, ReachedOffset, SkippedGap
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class MessageDelivery:
    """A message and its stream; in a super stream, its partition, with its number if there is a map."""

    stream: str
    message: Message
    partition: int | None = None


@dataclass(slots=True)
class StreamProgress:
    """How far a stream has been read: the offset after the last item given out, and the gaps that were skipped."""

    position: Offset | None = None
    gaps: list[Gap] = field(default_factory=list)


class BatchItems:
    """The messages, or the chunks, of the batch that was loaded last; `streams` says how far each stream is.

    `messages` and `chunks` are iterators that outlive the loop over them: a caller may leave at any item, and the next
    loop goes on with the one after it. `stream` is the stream of the batch, as `streams` names it, `partition` its
    number. In a group `may_give` tells whether a partition's tenure is still this consumer's, and `busy` is the number
    until the caller comes for what is after the batch.

    One thread loads and looks, and another may add partitions meanwhile.
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams: dict[str, StreamProgress] = {}
        self.stream = ""
        self.partition: int | None = None
        self.messages: Iterator[Message] = iter(())
        self.chunks: Iterator[Chunk] = iter(())
        self._kind: Literal["messages", "chunks"] | None = None
        self._names: dict[int, str] = {}
        self._reached: dict[int, Offset | None] = {}
        self.may_give: Callable[[int, int], bool] | None = None
        self.busy: int | None = None
        # Guards what a new partition changes together: names, streams, and what was reached.
        self._lock = threading.RLock()
        self.expect(streams)

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that were skipped, of all streams."""
        return list(chain.from_iterable(progress.gaps for progress in self.streams.values()))

    def expect(self, streams: Iterable[str]) -> None:
        """Set the streams that batches may be of."""
        self.streams = {stream: StreamProgress() for stream in streams}

    def expect_partition(self, number: int, name: str, offset: Offset | None) -> None:
        """Add a partition that batches may be of, under a name; `offset` is its start, None if not known yet."""
        with self._lock:
            streams = dict(self.streams)
            for earlier, taken in self._names.items():
                if taken == name:  # the stream was declared again, as another partition
                    self._names[earlier] = f"{name}#{earlier}"
                    streams[self._names[earlier]] = streams.pop(name)
            streams[name] = StreamProgress()
            # A new mapping: whoever goes through the one before is not disturbed.
            self.streams = streams
            self._names[number] = name
            self._reached[number] = offset

    def pass_over(self, number: int, offset: Offset) -> None:
        """Count a partition, of which no batch comes, as read up to an offset."""
        with self._lock:
            self._reached[number] = offset

    def forget_partition(self, number: int) -> None:
        """Expect no more batches of a partition: it is another consumer's."""
        with self._lock:
            self._reached.pop(number, None)
            if (name := self._names.pop(number, None)) is not None:
                self.streams.pop(name, None)

    def given(self, number: int) -> Offset | None:
        """Return the offset after the last message of a partition that was given out, None if none was."""
        name = self._names.get(number)
        return None if name is None else self.streams[name].position

    def restore(self, number: int, given: Offset | None) -> None:
        """Say what was given out of a partition before it was expected again."""
        self.streams[self._names[number]].position = given

    def offset(self, number: int) -> Offset | None:
        """Return the next offset of a partition, None if its start is not known."""
        known = [offset for offset in (self._reached.get(number), self.given(number)) if offset is not None]
        return max(known, default=None)

    @property
    def offsets(self) -> dict[int, Offset] | None:
        """The next offset of each partition by number; None until all their starts are known."""
        with self._lock:
            offsets: dict[int, Offset] = {}
            for number in self._reached:
                offset = self.offset(number)
                if offset is None:
                    return None
                offsets[number] = offset
            # Not even the partitions are known yet.
            return offsets or None

    def begin(self, kind: Literal["messages", "chunks"]) -> None:
        """Raise RuntimeError if the other kind was given out before: some messages would come twice."""
        if self._kind not in (None, kind):
            raise RuntimeError(f"a consumer that gave out {self._kind} does not give out {kind}")
        self._kind = kind

    def load(self, item: BatchItem) -> None:
        """Go on with the next batch. The one before has to be exhausted: what is left of it is lost."""
        self.busy = None
        may_give = self._may_give(item)
        if may_give is not None and not may_give():
            return
        with self._lock:
            stream = item.stream if item.partition is None else self._names[item.partition]
            progress = self.streams[stream]
        match item:
            case ReachedOffset():
                self._reach(item.partition, item.offset)
            case SkippedGap():
                progress.gaps.append(item.gap)
                self._reach(item.partition, item.gap.next_offset)
            case ChunkBatch():
                self.stream, self.partition = stream, item.partition
                self.messages = _messages(item, progress, may_give)
                self.chunks = _chunks(item, progress, may_give)
                if may_give is not None:  # nobody else asks what is busy, and most consumers have no group
                    self.busy = item.partition
                    self.messages = self._while_busy(self.messages)
                    self.chunks = self._while_busy(self.chunks)

    def _while_busy(self, items: Iterator[Item]) -> Iterator[Item]:
        yield from items
        self.busy = None  # the caller came back for more

    def _may_give(self, item: BatchItem) -> Callable[[], bool] | None:
        """Return what tells, before each message, whether it is still this consumer's to give out; None if it is."""
        if self.may_give is None or item.partition is None:
            return None
        return partial(self.may_give, item.partition, item.tenure)

    def _reach(self, number: int | None, offset: Offset) -> None:
        if number is not None:
            with self._lock:
                self._reached[number] = max(offset, self._reached[number] or Offset(0))


def _messages(batch: ChunkBatch, progress: StreamProgress, may_give: Callable[[], bool] | None) -> Iterator[Message]:
    for chunk in batch.chunks:
        for message in messages(chunk, source=batch.source, from_offset=batch.from_offset):
            if may_give is not None and not may_give():
                return
            # Before the yield: whoever stores the position while handling the message stores one that includes it.
            progress.position = Offset(message.offset + 1)
            yield message
        if may_give is not None and not may_give():
            return
        # A chunk may hold no message at or after `from_offset`; it was read all the same.
        progress.position = chunk.header.next_offset


def _chunks(batch: ChunkBatch, progress: StreamProgress, may_give: Callable[[], bool] | None) -> Iterator[Chunk]:
    for chunk in batch.chunks:
        if may_give is not None and not may_give():
            return
        progress.position = chunk.header.next_offset
        yield chunk
