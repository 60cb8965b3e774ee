"""What is said while nothing comes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from botocore.hooks import HierarchicalEmitter
from botocore.model import ServiceModel

from coldstream.cli import silence
from coldstream.cli.silence import report_silence
from coldstream.store.calls import CallsUnderWay
from tests.cli.conftest import Archive, Cli


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "FIRST_S", 0.05)
    monkeypatch.setattr(silence, "_LOOK_S", 0.01)


@pytest.fixture
def hanging() -> Iterator[str]:
    """A service that takes connections and says nothing, and hangs up once somebody was told so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", ["read", "describe", "resolve"])
def test_a_resolver_that_hangs_is_reported_before_it_is_given_up(
    command: str, hanging: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.read.client.READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr("coldstream.read.client.ATTEMPTS", 1)
    done = cli(command, "orders", "--resolver", hanging)
    assert done.code == 6
    first, *_, last = done.err.splitlines()
    assert first.startswith(f"coldstream: no answer from {hanging} for 0 s; still trying, Ctrl-C ends it")
    assert f"GET {hanging}/" in last
    assert "timed out" in last


@pytest.mark.parametrize(
    "command",
    [
        "compact orders",
        "replay orders --to-parquet table",
        "truncate orders --to 10 --yes",
        "delete orders --yes",
        "undelete orders",
        "erase orders --offsets 0:10 --reason test --yes",
        "sweep --yes",
        "restore orders --offsets 0:10",
        "policy list",
        "retention run --yes",
        "hold list",
        "quarantine list",
        "scrub",
        "garbage",
        "history orders",
        "rebuild --to-table other",
    ],
)
def test_an_aws_that_hangs_is_reported_before_it_is_given_up(
    command: str, hanging: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.store.table.READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr("coldstream.store.table.RETRIES", 0)
    monkeypatch.setattr("coldstream.store.bucket.READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr("coldstream.store.bucket.ATTEMPTS", 1)
    settings = {"AWS_ENDPOINT_URL": hanging, "AWS_DEFAULT_REGION": "us-east-1", "COLDSTREAM_BUCKET": "archive"}
    keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    for name, value in {**settings, **keys, "COLDSTREAM_TABLE": "manifest"}.items():
        monkeypatch.setenv(name, value)
    done = cli(*command.split())
    assert done.code == 6
    first, *_, last = done.err.splitlines()
    host = hanging.removeprefix("http://")
    services = [f"no answer from {service}, {host} for 0 s; still trying" for service in ("DynamoDB", "S3")]
    assert first.startswith(tuple(f"coldstream: {line}" for line in services))
    assert "Read timeout" in last


def test_what_hung_and_was_answered_is_no_silence_any_more() -> None:
    calls = CallsUnderWay()
    events = HierarchicalEmitter()
    calls.watch(events)
    service = ServiceModel({"metadata": {"serviceId": "S3"}, "operations": {"GetObject": {}, "PutObject": {}}})
    about = {"params": {"url": "http://127.0.0.1:1/archive/key"}, "model": service.operation_model("GetObject")}
    assert calls.silent() is None
    events.emit("before-call.s3.GetObject", **about)
    assert calls.silent() is not None
    events.emit("after-call-error.s3.GetObject")
    assert calls.silent() is None
    # The more it sends, the longer that takes.
    events.emit("before-call.s3.PutObject", **{**about, "model": service.operation_model("PutObject")})
    assert calls.silent() is None


def test_what_comes_in_time_is_passed_without_a_word(
    archive: Archive, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "FIRST_S", 60)
    done = cli("read", "orders", "--limit", "5")
    assert (len(done.json), done.err) == (5, "")


def test_a_slow_caller_is_not_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "FIRST_S", 1)
    with report_silence("nobody") as waiting:
        for _ in waiting.each(range(2)):
            time.sleep(1.5)
    assert capsys.readouterr().err == ""


def test_silence_between_two_things_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    told = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        deadline = time.monotonic() + 10
        while not told.is_set() and time.monotonic() < deadline:
            told.wait(0.05)
            if "no answer from S3" in capsys.readouterr().err:
                told.set()
        yield 2

    with report_silence("S3") as waiting:
        assert list(waiting.each(slow())) == [1, 2]
    assert told.is_set()
