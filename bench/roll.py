"""The time from a segment's roll until its messages can be resolved: a real broker, an agent, the functions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.brokers import BODY_BYTES, MESSAGE, new_broker
from bench.harness import CannotMeasureError, Cell, Section, environment, percentile, say
from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.errors import StreamNotFoundError
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled, stage
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import AtOffset
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.read.client import ResolverClient
from coldstream.resolve.answer import RangesQuery
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.units import Offset
from tests.support.agent import AgentProcess
from tests.support.streams import StreamConnection

STREAM = "roll"
SEGMENT_BYTES = 1_000_000
STEP = 250
ROLLS = 20
WARM_UP = 2
ASK_EVERY_S = 0.01
RESOLVABLE_WITHIN_S = 30

HOW = f"""\
Messages of {BODY_BYTES} bytes are published to a real broker's stream with segments of {SEGMENT_BYTES // 1000:,} KB
until one rolls. An agent with its defaults runs beside the broker, and the functions of template.yaml on an
embedded moto. The figure is the time from the next segment's file until the resolver's HTTP API returns a range of
the rolled segment; it is asked every {1000 * ASK_EVERY_S:.0f} ms. The baseline has no agent: the same segment is
staged and announced by hand as another stream, and the time runs from its first byte. {ROLLS} rolls each, in turns,
after {WARM_UP} that do not count, with nothing else running. On AWS, EventBridge and SQS add their own time to
both."""


def measure() -> Section:
    """Measure rolls one by one."""
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        aws = stack.enter_context(EmulatedStack())
        stack.enter_context(environment(aws.environment))
        home = Path(stack.enter_context(TemporaryDirectory(prefix="coldstream-bench-")))
        streams = stack.enter_context(broker.connect())
        client = stack.enter_context(ResolverClient(aws.resolver_url))
        options = ("--data", broker.data_directory, "--scan", "10s")
        agent = stack.enter_context(AgentProcess(aws.environment, home / "agent", broker.stream_uri, *options))
        agent.wait_ready()
        streams.create_stream(STREAM, max_segment_bytes=SEGMENT_BYTES)
        directory = broker.stream_directory(STREAM)
        by_hand = StreamId("/", "by-hand", incarnation(f"__by-hand_{time.time_ns()}"))
        put = _putter(aws, by_hand)
        agents: list[float] = []
        hands: list[float] = []
        for number in range(WARM_UP + ROLLS):
            if number % 5 == 0:
                say(f"roll {number + 1} of {WARM_UP + ROLLS}")
            began, segment = _publish_until_roll(streams, directory)
            agents.append(_wait_resolvable(client, STREAM, segment) - began)
            began = time.monotonic()
            put(segment)
            hands.append(_wait_resolvable(client, by_hand.name, segment) - began)
    return _section(agents[WARM_UP:], hands[WARM_UP:])


def _section(agents: list[float], hands: list[float]) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for what, seconds in (("roll, by the agent", agents), ("staged and announced by hand", hands)):
        milliseconds = [1000 * each for each in seconds]
        median, p90 = statistics.median_low(milliseconds), percentile(milliseconds, 90)
        ratio = median / 1000 / statistics.median_low(hands)
        rows.append((what, median, p90, min(milliseconds), max(milliseconds), ratio))
    return Section(
        title="From roll to resolvable",
        how=HOW,
        columns=("what", "median ms", "p90 ms", "least ms", "most ms", "of by hand"),
        rows=tuple(rows),
    )


def _putter(aws: EmulatedStack, stream: StreamId) -> Callable[[SegmentSlice], None]:
    """Return a function that stages and announces a segment as one of `stream`."""
    objects = S3Objects(aws.environment["COLDSTREAM_BUCKET"])
    bus = EventBridgeBus(aws.environment["COLDSTREAM_EVENT_BUS"])
    keys = Keys(aws.environment.get("COLDSTREAM_PREFIX", ""))

    def put(segment: SegmentSlice) -> None:
        rolled = stage(segment, stream, objects, keys)
        bus.put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(rolled))

    return put


def _publish_until_roll(streams: StreamConnection, directory: Path) -> tuple[float, SegmentSlice]:
    """Publish until the stream rolls. Return the time, at most some ms late, and the segment."""
    before = len(find_rolled(directory))
    while True:
        streams.publish(STREAM, [MESSAGE] * STEP)
        now = time.monotonic()
        if len(rolled := find_rolled(directory)) > before:
            return now, rolled[-1]


def _wait_resolvable(client: ResolverClient, name: str, segment: SegmentSlice) -> float:
    """Wait until the resolver returns ranges for the last offset of a segment, and return the time."""
    query = RangesQuery("/", name, AtOffset(Offset(segment.next_offset - 1)))
    deadline = time.monotonic() + RESOLVABLE_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if client.ranges(query).ranges:
                return time.monotonic()
        except StreamNotFoundError:
            pass
        time.sleep(ASK_EVERY_S)
    raise CannotMeasureError(f"{segment.path.name} could not be resolved within {RESOLVABLE_WITHIN_S} s")
