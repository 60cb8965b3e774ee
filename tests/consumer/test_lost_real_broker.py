"""What retention deleted while the agent was away: the agent says so when it comes back, and a consumer is told."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import coldstream
from coldstream.agent import losses
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.rules import Rules
from coldstream.agent.run import run_agent
from coldstream.errors import ColdstreamError, GapError, IncarnationError, StreamNotFoundError
from coldstream.live.address import BrokerAddress
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST
from coldstream.read.client import ResolverClient
from coldstream.resolve.answer import Description
from coldstream.units import Offset
from tests.support.broker import Broker

SEGMENT_BYTES = 100_000
WAIT_S = 60.0
_STORIES = itertools.count()


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    with EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running:
        yield running


@pytest.fixture(autouse=True)
def quick(stack: EmulatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "SUSPICION_S", 1.0)
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)


class Story:
    """A stream of which the broker keeps one segment, and an agent that comes and goes."""

    def __init__(self, stack: EmulatedStack, broker: Broker, source: SegmentSource, state: Path) -> None:
        self.name = f"lost-{source}-{next(_STORIES)}"
        self.stack = stack
        self.broker = broker
        self.source = source
        self.state = state
        self._numbers = itertools.count()

    def declare(self) -> None:
        with self.broker.connect() as streams:
            streams.create_stream(self.name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=SEGMENT_BYTES)

    def publish(self, chunks: int) -> None:
        """Publish with a name, so that every segment begins with a tracking chunk."""
        with self.broker.connect() as streams:
            for number in itertools.islice(self._numbers, chunks):
                streams.publish(self.name, [b"%d" % number + bytes(500)] * 20, publisher="publisher")

    def archive_some(self) -> None:
        """Have the first messages archived by an agent, and publish more after it has gone."""
        self.declare()
        self.publish(5)
        with self.agent("state", segment_bytes=20_000):
            deadline = time.monotonic() + WAIT_S
            while self.archived_to() < 80:
                assert time.monotonic() < deadline, "nothing is archived"
                self.publish(1)
        self.publish(40)

    def publish_until_last_segment_has(self, at_least: int, less_than: int) -> None:
        """Publish until the last segment's size is in a range: it depends on how fast the agent was.

        Only what is less than SEGMENT_BYTES stays as it is. A full segment rolls with the next command of any kind, and
        a subscription is one (osiris_writer:handle_batch/2): a tracking chunk begins the next segment, and retention
        deletes every message there is.
        """
        while not at_least <= self.last_segment_bytes < less_than:
            self.publish(1)

    @property
    def last_segment_bytes(self) -> int:
        return max(self.broker.stream_directory(self.name).glob("*.segment")).stat().st_size

    @property
    def starts(self) -> list[int]:
        return sorted(int(path.stem) for path in self.broker.stream_directory(self.name).glob("*.segment"))

    def description(self) -> Description | None:
        with ResolverClient(self.stack.resolver_url) as client:
            try:
                return client.describe("/", self.name)
            except StreamNotFoundError:
                return None

    def archived_to(self) -> int:
        found = self.description()
        return 0 if found is None else found.head.next_offset or 0

    @contextmanager
    def agent(self, state: str, *, segment_bytes: int) -> Iterator[None]:
        options = AgentOptions(
            self.state / state,
            BrokerAddress.from_uri(self.broker.stream_uri),
            source=self.source,
            data=self.broker.data_directory if self.source is SegmentSource.DISK else None,
            streams=(("/", self.name),) if self.source is SegmentSource.PROTOCOL else (),
            rules=Rules(include=(self.name,)),
            scan_s=0.2,
            segment_bytes=segment_bytes,
            listen_host="",
        )
        loop = asyncio.new_event_loop()
        running = loop.create_task(run_agent(options, self.stack.environment))
        thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([running])))
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(running.cancel)
            thread.join(WAIT_S)
            loop.close()
        assert running.cancelled(), "the agent has ended by itself"

    def consumer(self, **options: object) -> coldstream.BlockingConsumer:
        return coldstream.BlockingConsumer(
            self.name, FIRST, resolver=self.stack.resolver_url, broker=self.broker.stream_uri, **options
        )


class Reader(threading.Thread):
    """Takes the stream's messages by a consumer, until that raises."""

    def __init__(self, story: Story) -> None:
        super().__init__(daemon=True)  # a consumer that waits for ever fails its test, and must not hold up the others
        self.given: list[int] = []
        self.told: list[ColdstreamError] = []
        self._story = story

    def run(self) -> None:
        with self._story.consumer() as consumer:
            try:
                self.given.extend(message.offset for message in consumer.messages())
            except ColdstreamError as err:
                self.told.append(err)


