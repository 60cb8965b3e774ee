"""What Erlang nodes on this machine need to find and to trust one another: a port mapper, and a cookie.

Both are the nodes' own: the port mapper listens on a free port of loopback, and the cookie is in a home directory that
nobody else uses. Processes are started here, so that none outlives its starter.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
START_TIMEOUT_S = 10.0
# Below the ports that systems hand out to outgoing connections (32768 on Linux), so that none is taken meanwhile.
PORTS = range(15_000, 32_000)


class BrokerError(Exception):
    """The private broker could not be started, or refused a command."""


class Epmd:
    """The port mapper, used as a context manager. `environment` is what nodes and their tools want to be given."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables for nodes and tools that are to use it."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home),  # of the Erlang cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self.port),
        }

    @property
    def process_id(self) -> int:
        """The port mapper's process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="coldstream-epmd-"))
        cookie = self._home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16), encoding="ascii")
        cookie.chmod(0o400)
        try:
            # A node that finds no epmd starts one, which outlives it.
            command = ["epmd", "-address", HOST, "-port", str(self.port)]
            self._process = spawn(command, environment=self.environment, directory=self._home)
            deadline = time.monotonic() + START_TIMEOUT_S
            while not accepts(self.port):
                check(self._process, deadline, self._home)
                time.sleep(0.01)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        try:
            if self._process is not None:
                end(self._process, START_TIMEOUT_S)
                self._process = None
        finally:
            shutil.rmtree(self._home, ignore_errors=True)


def spawn(command: list[str], *, environment: Mapping[str, str], directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that ends with the thread that started it; what it prints goes to the directory's `output`."""
    # A session of its own keeps Ctrl-C from it; setpriv ends it also when this process is killed.
    tied_to_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    with (directory / "output").open("ab") as output:
        return subprocess.Popen(
            [*tied_to_us, *command],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def check(process: subprocess.Popen[bytes], deadline: float, directory: Path) -> None:
    """Raise BrokerError when a process that is to start has ended, or is late."""
    if process.poll() is None and time.monotonic() < deadline:
        return
    problem = "was not ready in time" if process.poll() is None else "ended while it started"
    output = (directory / "output").read_text(errors="replace")[-4000:]
    raise BrokerError(f"{process.args!r} {problem}:\n{output}")


def end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Ask a process to end, paused ones too, and kill all of it when it does not."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            candidate = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind((HOST, random.SystemRandom().choice(PORTS)))
                ports.append(candidate.getsockname()[1])
        return ports


def accepts(port: int) -> bool:
    """Tell whether somebody listens on a port of loopback."""
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0
