"""Publishing to a stream: entries as a chunk has them, each behind a publishing id.

    frame    length u32 · key 2 u16 · version 1 u16 · publisher id u8 · entries u32 · entries
    entry    publishing id u64 · entry as in a chunk (format/entry.py)

The broker keeps the greatest publishing id of each reference, and drops what comes with one that is not greater. It
does so on the leader, for all connections: who publishes under the same reference at the same time, with the same ids
for the same messages, adds nothing twice, either.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from types import TracebackType
from typing import Self

from rstream import schema

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.live import refusals
from coldstream.live.wire import Wire, WireText
from coldstream.units import MIB

MAX_REFERENCE_BYTES = 255
"""RabbitMQ takes no longer ones."""

CONFIRM_TIMEOUT_S = 30.0
"""For the next confirm, while there is anything to confirm. A broker that flushes to slow disks takes seconds."""

WINDOW_BYTES = 8 * MIB
"""Sent and not confirmed yet. Brokers stop reading connections that are too far ahead."""

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
"""Of one connection: their ids are of eight bits."""


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

    Entering it raises StreamNotFoundError, AccessDeniedError, UnavailableError, InvalidInputError. Once anything was
    refused or lost, every call raises UnavailableError: open another, and go on behind its `sequence`.
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
        self._sent: deque[tuple[int, int, int]] = (
            deque()
        )  # frames not wholly confirmed: entries up to its end, bytes, id
        self._safe_id = 0
        self._entries_sent = self._entries_confirmed = self._bytes_open = 0
        self._error: UnavailableError | None = None
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        free = set(range(MAX_PUBLISHERS)) - self._wire.sinks.keys()
        if not free:
            raise UnavailableError(f"all {MAX_PUBLISHERS} publishers of the connection are in use")
        number = self._number = min(free)
        self._wire.sinks[number] = self
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
        # The broker forgets the publisher with the connection, which is opened for it.
        if self._number is not None:
            self._wire.sinks.pop(self._number, None)

    @property
    def max_frame_bytes(self) -> int:
        """What the entries of one `send` may take, publishing ids included."""
        return self._wire.frame_max_bytes - FRAME_OVERHEAD_BYTES

    def safe_to(self, last_id: int) -> int:
        """Return up to which publishing id, `last_id` at most, all is confirmed of what was sent."""
        return self._safe_id if self._sent else last_id

    async def send(self, encoded: bytes, entries: int, last_id: int) -> None:
        """Send entries behind their publishing ids, in one frame, and wait while too much is not confirmed.

        Raises UnavailableError.
        """
        while self._bytes_open > WINDOW_BYTES:
            await self._more()
        self._check()
        self._entries_sent += entries
        self._sent.append((self._entries_sent, len(encoded), last_id))
        self._bytes_open += len(encoded)
        length = FRAME_OVERHEAD_BYTES - _LENGTH_BYTES + len(encoded)
        header = _HEADER.pack(length, schema.Publish.key.value, schema.Publish.version, self._number or 0, entries)
        await self._wire.send_encoded(header, encoded)

    async def flush(self) -> None:
        """Wait until all that was sent is confirmed. Raises UnavailableError."""
        while self._entries_confirmed < self._entries_sent:
            await self._more()
        self._check()

    def confirmed(self, entries: int) -> None:
        """Take it that entries are safe."""
        self._entries_confirmed += entries
        while self._sent and self._sent[0][0] <= self._entries_confirmed:
            _, size_bytes, self._safe_id = self._sent.popleft()
            self._bytes_open -= size_bytes
        self._news.set()

    def refused(self, code: int, entries: int) -> None:
        """Take it that entries were not taken."""
        self.lost(
            UnavailableError(f"{entries} entries for {self.stream!r}: {refusals.refusal(code, self._wire.place)}")
        )

    def lost(self, error: UnavailableError) -> None:
        """Raise `error` from now on."""
        self._error = self._error or error
        self._news.set()

    async def _more(self) -> None:
        """Wait for the next confirm."""
        self._check()
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
