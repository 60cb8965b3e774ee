"""Requests of the gateway's own on a client's connection to the broker, and their answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from coldstream.errors import ClosedLinkError, UnavailableError
from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import LENGTH_BYTES, StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.ports import AnswerFrame
from coldstream.gateway.proxy.outlet import Outlet

REQUEST_TIMEOUT_S: Final = 10.0
MAX_OPEN = 1024
"""Requests without an answer, also those that nobody waits for any more."""

_HIGH_HALF = 1 << 31


class OwnRequests:
    """Those that wait for an answer.

    Their correlation ids are random ones of the upper half: clients count from 0 or 1. `is_paused` tells that nothing
    is read from the broker, because the client takes nothing: the time does not count.
    """

    __slots__ = ("_is_over", "_is_paused", "_keys", "_outlet", "_waiting")

    def __init__(self, outlet: Outlet, keys: set[int], is_paused: Callable[[], bool]) -> None:
        self._outlet = outlet
        self._keys = keys
        self._is_paused = is_paused
        self._waiting: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._is_over = False

    async def request(self, make: Callable[[int], StreamFrame], answer: type[AnswerFrame]) -> AnswerFrame | CodeAnswer:
        """Send one, and return its answer. Raises UnavailableError, ClosedLinkError, BadFrameError."""
        if self._is_over:
            raise ClosedLinkError("the connection has ended")
        if len(self._waiting) >= MAX_OPEN:
            raise UnavailableError(f"the broker owes {MAX_OPEN} answers on one connection")
        while (place := (answer.KEY, _HIGH_HALF | secrets.randbits(31))) in self._waiting:
            pass
        self._keys.add(answer.KEY)
        waiting = self._waiting[place] = asyncio.get_running_loop().create_future()
        self._outlet.send(make(place[1]).to_bytes())
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=REQUEST_TIMEOUT_S)
            if done:
                break
            if not self._is_paused():
                # It stays in the table: an answer that comes late is not the client's.
                raise UnavailableError(f"the broker does not answer a {answer.__name__} in {REQUEST_TIMEOUT_S:g} s")
        body = memoryview(waiting.result())[LENGTH_BYTES:]
        if answer.KEY != ANSWER | Key.METADATA and int.from_bytes(body[8:10]) != Code.OK:
            return CodeAnswer.from_body(body)
        return answer.from_body(body)

    def take(self, key: int, frame: bytes) -> bool:
        """Take an answer; tell whether it is one of ours."""
        if not self._waiting:
            return False
        waiting = self._waiting.pop((key, int.from_bytes(frame[8:12])), None)
        if waiting is None:
            return False
        if not waiting.done():
            waiting.set_result(frame)
        return True

    def end(self) -> None:
        """Let everybody who waits raise ClosedLinkError."""
        self._is_over = True
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if not each.done():
                each.set_exception(ClosedLinkError("the connection has ended"))
                each.exception()  # nobody may be waiting any more, and that is no error
