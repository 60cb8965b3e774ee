"""coldstream's main job on real input: archive a stream that its broker forgets, and read all of it as one.

The demo starts its own RabbitMQ and publishes over 200,000 messages to a stream of small segments, of which retention
keeps a few. An agent beside the broker pins, stages and announces the segments that roll. The functions of
template.yaml, on an emulated AWS, archive them. A consumer reads everything: deleted messages from S3, then the rest
live. At the end the whole archive is read once more through the resolver's HTTP API and S3 alone. Both are compared
with what was published.

Without RabbitMQ, the demo uses segments that were recorded from a real one, and says so.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from rstream import CompressionType

from coldstream import BlockingConsumer
from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.errors import ColdstreamError, StreamNotFoundError
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.stage import find_rolled, stage
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.read.appetite import EVERYTHING, Appetite
from coldstream.read.client import ResolverClient
from coldstream.read.reader import Reader
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.units import MIB, Offset, TimestampMs
from tests.support.agent import AgentProcess
from tests.support.broker import Broker, find_rabbitmq
from tests.support.golden import digest, golden_logs
from tests.support.streams import SubBatch

MESSAGES = 220_000
ROUND_BYTES = 2 * MIB
SEGMENT_BYTES = 1_000_000
RETENTION_BYTES = 8_000_000
LOOKUPS = 20
SETTLE_S = 120
STREAM_NAME = "demo: orders/заказы"
STARTED = time.monotonic()


@dataclass(slots=True)
class Tally:
    """The digests of published messages, by offset, and counts of what came back."""

    published: list[str] = field(default_factory=list)
    archived: int = 0
    read_back: int = 0
    lost: int = 0
    duplicated: int = 0
    corrupted: int = 0

    @property
    def is_perfect(self) -> bool:
        """Tell whether every archived message came back once and unchanged."""
        harm = self.lost + self.duplicated + self.corrupted
        return self.archived > 0 and self.read_back == self.archived and harm == 0

    def __str__(self) -> str:
        return (
            f"demo: {len(self.published)} published, {self.archived} archived, {self.read_back} read back,"
            f" {self.lost} lost, {self.duplicated} duplicated, {self.corrupted} corrupted"
        )


def say(text: str) -> None:
    """Report progress to whoever watches the demo, with the seconds since it began."""
    print(f"  {time.monotonic() - STARTED:5.1f} s  {text}", file=sys.stderr, flush=True)


class DemoArchive:
    """A client of the archive: it stages, announces and reads."""

    def __init__(self, stack: EmulatedStack, stream: StreamId) -> None:
        self.stream = stream
        self.resolver_url = stack.resolver_url
        self._stack = stack
        self._objects = S3Objects(stack.environment["COLDSTREAM_BUCKET"])
        self._bus = EventBridgeBus(stack.environment["COLDSTREAM_EVENT_BUS"])
        self._announced = -1

    def announce(self, directory: Path) -> int:
        """Stage and announce the segments that rolled since the last call; return how many."""
        new = [segment for segment in find_rolled(directory) if segment.first_offset > self._announced]
        for segment in new:
            rolled = stage(
                segment, self.stream, self._objects, Keys(self._stack.environment.get("COLDSTREAM_PREFIX", ""))
            )
            self._bus.put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(rolled))
            self._announced = segment.first_offset
        return len(new)

    def wait_for(self, offset: int) -> None:
        """Wait until all offsets below `offset` are archived."""
        deadline = time.monotonic() + SETTLE_S
        with ResolverClient(self.resolver_url) as client:
            while self._tail(client) < offset:
                if time.monotonic() > deadline:
                    raise SystemExit(f"offset {offset} was not archived within {SETTLE_S} s")
                time.sleep(0.2)

    def _tail(self, client: ResolverClient) -> int:
        try:
            return client.describe(self.stream.vhost, self.stream.name).head.next_offset or 0
        except StreamNotFoundError:
            return 0

    def settle(self) -> None:
        """Wait until everything that was announced is archived."""
        self._stack.wait_idle(120)
        if dead := self._stack.dead_letters():
            raise SystemExit(f"{dead} announcements failed and are in the dead-letter queue")

    def read(self, spec: OffsetSpec, appetite: Appetite = EVERYTHING) -> Reader:
        """Return a reader from an offset spec on."""
        return Reader(self.resolver_url, self.stream.vhost, self.stream.name, spec, appetite=appetite)


def main() -> int:
    """Run the demo; return 0 if nothing was lost, duplicated or corrupted."""
    logging.getLogger("coldstream").setLevel(
        logging.ERROR
    )  # the consumer warns when it is ahead of the archive, which is normal here
    with ExitStack() as running:
        # Side by side: a broker and an emulated AWS take seconds to start and to stop, and are idle for some of them.
        beside = None if find_rabbitmq() is None else running.enter_context(BrokerBeside())
        stack = running.enter_context(EmulatedStack())
        os.environ.update(stack.environment)
        say("the emulated AWS and the functions run")
        if beside is None:
            say("RabbitMQ is not installed (`make broker` installs Debian's): using segments recorded from a real one")
            tally = from_recorded_segments(stack)
        else:
            tally = from_a_broker(stack, beside)
    say("everything is stopped")
    print(tally, flush=True)
    return 0 if tally.is_perfect else 1


class BrokerBeside:
    """A broker that starts and stops while the demo does something else. A context manager: at its end it is gone."""

    def __init__(self) -> None:
        # A directory's name does not keep the demo's stream name: the agent asks the management API for it.
        self._broker = Broker(management=True)
        self._pool = ThreadPoolExecutor(1)  # a broker ends with the thread that started it: this one lasts
        self._starting = self._pool.submit(self._broker.__enter__)
        self._stopping: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._pool:
            self.begin_to_stop()
            if self._stopping is not None:
                self._stopping.result()

    def started(self) -> Broker:
        """Wait until it runs."""
        return self._starting.result()

    def begin_to_stop(self) -> None:
        """Stop it, without waiting for that."""
        if self._stopping is None and self._starting.exception() is None:
            self._stopping = self._pool.submit(self._broker.__exit__, None, None, None)


def from_a_broker(stack: EmulatedStack, beside: BrokerBeside) -> Tally:
    """Publish while an agent archives, and read everything as one stream."""
    tally = Tally()
    broker = beside.started()
    with broker.connect() as streams, TemporaryDirectory(prefix="demo-") as state:
        options = ("--data", broker.data_directory, "--management", broker.management_url)
        with AgentProcess(stack.environment, Path(state) / "agent", broker.stream_uri, *options) as agent:
            streams.create_stream(STREAM_NAME, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=RETENTION_BYTES)
            # The only one of a new broker. Asking `rabbitmqctl` for it starts another Erlang, for seconds.
            (directory,) = broker.data_directory.iterdir()
            archive = DemoArchive(stack, StreamId("/", STREAM_NAME, incarnation(directory.name)))
            agent.wait_ready()
            say(f"broker {broker.node} runs, with an agent beside it; publishing to {archive.stream}")
            began = time.monotonic()
            for entries in rounds(tally.published):
                streams.publish(STREAM_NAME, entries)
            say(f"published {len(tally.published)} messages in {time.monotonic() - began:.1f} s")
            on_disk = sorted(directory.glob("*.segment"))
            kept_from, rolled_until = int(on_disk[0].stem), int(on_disk[-1].stem)
            say(f"the broker has deleted offsets 0 to {kept_from - 1}; {rolled_until} and later have not rolled yet")
            archive.wait_for(1)  # otherwise FIRST could attach at the first offset that the broker still has
            follow(broker, archive, tally)
            archive.wait_for(rolled_until)
            say(f"the agent has archived all offsets up to {rolled_until - 1}, and still pins {pins(state)} segments")
    beside.begin_to_stop()
    say("the broker stops: what follows is read from the archive alone")
    compare(archive, tally, should_be_archived=rolled_until)
    look_up(archive)
    return tally


def follow(broker: Broker, archive: DemoArchive, tally: Tally) -> None:
    """Read the whole stream up to the last message published, whether the broker still has it or not."""
    began = time.monotonic()
    expected = 0
    with BlockingConsumer(STREAM_NAME, FIRST, resolver=archive.resolver_url, broker=broker.stream_uri) as consumer:
        for message in consumer.messages():
            if message.offset != expected or digest(message.raw) != tally.published[message.offset]:
                raise SystemExit(
                    f"the consumer returned offset {message.offset} instead of {expected}, or not as published"
                )
            expected += 1
            if expected == len(tally.published):
                break
    say(f"consumed {expected} messages as one stream in {time.monotonic() - began:.1f} s, each once and in order")


def pins(state: str) -> int:
    """Count the segments that the agent pins."""
    return len(list(Path(state).glob("agent/pins/*/*.segment")))


def from_recorded_segments(stack: EmulatedStack) -> Tally:
    """Archive segments that were recorded from a real broker, and read them back."""
    log = next(log for log in golden_logs() if log.stream == "plain")
    tally = Tally(published=list(log.messages))
    archive = DemoArchive(stack, StreamId(log.vhost, log.stream, incarnation(log.incarnation)))
    say(f"announced {archive.announce(log.directory)} recorded segments")
    archive.settle()
    compare(archive, tally, should_be_archived=int(log.segments[-1].stem))
    look_up(archive)
    return tally


def rounds(published: list[str]) -> Iterator[list[bytes | SubBatch]]:
    """Yield rounds of messages of mixed sizes, plain and in sub-batches of every compression.

    Their digests are appended to `published` in order.
    """
    rng = random.Random(20261121)

    def message() -> bytes:
        size = rng.choice((10, 60, 200, 200, 400, 1500)) + rng.randrange(40)
        body = b"%d:" % len(published) + rng.randbytes(size // 2) + b"x" * (size // 2)
        # An AMQP 1.0 message of one data section, as stream clients send it.
        encoded = b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body
        published.append(digest(encoded))
        return encoded

    while len(published) < MESSAGES:
        entries: list[bytes | SubBatch] = []
        round_bytes = 0
        while round_bytes < ROUND_BYTES:
            if rng.random() < 0.02:
                batch = [message() for _ in range(rng.randrange(1, 200))]
                entries.append(SubBatch(batch, rng.choice(list(CompressionType))))
                round_bytes += sum(map(len, batch))
            else:
                entries.append(message())
                round_bytes += len(entries[-1])
        yield entries


def compare(archive: DemoArchive, tally: Tally, *, should_be_archived: int) -> None:
    """Read everything from the first offset on, and compare each message with what was published."""
    began = time.monotonic()
    seen: Counter[int] = Counter()
    bytes_read = 0
    with archive.read(FIRST) as reader:
        for message in reader.messages():
            seen[message.offset] += 1
            bytes_read += len(message.raw)
            if message.offset >= len(tally.published) or digest(message.raw) != tally.published[message.offset]:
                tally.corrupted += 1
        tail = reader.tail
    seconds = time.monotonic() - began
    tally.archived = tail or 0
    tally.read_back = seen.total()
    tally.lost = sum(1 for offset in range(max(tally.archived, should_be_archived)) if offset not in seen)
    tally.duplicated = seen.total() - len(seen)
    say(
        f"read {tally.read_back} archived messages, {bytes_read / MIB:.0f} MiB, in {seconds:.1f} s;"
        f" the broker continues at offset {tail}"
    )


def look_up(archive: DemoArchive) -> None:
    """Attach at random offsets and timestamps, and check where each begins."""
    with archive.read(FIRST) as reader:
        chunks = [
            (chunk.header.timestamp, chunk.header.chunk_id, chunk.header.next_offset) for chunk in reader.chunks()
        ]
    rng = random.Random(7)
    began = time.monotonic()
    for _ in range(LOOKUPS):
        offset = rng.randrange(chunks[-1][2])
        with archive.read(AtOffset(Offset(offset)), Appetite(messages=1)) as reader:
            found = next(iter(reader.messages())).offset
        if found != offset:
            raise SystemExit(f"attached at offset {offset}, the first message is {found}")
        timestamp = rng.randrange(chunks[0][0] - 10, chunks[-1][0] + 1)
        expected = chunks[bisect_left([chunk[0] for chunk in chunks], timestamp)][1]
        with archive.read(AtTimestamp(TimestampMs(timestamp)), Appetite(messages=1)) as reader:
            found = next(iter(reader.messages())).offset
        if found != expected:
            raise SystemExit(f"attached at timestamp {timestamp}, the first message is {found}, not {expected}")
    seconds = time.monotonic() - began
    say(f"looked up {LOOKUPS} offsets and {LOOKUPS} timestamps in {seconds:.1f} s: each begins at the right message")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ColdstreamError as err:
        sys.exit(f"demo: {err}")
