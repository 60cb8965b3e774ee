"""A process of the stack, and the pipes by which it dies with its starter.

The starter writes one line of JSON, the request, and keeps the pipe open. The process answers with lines of JSON, the
first when it is ready. When the starter closes the pipe, or dies in any way, the process sees the end of its input and
ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Any

from coldstream.errors import UnavailableError

READY_WITHIN_S = 60.0
GRACE_S = 20.0
"""How long a process may go on with what it is doing once it is to end."""

Message = dict[str, Any]


class Process:
    """The starter's end. Standard output and error of what runs in the process go to `log`, nowhere when it is None."""

    def __init__(
        self,
        module: str,
        *,
        environment: Mapping[str, str],
        request: Mapping[str, Any],
        log: IO[Any] | None = None,
        on_message: Callable[[Message], None] = lambda _: None,
    ) -> None:
        self._name = module
        self._process = subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log if log is not None else subprocess.DEVNULL,
            env=dict(environment),
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C at the terminal is for the starter, who then ends the others in order
        )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._first: SimpleQueue[Message | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(on_message,), name=f"read {module}", daemon=True)
        self._reader.start()
        with suppress(OSError):  # it died at once, and `ready` says so
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()

    def ready(self) -> Message:
        """Wait for the first answer. Raises UnavailableError when there is none, or when it is an error."""
        try:
            message = self._first.get(timeout=READY_WITHIN_S)
        except Empty:
            raise UnavailableError(f"{self._name} was not ready after {READY_WITHIN_S:.0f} s") from None
        if message is None:
            raise UnavailableError(f"{self._name} ended before it was ready, with status {self._process.wait()}")
        if "error" in message:
            raise UnavailableError(f"{self._name} did not start: {message['error']}")
        return message

    @property
    def process_id(self) -> int:
        """The number of the process."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Let the process finish what it is doing and end; returns at once."""
        with suppress(OSError):
            self._stdin.close()

    def stop(self) -> None:
        """End the process, by force after its grace, and wait until nothing of it is left."""
        self.ask_to_stop()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self, on_message: Callable[[Message], None]) -> None:
        assert self._process.stdout is not None
        is_first = True
        for line in self._process.stdout:
            message = json.loads(line)
            if is_first:
                self._first.put(message)
                is_first = False
            else:
                on_message(message)
        self._first.put(None)


class Starter:
    """The process's end. From here on, what the process prints goes to standard error: the pipe is for answers."""

    def __init__(self) -> None:
        self.request: Message = json.loads(sys.stdin.readline())
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        threading.Thread(target=self._watch, name="watch the starter", daemon=True).start()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send an answer."""
        with self._lock, suppress(OSError):  # nobody reads any more: `gone` is on its way
            self._answers.write(json.dumps(message) + "\n")
            self._answers.flush()

    def _watch(self) -> None:
        sys.stdin.read()
        self.gone.set()
        threading.Event().wait(GRACE_S)
        os._exit(1)  # a handler hangs, and nobody is left to kill us
