"""Loads into a real broker: every message once, in order, whatever happens on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from coldstream.jobs.job import Job, JobState
from coldstream.worker.brokers import BrokerBook
from tests.support.broker import Broker
from tests.support.streams import StreamConnection as Streams
from tests.worker.samples import JobPlayer, SampleArchive, message

_NAMES = (f"loaded {number}" for number in itertools.count())


@pytest.fixture
def archive() -> SampleArchive:
    return SampleArchive()


@pytest.fixture
def player(archive: SampleArchive, broker: Broker) -> JobPlayer:
    amqp = f"amqp://guest:guest@{broker.host}:{broker.amqp_port}/%2F"
    return JobPlayer(archive.tools(brokers=BrokerBook({"default": broker.stream_uri}, {"default": amqp})))


@pytest.fixture
def streams(broker: Broker) -> Iterator[Streams]:
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def target(streams: Streams) -> str:
    name = next(_NAMES)
    streams.create_stream(name, max_segment_bytes=1_000_000)
    return name


def read(streams: Streams, name: str, messages: int) -> list[bytes]:
    """Read a stream to its end; a last message of ours tells that nothing comes after."""
    streams.publish(name, [b"the end"])
    found = [one for _, one in streams.read(name, messages + 1)]
    assert found.pop() == b"the end"
    return found


def to_stream(name: str) -> dict[str, Any]:
    return {"target": {"type": "stream", "name": name}}


def test_streams_go_into_a_stream_one_after_the_other(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    archive.fill("orders-1", 120)
    archive.fill("orders-2", 80)
    job = player.run("load", streams=["orders-*"], **to_stream(target))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert (job.progress.done, job.progress.total, job.progress.messages) == (200, 200, 200)
    expected = [*archive.raw("orders-1").values(), *archive.raw("orders-2").values()]
    assert read(streams, target, 200) == expected


def test_a_load_that_is_stopped_again_and_again_has_each_message_once(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    for _ in range(5):
        archive.fill("orders", 100)
    job: Job = player.create("load", streams=["orders"], rate=2000, **to_stream(target))
    for stop_at in (4, 6, 7, 9, 10**9):
        looks = itertools.count()
        job = player.attempt(job, worker_stops=lambda looks=looks, stop_at=stop_at: next(looks) > stop_at)  # type: ignore[misc]
        if job.state.has_ended:
            break
    assert job.state is JobState.SUCCEEDED, job.reason
    assert read(streams, target, 500) == list(archive.raw("orders").values())


def test_an_attempt_that_lost_its_cursor_doubles_nothing(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    """As if the worker had died after the broker confirmed, and before it could write that down."""
    archive.fill("orders", 300)
    first = player.run("load", streams=["orders"], end="200", **to_stream(target))
    assert first.state is JobState.SUCCEEDED
    again = player.run("load", streams=["orders"], **to_stream(target))
    assert again.state is JobState.SUCCEEDED
    assert again.progress.messages == 100
    assert read(streams, target, 300) == list(archive.raw("orders").values())


def test_a_gap_that_the_broker_was_past_when_the_worker_died_is_still_counted(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    archive.fill("orders", 50)
    archive.add("orders", [(1_763_700_100_000, [message(b"after")] * 20)], hole=9)
    assert player.run("load", streams=["orders"], allow_skipped=True, **to_stream(target)).state is JobState.SUCCEEDED
    again = player.run("load", streams=["orders"], **to_stream(target))
    assert (again.state, again.skipped.count, again.progress.messages) == (JobState.FAILED, 9, 0)
    assert read(streams, target, 70) == list(archive.raw("orders").values())


def test_a_broker_that_the_worker_does_not_know_fails_the_job(archive: SampleArchive, player: JobPlayer) -> None:
    archive.fill("orders", 10)
    job = player.run("load", streams=["orders"], target={"type": "stream", "broker": "far away", "name": "x"})
    assert job.state is JobState.FAILED
    assert "'far away' is not known" in job.reason


def test_a_target_that_is_not_declared_fails_the_job_with_advice(archive: SampleArchive, player: JobPlayer) -> None:
    archive.fill("orders", 10)
    job = player.run("load", streams=["orders"], **to_stream("never declared"))
    assert job.state is JobState.FAILED
    assert "declare the target first" in job.reason
