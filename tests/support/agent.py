"""`coldstream agent` in a process of its own, as a service manager runs it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import coldstream
from coldstream.agent.monitor.status import AgentStatus, StreamStatus

PACKAGES = Path(coldstream.__path__[0]).parent
START_S = 30


class AgentProcess:
    """An agent with its own state directory; it may be killed and started again."""

    def __init__(
        self, environment: Mapping[str, str], state: Path, broker_uri: str, *options: str | Path, nice: int = 0
    ) -> None:
        self.state = state
        self._environment = {**os.environ, **environment, "COLDSTREAM_BROKER": broker_uri, "PYTHONPATH": str(PACKAGES)}
        self._options = [str(option) for option in options]
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self.log = state.parent / f"{state.name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        # nice becomes the agent, so the process is the same.
        command = ["nice", "-n", str(self._nice)] if self._nice else []
        command += [sys.executable, "-m", "coldstream.cli.main", "agent", "--state", str(self.state)]
        command += ["--listen", "127.0.0.1:0", "--scan", "500ms", *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """End it, whatever it is doing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self._process.returncode

    def status(self) -> AgentStatus | None:
        """Return the agent's status, None while it does not answer."""
        port = self._port()
        if port is None:
            return None
        url = f"http://127.0.0.1:{port}/status"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return AgentStatus.from_json(answer.read(), source="the agent")
        return None

    def stream(self, name: str) -> StreamStatus | None:
        """Return a stream's status, None if the agent shows no such stream."""
        status = self.status()
        return None if status is None else next((one for one in status.streams if one.name == name), None)

    def wait_ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + START_S
        while self.status() is None:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the agent did not start:\n{self.log.read_text()}")
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """The address that it listens on."""
        return f"http://127.0.0.1:{self._port()}"

    def _port(self) -> int | None:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        ports = [line.rpartition(" ")[2] for line in lines if "listening on" in line]
        return int(ports[-1]) if ports else None
