"""The agent as its users run it: beside a real broker, as a process, with the local stack for AWS."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from coldstream.errors import StreamNotFoundError
from coldstream.local.environment import client
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST
from coldstream.read.reader import Reader
from tests.support.agent import PACKAGES, AgentProcess
from tests.support.broker import Broker

WAIT_S = 60


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def agent(broker: Broker, stack: EmulatedStack, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Make agents on state directories that lie on the file system of the broker's data."""
    made: list[AgentProcess] = []

    def make(*options: str | Path, state: Path | None = None) -> AgentProcess:
        uri = f"rabbitmq-stream://guest:guest@{broker.host}:{broker.stream_port}"
        process = AgentProcess(stack.environment, state or tmp_path / f"state-{len(made)}", uri, *options)
        made.append(process)
        process.start()
        process.wait_ready()
        return process

    yield make
    for process in made:
        process.stop()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def messages(
    stack: EmulatedStack, name: str, vhost: str = "/", *, on_gap: Literal["raise", "skip"] = "raise"
) -> list[tuple[int, bytes]]:
    try:
        with Reader(stack.resolver_url, vhost, name, FIRST, on_gap=on_gap) as reader:
            return [(message.offset, message.raw) for message in reader.messages()]
    except StreamNotFoundError:
        return []


def numbered(start: int, count: int, size: int = 300) -> list[bytes]:
    return [b"%010d:" % number + os.urandom(size) for number in range(start, start + count)]


def test_everything_is_archived_though_retention_deletes_and_the_agent_is_killed(broker, stack, agent, tmp_path):
    state = tmp_path / "state"
    running = agent("--data", broker.data_directory, "--include", "killed.*", state=state)
    rng = random.Random(1)
    published: list[bytes] = []
    with broker.connect() as streams:
        streams.create_stream("killed.often", max_segment_bytes=100_000, max_length_bytes=300_000)
        # The first segment is pinned once the agent has seen the directory.
        published += numbered(0, 10)
        streams.publish("killed.often", published)
        until(lambda: any((state / "pins").glob("*/*.segment")), "nothing was pinned")
        for round_ in range(8):
            part = numbered(len(published), 250)
            published += part
            streams.publish("killed.often", part)
            time.sleep(0.3)
            if round_ % 3 == 1:
                running.kill()
                time.sleep(rng.random() * 0.3)
                running.start()
                running.wait_ready()
                time.sleep(0.5)
    directory = broker.stream_directory("killed.often")
    tail = int(max(directory.glob("*.segment")).stem)
    assert min(int(path.stem) for path in directory.glob("*.segment")) > 0, "retention has deleted nothing"
    until(lambda: len(messages(stack, "killed.often")) >= tail, f"not archived: {running.log.read_text()[-3000:]}")
    assert messages(stack, "killed.often") == list(enumerate(published[:tail]))
    until(lambda: len(list((state / "pins" / directory.name).glob("*.segment"))) == 1, "pins are left")
    assert running.stop() == 0


def test_with_a_max_lag_a_quiet_stream_is_archived_without_a_roll(broker, stack, agent):
    with broker.connect() as streams:
        streams.create_stream("quiet", max_segment_bytes=100_000_000)
        published = numbered(0, 100)
        streams.publish("quiet", published)
        streams.store_offset("quiet", "somebody", 50)
        running = agent("--data", broker.data_directory, "--include", "quiet", "--max-lag", "3s")
        until(lambda: messages(stack, "quiet"), running.log.read_text())
    assert messages(stack, "quiet") == list(enumerate(published))


def test_the_protocol_source_archives_what_a_consumer_gets(broker, stack, agent):
    with broker.connect() as streams:
        streams.create_stream("managed", max_segment_bytes=1_000_000)
        published = numbered(0, 1000)
        streams.publish("managed", published[:600], publisher="one")
        streams.store_offset("managed", "somebody", 50)
        options = ("--source", "protocol", "--stream", "/:managed", "--segment-size", "100kB", "--max-lag", "3s")
        running = agent(*options)
        until(lambda: messages(stack, "managed"), "nothing was archived")
        running.kill()
        streams.publish("managed", published[600:])
        running.start()
        until(lambda: len(messages(stack, "managed")) == 1000, f"not archived: {running.log.read_text()[-3000:]}")
    found = messages(stack, "managed")
    assert [raw for _, raw in found] == published
    assert [offset for offset, _ in found] == [*range(600), *range(601, 1001)]


