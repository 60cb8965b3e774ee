"""Which life of a stream the broker has, where its directory cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.archive import Archive
from coldstream.agent.limiter import BandwidthLimit
from coldstream.agent.lives import find_life
from coldstream.agent.spool import SegmentSpool
from coldstream.archive.stage import find_rolled, stage
from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.bus import EventBridgeBus
from coldstream.units import Offset
from tests.support.node import Node, NodeStream
from tests.support.segments import MemoryArchive

LIFE = Incarnation("__orders_1763700000000000000")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.close()


class Rig:
    def __init__(self, tmp_path: Path, node: Node) -> None:
        self.pins = tmp_path / "pins"
        self.node = node
        self.memory = MemoryArchive(stream=StreamId("/", "orders", LIFE))
        bus: EventBridgeBus = None  # nothing is announced here
        self.archive = Archive(self.memory.table, self.memory.objects, bus, self.memory.keys, BandwidthLimit(None))

    def archive_rolled(self, stream: NodeStream) -> int:
        """Archive all but the newest segment under LIFE; return the tail."""
        for segment in find_rolled(stream.directory):
            rolled = stage(segment, self.memory.stream, self.memory.objects, self.memory.keys)
            self.memory.uploader.upload(rolled)
        return int(stream.segments[-1].stem)

    async def find(self) -> tuple[str, int] | None:
        found = await find_life(self.archive, self.node, self.pins, "/", "orders")
        return None if found is None else (found[0].incarnation, found[1])


@pytest.fixture
def rig(tmp_path: Path, node: Node) -> Rig:
    return Rig(tmp_path, node)


async def test_a_stream_that_the_broker_does_not_have_is_not_found(rig):
    with pytest.raises(StreamNotFoundError):
        await rig.find()


async def test_an_empty_stream_has_no_life_yet(rig, node):
    node.declare("orders")
    assert await rig.find() is None


async def test_a_life_never_seen_is_named_by_its_first_chunk_and_read_from_there(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    stream.retain(1)
    first = int(stream.segments[0].stem)
    timestamp = stream.chunks()[0].header.timestamp
    assert await rig.find() == (f"__orders_{timestamp * 10**6}", first)
    assert await rig.find() == (f"__orders_{timestamp * 10**6}", first)


async def test_an_archived_life_is_known_again_and_read_from_its_tail(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    assert await rig.find() == (LIFE, tail)


async def test_a_life_of_which_retention_has_deleted_what_is_known_goes_on(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    stream.publish(300)
    stream.retain(1)
    assert await rig.find() == (LIFE, tail)


async def test_another_life_with_as_many_messages_is_another(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = stream.now
    again.publish(400)
    assert await rig.find() == (f"__orders_{again.chunks()[0].header.timestamp * 10**6}", 0)


async def test_another_life_with_fewer_messages_is_another(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = stream.now
    again.publish(10)
    assert await rig.find() == (f"__orders_{again.chunks()[0].header.timestamp * 10**6}", 0)


async def test_a_life_that_cannot_be_told_now_is_no_other_life(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    stream.committed_to = 20
    with pytest.raises(UnavailableError, match="does not deliver offset"):
        await rig.find()


async def test_what_lies_in_the_spool_goes_before_what_is_archived(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    spool = SegmentSpool(rig.pins / LIFE)
    spool.recover()
    chunks = stream.chunks()
    for path in stream.segments:
        spool.append(path.read_bytes()[SEGMENT_HEADER_BYTES:], Offset(int(path.stem)), stream.next_offset)
    spool.close_segment()
    assert chunks
    assert await rig.find() == (LIFE, stream.next_offset)


async def test_while_the_broker_does_not_answer_nothing_is_concluded(rig, node):
    stream = node.declare("orders")
    stream.publish(300)

    class Down(Node):
        async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
            raise UnavailableError("down")

    rig.node.__class__ = Down
    with pytest.raises(UnavailableError):
        await rig.find()
