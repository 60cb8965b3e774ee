"""Loads into super streams and exchanges of a real broker, windows into streams, and what they leave out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from coldstream.format.erased import ERASED_MESSAGE
from coldstream.jobs.attempt import acquire, run_attempt
from coldstream.jobs.job import JobState
from coldstream.jobs.run import JobRun, RunEnd
from coldstream.routing.murmur3 import partition_of
from coldstream.units import TimestampMs, format_timestamp
from coldstream.worker.brokers import BrokerBook
from coldstream.worker.kinds import kinds_of
from coldstream.worker.tools import WorkerTools
from tests.erase.archived import KEYS, MessageArchive
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.support.broker import Broker
from tests.support.segments import START
from tests.support.streams import StreamConnection as Streams
from tests.worker.samples import SECOND, JobPlayer, SampleArchive, message
from tests.worker.test_load_broker import read, to_stream

_NAMES = (f"target {number}" for number in itertools.count())


@pytest.fixture
def archive() -> SampleArchive:
    return SampleArchive()


@pytest.fixture
def brokers(broker: Broker) -> BrokerBook:
    amqp = f"amqp://guest:guest@{broker.host}:{broker.amqp_port}/%2F"
    return BrokerBook({"default": broker.stream_uri}, {"default": amqp})


@pytest.fixture
def player(archive: SampleArchive, brokers: BrokerBook) -> JobPlayer:
    return JobPlayer(archive.tools(brokers=brokers))


@pytest.fixture
def streams(broker: Broker) -> Iterator[Streams]:
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.amqp_port)) as connection:
        yield connection.channel()


@pytest.fixture
def target(streams: Streams) -> str:
    name = next(_NAMES)
    streams.create_stream(name, max_segment_bytes=1_000_000)
    return name


@pytest.fixture
def exchange(channel: BlockingChannel) -> str:
    """An exchange with one queue of the same name, for every key."""
    name = next(_NAMES)
    channel.exchange_declare(name, "fanout")
    channel.queue_declare(name)
    channel.queue_bind(name, name)
    return name


def super_stream(broker: Broker, name: str, partitions: int) -> list[str]:
    names = [f"{name}-{number}" for number in range(partitions)]
    listed = ", ".join(f'<<"{one}">>' for one in names)
    keys = ", ".join(f'<<"{number}">>' for number in range(partitions))
    broker.ctl(
        "eval",
        f'rabbit_stream_manager:create_super_stream(<<"/">>, <<"{name}">>, [{listed}], #{{}}, [{keys}], <<"guest">>).',
    )
    return names


def offsets(channel: BlockingChannel, queue: str) -> list[int]:
    """Take all that is in a queue, and return where it came from."""
    found = []
    while (taken := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(taken[1].headers["x-coldstream-offset"])
    return found


def to_exchange(name: str, **more: Any) -> dict[str, Any]:
    return {"target": {"type": "exchange", "name": name, **more}}


def at(second: float) -> str:
    return format_timestamp(TimestampMs(round(START + second * SECOND)))


def windowed(archive: SampleArchive) -> list[int]:
    """Archive 100 messages, created a second apart, with a chunk for each five, 3 s later; return the times."""
    created = [START + number * SECOND for number in range(100)]
    chunks = [
        (created[n + 4] + 3 * SECOND, [message(b"%d" % k, created=created[k], key=f"k{k}") for k in range(n, n + 5)])
        for n in range(0, 100, 5)
    ]
    archive.add("orders", chunks)
    return created


def test_windows_that_meet_have_every_message_once_in_a_stream(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    windowed(archive)
    for start, end in ((0, 33), (33, 71), (71, 200)):
        job = player.run("load", streams=["orders"], start=at(start), end=at(end), **to_stream(target))
        assert job.state is JobState.SUCCEEDED, job.reason
    assert read(streams, target, 100) == list(archive.raw("orders").values())


def test_a_window_that_is_stopped_and_resumed_has_every_message_once(
    archive: SampleArchive, player: JobPlayer, streams: Streams, target: str
) -> None:
    windowed(archive)
    window = {"start": at(12), "end": at(77)}
    job = player.create("load", streams=["orders"], rate=200, **window, **to_stream(target))
    for stop_at in (3, 4, 5, 10**9):
        looks = itertools.count()
        job = player.attempt(job, worker_stops=lambda looks=looks, stop_at=stop_at: next(looks) > stop_at)  # type: ignore[misc]
        if job.state.has_ended:
            break
    assert job.state is JobState.SUCCEEDED, job.reason
    assert read(streams, target, 65) == list(archive.raw("orders", 12, 77).values())


def test_a_window_into_an_exchange(
    archive: SampleArchive, player: JobPlayer, channel: BlockingChannel, exchange: str
) -> None:
    windowed(archive)
    job = player.run("load", streams=["orders"], start=at(12), end=at(77), **to_exchange(exchange))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(channel, exchange) == list(range(12, 77))


def test_a_super_stream_has_each_message_in_its_partition_and_those_without_a_key_are_skipped(
    archive: SampleArchive, player: JobPlayer, broker: Broker, streams: Streams
) -> None:
    name = next(_NAMES).replace(" ", "-")
    partitions = super_stream(broker, name, 3)
    bodies = [message(b"%d" % n, key=None if n in {7, 8, 30} else f"key-{n}") for n in range(60)]
    archive.add("orders", [(START, bodies[n : n + 10]) for n in range(0, 60, 10)])
    super_target = {"target": {"type": "super_stream", "name": name}}
    for fields in ({}, {"start": "0", "end": "60"}):
        job = player.run("load", streams=["orders"], **fields, **super_target)
        assert (job.state, job.skipped.count) == (JobState.FAILED, 3)
        assert "offsets 7 to 8" in job.skipped.named[0]
        assert "no routing key" in job.skipped.named[0]
    for number, partition in enumerate(partitions):
        expected = [bodies[n] for n in range(60) if n not in {7, 8, 30} and partition_of(f"key-{n}", 3) == number]
        assert read(streams, partition, len(expected)) == expected


def test_a_super_stream_load_that_is_stopped_has_each_message_once(
    archive: SampleArchive, player: JobPlayer, broker: Broker, streams: Streams
) -> None:
    name = next(_NAMES).replace(" ", "-")
    partitions = super_stream(broker, name, 3)
    for _ in range(4):
        archive.fill("orders", 100)
    super_target = {"target": {"type": "super_stream", "name": name}}
    job = player.create("load", streams=["orders"], rate=2000, **super_target)
    for stop_at in (3, 4, 5, 6, 10**9):
        looks = itertools.count()
        job = player.attempt(job, worker_stops=lambda looks=looks, stop_at=stop_at: next(looks) > stop_at)  # type: ignore[misc]
        if job.state.has_ended:
            break
    assert job.state is JobState.SUCCEEDED, job.reason
    raw = archive.raw("orders")
    for number, partition in enumerate(partitions):
        expected = [raw[n] for n in range(400) if partition_of(f"k{n}", 3) == number]
        assert read(streams, partition, len(expected)) == expected


def test_erased_messages_are_skipped_by_every_target(
    brokers: BrokerBook, streams: Streams, target: str, channel: BlockingChannel, exchange: str
) -> None:
    source = MessageArchive()
    source.add(4)
    Erasing(source).erase(between(5, 20))
    tools = WorkerTools(source.table, source.objects, KEYS, brokers, state=None, environment={})  # type: ignore[arg-type]
    player = JobPlayer(tools)
    left = [raw for raw in source.read().values() if raw != ERASED_MESSAGE]
    for fields in (to_stream(target), to_exchange(exchange)):
        job = player.run("load", streams=[source.stream.name], vhost=source.stream.vhost, **fields)
        assert (job.state, job.skipped.count) == (JobState.FAILED, 15), job.reason
        assert ": erased" in job.skipped.named[0]
    assert read(streams, target, len(left)) == left
    assert len(offsets(channel, exchange)) == len(left)


def test_messages_that_no_queue_takes_are_skipped_by_name(
    archive: SampleArchive, player: JobPlayer, channel: BlockingChannel
) -> None:
    name = next(_NAMES)
    channel.exchange_declare(name, "direct")
    channel.queue_declare(name)
    for number in range(20):
        if number not in {4, 5, 6}:
            channel.queue_bind(name, name, f"k{number}")
    archive.fill("orders", 20)
    key = {"routing_key": "properties.message_id"}
    job = player.run("load", streams=["orders"], **to_exchange(name, **key))
    assert (job.state, job.skipped.count) == (JobState.FAILED, 3)
    assert "offsets 4 to 6" in job.skipped.named[0]
    assert "no queue" in job.skipped.named[0]
    assert offsets(channel, name) == [n for n in range(20) if n not in {4, 5, 6}]
    allowed = player.run("load", streams=["orders"], **to_exchange(name, **key, allow_unroutable=True))
    assert (allowed.state, allowed.skipped.count) == (JobState.SUCCEEDED, 0)


def test_an_exchange_goes_on_at_the_jobs_cursor(
    archive: SampleArchive, player: JobPlayer, channel: BlockingChannel, exchange: str
) -> None:
    archive.fill("orders", 300)
    job = player.create("load", streams=["orders"], rate=500, **to_exchange(exchange))
    looks = itertools.count()
    stopped = player.attempt(job, worker_stops=lambda: next(looks) > 150)
    assert stopped.state is JobState.WAITING
    assert 0 < stopped.progress.done < 300
    player.store.edit(job.id, {"rate": None})
    assert player.attempt(job).state is JobState.SUCCEEDED
    assert offsets(channel, exchange) == list(range(300))


def test_nothing_is_sent_to_an_exchange_after_the_lease_is_over(
    archive: SampleArchive, player: JobPlayer, channel: BlockingChannel, exchange: str
) -> None:
    """Of a worker that was paused for long, and believes that the job is its own."""
    archive.fill("orders", 100)
    job = player.create("load", streams=["orders"], **to_exchange(exchange))
    taken = acquire(player.store, job, "slow")
    assert taken is not None

    def kind(run: JobRun) -> RunEnd:
        run._is_lost = True
        run.should_stop = lambda: False  # type: ignore[method-assign]  # it has not looked
        return kinds_of(player.tools)[run.job.kind](run)

    assert run_attempt(player.store, taken, kind) is None
    assert offsets(channel, exchange) == []
