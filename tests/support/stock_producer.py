"""RabbitMQ's own stream client for Java as a process that publishes to a super stream, and may be killed.

`scripts/stream-client/fetch` brings the client to .cache/stream-client; it wants Java 17. Its hash is what a super
stream's partitions are chosen by, which the Python client's is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.server import ROOT

LIBRARIES = ROOT / ".cache" / "stream-client" / "lib"
SOURCE = ROOT / "tests" / "growth" / "StockProducer.java"
JAVA = ("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
CLOSED_S = 60.0


def find_stream_client() -> Path | None:
    """Return where its jars are, or None where they, or Java, are missing."""
    return LIBRARIES if shutil.which("java") is not None and LIBRARIES.is_dir() else None


def compile_producer(directory: Path) -> Path:
    """Compile the program into a directory, and return that. Takes about 2 s."""
    # As a module: Debian's runtime has the compiler, and not its command.
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(map(str, LIBRARIES.glob("*.jar")))
    subprocess.run([*compiler, "-cp", jars, "-d", str(directory), str(SOURCE)], check=True)
    return directory


class StockProducer:
    """One instance after the other of a program that publishes the messages of its keys, each key's by number.

    `name` is that of its connections. `next` is the first number of each key that was not asked for yet, `confirmed`
    what the broker confirmed. A killed instance's messages that were not confirmed may be in the stream or not: the
    next one publishes them again. Each message says which instance it is of.
    """

    def __init__(
        self, classes: Path, uri: str, *, super_stream: str, name: str, keys: Iterable[str], padding: int
    ) -> None:
        self._classes = classes
        self._uri = uri.replace("localhost", "127.0.0.1")
        self._super_stream = super_stream
        self._padding = padding
        self.name = name
        self.instances = 0
        self.next = dict.fromkeys(keys, 0)
        self.confirmed: dict[str, set[int]] = {key: set() for key in self.next}
        self.problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def unconfirmed(self) -> int:
        """How many of the messages that were asked for are not confirmed."""
        return sum(self.next[key] - len(self.confirmed[key]) for key in self.next)

    def start(self) -> None:
        """Start an instance, which goes on with the first message of each key that is not confirmed."""
        self.instances += 1
        command = [*JAVA, "-cp", f"{self._classes}:{LIBRARIES}/*", "StockProducer", self._uri, self._super_stream]
        self._process = subprocess.Popen(
            [*command, f"{self.name}-{self.instances}", str(self._padding)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name=self.name)
        self._listener.start()
        upto, self.next = self.next, {key: self._first_unconfirmed(key) for key in self.next}
        for key, number in upto.items():
            self._ask(key, number)

    def publish(self, messages: int) -> None:
        """Publish so many messages more of each key, one after the other."""
        for _ in range(messages):
            for key in self.next:
                self._ask(key, self.next[key] + 1)

    def kill(self) -> None:
        """End it, whatever it is doing, and wait until the broker has taken all that it sent."""
        process, self._process = self._process, None
        assert process is not None
        ports = _ports_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        self._end(process)
        deadline = time.monotonic() + CLOSED_S
        # What is still on its way would come after what the next instance publishes.
        while ports & _peers():
            assert time.monotonic() < deadline, f"the broker keeps the connections of {self.name}"
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until everything is confirmed, and end it."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            self._end(process)
        assert code == 0, f"{self.name} ended with {code}"
        assert self.problem is None, self.problem
        assert self.unconfirmed == 0

    def check(self) -> None:
        """Raise AssertionError if it ended by itself, or the broker refused a message."""
        assert self.problem is None, self.problem
        assert self._process is None or self._process.poll() is None, f"{self.name} ended by itself"

    def _ask(self, key: str, upto: int) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if upto > self.next[key]:
            # A process that has ended is told of by `check`.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(f"{key} {self.next[key]} {upto}\n")
            self.next[key] = upto

    def _first_unconfirmed(self, key: str) -> int:
        confirmed = self.confirmed[key]
        return next(number for number in range(len(confirmed) + 1) if number not in confirmed)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                return  # it was killed while it wrote
            if line.startswith("refused"):
                self.problem = f"{self.name}: {line.strip()}"
                continue
            key, _, number = line.strip().partition(" ")
            self.confirmed[key].add(int(number))

    def _end(self, process: subprocess.Popen[str]) -> None:
        assert self._listener is not None
        self._listener.join()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _ports_of(process_id: int) -> set[str]:
    """Return the local ports of a process's TCP connections, as the kernel writes them."""
    inodes = set()
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return {row[1].partition(":")[2] for row in _connections() if row[9] in inodes}


def _peers() -> set[str]:
    """Return the remote ports of all connections that a process still holds."""
    return {row[2].partition(":")[2] for row in _connections() if row[9] != "0"}


def _connections() -> list[list[str]]:
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
