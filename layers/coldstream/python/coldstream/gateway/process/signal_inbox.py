"""Signals that a process is sent, for a loop that waits by a selector."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

_READ_BYTES = 4096


class SignalInbox:
    """What has come, in order, each signal once as long as nobody has looked. For the main thread.

    Every signal wakes whoever waits for `fileno`. What came is not told by that: so many signals may come while nobody
    reads that no byte finds room any more.
    """

    def __init__(self, reading: socket.socket) -> None:
        self._reading = reading
        self._came: dict[int, None] = {}

    @classmethod
    @contextmanager
    def open(cls, numbers: Iterable[int]) -> Iterator[Self]:
        """Take these signals until the end of the context, which restores what they did before.

        SIGHUP is left alone where it is ignored: whoever started us by nohup means it.
        """
        reading, writing = socket.socketpair()
        with reading, writing:
            for end in (reading, writing):
                end.setblocking(False)
            inbox = cls(reading)
            before = {number: signal.getsignal(number) for number in numbers}
            before_fd = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
            for number, handler in before.items():
                if handler is not signal.SIG_IGN or number != signal.SIGHUP:
                    signal.signal(number, inbox._note)
            try:
                yield inbox
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before_fd)

    def fileno(self) -> int:
        """Return the descriptor that can be read once a signal has come."""
        return self._reading.fileno()

    def take(self) -> list[int]:
        """Return what has come since the last time."""
        with suppress(BlockingIOError):
            while self._reading.recv(_READ_BYTES):
                pass
        # Exchanged, not cleared: a signal that comes meanwhile is in the one or in the other.
        came, self._came = self._came, {}
        return list(came)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  signal's signature
        self._came[number] = None
