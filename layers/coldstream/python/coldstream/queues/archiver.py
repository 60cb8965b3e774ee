"""The protocol by which the messages of one queue get into the archive, each once, and in their order.

One batch at a time, and nothing of the next before it is done:

1. take messages, and make of them a slice at the offset `settled`
2. stage it
3. write the intent, with the ETag of the staged copy, into the state item
4. announce it, and wait until the manifest's head is past it
5. write into the intent that the batch is about to be settled, and how many messages that lets the broker deliver
6. settle the messages at the broker, and wait until the queue has forgotten them
7. write `settled`, the offset after the batch, and no intent

What a crash leaves behind, by the last step that was done:

    1   nothing: the messages go back to the queue
    2   a staged copy that nobody announced, for no intent names it: a batch of the same offsets replaces it
    3   the intent, maybe announced: so exactly that copy is announced again and waited for, and nothing else at its
        offsets. If the copy is gone and the head is not past it, it cannot be archived any more, and is dropped
    4   an archived batch whose messages are on the queue: those that look alike are taken off it (`_recovered`)
    5   an archived batch whose messages may be on the queue: it depends on how many look alike
    6   the same
    7   nothing

Messages look alike if they are the same in every byte. Some of a batch may be missing: they expire, and queues are
purged. Some may come later: those of higher priority overtake.

After 5, only messages that the broker says were delivered before can be of the batch. But so was what came to a
consumer after it: `beyond` counts that. It is one message when the batch is settled, and none for a batch of one, and
each archiver that comes adds one before it consumes, because it delivers one more than are known. More messages that
look alike than `beyond` are the batch. As many or fewer are archived, maybe once more: they may be others, and none is
lost. It takes two deaths within a few calls, or one and an expired message, to archive a message twice.

Two archivers: the broker has one exclusive consumer, and an archiver takes the fence (`state.py`) only after it has
that. Whoever lost the fence cannot write an intent, and so announces nothing new; what it announces again is what the
other waits for, too. A queue that is declared again goes on in the same stream.

What this cannot see: a broker that crashes may forget an acknowledgement that it had carried out, and deliver the
messages again later; they are then archived twice. Messages that are equal in every byte, all delivered before to
another consumer, cannot be told from those of a batch that had been settled when the process died between 5 and 7.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from zlib import crc32

from coldstream.archive.quarantine import read_quarantine
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import (
    ConflictError,
    ContradictionError,
    InvalidInputError,
    ObjectExistsError,
    ReplacedError,
    StreamDeletedError,
)
from coldstream.format.amqp.message import messages
from coldstream.ingest.announcer import FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR, Announcer
from coldstream.manifest.entry import Gap
from coldstream.queues.batch import batch_bytes
from coldstream.queues.delivery import Delivery, QueueConnection
from coldstream.queues.fields import BasicFields
from coldstream.queues.message import to_amqp10
from coldstream.queues.state import BatchIntent, QueueArchiveState, QueueFence
from coldstream.read.scan import plan_scan, read_slice
from coldstream.retry import Backoff
from coldstream.units import MIB, Offset, TimestampMs, now_ms

ANNOUNCE_AGAIN_S = 600.0
"""An event that has come to nothing for so long is put again: it may have ended in the dead-letter queue."""

LOOK_S = 0.5
"""How long to wait for a message before looking whether to stop."""

LOOKS_BEFORE_COPY = 4
"""Looks at the head before the first at the staged copy: usually the head is past it by then."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is closed: at so many messages or bytes, or so long after its first message.

    Memory is about three times `max_bytes`, and once the largest message.
    """

    max_messages: int = 10_000
    max_bytes: int = 8 * MIB
    max_age_s: float = 5.0

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.max_bytes < 1 or self.max_age_s < 0:
            raise InvalidInputError("batch", "needs at least one message and one byte, and an age of 0 or more")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that is archived and off its queue. `recovered` messages were archived by an earlier archiver."""

    vhost: str
    queue: str
    messages: int
    size_bytes: int
    next_offset: Offset
    recovered: int = 0


