"""What an index would have, built once, and an archive by what was installed of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.installed import Installed, build


@dataclass(frozen=True)
class Built:
    """The source distribution and the wheel."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that was built from it."""
    return Built(*build(tmp_path_factory.mktemp("dist")))


@pytest.fixture(scope="session")
def install(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Installed]:
    """Make an environment with the wheel and some of its extras; the same one each time."""

    @cache
    def installed(*extras: str) -> Installed:
        return Installed(tmp_path_factory.mktemp("installed") / "-".join(("plain", *extras)), built.wheel, extras)

    return installed


@pytest.fixture(scope="session")
def settings(install: Callable[..., Installed], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the installed `coldstream up` tells those who use it."""
    local = install("local")
    env_file = tmp_path_factory.mktemp("up") / "env"
    command = local.line("coldstream", "up", "--port", "0", "--env-file", env_file)
    with subprocess.Popen(
        command, env=local.variables(), cwd=local.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            deadline = time.monotonic() + 120
            while not env_file.exists():
                assert running.poll() is None, running.stdout.read() if running.stdout else ""
                assert time.monotonic() < deadline
                time.sleep(0.05)
            lines = env_file.read_text().splitlines()
            yield dict(line.removeprefix("export ").split("=", 1) for line in lines)
        finally:
            running.terminate()
            running.communicate(timeout=60)
