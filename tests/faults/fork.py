"""Calls in a copy of this process: what they change is gone when they end, and another begins where the first did."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_S = 1800
LONGEST_CALL_S = 300
"""What has not ended then never will: a copy that makes many calls, and a call."""


class ForkError(Exception):
    """A call raised what it may not raise, or its process died."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A call that is under way in another process. It can be waited for: it is a file that is readable at the end."""

    pid: int
    answer: int

    @classmethod
    def begin(cls, call: Callable[[], Any], longest_s: int = LONGEST_S) -> Fork:
        """Call it, and end it after so long; what it returns or raises can be pickled.

        Only the thread that asks goes on in the copy.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else both would write what waits there
        answer, told = os.pipe()
        pid = os.fork()
        if pid:
            os.close(told)
            return cls(pid, answer)
        status = 1
        try:
            gc.freeze()  # what there is already is looked at no more, which would copy all of it
            os.close(answer)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what functions log there is nobody's
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(longest_s)
            with os.fdopen(told, "wb") as file:
                file.write(_answered(call))
            status = 0
        finally:
            os._exit(status)  # nothing of this process is to be tidied up twice

    def fileno(self) -> int:
        """Return what is readable at the end."""
        return self.answer

    def result(self) -> Any:
        """Wait for the end, and return what the call did. Raises ForkError."""
        with os.fdopen(self.answer, "rb") as file:
            data = file.read()
        _, status = os.waitpid(self.pid, 0)
        if status:
            raise ForkError(f"process {self.pid} ended with {os.waitstatus_to_exitcode(status)}")
        is_right, found = pickle.loads(data)
        if not is_right:
            raise ForkError(found)
        return found


def forked(call: Callable[[], T]) -> T:
    """Call it in another process, and wait for it. Raises ForkError."""
    found: T = Fork.begin(call, LONGEST_CALL_S).result()
    return found


def _answered(call: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((True, call()))
    except BaseException:  # noqa: BLE001  whatever it is, the other process tells it
        return pickle.dumps((False, traceback.format_exc()))
