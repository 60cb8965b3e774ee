"""`make demo-console` shows live data of a real broker, and prints the address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.broker import find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.server import ROOT

PATIENCE_S = 240


@pytest.mark.slow
def test_the_demo_shows_streams_that_grow_and_ends_with_ctrl_c() -> None:
    if find_rabbitmq() is None:
        do_without("RabbitMQ", "make broker")
    path = Path("layers/coldstream/python")
    process = subprocess.Popen(
        [sys.executable, "scripts/demo_console.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{path}:."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("demo: the console is at http://127.0.0.1:"), process.communicate(timeout=30)
        url = line.split()[-1]
        streams = httpx.get(f"{url}/streams", timeout=60).text
        assert all(name in streams for name in ("orders", "payments", "clicks"))
        assert "Orders into staging" in httpx.get(f"{url}/jobs", timeout=60).text
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
