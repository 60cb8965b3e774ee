"""Deduplication: what each publisher has appended last, by its own count, as the broker keeps it.

A batch that comes with a publisher's name and the id of its last message has both in the trailer of its chunk. Before a
stream is flushed, a snapshot of all publishers is appended, so that it is the last chunk of what is flushed: whoever
opens the stream reads this one chunk, and the trailers of what was recovered after it. A flush comes into the manifest
at once, with all of its fragments, so the last chunk of the log is always a snapshot, if there is a publisher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from coldstream.errors import InvalidInputError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.tracking import TrackingRecord, TrackingState, TrackingType, iter_tracking
from coldstream.units import ChunkId, Offset, TimestampMs

MAX_PUBLISHER_BYTES = 255
"""Bytes of a publisher's name at most, in UTF-8."""

MAX_PUBLISHING_ID = (1 << 64) - 1


@dataclass(slots=True)
class Publishers:
    """The publishers of one stream. Of more than 255, those that appended last are in a snapshot, as at the broker.

    `state` is as of what was sent to the WAL last, `under_way` has what is not acknowledged yet, in order.
    """

    state: TrackingState = field(default_factory=TrackingState)
    under_way: dict[bytes, deque[tuple[int, asyncio.Future[Offset]]]] = field(default_factory=dict)

    def copy(self) -> Publishers:
        """Return the same state of its own, with nothing under way."""
        return Publishers(TrackingState(dict(self.state.sequences)))

    def learn(self, chunk: bytes, *, source: str) -> None:
        """Take what a chunk tells: a trailer one publisher, a snapshot all there are. Raises CorruptionError."""
        for one in iter_chunks(chunk, source=source):
            self.learn_chunk(one, source=source)

    def learn_chunk(self, chunk: Chunk, *, source: str) -> None:
        """Take what a chunk tells that is read already. Raises CorruptionError."""
        if chunk.header.type is ChunkType.TRACKING_SNAPSHOT:
            self.state.sequences.clear()
        for record in iter_tracking(chunk, source=source):
            if record.type is TrackingType.SEQUENCE:
                at = chunk.header.chunk_id if record.chunk_id is None else record.chunk_id
                self.state.sequences[record.id] = (at, record.value)

    def begin(self, record: TrackingRecord, done: asyncio.Future[Offset]) -> None:
        """Note an append that was called; `done` tells how it ends."""
        self.under_way.setdefault(record.id, deque()).append((record.value, done))

    def end(self, record: TrackingRecord, done: asyncio.Future[Offset]) -> None:
        """Forget an append that has ended, one way or another."""
        left = self.under_way.get(record.id)
        if left is not None:
            left.remove((record.value, done))
            if not left:
                del self.under_way[record.id]

    def sent(self, record: TrackingRecord, at: Offset) -> None:
        """Note that an append is in the WAL's order, at an offset."""
        self.state.sequences[record.id] = (ChunkId(at), record.value)

    def twin_of(self, record: TrackingRecord) -> asyncio.Future[Offset] | None:
        """Return the append under way that has a message already, None if none has."""
        return next((done for last, done in self.under_way.get(record.id, ()) if last >= record.value), None)

    def last_of(self, publisher: bytes) -> int | None:
        """Return the id of the last message of a publisher that was sent, None if it has none."""
        known = self.state.sequences.get(publisher)
        return None if known is None else known[1]

    def snapshot(self) -> bytes:
        """Return what the snapshot chunk holds, as of now; empty if there are no publishers."""
        return self.state.snapshot(Offset(0), TimestampMs(0))


def sequence_of(publisher: str | None, publishing_id: int | None) -> TrackingRecord | None:
    """Return what the trailer of a batch says, None for one without a publisher.

    Raises InvalidInputError for one without the other, and for what no trailer can say.
    """
    if publisher is None and publishing_id is None:
        return None
    if publisher is None or publishing_id is None:
        raise InvalidInputError("publisher", "needs a publishing_id beside it, and that needs a publisher")
    if not 0 <= publishing_id <= MAX_PUBLISHING_ID:
        raise InvalidInputError("publishing_id", f"{publishing_id} is not within 64 bits")
    return TrackingRecord(TrackingType.SEQUENCE, publisher_bytes(publisher), publishing_id)


def publisher_bytes(publisher: str) -> bytes:
    """Return a publisher's name as it is kept. Raises InvalidInputError."""
    try:
        name = publisher.encode()
    except UnicodeEncodeError as err:
        raise InvalidInputError("publisher", f"{publisher!r} is not text that UTF-8 can hold") from err
    if not 1 <= len(name) <= MAX_PUBLISHER_BYTES:
        raise InvalidInputError("publisher", f"has {len(name)} bytes: 1 to {MAX_PUBLISHER_BYTES}")
    return name
