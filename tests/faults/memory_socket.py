"""Connections that are none: whole requests go to who answers them, and the answer is read as it would come."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tests.faults.fault_kinds import Ending, WireAnswer
from tests.faults.http_messages import END, HttpRequest, parsed

_CONTINUE = b"HTTP/1.1 100 Continue" + END


class MemorySocket:
    """One connection: what http.client asks of a socket."""

    def __init__(self, ask: Callable[[HttpRequest], WireAnswer], always_readable: int) -> None:
        self._ask = ask
        self._always_readable = always_readable
        self._sent = bytearray()
        self._is_told_to_go_on = False
        self._ending: Ending | None = None

    def sendall(self, data: Any) -> None:
        if self._ending in {Ending.BROKEN, Ending.CLOSED, Ending.SILENT}:
            raise BrokenPipeError(32, "the connection is gone")
        self._sent += data

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        head = bytes(self._sent).partition(END)[0].lower()
        request = parsed(bytes(self._sent))
        if b"expect: 100-continue" in head and (request is None or not self._is_told_to_go_on):
            self._is_told_to_go_on = True
            if request is None:
                return io.BufferedReader(_Reader(WireAnswer(_CONTINUE)), 1)
        assert request is not None, "an answer is read before the request is whole"
        self._sent.clear()
        self._is_told_to_go_on = False
        answer = self._ask(request)
        self._ending = answer.ending
        return io.BufferedReader(_Reader(answer))

    def fileno(self) -> int:
        return self._always_readable

    def settimeout(self, seconds: float | None) -> None:
        """Nothing waits."""

    def gettimeout(self) -> float | None:
        return None

    def setsockopt(self, *_: object) -> None:
        """There is nothing to set."""

    def shutdown(self, _: int) -> None:
        """It ends with its reader."""

    def close(self) -> None:
        """It ends with its reader."""


class _Reader(io.RawIOBase):
    def __init__(self, answer: WireAnswer) -> None:
        self._answer = answer
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data, at = self._answer.data, self._at
        piece = data[at : at + min(len(buffer), self._answer.piece_bytes)]
        if piece:
            buffer[: len(piece)] = piece
            self._at += len(piece)
            return len(piece)
        match self._answer.ending:
            case Ending.SILENT:
                raise TimeoutError("timed out")
            case Ending.BROKEN:
                raise ConnectionResetError(104, "connection reset by peer")
        return 0
