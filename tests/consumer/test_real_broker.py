"""Consumers between a real broker and an archive of its segments."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rstream.exceptions import ServerError

import coldstream
from coldstream.errors import IncarnationError, InvalidInputError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, OffsetSpec
from coldstream.manifest.stream import stream_from_directory
from coldstream.read.http import ClosedError
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.streams import PublishError, StreamConnection

SEGMENT_BYTES = 100_000
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture
def streams(broker: Broker) -> Iterator[StreamConnection]:
    with broker.connect() as connection:
        yield connection


class Scene:
    """A stream of numbered messages, at the broker and, as far as it was told to, in the archive."""

    def __init__(self, stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> None:
        self.name = f"consumed {next(_NAMES)}"
        self.stack = stack
        self.broker = broker
        self.streams = streams
        self.published = 0

    def declare(self, *, segments: int | None = None) -> None:
        length_bytes = None if segments is None else segments * SEGMENT_BYTES
        self.streams.create_stream(self.name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=length_bytes)

    def publish(self, messages: int) -> None:
        end = self.published + messages
        while (start := self.published) < end:
            numbers = range(start, min(start + 20, end))
            self.streams.publish(self.name, [b"%d:" % number + bytes(500) for number in numbers])
            self.published = numbers.stop

    def last_chunk(self) -> int:
        """Return the offset of the last chunk's first message. A busy broker cuts what was sent at once."""
        return max(
            chunk.header.chunk_id
            for path in self.broker.stream_directory(self.name).glob("*.segment")
            for chunk in iter_chunks(path.read_bytes()[SEGMENT_HEADER_BYTES:], source=path.name)
        )

    def archive(self) -> None:
        """Archive what has rolled."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.stack.environment.items():
                patch.setenv(name, value)
            directory = self.broker.stream_directory(self.name)
            announcer = Announcer.from_environment()
            stream = stream_from_directory(directory.name, name=self.name, vhost="/")
            announcer.announce(stream, find_rolled(directory), lambda _: None)
            self.stack.wait_idle(60)

    @contextmanager
    def consumer(self, start: OffsetSpec = FIRST, **options: object) -> Iterator[coldstream.BlockingConsumer]:
        options = {"prefetch_bytes": 1, "range_bytes": 50_000, "archive_wait_s": 20.0} | options
        with coldstream.BlockingConsumer(
            self.name, start, resolver=self.stack.resolver_url, broker=self.broker.stream_uri, **options
        ) as consumer:
            overdue = threading.Timer(300, consumer.close)
            overdue.start()
            try:
                yield consumer
            finally:
                overdue.cancel()


@pytest.fixture
def scene(stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> Scene:
    return Scene(stack, broker, streams)


def take(consumer: coldstream.BlockingConsumer, messages: int) -> list[int]:
    """Return the numbers in the next messages. Offsets have to rise."""
    taken = list(itertools.islice(consumer.messages(), messages))
    assert all(one.offset < other.offset for one, other in itertools.pairwise(taken))
    return [int(bytes(message.raw).partition(b":")[0]) for message in taken]


def test_archive_and_broker_are_one_stream(scene: Scene) -> None:
    scene.declare(segments=3)
    for _ in range(5):
        scene.publish(300)
        scene.archive()
    scene.publish(100)
    assert min(int(path.stem) for path in scene.broker.stream_directory(scene.name).glob("*.segment")) > 500
    with scene.consumer() as consumer:
        assert take(consumer, 1600) == list(range(1600))
        scene.publish(40)
        assert take(consumer, 40) == list(range(1600, 1640))
        assert consumer.position == 1640
        assert consumer.gaps == []


def test_a_consumer_slower_than_retention_goes_back_to_the_archive_and_returns(scene: Scene) -> None:
    scene.declare(segments=3)
    scene.publish(100)
    with scene.consumer(NEXT) as consumer:
        scene_tail = take_one_live(scene, consumer)
        for _ in range(8):
            scene.publish(200)
            scene.archive()
        assert min(int(path.stem) for path in scene.broker.stream_directory(scene.name).glob("*.segment")) > 1000
        assert take(consumer, scene.published - scene_tail) == list(range(scene_tail, scene.published))
        scene.publish(20)
        assert take(consumer, 20) == list(range(scene.published - 20, scene.published))


def take_one_live(scene: Scene, consumer: coldstream.BlockingConsumer) -> int:
    """Publish until a consumer at the tail has got something; return the number that comes next."""
    first: list[int] = []
    waiting = threading.Thread(target=lambda: first.extend(take(consumer, 1)))
    waiting.start()
    while waiting.is_alive():
        scene.publish(1)
        waiting.join(0.2)
    return first[0] + 1


def publish_when_there_is_a_leader(scene: Scene, messages: int) -> None:
    """Publish to a broker that starts: a leader that it finds may be gone a moment later, and refuse a whole frame."""
    deadline = time.monotonic() + 20
    end = scene.published + messages
    while True:
        try:
            scene.publish(end - scene.published)
        except (ServerError, PublishError):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


def test_offsets_stored_between_the_messages_are_no_gap(scene: Scene) -> None:
    scene.declare()
    for number in range(200):
        scene.publish(10)
        scene.streams.store_offset(scene.name, f"somebody {number % 3}", scene.published)
        if number == 120:
            scene.archive()
    with scene.consumer() as consumer:
        assert take(consumer, 2000) == list(range(2000))


def test_a_named_consumer_goes_on_after_the_offset_it_stored(scene: Scene) -> None:
    scene.declare()
    scene.publish(1000)
    scene.archive()
    with scene.consumer(name="billing") as consumer:
        for message in consumer.messages():
            if message.offset == 233:
                consumer.store_offset(message)
                break
    with scene.consumer(LAST, name="billing") as consumer:
        assert take(consumer, 500) == list(range(234, 734))
        consumer.store_offset(999)
    scene.publish(30)
    with scene.consumer(name="billing") as consumer:
        assert take(consumer, 30) == list(range(1000, 1030))
    with scene.consumer() as consumer, pytest.raises(InvalidInputError):
        consumer.store_offset(1)


def test_specs_begin_where_the_broker_would(scene: Scene) -> None:
    scene.declare()
    scene.publish(600)
    scene.archive()
    last = scene.last_chunk()
    with scene.consumer(LAST) as consumer:
        assert take(consumer, 600 - last) == list(range(last, 600))
    for offset in (0, 7, 333, 599):
        with scene.consumer(AtOffset(Offset(offset))) as consumer:
            assert take(consumer, 1) == [offset]


def test_a_stream_that_nobody_archives_is_read_live(scene: Scene) -> None:
    scene.declare()
    scene.publish(300)
    with scene.consumer() as consumer:
        assert take(consumer, 300) == list(range(300))


def test_a_stream_that_is_nowhere_is_not_found(scene: Scene) -> None:
    with scene.consumer() as consumer, pytest.raises(StreamNotFoundError):
        take(consumer, 1)


def test_a_stream_that_is_declared_again_is_not_read_on(scene: Scene) -> None:
    scene.declare()
    scene.publish(500)
    scene.archive()
    with scene.consumer() as consumer:
        assert len(take(consumer, 500)) == 500
        scene.streams.delete_stream(scene.name)
        scene.declare()
        scene.published = 0
        scene.publish(100)
        with pytest.raises((IncarnationError, StreamNotFoundError)):
            take(consumer, 1)
    with scene.consumer() as consumer:
        assert take(consumer, 100) == list(range(100))


def test_a_stream_that_is_deleted_ends_after_what_is_archived(scene: Scene) -> None:
    scene.declare()
    scene.publish(500)
    scene.archive()
    scene.streams.delete_stream(scene.name)
    given: list[int] = []
    with scene.consumer() as consumer, pytest.raises(StreamNotFoundError):
        given.extend(message.offset for message in consumer.messages())
    assert given == list(range(len(given)))
    assert len(given) > 300


def test_offsets_that_stay_neither_at_the_broker_nor_archived_are_an_error(scene: Scene) -> None:
    scene.declare(segments=1)
    scene.publish(20)
    with scene.consumer(NEXT, archive_wait_s=1.0) as consumer:
        take_one_live(scene, consumer)
        scene.publish(1500)
        with pytest.raises(UnavailableError, match="not at the broker any more, and not archived yet"):
            take(consumer, 1500)
        assert consumer.position is not None


def test_a_broker_forgets_stored_offsets_that_its_retention_has_passed(scene: Scene) -> None:
    scene.declare(segments=1)
    scene.publish(20)
    with scene.consumer(name="late") as consumer:
        consumer.store_offset(3)
    scene.publish(1000)
    with scene.consumer(name="late") as consumer:
        assert take(consumer, 1)[0] > 500


def test_partitions_are_read_together_each_in_order(scene: Scene) -> None:
    partitions = [f"super-{number}" for number in range(3)]
    names = ", ".join(f'<<"{partition}">>' for partition in partitions)
    keys = ", ".join(f'<<"{number}">>' for number in range(3))
    scene.broker.ctl(
        "eval",
        f'rabbit_stream_manager:create_super_stream(<<"/">>, <<"super">>, [{names}], #{{}}, [{keys}], <<"guest">>).',
    )
    for partition in partitions:
        for start in range(0, 200, 20):
            scene.streams.publish(partition, [b"%d:" % number for number in range(start, start + 20)])
    scene.name = "super"
    with scene.consumer(name="billing", super_stream=True) as consumer:
        taken: dict[str, list[int]] = {partition: [] for partition in partitions}
        for delivery in itertools.islice(consumer.deliveries(), 600):
            taken[delivery.stream].append(delivery.message.offset)
            if delivery.message.offset == 120:
                consumer.store_offset(delivery)
        assert taken == {partition: list(range(200)) for partition in partitions}
        assert {name: progress.position for name, progress in consumer.streams.items()} == dict.fromkeys(
            partitions, 200
        )
    with scene.consumer(name="billing", super_stream=True) as consumer:
        assert sum(1 for _ in itertools.islice(consumer.messages(), 3 * 79)) == 3 * 79


def test_at_the_tail_a_consumer_ends_at_once(scene: Scene) -> None:
    scene.declare()
    scene.publish(20)

    async def cancel_at_the_tail() -> float:
        async with coldstream.Consumer(
            scene.name, resolver=scene.stack.resolver_url, broker=scene.broker.stream_uri
        ) as consumer:
            assert len([await anext(consumer.messages()) for _ in range(20)]) == 20
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(consumer.messages())
            began = time.monotonic()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return time.monotonic() - began

    assert asyncio.run(cancel_at_the_tail()) < 1


def test_closing_from_another_thread_ends_a_wait(scene: Scene) -> None:
    scene.declare()
    with scene.consumer(NEXT) as consumer:
        threading.Timer(0.3, consumer.close).start()
        with pytest.raises(ClosedError):
            take(consumer, 1)
    assert not [thread for thread in threading.enumerate() if thread.name == "coldstream-consumer"]


def test_a_broker_that_comes_back_is_read_on_and_one_that_hangs_is_left_at_once(stack: EmulatedStack) -> None:
    with Broker() as broker:
        with broker.connect() as streams:
            scene = Scene(stack, broker, streams)
            scene.declare()
            scene.publish(300)
            time.sleep(1)  # a broker that is killed forgets what is younger
        with scene.consumer() as consumer:
            assert take(consumer, 300) == list(range(300))
            broker.kill()
            time.sleep(0.5)
            broker.start()
            with broker.connect() as scene.streams:
                publish_when_there_is_a_leader(scene, 100)
            assert take(consumer, 100) == list(range(300, 400))
            broker.pause()
            began = time.monotonic()
        assert time.monotonic() - began < 1
        broker.resume()
