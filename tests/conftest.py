"""Fixtures for every test."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from coldstream.local.emulator import EmbeddedAws

# Where these are ignored, as under nohup and in the background of a script, so they are in whatever the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

_parse = ast.parse
_parsing = threading.RLock()


def _parse_alone(*arguments: Any, **named: Any) -> Any:
    with _parsing:
        return _parse(*arguments, **named)


# Whoever tells of an error parses its source: pytest, and a server in a thread of the same process. CPython 3.11 counts
# the depth of both as one, and raises SystemError: "AST constructor recursion depth mismatch". That ends the whole run.
ast.parse = _parse_alone

# Property tests are repeatable, and no slower machine fails them. The oldest Spark's environment has no hypothesis.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("coldstream", deadline=None, database=None, derandomize=True)
    settings.load_profile("coldstream")

_LOGS = (logging.getLogger(), logging.getLogger("werkzeug"))
_PACKAGES_LOG = logging.getLogger("coldstream")

pytest_plugins = [
    "tests.support.aws",
    "tests.support.fixtures",
    "tests.support.native",
    "tests.support.parallel",
    "tests.support.spark",
    "tests.support.transactions",
]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Take away what a command, a server or a function under test set up for its log.

    Left behind, it would write to the captured, closed output of that test for the rest of the run, and at its level.
    """
    before = [(logger, logger.level, [*logger.handlers]) for logger in _LOGS]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        for handler in [*logger.handlers]:
            if handler not in handlers:
                logger.removeHandler(handler)
    # As it is in a new process: a function that a fixture of the session loaded, say, has set it up before.
    _PACKAGES_LOG.handlers.clear()
    _PACKAGES_LOG.setLevel(logging.NOTSET)
    _PACKAGES_LOG.propagate = True


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """An emulated AWS on a free port, which the SDK finds by its environment for the rest of the run."""
    with EmbeddedAws() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.delenv("AWS_PROFILE", raising=False)
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        yield server.url