class QueueArchiver:
    """Archives one queue, over one connection to the broker. After any error it is done: make another."""

    def __init__(
        self,
        source: QueueConnection,
        fence: QueueFence,
        announcer: Announcer,
        limits: BatchLimits = BatchLimits(),
        *,
        on_batch: Callable[[BatchReport], None] = lambda _: None,
        now: Callable[[], TimestampMs] = now_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._fence = fence
        self._announcer = announcer
        self._limits = limits
        self._on_batch = on_batch
        self._now = now
        self._clock = clock
        self._taken: list[Delivery] = []

    def run(self, *, once: bool = False, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Archive until `should_stop`, or with `once` until the queue is empty. What was begun is finished.

        Raises QueueTakenError, NotFoundError if the queue is gone, InvalidInputError for a message that cannot be
        archived or a batch in quarantine, StreamDeletedError, OtherClusterError, UnavailableError; whatever is raised,
        no message is lost.
        """
        state = self._fence.take(self._now() * 1_000_000)
        self._announcer.check_accepted(state.stream)
        self._recover()
        while True:
            batch = self._collected(once=once, should_stop=should_stop)
            if batch:
                self._archive(batch)
            elif should_stop() or (once and self._source.is_empty()):
                return

    def _collected(self, *, once: bool, should_stop: Callable[[], bool]) -> tuple[Delivery, ...]:
        """Take the next batch, which is empty if nothing comes for a moment."""
        batch, self._taken = self._taken, []
        size_bytes = sum(len(one.body) for one in batch)
        closes_at = self._clock() + self._limits.max_age_s
        while len(batch) < self._limits.max_messages and size_bytes < self._limits.max_bytes and not should_stop():
            wait_s = LOOK_S if not batch else max(0.0, min(LOOK_S, closes_at - self._clock()))
            taken = self._source.take(wait_s)
            if taken is None:
                if not batch or once or self._clock() >= closes_at:
                    break
                continue
            if not batch:
                closes_at = self._clock() + self._limits.max_age_s
            batch.append(taken)
            size_bytes += len(taken.body)
        return tuple(batch)

    def _archive(self, batch: tuple[Delivery, ...]) -> None:
        state = self._fence.state
        first_offset, next_offset = state.settled, Offset(state.settled + len(batch))
        timestamp = max(self._now(), state.timestamp)
        try:
            data = batch_bytes([self._encoded(one) for one in batch], first_offset, timestamp, state.epoch)
        except OverflowError as err:
            raise InvalidInputError("message", f"of {state.stream} is too large for a chunk: {err}") from err
        etag = self._staged(data, state, next_offset)
        intent = BatchIntent(first_offset, next_offset, len(data), etag)
        self._fence.write(replace(state, timestamp=timestamp, intent=intent))
        while not self._is_archived(intent):
            # Somebody deleted the copy before the function read it. The same bytes have the same ETag, or the event
            # that is announced again names the new one.
            intent = replace(intent, etag=self._staged(data, self._fence.state, next_offset))
            self._fence.write(replace(self._fence.state, intent=intent))
        self._settle(batch, replace(intent, beyond=0 if len(batch) == 1 else 1))
        self._tell(len(batch), len(data))

    def _settle(self, batch: tuple[Delivery, ...], intent: BatchIntent) -> None:
        """Take an archived batch off the queue. The first write is also the last look at the fence before that."""
        self._fence.write(replace(self._fence.state, intent=intent))
        self._source.settle(batch)
        self._fence.write(replace(self._fence.state, settled=intent.next_offset, intent=None))

    def _encoded(self, delivery: Delivery) -> bytes:
        stream = self._fence.state.stream
        return to_amqp10(delivery, source=f"queue {stream.name!r} in vhost {stream.vhost!r}, delivery {delivery.tag}")

    def _staged(self, data: bytes, state: QueueArchiveState, next_offset: Offset) -> str:
        """Stage a slice, in place of one of the same offsets that nobody announced; return its ETag."""
        objects = self._announcer.objects
        key = self._announcer.keys.staged(state.stream.incarnation, state.settled, next_offset)
        checksum = crc32(data)
        for _ in range(3):
            try:
                objects.put_new(key, BytesIO(data), size_bytes=len(data), crc32=checksum)
            except ObjectExistsError:
                found = objects.info(key)
                if found is not None and (found.size_bytes, found.crc32) != (len(data), checksum):
                    # Checked right before: an archiver that lost the fence must not delete what the other announced.
                    self._fence.write(self._fence.state)
                    try:
                        objects.delete(key, if_match=found.etag)
                    except ReplacedError:
                        continue
                    continue
            found = objects.info(key)
            if found is not None and (found.size_bytes, found.crc32) == (len(data), checksum):
                return found.etag
        raise ConflictError(f"somebody else keeps changing {key}")

    def _is_archived(self, intent: BatchIntent) -> bool:
        """Announce a staged batch and wait until the archive has it; return False if its copy is gone before that.

        Raises InvalidInputError if it is in quarantine.
        """
        stream = self._fence.state.stream
        rolled = SegmentRolled(
            stream,
            intent.first_offset,
            intent.next_offset,
            intent.size_bytes,
            self._announcer.objects.bucket,
            self._announcer.keys.staged(stream.incarnation, intent.first_offset, intent.next_offset),
            etag=intent.etag,
            cluster=self._announcer.keys.cluster,
        )
        while not self._is_past(intent.next_offset):
            if not self._is_there(rolled):
                # In this order: the function deletes the copy after the commit.
                return self._is_past(intent.next_offset)
            self._announcer.put(rolled)
            deadline = self._clock() + ANNOUNCE_AGAIN_S
            backoff = Backoff(FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR)
            looks = 0
            while self._clock() < deadline:
                self._source.pause(backoff.next_delay_s())
                if self._is_past(intent.next_offset):
                    return True
                looks += 1
                if looks >= LOOKS_BEFORE_COPY and not self._is_there(rolled):
                    return self._is_past(intent.next_offset)
        return True

    def _is_there(self, rolled: SegmentRolled) -> bool:
        """Tell whether the announced copy is staged. Raises InvalidInputError if it is in quarantine instead."""
        found = self._announcer.objects.info(rolled.staged_key)
        if found is not None and found.etag == rolled.etag:
            return True
        aside = read_quarantine(self._announcer.table, rolled)
        if aside is not None and aside.etag == rolled.etag and not self._is_past(rolled.next_offset):
            error = InvalidInputError("batch", f"{rolled} is in quarantine, and its messages stay on the queue")
            error.add_note("`coldstream quarantine show` tells why; after `coldstream quarantine retry` run this again")
            raise error
        return False

    def _is_past(self, next_offset: Offset) -> bool:
        """Tell whether the archive has everything below an offset. Raises StreamDeletedError."""
        stream = self._fence.state.stream
        head = self._announcer.table.head(stream.incarnation)
        if head is None:
            return False
        if head.deleted_at is not None:
            raise StreamDeletedError(str(stream), head.deleted_at)
        return head.next_offset is not None and head.next_offset >= next_offset

    def _recover(self) -> None:
        """Finish what an earlier archiver began."""
        state = self._fence.state
        intent = state.intent
        if intent is None or not self._is_archived(intent):
            head = self._announcer.table.head(state.stream.incarnation)
            tail = Offset(0) if head is None or head.next_offset is None else head.next_offset
            if tail != state.settled:
                raise ContradictionError(
                    str(state.stream), tail, f"the archive ends here, and {state.settled} offsets are off the queue"
                )
            if intent is not None:
                self._fence.write(replace(state, intent=None))
            return
        done = self._recovered(intent)
        beyond = len(self._taken) + (0 if len(done) == 1 else 1)
        self._settle(done, replace(intent, beyond=max(beyond, intent.beyond or 0)))
        self._tell(len(done), 0, recovered=len(done))

    def _recovered(self, intent: BatchIntent) -> tuple[Delivery, ...]:
        """Return the messages on the queue that are archived as this batch; others that were taken come next."""
        archived = self._read(intent)
        size = archived.total()
        done: list[Delivery] = []
        others: list[Delivery] = []
        while len(done) < size and len(others) < self._limits.max_messages:
            delivery = self._source.take(LOOK_S)
            if delivery is None:
                break
            encoded = self._encoded(delivery)
            is_alike = archived[encoded] > 0
            if is_alike and (delivery.redelivered or intent.beyond is None):
                archived[encoded] -= 1
                done.append(delivery)
                continue
            others.append(delivery)
            if not delivery.redelivered and (
                is_alike or not BasicFields.from_bytes(delivery.properties, source="").priority
            ):
                break  # only those of a higher priority are before messages that were delivered earlier
        if intent.beyond is not None and len(done) < intent.beyond:
            # It has counted one for this archiver, which was delivered no message before these.
            others, done = sorted(done + others, key=lambda one: one.tag), []
        self._taken = others
        return tuple(done)

    def _read(self, intent: BatchIntent) -> Counter[bytes]:
        """Read an archived batch back. Cost: a Query, and a GET a fragment."""
        found: Counter[bytes] = Counter()
        announcer = self._announcer
        stream = self._fence.state.stream
        for step in plan_scan(announcer.table, stream, intent.first_offset, intent.next_offset):
            if isinstance(step, Gap):
                continue  # it was truncated meanwhile; what is left tells enough
            for chunk in read_slice(announcer.objects, step):
                found.update(
                    message.raw
                    for message in messages(chunk, source=step.key, from_offset=step.start)
                    if message.offset < step.end
                )
        return found

    def _tell(self, count: int, size_bytes: int, *, recovered: int = 0) -> None:
        state = self._fence.state
        self._on_batch(BatchReport(state.stream.vhost, state.stream.name, count, size_bytes, state.settled, recovered))
