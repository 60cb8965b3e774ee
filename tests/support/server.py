"""A server of somebody else's, started for tests, benchmarks and `make localstack`: private, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

from coldstream.errors import UnavailableError
from tests.support.epmd import HOST, end, free_ports, spawn

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05


class Server:
    """A process that answers HTTP at `url`. Ready when its context is entered; it ends with the thread that entered.

    `command` runs in a temporary directory, which is its home, too; `ready_path` is asked for until there is an answer
    of any kind. Raises UnavailableError, with what it printed, where it does not start in time.
    """

    def __init__(self, *, ready_path: str = "/", start_timeout_s: float = 60) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://{HOST}:{self.port}"
        self._ready_url = self.url + ready_path
        self._start_timeout_s = start_timeout_s
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """Return the command line."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Return the variables that the process has besides PATH, HOME and TMPDIR."""
        return {}

    @property
    def process_id(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has printed."""
        return (self._directory / "output").read_text(errors="replace")

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self._directory = Path(tempfile.mkdtemp(prefix=f"coldstream-{type(self).__name__.lower()}-"))
        own = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
            "LANG": "C.UTF-8",
        }
        try:
            environment = {**own, **self.environment()}
            self._process = spawn(list(self.command()), environment=environment, directory=self._directory)
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process, and remove what it wrote."""
        try:
            if self._process is not None:
                end(self._process, STOP_TIMEOUT_S)
                self._process = None
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not _answers(self._ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                problem = "was not ready in time" if process.poll() is None else "ended while it started"
                raise UnavailableError(f"{type(self).__name__} {problem}:\n{self.output[-4000:]}")
            time.sleep(_POLL_S)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except HTTPError as err:
        err.close()
        return True  # a refusal is an answer
    except OSError:
        return False
