"""`coldstream gateway` in a process of its own, in front of a broker and an archive."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import coldstream
from tests.support.epmd import HOST, free_ports

PACKAGES = Path(coldstream.__path__[0]).parent
START_S = 60.0
STOP_S = 30.0


class GatewayRun:
    """A gateway at `port`, ready when its context is entered. `options` are more of the command's."""

    def __init__(
        self, environment: Mapping[str, str], broker_port: int, log: Path, *options: str, port: int | None = None
    ) -> None:
        self.port = free_ports(1)[0] if port is None else port
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(PACKAGES)}
        self._command = [sys.executable, "-m", "coldstream.cli.main", "gateway", "--broker", f"{HOST}:{broker_port}"]
        self._command += ["--listen", f"{HOST}:{self.port}", "--admin", "-", "--processes", "1", "--drain", "1s"]
        self._command += options
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the gateway did not start:\n{self.log}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def log(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-6000:]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=5):
            return True
        return False
