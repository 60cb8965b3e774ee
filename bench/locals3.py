"""The benchmark's S3 server in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Self
from urllib.request import Request, urlopen

from bench.harness import ROOT
from bench.s3server import STATS_PATH


class LocalS3:
    """The server in a process of its own, for as long as the context lasts."""

    def __init__(self, *, latency_ms: float = 0, connection_mib_s: float = 0, warm_mib: int = 0) -> None:
        """Cap nothing where a number is 0."""
        self._command = [sys.executable, "-m", "bench.s3server", "--latency-ms", str(latency_ms)]
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

    def stats(self, *, reset: bool = False) -> Counter[str]:
        """Return the counts since the last reset: requests by kind, refusals by kind and status, bytes in and out."""
        counts = self._stats("GET")
        if reset:
            self._stats("DELETE")
        return counts

    def _stats(self, method: str) -> Counter[str]:
        with urlopen(Request(self.url + STATS_PATH, method=method)) as answer:  # noqa: S310 - our own server
            return Counter(json.load(answer))
