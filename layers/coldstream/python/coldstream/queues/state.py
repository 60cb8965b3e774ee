"""The state item of an archived queue, and the fence that it is: every write is over the revision that was read.

    #queue-archives      {sha256 of vhost and queue}      JSON, below

    version        1
    vhost, queue   the names
    incarnation    of the stream in the archive, made once
    epoch          raised by each archiver that takes the queue; the epoch of the chunks that it writes
    settled        the offset below which everything is archived, and off the queue
    timestamp      of the newest chunk, milliseconds: the next is not earlier
    intent         null, or the one batch that may be announced: first_offset, next_offset, size_bytes, etag of its
                   staged copy; beyond, null until the batch is settled at the broker, and from right before that on
                   how many messages after it may have been delivered by now

An archiver that has lost the fence cannot write, and so can announce nothing new.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from coldstream.errors import (
    CorruptionError,
    InvalidInputError,
    LostRaceError,
    OutcomeUnknownError,
    QueueTakenError,
    UnavailableError,
)
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId, new_stream
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.sortkeys import names_key
from coldstream.units import Epoch, Offset, TimestampMs

QUEUE_ARCHIVES = "#queue-archives"
VERSION = 1

_TRIES = 5


@dataclass(frozen=True, slots=True)
class BatchIntent:
    """A staged batch that may be announced: nothing else is, at these offsets, until the archive has it.

    While `beyond` is None it is not settled. Later it may be, and so many messages after it may have been delivered.
    """

    first_offset: Offset
    next_offset: Offset
    size_bytes: int
    etag: str
    beyond: int | None = None

    @property
    def one_more_beyond(self) -> BatchIntent:
        """The same before one more message is delivered."""
        return self if self.beyond is None else replace(self, beyond=self.beyond + 1)


@dataclass(frozen=True, slots=True)
class QueueArchiveState:
    """What is kept of an archived queue."""

    stream: StreamId
    epoch: Epoch
    settled: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    timestamp: TimestampMs = TimestampMs(0)  # noqa: RUF009  a NewType is its value
    intent: BatchIntent | None = None

    def to_bytes(self) -> bytes:
        """Return the bytes of the state item."""
        return json.dumps(
            {
                "version": VERSION,
                "vhost": self.stream.vhost,
                "queue": self.stream.name,
                "incarnation": self.stream.incarnation,
                "epoch": self.epoch,
                "settled": self.settled,
                "timestamp": self.timestamp,
                "intent": None if self.intent is None else asdict(self.intent),
            },
            ensure_ascii=False,
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> QueueArchiveState:
        """Read the bytes of a state item. Raises CorruptionError."""
        try:
            read = read_json(data)
            if read["version"] != VERSION:
                raise ValueError(f"version {read['version']} is of another release")
            stream = StreamId(read["vhost"], read["queue"], Incarnation(read["incarnation"]))
            intent = None if read["intent"] is None else BatchIntent(**read["intent"])
            return cls(stream, Epoch(read["epoch"]), Offset(read["settled"]), TimestampMs(read["timestamp"]), intent)
        except (InvalidInputError, KeyError, TypeError, ValueError) as err:
            raise CorruptionError(source, 0, f"state of an archived queue: {err}") from err


def find_state(table: ManifestReads, vhost: str, queue: str) -> QueueArchiveState | None:
    """Return what is kept of a queue, None if it was never archived. Cost: one GetItem. Raises CorruptionError."""
    item = table.state_item(QUEUE_ARCHIVES, _key(vhost, queue))
    return None if item is None else _state(item)


class QueueFence:
    """The state of a queue, held by one archiver: from `take` on, nobody who took it before can write it."""

    def __init__(
        self, table: ManifestTable, vhost: str, queue: str, ended: frozenset[Incarnation] = frozenset()
    ) -> None:
        self._table = table
        self._vhost = vhost
        self._queue = queue
        self._ended = ended
        self._revision = 0
        self._expecting = -1  # the revision that counts the delivery to our consumer
        self._state: QueueArchiveState | None = None

    @property
    def state(self) -> QueueArchiveState:
        """What was written last."""
        assert self._state is not None
        return self._state

    def expect_delivery(self) -> None:
        """Count the message that a consumer is given at once. Call it before there is one: see `archiver.py`.

        Cost: one GetItem, and a PUT if an archiver ended while it settled a batch.
        """
        item = self._table.state_item(QUEUE_ARCHIVES, _key(self._vhost, self._queue))
        if item is None or item.revision == self._expecting:
            return
        known = _state(item)
        self._revision = item.revision
        if known.intent is not None and known.intent.beyond is not None:
            self.write(replace(known, intent=known.intent.one_more_beyond))
        self._expecting = self._revision

    def take(self, now_ns: int) -> QueueArchiveState:
        """Take the queue over: write its state with the next epoch. Cost: one GetItem and one PUT.

        A stream that was purged from the archive, or that is one of `ended`, begins anew, at `now_ns`, nanoseconds
        since the Unix epoch. Raises QueueTakenError if others keep taking it, InvalidNameError if an incarnation cannot
        hold the names.
        """
        for _ in range(_TRIES):
            item = self._table.state_item(QUEUE_ARCHIVES, _key(self._vhost, self._queue))
            self._revision = 0 if item is None else item.revision
            known = None if item is None else _state(item)
            if known is None or self._is_over(known):
                epoch = 0 if known is None else known.epoch
                known = QueueArchiveState(new_stream(self._vhost, self._queue, now_ns), Epoch(epoch))
            if known.intent is not None and self._revision != self._expecting:
                known = replace(known, intent=known.intent.one_more_beyond)
            try:
                self.write(replace(known, epoch=Epoch(known.epoch + 1)))
            except QueueTakenError:
                continue
            return self.state
        raise self._taken()

    def write(self, state: QueueArchiveState) -> None:
        """Write the state. Raises QueueTakenError if another archiver has taken the queue."""
        item = StateItem(QUEUE_ARCHIVES, _key(self._vhost, self._queue), self._revision + 1, state.to_bytes())
        for _ in range(_TRIES):
            try:
                self._table.put_state(item)
            except (LostRaceError, OutcomeUnknownError) as err:
                # It may be our own write whose answer was lost. Nobody else writes these bytes: the epoch is ours.
                found = self._table.state_item(item.partition, item.key)
                if found != item:
                    if (
                        isinstance(err, OutcomeUnknownError)
                        and (0 if found is None else found.revision) < item.revision
                    ):
                        continue
                    raise self._taken() from err
            self._revision, self._state = item.revision, state
            return
        raise UnavailableError(f"the state of queue {self._queue!r} could not be written: no answer came")

    def _is_over(self, known: QueueArchiveState) -> bool:
        if known.stream.incarnation in self._ended and known.intent is None:
            return True
        head = self._table.head(known.stream.incarnation)
        return head is not None and head.is_deleted and not head.can_be_undeleted

    def _taken(self) -> QueueTakenError:
        return QueueTakenError(self._vhost, self._queue, "another archiver has taken it over")


def _key(vhost: str, queue: str) -> str:
    return names_key(vhost, queue).removesuffix("#")


def _state(item: StateItem) -> QueueArchiveState:
    return QueueArchiveState.from_bytes(item.data, source=f"state item {item.partition} {item.key}")
