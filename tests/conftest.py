"""Fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

pytest_plugins = ["tests.support.aws", "tests.support.fixtures", "tests.support.spark", "tests.support.transactions"]


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """An emulated AWS on a free port, which the SDK finds by its environment for the rest of the run."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.delenv("AWS_PROFILE", raising=False)
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        # moto knows no tokens of transactions: one that is sent again because the machine is busy is refused.
        patch.setattr("coldstream.store.table.READ_TIMEOUT_S", 60)
        yield endpoint
    server.stop()
