"""Fixtures of the real parts. A part that is not installed skips its tests; COLDSTREAM_REQUIRE=all fails them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.aws import cloud
from tests.support.broker import Broker, find_rabbitmq
from tests.support.differences import DIFFERENCES
from tests.support.dynamodb_local import DynamoDBLocal, find_dynamodb_local
from tests.support.localstack import LocalStackServer, find_localstack
from tests.support.osiris import OsirisLog, find_osiris
from tests.support.releases import HOST_RELEASE, RELEASES, Release

SERVER_FIXTURES = {
    "aws",
    "broker",
    "broker_release",
    "docker",
    "dynamodb_local",
    "localstack",
    "moto_endpoint",
    "osiris",
    "sam",
    "spark",
    "spark_submit",
    "zstd",
}
SERVER_PARAMETERS = {"dynamo", "dynamodb_local", "fast", "s3"}
"""Of fixtures that are each implementation of a port in turn: those behind which a server is."""

SERVER_PATHS = (
    "tests/agent/test_cluster.py",
    "tests/chaos/",
    "tests/cli/test_announce.py",
    "tests/cli/test_ask.py",
    "tests/cli/test_dead_letters.py",
    "tests/cli/test_follow.py",
    "tests/cli/test_quarantine.py",
    "tests/cli/test_read.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_silence.py",
    "tests/cli/test_up.py",
    "tests/console/test_browser.py",
    "tests/consumer/test_real_broker.py",
    "tests/functions/test_cold_start.py",
    "tests/gateway/suites/",
    "tests/gateway/takeover/test_real_broker.py",
    "tests/gateway/faults/test_many_connections.py",
    "tests/gateway/faults/test_real_broker.py",
    "tests/local/",
    "tests/package/",
    "tests/routing/test_jump.py",
    "tests/routing/test_phash2.py",
    "tests/sam/",
    "tests/scripts/",
    "tests/serve/test_browser.py",
    "tests/serve/test_conformance.py",
    "tests/serve/test_page_examples.py",
    "tests/serve/test_process.py",
    "tests/spark/test_package.py",
    "tests/shards/test_apply_broker.py",
    "tests/shards/test_growth_real_broker.py",
    "tests/shards/test_join_order_cluster.py",
    "tests/shards/test_management_broker.py",
    "tests/shards/test_nodes_cluster.py",
    "tests/store/test_environment.py",
    "tests/support/test_pages.py",
    "tests/template/test_bucket.py",
    "tests/template/test_lint.py",
    "tests/test_signals.py",
)
"""Where tests start servers, or programs, by themselves."""

SLOW_PATHS = (
    "tests/agent/monitor/test_http.py",
    "tests/agent/test_archiver_model.py",
    "tests/archive/test_histories.py",
    "tests/archive/test_quarantine.py",
    "tests/archive/test_time_borders.py",
    "tests/archive/test_upload_histories.py",
    "tests/compact/test_chaos.py",
    "tests/compact/test_rewrite.py",
    "tests/consumer/test_random_schedules.py",
    "tests/format/test_compression.py",
    "tests/gateway/faults/test_week.py",
    "tests/lifecycle/test_contention.py",
    "tests/lifecycle/test_interleavings.py",
    "tests/read/test_compacted.py",
    "tests/read/test_reader.py",
    "tests/resolve/test_weak_world.py",
)
"""Where tests try many seeds or large sizes, or wait for long."""


def needs_server(item: pytest.Item) -> bool:
    """Tell whether a test starts a server or a program."""
    parameters = set(map(str, item.callspec.params.values())) if hasattr(item, "callspec") else set()
    return bool(
        SERVER_FIXTURES & set(getattr(item, "fixturenames", ()))
        or SERVER_PARAMETERS & parameters
        or item.nodeid.startswith(SERVER_PATHS)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for a real part, so that `-m "not broker"` leaves them out, and those of `make check`.

    Those in which the emulated AWS is known to differ must fail: a difference that is gone is one to strike out.
    """
    differences = DIFFERENCES.get(cloud(), {})
    for item in items:
        if item.name in differences:
            item.add_marker(pytest.mark.xfail(reason=f"{cloud()}: {differences[item.name]}", strict=True))
        for part, fixtures in (("broker", {"broker", "broker_release"}), ("osiris", {"osiris"})):
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(part)
        if needs_server(item):
            item.add_marker("server")
        if item.nodeid.startswith(SLOW_PATHS):
            item.add_marker("slow")


def do_without(what: str, remedy: str = "on Debian: apt-get install rabbitmq-server") -> None:
    """Skip the test, or fail it where everything is required."""
    problem = f"{what} is not installed ({remedy})"
    if os.environ.get("COLDSTREAM_REQUIRE") == "all":
        pytest.fail(problem)
    pytest.skip(problem)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real RabbitMQ, with the management API, one for the whole run: streams in it want names of their own."""
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Broker(management=True) as running:
        yield running


@pytest.fixture(scope="session", params=RELEASES, ids=lambda release: f"rabbitmq-{release.version}")
def broker_release(request: pytest.FixtureRequest) -> Release:
    """Each release of RabbitMQ that is supported: a test that asks for it runs once on each."""
    release: Release = request.param
    if find_rabbitmq(release) is None:
        do_without(f"RabbitMQ {release.version}", release.remedy)
    return release


@pytest.fixture(scope="session")
def any_broker(broker_release: Release, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real RabbitMQ of each release, with the management API: streams in it want names of their own."""
    if broker_release == HOST_RELEASE:
        yield request.getfixturevalue("broker")
        return
    with Broker(release=broker_release, management=True) as running:
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
        do_without("zstd", "on Debian: apt-get install zstd")

    def run(*arguments: str, data: bytes) -> bytes:
        return subprocess.run([command, "-c", *arguments], input=data, capture_output=True, check=True).stdout

    return run


@pytest.fixture(scope="session")
def localstack() -> Iterator[LocalStackServer]:
    """A LocalStack, one for the whole run: buckets, queues and stacks in it want names of their own."""
    if find_localstack() is None:
        do_without("LocalStack", "make .venv-localstack/.ready")
    with LocalStackServer() as running:
        yield running


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[DynamoDBLocal]:
    """A DynamoDB Local, one for the whole run: tables in it want names of their own."""
    if find_dynamodb_local() is None:
        do_without("DynamoDB Local", "with Java 17: scripts/dynamodb-local/fetch")
    with DynamoDBLocal() as running:
        yield running
