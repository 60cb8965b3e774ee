"""Responses with pages, which are sent piece by piece: a page counts as unread until its client has read it.

What is sent in one piece goes to the connection's buffer as a whole, however slow the client is. Of many small ones
the next waits until the client has read those before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from http import HTTPStatus

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from coldstream.units import KIB
from coldstream.web.request_limits import RequestLimits

_PIECE_BYTES = 64 * KIB


class PageResponse(Response):
    """A page. It counts from the start. Raises Refusal if clients have too much to read already."""

    def __init__(self, page: bytes, headers: dict[str, str], limits: RequestLimits) -> None:
        super().__init__(page, HTTPStatus.OK, headers)
        self._counted = ExitStack()
        self._counted.enter_context(limits.answer(len(page)))

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        with self._counted:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in pieces(bytes(self.body)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # lets the connection learn that its client left
            await send({"type": "http.response.body", "body": b""})


class EventsResponse(StreamingResponse):
    """A stream of events, and what it holds on to: that is let go also if the client left before the first event."""

    def __init__(self, events: AsyncGenerator[bytes], held: AsyncExitStack, headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers)
        self._events = events
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more."""
        async with self._held, aclosing(self._events):
            await super().__call__(scope, receive, send)


def pieces(body: bytes) -> Iterator[bytes]:
    """Cut what is sent."""
    return (body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES))
