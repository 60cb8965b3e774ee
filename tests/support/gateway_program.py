"""`coldstream gateway` in processes of its own, as a service manager runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import coldstream
from coldstream.gateway.process.addresses import HostPort
from tests.support.serve_process import NotReadyError

PACKAGES = Path(coldstream.__path__[0]).parent
EXIT_TIMEOUT_S = 120
HOST = "127.0.0.1"
_READY = "coldstream gateway: listening at "
_ADMIN = "coldstream gateway: metrics at "


class GatewayProgram:
    """A gateway on free ports of the loopback. `port` is for clients, `admin` the URL of what it answers."""

    def __init__(self, environment: Mapping[str, str], log: Path, *options: object) -> None:
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(PACKAGES)}
        self._options = list(map(str, options))
        self._process: subprocess.Popen[str] | None = None
        self.log = log
        self.port = 0
        self.admin = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "coldstream.cli.main", "gateway", "--listen", f"{HOST}:0", "--admin", "0"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        admin, ready = self._process.stdout.readline(), self._process.stdout.readline()
        if not (admin.startswith(_ADMIN) and ready.startswith(_READY)):
            self._process.kill()
            self._process.communicate()
            raise NotReadyError(admin + ready + self.log.read_text())
        self.admin = admin.removeprefix(_ADMIN).strip().removesuffix("/metrics")
        self.port = HostPort.parse("--listen", ready.removeprefix(_READY)).port
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def ask(self, path: str) -> tuple[int, str]:
        """Ask the admin's address; return status and body."""
        try:
            with urlopen(self.admin + path, timeout=EXIT_TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except HTTPError as err:
            with err:
                return err.code, err.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/status")[1])
        return found

    def metric(self, name: str) -> int:
        """Return a metric's value, by its name and labels."""
        (value,) = [line.split()[1] for line in self.ask("/metrics")[1].splitlines() if line.startswith(f"{name} ")]
        return int(value)

    def lines(self) -> list[dict[str, Any]]:
        """Return the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None
        self._process.communicate(timeout=EXIT_TIMEOUT_S)
        return self._process.returncode
