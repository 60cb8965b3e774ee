"""Connections that are cut off when their client is too slow: they would take the place of others.

A client has so long to send the head of a request, from the start of the connection or the end of the response before,
and reads what is sent to it at some speed at least. uvicorn bounds neither: its own timeout ends with the first byte.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from coldstream.units import KIB

HEAD_WITHIN_S = 10.0
"""From a connection, or the end of a response, to the last byte of the next request's head."""

STALL_S = 30.0
"""How often a client is looked at that lets what is sent to it pile up."""

LEAST_BYTES = 64 * KIB
"""What such a client must have read since the last look."""

MAX_HEAD_BYTES = 32 * KIB


class GuardedConnection(H11Protocol):
    """A connection of uvicorn's with these bounds."""

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Await the first head."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Stop waiting if this ends a head."""
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        """Await the next head."""
        super().on_response_complete()
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Watch how fast the client reads: more is on its way than it has read."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Watch no more: it has read nearly all."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def _watch_head(self) -> None:
        """Start the clock if a head is awaited, and stop it once it is there."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_WITHIN_S, self._abort_if_idle, 0)
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort_if_idle(self, unread_before: int) -> None:
        """Wait on only for a client that is still reading the response before."""
        unread = self.transport.get_write_buffer_size()
        if unread and (not unread_before or unread < unread_before):
            self._head_timer = self.loop.call_later(HEAD_WITHIN_S, self._abort_if_idle, unread)
        else:
            self.transport.abort()

    def _watch_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_S, self._abort_if_stalled, unread)

    def _abort_if_stalled(self, unread_before: int) -> None:
        if self.transport.get_write_buffer_size() > unread_before - LEAST_BYTES:
            self.transport.abort()
        else:
            self._watch_reader()
