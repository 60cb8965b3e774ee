"""Publishing to a stream: entries as a chunk has them, each after a publishing id.

    Publish frame; all integers big-endian
     0  length          4    of what follows
     4  key             2    2
     6  version         2    1
     8  publisher id    1
     9  entries         4    count
    13  entries              each: publishing id u64 · entry as in a chunk (format/entry.py)

The broker keeps the greatest publishing id of each reference, and drops entries whose id is not greater. The leader
does so for all connections. So publishers that use the same reference at the same time, with the same ids for the same
messages, publish nothing twice either.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rstream import schema

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.live import refusals
from coldstream.live.wire import Wire, WireText
from coldstream.units import MIB

MAX_REFERENCE_BYTES = 255
"""RabbitMQ takes no longer reference."""

CONFIRM_TIMEOUT_S = 30.0
"""For the next confirm, while there is anything to confirm. A broker with slow disks takes seconds."""

WINDOW_BYTES = 8 * MIB
"""Sent and not confirmed yet. Brokers stop reading from connections that are too far ahead."""

_HEADER = struct.Struct(
    ">"
    "I"  # length of what follows
    "HH"  # key, version
    "B"  # publisher id
    "I"  # entries
)
_LENGTH_BYTES = 4
FRAME_OVERHEAD_BYTES = _HEADER.size
MAX_PUBLISHERS = 256
"""Of one connection: ids have eight bits."""


async def query_sequence(wire: Wire, stream: str, reference: str) -> int:
    """Return the greatest publishing id under a reference, 0 for none.

    Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
    """
    answer = await wire.request(
        lambda correlation_id: schema.QueryPublisherSequence(
            correlation_id, publisher_ref=WireText(reference), stream=WireText(stream)
        ),
        schema.QueryPublisherSequenceResponse,
    )
    refusals.check(answer.response_code, f"publisher {reference!r} of {stream!r}")
    return answer.sequence


class Publisher:
    """Publishes to one stream under one reference; an asynchronous context manager, for one task at a time.

    Entering it raises StreamNotFoundError, AccessDeniedError, UnavailableError, InvalidInputError. After anything was
    refused or lost, every call raises UnavailableError: open another publisher, and go on after its `sequence`.
    """

    def __init__(self, wire: Wire, stream: str, reference: str) -> None:
        if not 0 < len(reference.encode()) <= MAX_REFERENCE_BYTES:
            raise InvalidInputError(
                "publisher", f"needs 1 to {MAX_REFERENCE_BYTES} bytes, got {len(reference.encode())}"
            )
        self.stream = stream
        self.sequence = 0
        self._wire = wire
        self._reference = reference
        self._number: int | None = None
        # Frames not wholly confirmed: how many entries were sent up to the frame's end, its bytes, its last id.
        self._sent: deque[tuple[int, int, int]] = deque()
        self._safe_id = 0
        self._entries_sent = self._entries_confirmed = self._bytes_open = 0
        self._error: UnavailableError | None = None
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        free = set(range(MAX_PUBLISHERS)) - self._wire.sinks.keys()
        if not free:
            raise UnavailableError(f"all {MAX_PUBLISHERS} publishers of the connection are in use")
        number = self._number = min(free)
        self._wire.sinks[number] = self  # before any await, or another publisher would take the same number
        try:
            declared = await self._wire.request(
                lambda correlation_id: schema.DeclarePublisher(
                    correlation_id,
                    publisher_id=number,
                    reference=WireText(self._reference),
                    stream=WireText(self.stream),
                ),
                schema.DeclarePublisherResponse,
            )
            refusals.check(declared.response_code, f"publishing to {self.stream!r}")
            self.sequence = await query_sequence(self._wire, self.stream, self._reference)
        except BaseException:
            del self._wire.sinks[number]
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The broker forgets the publisher with the connection: each connection is opened for one task of publishing.
        if self._number is not None:
            self._wire.sinks.pop(self._number, None)

    @property
    def max_frame_bytes(self) -> int:
        """The bytes that the entries of one `send` may have, publishing ids included."""
        return self._wire.frame_max_bytes - FRAME_OVERHEAD_BYTES

    def safe_to(self, last_id: int) -> int:
        """Return the publishing id up to which everything sent is confirmed, at most `last_id`."""
        return self._safe_id if self._sent else last_id

    async def send(self, pieces: Sequence[bytes | memoryview], size_bytes: int, entries: int, last_id: int) -> None:
        """Send entries, each after its publishing id, in one frame. Waits while too much is not confirmed.

        The entries are so many bytes, in pieces that are not copied before they are sent.

        Raises UnavailableError.
        """
        while self._bytes_open > WINDOW_BYTES:
            await self._more()
        self._check()
        # Counted before the frame is sent: its confirms may arrive while `send_encoded` waits for the socket.
        self._entries_sent += entries
        self._sent.append((self._entries_sent, size_bytes, last_id))
        self._bytes_open += size_bytes
        length = FRAME_OVERHEAD_BYTES - _LENGTH_BYTES + size_bytes
        header = _HEADER.pack(length, schema.Publish.key.value, schema.Publish.version, self._number or 0, entries)
        await self._wire.send_encoded(header, *pieces)

    async def flush(self) -> None:
        """Wait until everything that was sent is confirmed. Raises UnavailableError."""
        while self._entries_confirmed < self._entries_sent:
            await self._more()
        self._check()

    def confirmed(self, entries: int) -> None:
        """Note that so many entries, the oldest first, are safe."""
        self._entries_confirmed += entries
        # A confirm may end inside a frame, or cover several: a frame is safe only with its last entry.
        while self._sent and self._sent[0][0] <= self._entries_confirmed:
            _, size_bytes, self._safe_id = self._sent.popleft()
            self._bytes_open -= size_bytes
        self._news.set()

    def refused(self, code: int, entries: int) -> None:
        """Note that the broker refused entries, and fail."""
        self.lost(
            UnavailableError(f"{entries} entries for {self.stream!r}: {refusals.refusal(code, self._wire.place)}")
        )

    def lost(self, error: UnavailableError) -> None:
        """Raise `error` in every call from now on."""
        # The first error stays: a connection that is lost later would hide why the broker refused.
        self._error = self._error or error
        self._news.set()

    async def _more(self) -> None:
        """Wait for the next confirm."""
        self._check()
        # Cleared without an await between the check and the wait: no confirm can be missed between the two.
        self._news.clear()
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                await self._news.wait()
        except TimeoutError as err:
            raise UnavailableError(
                f"{self._wire.place}: no entry for {self.stream!r} confirmed within {CONFIRM_TIMEOUT_S:g} s"
            ) from err
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
