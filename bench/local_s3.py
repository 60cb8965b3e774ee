"""The benchmark's S3 server in a process of its own, and the limits that it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Self
from urllib.request import Request, urlopen

from bench.harness import ROOT
from bench.s3_server import STATS_PATH

SERVERS: tuple[tuple[str, dict[str, float]], ...] = (
    ("no limits", {}),
    ("10 ms, 90 MiB/s a connection", {"latency_ms": 10, "connection_mib_s": 90}),
)
"""The two servers of most measurements, by name: one that leaves the processor as the limit, and one like S3."""

LIKE_S3 = SERVERS[1][1]


class LocalS3:
    """The server. A context manager."""

    def __init__(
        self, *, latency_ms: float = 0, jitter_ms: float = 0, connection_mib_s: float = 0, warm_mib: int = 0
    ) -> None:
        """Limits of 0 are none."""
        self._command = [sys.executable, "-m", "bench.s3_server", "--latency-ms", str(latency_ms)]
        self._command += ["--jitter-ms", str(jitter_ms)]
        self._command += ["--connection-mib-s", str(connection_mib_s), "--warm-mib", str(warm_mib)]
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the S3 server did not start (exit status {self._process.wait()})")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def process_id(self) -> int:
        """The server's process."""
        return self._process.pid

    def stats(self, *, reset: bool = False) -> Counter[str]:
        """Return the counts since the last reset: requests by kind, refusals by method and status, bytes in and out."""
        counts = self._stats("GET")
        if reset:
            self._stats("DELETE")
        return counts

    def _stats(self, method: str) -> Counter[str]:
        with urlopen(Request(self.url + STATS_PATH, method=method)) as answer:  # noqa: S310  our own server
            return Counter(json.load(answer))
