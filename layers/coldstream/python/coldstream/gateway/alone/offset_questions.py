"""The offsets that a client stores, and asks for."""

from __future__ import annotations

import logging
from typing import Final

from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.questions import AloneQuestions
from coldstream.gateway.frames.answers import OffsetAnswer
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import QueryOffset, StoreOffset
from coldstream.gateway.history.port import History
from coldstream.units import Offset
from coldstream.web.access_tokens import Right

_LOG = logging.getLogger(__name__)
_MAX_REFERENCE_BYTES = 255

MAX_REFERENCES: Final = 1024
"""That one connection may store offsets for: it has 256 subscriptions. Each is an item in the table."""


class OffsetQuestions:
    """Stores and tells offsets for one client."""

    def __init__(self, questions: AloneQuestions, history: History) -> None:
        self._questions = questions
        self._peer = questions.peer
        self._history = history
        self._references: set[tuple[str, str]] = set()
        self._is_warned = False

    def is_known(self, asked: StoreOffset) -> bool:
        """Tell whether `store` may be called at once: the stream was there, and nothing has to be looked up."""
        return asked.stream in self._questions.known

    def store(self, asked: StoreOffset) -> None:
        """Note an offset of a stream that was there. Nobody is answered, and what is refused is logged once."""
        reference = asked.reference or ""
        key = (asked.stream, reference)
        if not self._peer.may(Right.READ, asked.stream):
            self._warn("the user may not read the stream")
        elif not 1 <= len(reference.encode()) <= _MAX_REFERENCE_BYTES:
            self._warn("a reference has 1 to 255 bytes")
        elif key not in self._references and len(self._references) >= MAX_REFERENCES:
            self._warn(f"a connection has {MAX_REFERENCES} references at most")
        else:
            self._references.add(key)
            self._history.note_offset(self._peer.vhost, asked.stream, reference, Offset(asked.offset))

    async def store_of_unknown(self, body: FrameBody) -> None:
        """Note an offset, once the stream is found."""
        asked = StoreOffset.from_body(body)
        await self._questions.readable(asked.stream)
        self.store(asked)

    async def query(self, body: FrameBody) -> None:
        """Return a stored offset."""
        asked = QueryOffset.from_body(body)
        await self._questions.readable(asked.stream)
        found = await self._history.stored_offset(self._peer.vhost, asked.stream, asked.reference or "")
        code = Code.NO_OFFSET if found is None else Code.OK
        self._peer.send(OffsetAnswer(asked.correlation_id, code, found or 0).to_bytes())

    def _warn(self, why: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            _LOG.warning("an offset was not stored: %s", why, extra=self._peer.log_fields)
