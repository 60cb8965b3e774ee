"""`coldstream serve` or `console` in a process of its own, as a service manager runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import coldstream

PACKAGES = Path(coldstream.__path__[0]).parent
EXIT_TIMEOUT_S = 120


class NotReadyError(Exception):
    """The server ended before it listened. It says what it wrote."""


class ServeProcess:
    """A server on a free port of the loopback; `url` is what it said. It may be killed and started again."""

    def __init__(self, environment: Mapping[str, str], log: Path, *options: str | Path, command: str = "serve") -> None:
        self._command = command
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(PACKAGES)}
        self._options = [str(option) for option in options]
        self._process: subprocess.Popen[str] | None = None
        self.log = log
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Kill it at the end of the block; it was started before."""
        try:
            yield self
        finally:
            self.__exit__(None, None, None)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "coldstream.cli.main", self._command, "--port", "0", *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready = f"coldstream {self._command}: listening at "
        if not line.startswith(ready):
            self._process.communicate()
            raise NotReadyError(line + self.log.read_text())
        self.url = line.removeprefix(ready).strip()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None
        self._process.communicate(timeout=EXIT_TIMEOUT_S)
        return self._process.returncode

    def kill(self) -> None:
        """Kill it, as an outage does."""
        self.signal(signal.SIGKILL)
        self.wait()
