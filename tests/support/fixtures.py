"""Fixtures of the real parts. A part that is not installed skips its tests; COLDSTREAM_REQUIRE=all fails them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker, find_rabbitmq
from tests.support.osiris import OsirisLog, find_osiris


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for a real part, so that `-m "not broker"` leaves them out."""
    for item in items:
        for part in ("broker", "osiris"):
            if part in getattr(item, "fixturenames", ()):
                item.add_marker(part)


def do_without(what: str, package: str = "rabbitmq-server") -> None:
    """Skip the test, or fail it where everything is required."""
    problem = f"{what} is not installed (on Debian: apt-get install {package})"
    if os.environ.get("COLDSTREAM_REQUIRE") == "all":
        pytest.fail(problem)
    pytest.skip(problem)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real RabbitMQ, one for the whole run: streams in it want names of their own."""
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def osiris() -> Callable[[Path], OsirisLog]:
    """Osiris's view of a directory of segments."""
    if find_osiris() is None:
        do_without("osiris")
    return OsirisLog


@pytest.fixture(scope="session")
def zstd() -> Callable[..., bytes]:
    """The command: its arguments and, as `data`, its input; its output comes back."""
    command = shutil.which("zstd")
    if command is None:
        do_without("zstd", "zstd")

    def run(*arguments: str, data: bytes) -> bytes:
        return subprocess.run([command, "-c", *arguments], input=data, capture_output=True, check=True).stdout

    return run