@pytest.fixture(params=list(SegmentSource), ids=str)
def story(request: pytest.FixtureRequest, stack: EmulatedStack, broker: Broker, tmp_path: Path) -> Story:
    return Story(stack, broker, request.param, tmp_path)


def test_a_consumer_is_told_what_was_lost_while_the_agent_was_away_though_nothing_rolls(story: Story) -> None:
    story.archive_some()
    tail = story.archived_to()
    story.publish_until_last_segment_has(40_000, SEGMENT_BYTES)
    begins = story.starts[0]
    assert tail < begins
    assert len(story.starts) == 1, "something is left that has rolled"
    with story.broker.connect() as streams:
        live = [offset for offset, _ in streams.read(story.name, 1)]
        assert live[0] > begins, "the segment does not begin with a tracking chunk"
        live = [offset for offset, _ in streams.read(story.name, 40)]

    reader = Reader(story)
    reader.start()
    # Another state directory: the pins of the segment that was written to then are gone as well.
    with story.agent("another state", segment_bytes=64 << 20):
        reader.join(WAIT_S)
        assert not reader.is_alive(), "the consumer waits"
        (err,) = reader.told
        if story.source is SegmentSource.PROTOCOL:
            # Nothing shows that the broker has the incarnation that was archived: the chunk that would is deleted.
            assert isinstance(err, IncarnationError)
            with story.consumer() as consumer:
                messages = consumer.messages()
                assert [next(messages).offset for _ in live] == live
            return
        assert isinstance(err, GapError)
        assert (err.first_offset, err.next_offset) == (story.archived_to(), begins)
        assert err.reason is not None
        assert "retention" in err.reason
        assert reader.given
        described = story.description()
        assert described is not None
        assert described.after == Gap(Offset(err.first_offset), Offset(err.next_offset), err.reason)
        with story.consumer(on_gap="skip") as consumer:
            messages = consumer.messages()
            taken = [next(messages).offset for _ in range(len(reader.given) + len(live))]
            assert taken == reader.given + live
            (gap,) = consumer.gaps
            assert (gap.first_offset, gap.next_offset) == (err.first_offset, err.next_offset)


def test_a_consumer_is_told_with_the_next_message_if_retention_has_left_none(story: Story) -> None:
    story.archive_some()
    story.publish_until_last_segment_has(SEGMENT_BYTES, 2 * SEGMENT_BYTES)

    reader = Reader(story)
    reader.start()
    deadline = time.monotonic() + WAIT_S
    while story.last_segment_bytes >= SEGMENT_BYTES or len(story.starts) > 1:
        assert time.monotonic() < deadline, "messages are left"
        time.sleep(0.1)
    (begins,) = story.starts
    with story.agent("another state", segment_bytes=64 << 20):
        story.publish(1)
        reader.join(WAIT_S)
        assert not reader.is_alive(), "the consumer waits"
    (err,) = reader.told
    assert reader.given
    assert reader.given[-1] < begins
    if story.source is SegmentSource.PROTOCOL:
        assert isinstance(err, IncarnationError)
        return
    assert isinstance(err, GapError)
    assert (err.first_offset, err.next_offset) == (story.archived_to(), begins)
