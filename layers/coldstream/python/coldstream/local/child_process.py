"""A child process that ends with its parent, however that ends, and the messages between them.

The parent writes one line of JSON, the request, and keeps the pipe open. The child answers with lines of JSON, the
first one when it is ready. When the parent closes the pipe or dies, even by SIGKILL, the child reads the end of its
input and ends.
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
"""How long a child may finish what it is doing after it was asked to stop."""

Message = dict[str, Any]


class ChildProcess:
    """The parent's end. What the child prints goes to `log`, or nowhere.

    `on_message` is called for each message after the first, in another thread.
    """

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
        self._process = subprocess.Popen(  # noqa: S603  our own modules
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log if log is not None else subprocess.DEVNULL,
            env=dict(environment),
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C at the terminal reaches the parent alone, which ends its children in order
        )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._first: SimpleQueue[Message | None] = SimpleQueue()
        # Read from the start on: a child whose messages nobody takes stands still once the pipe is full.
        self._reader = threading.Thread(target=self._read, args=(on_message,), name=f"read {module}", daemon=True)
        self._reader.start()
        with suppress(OSError):  # if it died at once, `ready` says so
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()

    def ready(self) -> Message:
        """Wait for the first message. Raises UnavailableError if there is none, or if it is an error."""
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
        """The id of the process."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Ask the process to finish what it is doing and end. Returns at once."""
        with suppress(OSError):
            self._stdin.close()

    def stop(self) -> None:
        """End the process, by force after GRACE_S, and wait until nothing of it is left."""
        self.ask_to_stop()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()  # it reads up to the end of the pipe, so the last messages are not lost
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
        # `ready` still waits if the child ended without a message.
        self._first.put(None)


class ParentProcess:
    """The child's end. From here on, what the child prints goes to standard error: the pipe is for messages.

    `gone` is set when the parent wants the child to end, or has died.
    """

    def __init__(self) -> None:
        self.request: Message = json.loads(sys.stdin.readline())
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        threading.Thread(target=self._watch, name="watch the parent", daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Any thread may."""
        with self._lock, suppress(OSError):  # the parent died, and `gone` is about to be set
            self._answers.write(json.dumps(message) + "\n")
            self._answers.flush()

    def _watch(self) -> None:
        sys.stdin.read()
        self.gone.set()
        threading.Event().wait(GRACE_S)
        os._exit(1)  # a handler hangs, and a dead parent cannot kill us
