from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import coldstream
from tests.cli.conftest import Archive, Cli
from tests.support.broker import Broker

PACKAGE = str(Path(coldstream.__path__[0]).parent)
STREAM = "followed"


@pytest.fixture(scope="module")
def broker_uri(broker: Broker) -> str:
    with broker.connect() as streams:
        streams.create_stream(STREAM, max_segment_bytes=100_000)
        streams.publish(STREAM, [b"%d" % number for number in range(50)])
    return broker.stream_uri


def test_following_ends_at_the_limit_and_at_the_end_that_was_asked_for(
    archive: Archive, cli: Cli, broker_uri: str
) -> None:
    for ending in (("--limit", "5"), ("--to", "12")):
        done = cli("read", STREAM, "--follow", "--broker", broker_uri, "--from", "7", *ending)
        assert done.code == 0, done.err
        assert [message["offset"] for message in done.json] == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_following_writes_at_once_what_is_live_and_ends_with_a_signal(
    archive: Archive, broker: Broker, broker_uri: str, ending: signal.Signals
) -> None:
    environment = {
        **archive.stack.environment,
        "PYTHONPATH": PACKAGE,
        "PATH": os.environ["PATH"],
        "COLDSTREAM_BROKER": broker_uri,
    }
    command = [sys.executable, "-m", "coldstream.cli.main", "read", STREAM, "--follow", "--from", "last"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as reading:
        try:
            assert reading.stdout is not None
            assert reading.stderr is not None
            reading.stdout.readline()
            with broker.connect() as streams:
                streams.publish(STREAM, [b"live"])
            while json.loads(reading.stdout.readline())["raw"] != "live":
                pass
            reading.send_signal(ending)
            rest, errors = reading.communicate(timeout=10)
        finally:
            reading.kill()
    assert reading.returncode == 130
    assert (rest, errors) == (b"", b"")


def test_a_stream_that_neither_has_is_not_found(archive: Archive, cli: Cli, broker_uri: str) -> None:
    done = cli("read", "nowhere", "--follow", "--broker", broker_uri)
    assert done.code == 3
    assert "nowhere" in done.err


def test_an_incarnation_is_not_followed(archive: Archive, cli: Cli) -> None:
    assert cli("read", "orders", "--follow", "--incarnation", "__orders_1763700000000000000").code == 2


def test_a_broker_address_that_is_none_is_refused(archive: Archive, cli: Cli) -> None:
    done = cli("read", "orders", "--follow", "--broker", "amqp://guest:secret@localhost")
    assert done.code == 2
    assert "secret" not in done.err
