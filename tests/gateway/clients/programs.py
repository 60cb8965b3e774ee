"""The programs with the stock clients, found or missing, and runs of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.epmd import HOST
from tests.support.server import ROOT
from tests.support.stock_producer import JAVA, LIBRARIES, find_stream_client

HERE = Path(__file__).parent
BUILT = ROOT / ".cache" / "gateway-clients"


@dataclass(frozen=True, slots=True)
class StockClient:
    """A program and how it is called. `decoded` and `sub_batches` are as README.md tells."""

    language: str
    command: Sequence[str | Path]
    decoded: bool
    sub_batches: bool = True


def find_go() -> StockClient | None:
    """Return the program with the Go client, None where it was not built."""
    program = BUILT / "go" / "consumer"
    return StockClient("go", [program], decoded=True) if program.exists() else None


def find_rust() -> StockClient | None:
    """Return the program with the Rust client, None where it was not built."""
    program = BUILT / "rust" / "consumer"
    return StockClient("rust", [program], decoded=True, sub_batches=False) if program.exists() else None


def find_javascript() -> StockClient | None:
    """Return the program with the JavaScript client, None where that was not fetched, or Node.js is missing."""
    modules, node = BUILT / "javascript" / "node_modules", shutil.which("node")
    if node is None or not modules.exists():
        return None
    command = ["env", f"NODE_PATH={modules}", node, HERE / "javascript" / "consumer.js"]
    return StockClient("javascript", command, decoded=True, sub_batches=False)


def find_python() -> StockClient:
    """Return the program with rstream."""
    return StockClient("python", [sys.executable, "-m", "tests.gateway.clients.python.stock_consumer"], decoded=False)


def find_java(classes: Path) -> StockClient | None:
    """Compile the program with the Java client into a directory; None where the client or Java is missing."""
    if find_stream_client() is None:
        return None
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(map(str, LIBRARIES.glob("*.jar")))
    source = HERE / "java" / "StockConsumer.java"
    subprocess.run([*compiler, "-cp", jars, "-d", str(classes), str(source)], check=True)
    return StockClient("java", [*JAVA, "-cp", f"{classes}:{LIBRARIES}/*", "StockConsumer"], decoded=False)


class ClientRun:
    """A program that reads; a context manager, which ends it."""

    def __init__(self, client: StockClient, port: int, stream: str, messages: int, directory: Path) -> None:
        self.client = client
        self.lines: list[str] = []
        self._command = [*map(str, client.command), HOST, str(port), stream, str(messages)]
        self._messages = messages
        self._errors = directory / f"{client.language}-{stream}-{port}.log"
        self._begun = threading.Event()

    def __enter__(self) -> Self:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener = threading.Thread(target=self._listen, name=self.client.language)
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait_begun(self, timeout_s: float) -> None:
        """Wait until it has written its first line, or has ended."""
        assert self._begun.wait(timeout_s), f"{self.client.language} has read nothing\n{self.errors}"

    def finish(self, timeout_s: float) -> list[str]:
        """Wait until it has read everything, and return its lines. Raises AssertionError if it does not."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            last = self.lines[-1] if self.lines else "nothing"
            raise AssertionError(f"{self.client.language} stands at {last}\n{self.errors}") from None
        self._listener.join()
        assert code == 0, f"{self.client.language} ended with {code} after {self.lines[-1:]}\n{self.errors}"
        return self.lines

    @property
    def errors(self) -> str:
        """The end of what it wrote to stderr."""
        return self._errors.read_text(errors="replace")[-3000:]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())
            self._begun.set()
        self._begun.set()