def test_a_stream_declared_again_is_another_incarnation(broker, stack, agent):
    with broker.connect() as streams:
        streams.create_stream("again", max_segment_bytes=100_000)
        running = agent("--data", broker.data_directory, "--include", "again", "--max-lag", "3s")
        streams.publish("again", numbered(0, 700))
        until(lambda: len(messages(stack, "again")) == 700, "the first incarnation is not archived")
        first_incarnation = broker.stream_directory("again").name
        streams.delete_stream("again")
        streams.create_stream("again", max_segment_bytes=100_000)
        second = numbered(5000, 700)
        streams.publish("again", second)
        until(lambda: messages(stack, "again") == list(enumerate(second)), "the second incarnation is not archived")
        until(lambda: not (running.state / "pins" / first_incarnation).exists(), "its pins are left")
    with Reader(stack.resolver_url, "/", "again", FIRST, incarnation=first_incarnation) as reader:
        assert [message.offset for message in reader.messages()] == list(range(700))


def test_a_damaged_range_is_taken_again_from_the_agent_that_runs_beside_a_broker_that_has_it(broker, stack, agent):
    published = numbered(0, 2001)
    with broker.connect() as streams:
        streams.create_stream("damaged", max_segment_bytes=100_000)
        # The last message is alone: else the last segment may be full, and the broker rolls it when the agent
        # subscribes. Nothing comes after it then that proves it, and it stays pinned.
        for start in range(0, len(published), 100):
            streams.publish("damaged", published[start : start + 100])
    running = agent("--data", broker.data_directory, "--include", "damaged", "--scan", "100ms")
    tail = int(max(broker.stream_directory("damaged").glob("*.segment")).stem)
    until(lambda: len(messages(stack, "damaged")) == tail, "not archived")
    directory = broker.stream_directory("damaged").name
    pins = running.state / "pins" / directory  # beside those of other tests' streams whose names nothing tells
    until(lambda: len(list(pins.glob("*.segment"))) == 1, "pins are left")

    bucket, s3 = stack.environment["COLDSTREAM_BUCKET"], client("s3", stack.environment)
    listed = s3.list_objects_v2(Bucket=bucket)["Contents"]
    keys = sorted(one["Key"] for one in listed if f"_{directory}/data/" in one["Key"])
    assert len(keys) > 5
    body = bytearray(s3.get_object(Bucket=bucket, Key=keys[1])["Body"].read())
    body[len(body) // 2] ^= 1
    s3.put_object(Bucket=bucket, Key=keys[1], Body=bytes(body))
    s3.delete_object(Bucket=bucket, Key=keys[3])

    scrub(stack, 5, "damaged", "--deep")
    scrub(stack, 0, "damaged", "--deep", "--repair", "--take-again")
    until(
        lambda: len(messages(stack, "damaged", on_gap="skip")) == tail,
        f"not taken again: {running.log.read_text()[-3000:]}",
    )
    assert messages(stack, "damaged") == list(enumerate(published[:tail]))
    scrub(stack, 0, "damaged", "--deep", "--restart")
    until(lambda: len(list(pins.glob("*.segment"))) == 1, "pins are left")
    assert stack.dead_letters() == 0


def scrub(stack: EmulatedStack, code: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "coldstream.cli.main", "scrub", *arguments]
    environment = os.environ | stack.environment | {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"{done.stdout}{done.stderr}"


def test_status_shows_what_there_is(broker, stack, agent):
    with broker.connect() as streams:
        streams.create_stream("shown", max_segment_bytes=100_000)
        streams.publish("shown", numbered(0, 700))
        running = agent("--data", broker.data_directory, "--include", "shown")
        until(lambda: (found := running.stream("shown")) is not None and found.archived_to, "not archived")
    command = [sys.executable, "-m", "coldstream.cli.main", "agent", "status", "--output", "json"]
    environment = os.environ | {
        "PYTHONPATH": str(PACKAGES),
        "COLDSTREAM_AGENT_URL": f"http://127.0.0.1:{running._port()}",
    }
    shown = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True, timeout=30).stdout)
    (stream,) = [one for one in shown["streams"] if one["name"] == "shown"]
    assert stream["disk_to"] == 700
    assert 0 < stream["archived_to"] <= 700
    assert "guest" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--data", "/nowhere"), "--data: /nowhere is not a directory"),
        (("--source", "protocol"), "--source protocol: needs --management, or a --stream"),
        (("--source", "air"), "--source: 'air' is neither disk nor protocol"),
        (("--max-lag", "1s"), "--max-lag: must be from 3 s"),
        (("--max-lag", "soon"), "--max-lag: 'soon' is not a duration"),
        (("--bandwidth", "fast"), "--bandwidth: 'fast' is not a size"),
        (("--listen", "here"), "--listen: 'here' is not HOST:PORT"),
        (("--stream", "orders"), "--stream: 'orders' is not VHOST:NAME"),
        (("--broker", "http://u:secret@host"), "broker address: does not begin with rabbitmq-stream://"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, options, problem):
    data = () if "--data" in options or "--source" in options else ("--data", str(tmp_path))
    command = [
        sys.executable,
        "-m",
        "coldstream.cli.main",
        "agent",
        "--state",
        str(tmp_path / "state"),
        *data,
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"coldstream: {problem}")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr
