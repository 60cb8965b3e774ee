"""Three nodes, agents on each, and a leader that is lost with chunks which never were committed.

The leader rolls segments while both replicas are paused: what is in them is on its disk and nowhere else. It is killed,
the replicas elect another, which takes other messages at the same offsets, and the old leader comes back and truncates.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from coldstream.errors import CorruptionError, StreamNotFoundError
from coldstream.format.chunk import Chunk, ChunkHeader, iter_chunks
from coldstream.format.fragment import FRAGMENT_TRAILER_BYTES, FragmentTrailer
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.local.environment import client
from coldstream.local.function_protocol import InvocationReport
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.spec import FIRST
from coldstream.read.reader import Reader
from tests.support.agent import AgentProcess
from tests.support.broker import Broker, find_rabbitmq
from tests.support.cluster import Cluster
from tests.support.fixtures import do_without

pytestmark = pytest.mark.broker

ROLLED, QUIET = "rolled", "quiet"
STREAMS: dict[str, tuple[str, ...]] = {ROLLED: (), QUIET: ("--max-lag", "3s")}
"""The streams, and the options of the agents that each has of its own."""

COMMITTED, NEVER_COMMITTED, AFTER = 250, 300, 600
WAIT_S = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """A stream at the end: as a consumer is given it, on the nodes' disks, in the archive; and what was announced.

    `rolled_to` is where the newest segment begins; `lost_segments` are those of the leader that was lost, and
    `announced_before` the offsets announced by then.
    """

    lost_segments: list[int]
    announced_before: list[tuple[int, int]]
    announced: list[tuple[int, int]]
    rolled_to: int
    delivered: list[Chunk] = field(repr=False)
    disks: list[list[Chunk]] = field(repr=False)
    archived: list[Chunk] = field(repr=False)
    objects: dict[str, bytes] = field(repr=False)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    handled: list[InvocationReport] = []
    with (
        Cluster(tick_s=4) as cluster,
        EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}, on_invocation=handled.append) as stack,
        contextlib.ExitStack() as agents,
    ):
        for name, options in STREAMS.items():
            for number, node in enumerate(cluster.nodes):
                state = tmp_path_factory.mktemp(name) / f"node-{number}"
                given = ("--data", node.data_directory, "--include", name, *options)
                agents.enter_context(AgentProcess(stack.environment, state, node.stream_uri, *given))
        return lose_a_leader(cluster, stack, handled)


def lose_a_leader(cluster: Cluster, stack: EmulatedStack, handled: list[InvocationReport]) -> dict[str, Outcome]:
    """Run the story; the same for all streams at once."""
    with cluster.nodes[0].connect() as streams:
        for name in STREAMS:
            streams.create_stream(name, max_segment_bytes=100_000)
    for name in STREAMS:
        cluster.wait_replicated(name)
        publish(cluster.leader(name), name, numbered("committed", COMMITTED), at_once=10)  # a tenth of a segment
        until(lambda name=name: tail(stack, name) >= 190, f"{name}: what was committed is not archived")
    leader = cluster.leader(ROLLED)
    assert cluster.leader(QUIET) is leader, "the leader of a stream is where it was declared"
    replicas = [node for node in cluster.nodes if node is not leader]
    incarnations = {name: leader.stream_directory(name).name for name in STREAMS}

    for node in replicas:
        node.pause()
    cluster.wait_alone(leader)
    with leader.connect() as streams:
        messages = numbered("never committed", NEVER_COMMITTED)
        for at in range(0, NEVER_COMMITTED, 50):
            for name in STREAMS:
                streams.send(name, messages[at : at + 50])
            time.sleep(0.2)  # so that they are in chunks of their own, and segments roll
        time.sleep(5)  # for the agents to do what they should not
    lost = {name: segments(leader, incarnation) for name, incarnation in incarnations.items()}
    before = {name: announced(handled, name) for name in STREAMS}
    leader.kill()
    for node in replicas:
        node.resume()
    for name in STREAMS:
        publish(cluster.leader(name), name, numbered("after", AFTER))
    leader.start()
    for name, incarnation in incarnations.items():
        until(lambda at=incarnation: holds(leader, at, COMMITTED + AFTER), f"{name}: the old leader has not truncated")

    ends = {name: COMMITTED + AFTER if name == QUIET else segments(leader, incarnations[name])[-1] for name in STREAMS}
    for name, end in ends.items():
        until(lambda name=name, end=end: tail(stack, name) >= end, f"{name}: what was published after is not archived")
    stack.wait_idle(WAIT_S)
    return {
        name: Outcome(
            lost_segments=lost[name],
            announced_before=before[name],
            announced=announced(handled, name),
            delivered=asyncio.run(delivered(cluster.leader(name), name, COMMITTED + AFTER)),
            disks=[on_disk(node, incarnation) for node in cluster.nodes],
            archived=archived(stack, name),
            rolled_to=segments(leader, incarnation)[-1],
            objects=objects(stack, incarnation),
        )
        for name, incarnation in incarnations.items()
    }


@pytest.fixture(params=list(STREAMS))
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Outcome]) -> Outcome:
    return outcomes[request.param]


def test_the_lost_leader_had_rolled_segments_that_were_never_committed(outcome: Outcome) -> None:
    rolled = zip(outcome.lost_segments, outcome.lost_segments[1:], strict=False)
    assert [first < COMMITTED < end for first, end in rolled].count(True) == 1, "none is committed in part"
    assert sum(first > COMMITTED for first in outcome.lost_segments) >= 2, "none that rolled is wholly uncommitted"
    for disk in outcome.disks:
        (before,) = [chunk for chunk in disk if chunk.header.next_offset == COMMITTED]
        (after,) = [chunk for chunk in disk if chunk.header.chunk_id == COMMITTED]
        assert before.header.epoch < after.header.epoch, "there was no other leader"


def test_nothing_uncommitted_was_announced(outcome: Outcome) -> None:
    assert max(next_offset for _, next_offset in outcome.announced_before) <= COMMITTED


def test_nothing_uncommitted_is_in_the_bucket(outcome: Outcome) -> None:
    assert not [key for key, body in outcome.objects.items() if b"never committed" in body]
    assert any(b"after" in body for body in outcome.objects.values())


def test_the_archive_is_what_a_consumer_is_given(outcome: Outcome) -> None:
    end = outcome.archived[-1].header.next_offset
    assert end >= outcome.rolled_to
    expected = [as_delivered(chunk) for chunk in outcome.delivered if chunk.header.next_offset <= end]
    assert [as_delivered(chunk) for chunk in outcome.archived] == expected
    assert sum(chunk.header.records for chunk in outcome.archived) == end


def test_the_archive_is_what_every_node_has_on_its_disk(outcome: Outcome) -> None:
    for disk in outcome.disks:
        assert [whole(chunk) for chunk in outcome.archived] == [whole(chunk) for chunk in disk][: len(outcome.archived)]


def test_with_a_max_lag_all_of_it_is_archived(outcomes: dict[str, Outcome]) -> None:
    assert outcomes[QUIET].archived[-1].header.next_offset == COMMITTED + AFTER


def test_one_agent_announces_what_all_nodes_have(outcomes: dict[str, Outcome]) -> None:
    announced = outcomes[ROLLED].announced_before
    assert len(announced) == len(set(announced)), "a slice was announced twice"


def test_there_is_one_copy(outcome: Outcome) -> None:
    fragments = {key: body for key, body in outcome.objects.items() if "/data/" in key}
    notes = {key for key in outcome.objects if "/control/" in key}
    assert outcome.objects.keys() == fragments.keys() | notes, "something is left of what was staged"
    chunk_ids = [
        int(chunk.header.chunk_id) for key, body in sorted(fragments.items()) for chunk in of_fragment(key, body)
    ]
    assert chunk_ids == [int(chunk.header.chunk_id) for chunk in outcome.archived]


def numbered(what: str, count: int) -> list[bytes]:
    return [f"{what} {number}: ".encode() + os.urandom(980) for number in range(count)]


def publish(node: Broker, stream: str, messages: list[bytes], *, at_once: int = 50) -> None:
    """Publish messages, so that no chunk has more than `at_once`: segments roll at chunks, and end later by as much."""
    with node.connect() as streams:
        for at in range(0, len(messages), at_once):
            streams.publish(stream, messages[at : at + at_once])


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def segments(node: Broker, incarnation: str) -> list[int]:
    return sorted(int(path.stem) for path in (node.data_directory / incarnation).glob("*.segment"))


def on_disk(node: Broker, incarnation: str) -> list[Chunk]:
    found = []
    for path in sorted((node.data_directory / incarnation).glob("*.segment")):
        content = path.read_bytes()[SEGMENT_HEADER_BYTES:]
        found += list(iter_chunks(content, source=path.name, position=SEGMENT_HEADER_BYTES))
    return found


def holds(node: Broker, incarnation: str, next_offset: int) -> bool:
    with contextlib.suppress(CorruptionError, FileNotFoundError):  # it is being written to
        return on_disk(node, incarnation)[-1].header.next_offset == next_offset
    return False


async def delivered(node: Broker, stream: str, next_offset: int) -> list[Chunk]:
    found: list[Chunk] = []
    async with (
        asyncio.timeout(WAIT_S),
        LiveConnection(BrokerAddress.from_uri(node.stream_uri), "/") as connection,
        connection.subscribe(stream, FIRST) as chunks,
    ):
        while not found or found[-1].header.next_offset < next_offset:
            found.append(await anext(chunks))
    return found


def archived(stack: EmulatedStack, stream: str) -> list[Chunk]:
    try:
        with Reader(stack.resolver_url, "/", stream, FIRST) as reader:
            return list(reader.chunks())
    except StreamNotFoundError:
        return []


def tail(stack: EmulatedStack, stream: str) -> int:
    chunks = archived(stack, stream)
    return chunks[-1].header.next_offset if chunks else 0


def announced(handled: list[InvocationReport], stream: str) -> list[tuple[int, int]]:
    details = [json.loads(each.event)["detail"] for each in handled if each.event.startswith("{")]
    slices = [detail["segment"] for detail in details if detail["stream"]["name"] == stream]
    return [(slice_["first_offset"], slice_["next_offset"]) for slice_ in slices]


def objects(stack: EmulatedStack, incarnation: str) -> dict[str, bytes]:
    s3, bucket = client("s3", stack.environment), stack.environment["COLDSTREAM_BUCKET"]
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys if incarnation in key}


def of_fragment(key: str, body: bytes) -> Iterator[Chunk]:
    trailer = FragmentTrailer.from_bytes(body[-FRAGMENT_TRAILER_BYTES:], source=key, object_bytes=len(body))
    data = trailer.data_range
    return iter_chunks(body[data.start : data.end], source=key, position=data.start)


def as_delivered(chunk: Chunk) -> tuple[object, ...]:
    header = chunk.header
    return header.chunk_id, header.epoch, header.timestamp, header.records, header.crc, bytes(chunk.data)


def whole(chunk: Chunk) -> tuple[ChunkHeader, bytes, bytes, bytes]:
    return chunk.header, bytes(chunk.bloom), bytes(chunk.data), bytes(chunk.trailer)
