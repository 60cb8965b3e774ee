"""Replay into a real broker: the same messages, once, in order, whatever happens on the way."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pika
import pytest
from rstream import AMQPMessage, CompressionType, Properties

from coldstream.errors import (
    AccessDeniedError,
    GapError,
    InvalidInputError,
    InvalidSettingError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.format.amqp.message import Message
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.manifest.stream import stream_from_directory
from coldstream.replay.request import ReplayRequest
from coldstream.replay.routing import RoutingKey
from coldstream.replay.stream import publisher_name, replay_to_stream, replayed_to
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import SendOptions, StreamTarget
from coldstream.routing.murmur3 import partition_of
from coldstream.units import Offset
from tests.erase.archived import MessageArchive
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.replay.archived import Archived, archived
from tests.support.amqp_samples import MESSAGES
from tests.support.archive import ChunkArchive, steady
from tests.support.broker import Broker
from tests.support.streams import StreamConnection as Streams
from tests.support.streams import SubBatch

_NAMES = (f"replayed {number}" for number in itertools.count())
KEYS = 40


def keyed(number: int) -> bytes:
    return bytes(AMQPMessage(properties=Properties(message_id=f"key-{number % KEYS}"), body=b"%d" % number))


@pytest.fixture(scope="module")
def source(broker: Broker) -> Archived:
    """Everything that people publish, as a broker stored it."""
    name = "replay source"
    rng = random.Random(1)
    entries: list[bytes | SubBatch] = [b"%d:" % number + rng.randbytes(200) for number in range(300)]
    for compression in CompressionType:
        entries += [SubBatch([b"in a batch %d" % number for number in range(50)], compression), b"beside it"]
    entries += list(MESSAGES.values())
    entries += [keyed(number) for number in range(300)]
    entries += [b"last:" + rng.randbytes(1000) for _ in range(300)]
    with broker.connect() as streams:
        streams.create_stream(name, max_segment_bytes=100_000)
        for start in range(0, len(entries), 60):
            streams.publish(name, entries[start : start + 60])
    directory = broker.stream_directory(name)
    return archived(directory, stream_from_directory(directory.name, name=name, vhost="/"))


@pytest.fixture
def streams(broker: Broker) -> Iterator[Streams]:
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def target(broker: Broker, streams: Streams) -> StreamTarget:
    name = next(_NAMES)
    streams.create_stream(name, max_segment_bytes=1_000_000)
    return StreamTarget(broker.stream_uri, name)


def run(
    source: Archived, target: StreamTarget, start: int = 0, end: int | None = None, **options: object
) -> ReplaySummary:
    return replay_to_stream(source.table, source.objects, source.source(start, end), target, **options)


def read(streams: Streams, target: StreamTarget, messages: int) -> list[bytes]:
    """Read a stream to its end; a last message of ours tells that nothing comes behind."""
    streams.publish(target.name, [b"the end"])
    found = [message for _, message in streams.read(target.name, messages + 1)]
    assert found.pop() == b"the end"
    return found


def test_what_is_in_a_fresh_stream_is_what_was_published(
    source: Archived, target: StreamTarget, streams: Streams
) -> None:
    summary = run(source, target)
    assert summary.is_complete
    assert summary.messages == len(source.messages) > 1000
    assert (summary.resumed_at, summary.confirmed_to) == (0, source.end)
    assert read(streams, target, len(source.messages)) == list(source.messages.values())


def test_sub_batches_stay_packed(source: Archived, target: StreamTarget, broker: Broker) -> None:
    run(source, target)
    packed = broker.stream_directory(source.stream.name), broker.stream_directory(target.name)
    for text in (b"in a batch 7", b"in a batch 41"):
        counts = [b"".join(path.read_bytes() for path in sorted(each.glob("*.segment"))).count(text) for each in packed]
        assert counts[0] == counts[1] < len(CompressionType)


def test_a_second_run_adds_nothing(source: Archived, target: StreamTarget, streams: Streams) -> None:
    run(source, target)
    again = run(source, target)
    assert again.is_complete
    assert (again.messages, again.resumed_at) == (0, source.end)
    assert len(read(streams, target, len(source.messages))) == len(source.messages)


def test_a_later_end_adds_what_is_behind(source: Archived, target: StreamTarget, streams: Streams) -> None:
    run(source, target, end=500)
    assert run(source, target, end=900).resumed_at == 500
    assert read(streams, target, 900) == source.between(0, 900)


def test_ranges_are_exact_inside_sub_batches(source: Archived, broker: Broker, streams: Streams) -> None:
    for start, end in ((310, 340), (325, 420), (349, 352), (0, 1), (351, 352)):
        name = next(_NAMES)
        streams.create_stream(name, max_segment_bytes=1_000_000)
        run(source, StreamTarget(broker.stream_uri, name), start, end)
        assert read(streams, StreamTarget(broker.stream_uri, name), end - start) == source.between(start, end)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.replay.forward.FRAME_BYTES", 2000)
    monkeypatch.setattr("coldstream.replay.forward.RUN_RECORDS", 7)
    monkeypatch.setattr("coldstream.replay.broker_replay._TELL_EVERY_S", 0)


class Died(Exception):  # noqa: N818
    """What kills a task."""


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_is_killed_anywhere_is_gone_on_with(
    source: Archived, target: StreamTarget, streams: Streams, small_slices: None, seed: int
) -> None:
    rng = random.Random(seed)
    deaths = 0
    while True:
        left = rng.randrange(1, 60)

        def die(_: ReplayProgress) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        try:
            summary = run(source, target, on_progress=die)
        except Died:
            deaths += 1
            assert deaths < 100
        else:
            break
    assert deaths > 0
    assert summary.is_complete
    assert read(streams, target, len(source.messages)) == list(source.messages.values())


def test_two_at_once_add_everything_once(
    source: Archived, target: StreamTarget, streams: Streams, small_slices: None
) -> None:
    together = threading.Barrier(3)

    def task() -> ReplaySummary:
        together.wait()
        return run(source, target)

    with ThreadPoolExecutor(3) as pool:
        assert all(done.result().is_complete for done in [pool.submit(task) for _ in range(3)])
    assert read(streams, target, len(source.messages)) == list(source.messages.values())


def test_a_connection_that_is_cut_is_opened_again(
    source: Archived, target: StreamTarget, streams: Streams, broker: Broker, small_slices: None
) -> None:
    cuts: list[str] = []

    def cut(_: ReplayProgress) -> None:
        if len(cuts) < 2:
            cuts.append(broker.ctl("eval", "[exit(P, kill) || P <- pg_local:get_members(rabbit_stream_connections)]."))

    with broker.connect() as _:
        summary = run(source, target, on_progress=cut)
    assert summary.is_complete
    assert summary.messages == len(source.messages)
    assert cuts
    with broker.connect() as fresh:
        assert read(fresh, target, len(source.messages)) == list(source.messages.values())


def test_consumers_by_amqp_0_9_1_get_each_message(source: Archived, target: StreamTarget, broker: Broker) -> None:
    first = next(offset for offset, message in source.messages.items() if message == keyed(0))
    run(source, target, first, first + 300)
    with pika.BlockingConnection(pika.ConnectionParameters(broker.host, broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        bodies = []
        for method, _, body in channel.consume(target.name, arguments={"x-stream-offset": "first"}):
            bodies.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(bodies) == 300:
                break
    assert bodies == [b"%d" % number for number in range(300)]


def test_a_stop_is_obeyed_and_gone_on_from(
    source: Archived, target: StreamTarget, streams: Streams, small_slices: None
) -> None:
    calls = itertools.count()
    stopped = run(source, target, should_stop=lambda: next(calls) > 20)
    assert not stopped.is_complete
    assert 0 < stopped.confirmed_to < source.end
    rest = run(source, target)
    assert (rest.resumed_at, rest.is_complete) == (stopped.confirmed_to, True)
    assert read(streams, target, len(source.messages)) == list(source.messages.values())


def test_how_far_it_is_the_broker_tells(source: Archived, target: StreamTarget) -> None:
    half, whole = source.source(end=500), source.source(end=900)
    assert replayed_to([whole], target, SendOptions()) == [0]
    run(source, target, end=500)
    run(source, target, 100, 300)
    asked = [half, whole, source.source(100, 300), source.source(200, 300)]
    assert replayed_to(asked, target, SendOptions()) == [500, 500, 300, 200]


def test_progress_rises_to_the_end(source: Archived, target: StreamTarget, small_slices: None) -> None:
    told: list[ReplayProgress] = []
    run(source, target, on_progress=told.append)
    done = [progress.done_to for progress in told]
    assert done == sorted(done)
    assert done[-1] == source.end


def test_a_rate_is_kept(source: Archived, target: StreamTarget, small_slices: None) -> None:
    summary = run(source, target, 0, 300, options=SendOptions(rate=200))
    assert 0.4 < summary.seconds < 10


def only_sevens(message: Message) -> bytes | Message | None:
    if message.offset % 7:
        return None
    return b"changed" if message.offset % 2 else message


def test_a_function_filters_and_maps(source: Archived, target: StreamTarget, streams: Streams) -> None:
    options = SendOptions(transform=f"{__name__}:only_sevens")
    for _ in range(2):
        run(source, target, options=options)
    wanted = [b"changed" if offset % 2 else message for offset, message in source.messages.items() if offset % 7 == 0]
    assert read(streams, target, len(wanted)) == wanted


@pytest.mark.parametrize("name", ["nothing", "no.such:thing", "math:pi", "math:"])
def test_a_function_that_is_none_is_refused(source: Archived, target: StreamTarget, name: str) -> None:
    with pytest.raises(InvalidSettingError):
        run(source, target, options=SendOptions(transform=name))


def test_a_super_stream_is_partitioned_as_clients_do(source: Archived, broker: Broker, streams: Streams) -> None:
    keys = [f"key-{number}" for number in range(KEYS)]
    partitions = [f"again-{number}" for number in range(3)]
    names = ", ".join(f'<<"{name}">>' for name in partitions)
    broker.ctl(
        "eval",
        f'rabbit_stream_manager:create_super_stream(<<"/">>, <<"again">>, [{names}], #{{}},'
        ' [<<"0">>, <<"1">>, <<"2">>], <<"guest">>).',
    )
    first = next(offset for offset, message in source.messages.items() if message == keyed(0))
    target = StreamTarget(broker.stream_uri, "again", routing_key=RoutingKey())
    for end in (first + 100, first + 300, first + 300):
        run(source, target, first, end)
    for number, partition in enumerate(partitions):
        wanted = [keyed(each) for each in range(300) if partition_of(keys[each % KEYS], 3) == number]
        assert wanted
        assert read(streams, StreamTarget(broker.stream_uri, partition), len(wanted)) == wanted
    with pytest.raises(InvalidInputError, match="offset 0 has no properties"):
        run(source, target, 0, 10)


def test_erased_messages_go_into_a_stream_and_not_into_a_super_stream(
    target: StreamTarget, broker: Broker, streams: Streams
) -> None:
    archive = MessageArchive()
    archive.add(4)
    Erasing(archive).erase(between(5, 20))
    source = Archived(archive.table, archive.objects, archive.stream, archive.read())
    run(source, target)
    assert read(streams, target, 24) == list(source.messages.values())
    assert list(source.messages.values()).count(ERASED_MESSAGE) == 15
    broker.ctl(
        "eval",
        'rabbit_stream_manager:create_super_stream(<<"/">>, <<"erased">>, [<<"erased-0">>], #{}, [<<"0">>],'
        ' <<"guest">>).',
    )
    summary = run(source, StreamTarget(broker.stream_uri, "erased", routing_key=RoutingKey()))
    assert (summary.messages, summary.left_out) == (9, 15)
    left = [raw for raw in source.messages.values() if raw != ERASED_MESSAGE]
    assert read(streams, StreamTarget(broker.stream_uri, "erased-0"), 9) == left


def test_where_it_may_not_go_is_told(source: Archived, broker: Broker) -> None:
    with pytest.raises(StreamNotFoundError):
        run(source, StreamTarget(broker.stream_uri, "nowhere"))
    with pytest.raises(StreamNotFoundError):
        run(source, StreamTarget(broker.stream_uri, "nowhere", routing_key=RoutingKey()))
    with pytest.raises(AccessDeniedError) as denied:
        run(source, StreamTarget(broker.stream_uri.replace("guest:guest", "guest:s3cret"), "nowhere"))
    assert "s3cret" not in str(denied.value)


def test_a_broker_that_stays_away_is_given_up(source: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.replay.retry.MAX_STALL_S", 0.3)
    with pytest.raises(UnavailableError):
        run(source, StreamTarget("rabbitmq-stream://127.0.0.1:1", "somewhere"))


def test_a_gap_ends_it_or_is_passed_over(broker: Broker, streams: Streams, target: StreamTarget) -> None:
    holed = ChunkArchive()
    for first_offset in (0, 30):
        holed.add(first_offset, steady(5, 1, 2))
    whole = ReplayRequest(holed.stream, Offset(0), Offset(40))
    with pytest.raises(GapError):
        replay_to_stream(holed.table, holed.objects, whole, target)
    told = replay_to_stream(holed.table, holed.objects, replace(whole, skip_gaps=True), target)
    assert [(gap.first_offset, gap.next_offset) for gap in told.gaps] == [(10, 30)]
    assert (told.resumed_at, told.confirmed_to) == (10, 40)
    assert read(streams, target, 20) == [holed.message(offset) for offset in (*range(10), *range(30, 40))]


def test_the_reference_says_what_is_asked_for(source: Archived) -> None:
    target = StreamTarget("rabbitmq-stream://", "a")
    asked = source.source()
    name = publisher_name(asked, target, SendOptions())
    assert name == publisher_name(source.source(end=10), target, SendOptions(rate=5))
    others = {
        publisher_name(source.source(1), target, SendOptions()),
        publisher_name(asked, StreamTarget("rabbitmq-stream://", "a", routing_key=RoutingKey()), SendOptions()),
        publisher_name(asked, target, SendOptions(transform="a:b")),
    }
    assert len(others | {name}) == 4
    assert publisher_name(asked, StreamTarget("", "a", publisher="mine"), SendOptions()) == "mine"
