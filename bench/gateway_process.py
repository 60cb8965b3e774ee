"""The relays that a gateway is measured with: itself, started as people start it, and a relay of bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bench.harness import LAYER, ROOT, CannotMeasureError
from bench.usage import children, cpu_s, rss_bytes

READY_WITHIN_S = 30
_LISTENING = "listening at "


@dataclass(frozen=True, slots=True)
class RelayProcess:
    """Something in front of a broker: its port, and the process that moves the bytes."""

    port: int
    process_id: int

    @property
    def cpu_s(self) -> float:
        """The CPU seconds that it has used."""
        return cpu_s(self.process_id)

    @property
    def rss_bytes(self) -> int:
        """The memory that it holds."""
        return rss_bytes(self.process_id)


@contextmanager
def gateway(broker_port: int, environment: Mapping[str, str], *options: str) -> Iterator[RelayProcess]:
    """Run `coldstream gateway` with one process that serves. Raises CannotMeasureError if it does not start."""
    command = ["-m", "coldstream", "gateway", "--broker", f"127.0.0.1:{broker_port}", "--listen", "127.0.0.1:0"]
    command += ["--processes", "1", "--admin", "-", "--log-level", "warning", *options]
    with _started(command, environment) as process:
        assert process.stdout is not None
        while _LISTENING not in (line := process.stdout.readline()):
            if not line:
                raise CannotMeasureError(f"the gateway did not start (exit status {process.wait()})")
        yield RelayProcess(int(line.rpartition(":")[2]), _child_of(process.pid))


@contextmanager
def byte_relay(broker_port: int) -> Iterator[RelayProcess]:
    """Run a relay that looks at nothing, on the event loop that the gateway has."""
    with _started(["-m", "bench.byte_relay", str(broker_port)], {}) as process:
        yield RelayProcess(_port_of(process), process.pid)


@contextmanager
def frame_server(chunks: int, messages: int) -> Iterator[RelayProcess]:
    """Run a server of so many chunks, each of so many messages."""
    with _started(["-m", "bench.frame_server", str(chunks), str(messages)], {}) as process:
        yield RelayProcess(_port_of(process), process.pid)


@contextmanager
def _started(arguments: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join((str(ROOT), str(LAYER)))
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(READY_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise CannotMeasureError(f"{process.args!r} did not start (exit status {process.wait()})")
    return int(line)


def _child_of(process_id: int) -> int:
    """Return the process that serves, the only child of the gateway's parent process."""
    found = children(process_id)
    if len(found) != 1:
        raise CannotMeasureError(f"the gateway has {len(found)} processes that serve, instead of one")
    return found[0]
