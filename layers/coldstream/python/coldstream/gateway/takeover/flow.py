"""The chunks of one subscription on their way to the client: pure, and never waiting.

While the broker serves it, a chunk that begins where the one before ended passes at once. That is one comparison, and
what nearly every chunk takes. Any other one is dropped, if the client has had it, or kept, and the subscription's task
settles what comes before it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable

from coldstream.errors import ColdstreamError, CorruptionError, IncarnationError, UnavailableError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.requests import Credit, Subscribe
from coldstream.gateway.ports import BrokerLink, ClientLink, Verdict
from coldstream.gateway.takeover.kept import KeptChunk
from coldstream.gateway.takeover.ledger import CreditLedger
from coldstream.units import MIB, Offset

_PLACE = struct.Struct(">4xI16xQ")  # of a chunk header: records, chunk id
_PLACE_BYTES = 32
assert _PLACE.size == _PLACE_BYTES

_MAX_KEPT_BYTES = 64 * MIB
"""Chunks may be large. Who is to get more than that before it is known what comes before them has to begin anew."""


class ChunkFlow:
    """Implements `ChunkReceiver`.

    `expected` is the offset that the client gets next, None as long as any may be the first; `is_border` says whether a
    chunk is known to begin there. `last` is the header of the user chunk that the client got last. `is_busy` says that
    the subscription's task is at work, `is_attached` that the broker may be given credits. `wake` is called when the
    task has something to do.
    """

    def __init__(
        self,
        request: Subscribe,
        ledger: CreditLedger,
        client: ClientLink,
        broker: BrokerLink,
        wake: Callable[[], None],
    ) -> None:
        self.number = request.subscription_id
        self.stream = request.stream
        self.ledger = ledger
        self.client = client
        self.expected: Offset | None = None
        self.is_border = False
        self.last: bytes | None = None
        self.queue: deque[KeptChunk] = deque()
        self.kept_count = 0
        self.failure: ColdstreamError | None = None
        self.is_busy = False
        self.is_attached = False
        self._is_passing = False  # the broker's chunks pass, and
        self._is_live = False  # one of them has begun, so that a border is expected
        self._broker = broker
        self._wake = wake

    def begin(self, expected: Offset | None) -> None:
        """Start anew from an offset, with none of what was kept."""
        self.expected = expected
        self.is_border = False
        self.last = None
        self.queue.clear()
        self._is_passing = self._is_live = False

    def deliver(self, version: int, head: memoryview) -> Verdict:  # noqa: ARG002
        """Decide about a chunk of the broker."""
        records, chunk_id = _PLACE.unpack_from(head)
        ledger = self.ledger
        ledger.upstream -= 1
        if chunk_id == self.expected and self._is_live and ledger.client > 0:
            self.expected = chunk_id + records
            self.last = bytes(head)
            ledger.client -= 1
            # By halves: with a Credit for each chunk, a broker delivers the next one 1.6 ms later (3.10).
            if ledger.upstream <= ledger.limit // 2 and ledger.client > ledger.upstream:
                self.replenish()
            return Verdict.PASS
        return self._deliver_other(head, chunk_id, Offset(chunk_id + records))

    def kept(self, version: int, frame: bytes) -> None:
        """Queue a chunk that was kept, and wake the task."""
        header_at = DELIVER_HEAD_BYTES[version]
        try:
            if len(self.queue) >= self.ledger.limit or self._kept_bytes + len(frame) > _MAX_KEPT_BYTES:
                raise UnavailableError(f"stream {self.stream!r}: the broker sends more than can be kept")
            header = ChunkHeader.from_bytes(
                memoryview(frame)[header_at : header_at + CHUNK_HEADER_BYTES],
                source=f"stream {self.stream!r} as delivered",
                position=0,
            )
        except (CorruptionError, UnavailableError) as err:
            self._fail(err)
            return
        self.kept_count += 1
        self.queue.append(KeptChunk(header, frame, self.kept_count))
        self._wake()

    @property
    def _kept_bytes(self) -> int:
        return sum(len(kept.frame) for kept in self.queue)

    def sent(self, header: ChunkHeader) -> None:
        """Note that the client was sent a user chunk otherwise than by `deliver`."""
        self.ledger.client -= 1
        self.last = header.to_bytes()
        self.move(header.next_offset)

    def move(self, expected: Offset) -> None:
        """Go on at an offset where a chunk begins."""
        self.expected = expected
        self.is_border = True

    def attach_live(self) -> None:
        """Let the chunks of a broker pass from the first one on."""
        self.is_attached = True
        self._is_passing = True

    def rest(self) -> None:
        """Let the broker's chunks pass, if nothing is kept, and give the broker its credits."""
        self._is_passing = self.is_attached and not self.is_busy and not self.queue
        self._is_live = self._is_passing and self.is_border
        self.replenish()

    def replenish(self) -> None:
        """Give the broker what it may have; nothing while the task is busy, as what comes then has to be kept."""
        if self.is_attached and not self.is_busy:
            owed = self.ledger.owed(len(self.queue))
            if owed:
                self.give(owed)

    def give(self, credit: int) -> None:
        """Give the broker credits."""
        self.ledger.upstream += credit
        self._broker.send(Credit(self.number, credit).to_bytes())

    def _deliver_other(self, head: memoryview, chunk_id: int, next_offset: Offset) -> Verdict:
        if not self.is_attached or self.failure is not None:
            return Verdict.DROP
        expected = self.expected
        if expected is None or self.is_first(chunk_id):
            if self._is_passing and self.ledger.client > 0:
                self._is_live = True
                self.move(next_offset)
                self.last = bytes(head)
                self.ledger.client -= 1
                if self.ledger.upstream == 0:
                    self.replenish()
                return Verdict.PASS
        elif next_offset <= expected:
            return self._deliver_again()
        elif chunk_id < expected:
            self._fail(
                IncarnationError(
                    f"stream {self.stream!r}: the broker's chunk at offset {chunk_id} begins within what was sent,"
                    f" up to {expected}"
                )
            )
            return Verdict.DROP
        self._is_passing = self._is_live = False
        return Verdict.KEEP

    def is_first(self, chunk_id: int) -> bool:
        """Tell whether a chunk may be the first one that the client gets.

        It holds the offset that was asked for, and may begin before it. Brokers give smaller offsets than that, too, if
        it lay past their end.
        """
        return not self.is_border and (self.expected is None or chunk_id <= self.expected)

    def _deliver_again(self) -> Verdict:
        """Drop a chunk that the client has had from the archive."""
        if not self.is_busy:
            self.rest()
        return Verdict.DROP

    def _fail(self, error: ColdstreamError) -> None:
        self.failure = error
        self._is_passing = self._is_live = False
        self._wake()
