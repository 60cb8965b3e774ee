"""The API on an archive in memory, served by HTTP as `coldstream up` serves it, and asked by Schemathesis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coldstream.local.http_api import HttpApi

ROOT = Path(__file__).parents[2]
HOOKS = "tests.support.schemathesis_hooks"


@contextmanager
def served(invoke: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Serve a function on a port of the loopback; yield its address."""
    api = HttpApi(0, function="Api", invoke=invoke, report=lambda _: None)
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    try:
        yield api.url
    finally:
        api.shutdown()
        api.server_close()
        thread.join()


def token(scope: str) -> str:
    """Return a token that the local API believes."""
    claims = json.dumps({"sub": "alice", "iss": "https://issuer.example", "scope": scope}).encode()
    return f"e30.{urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


def ask_schemathesis(
    document: Path, url: str, *options: str, scope: str, directory: Path, seed: int = 1
) -> tuple[int, str]:
    """Let Schemathesis ask an API everything by its document, always the same; return its exit code and report."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "layers/coldstream/python"), str(ROOT)]),
        "SCHEMATHESIS_HOOKS": HOOKS,
        "COLUMNS": "200",
    }
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(document)),
        *("--url", url, "--header", f"Authorization: Bearer {token(scope)}"),
        *("--checks", "all", "--seed", str(seed), "--generation-deterministic"),
        *("--workers", "1", "--no-color", "--suppress-health-check", "all", *options),
    ]
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
