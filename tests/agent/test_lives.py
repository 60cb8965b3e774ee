"""Which life of a stream the broker has, where its directory cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.archive import Archive
from coldstream.agent.limiter import BandwidthLimit
from coldstream.agent.lives import CLOCKS_APART_MS, find_life
from coldstream.agent.memory import MemoryFile, StreamMemory
from coldstream.agent.spool import SegmentSpool
from coldstream.archive.slice import SegmentSlice
from coldstream.archive.stage import find_rolled, stage
from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.bus import EventBridgeBus
from coldstream.units import Offset, TimestampMs
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
        self.memories = tmp_path / "streams"
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
        found = await find_life(self.archive, self.node, "/", "orders", pins=self.pins, memories=self.memories)
        return None if found is None else (found[0].incarnation, found[1].next_offset)


@pytest.fixture
def rig(tmp_path: Path, node: Node) -> Rig:
    return Rig(tmp_path, node)


def spool(rig: Rig, life: str, stream: NodeStream) -> None:
    """Leave all of a stream in the spool of a life."""
    made = SegmentSpool(rig.pins / life)
    made.recover()
    for path in stream.segments:
        made.append(path.read_bytes()[SEGMENT_HEADER_BYTES:], Offset(int(path.stem)), stream.next_offset)
    made.close_segment()


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
    spool(rig, LIFE, stream)
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


async def test_retention_that_deletes_what_is_known_while_it_is_asked_for_makes_no_other_life(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    stream.publish(300)
    probe = node.probe

    async def deleting(vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        if isinstance(spec, AtOffset):
            stream.retain(1)
        return await probe(vhost, name, spec)

    node.probe = deleting
    assert await rig.find() == (LIFE, tail)


@pytest.mark.parametrize("behind_ms", [CLOCKS_APART_MS, CLOCKS_APART_MS + 1])
async def test_a_leader_whose_clock_is_a_little_behind_makes_no_other_life(rig, node, behind_ms: int):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    entry = rig.memory.log()[-1]
    node.delete("orders")
    assert entry.last_user_chunk is not None
    again = node.declare("orders")
    again.now = TimestampMs(entry.last_user_chunk.timestamp - behind_ms - 10)
    again._writer.next_offset = Offset(5000)
    again.publish(10)
    found = await rig.find()
    assert (found == (LIFE, tail)) is (behind_ms == CLOCKS_APART_MS)


async def test_a_life_that_had_another_after_it_is_not_taken_for_one_that_retention_has_cut(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, "__orders_1763600000000000000", stream)
    node.delete("orders")
    stream = node.declare("orders")
    stream.publish(600)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = stream.now
    again.publish(900)
    again.retain(20)
    first = again.chunks()[0].header
    assert 20 < first.chunk_id < 500
    assert await rig.find() == (f"__orders_{first.timestamp * 10**6}", first.chunk_id)


async def test_a_life_that_had_another_after_it_is_known_again_by_its_very_chunk(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, "__orders_1763600000000000000", stream)
    other = Node(rig.pins.parent / "other")
    elsewhere = other.declare("orders")
    elsewhere.publish(600, step_ms=7)
    rig.archive_rolled(elsewhere)
    other.close()
    stream.publish(900)
    assert await rig.find() == ("__orders_1763600000000000000", 20)


async def test_a_life_of_another_stream_that_is_written_alike_is_not_taken_for_this_ones(rig, node):
    other = node.declare("or.ders")
    other.publish(20)
    life = Incarnation("__or_ders_1763600000000000000")
    spool(rig, life, other)
    stream = node.declare("or_ders")
    stream.now = other.now
    stream.publish(600)
    stream.retain(2)
    first = stream.chunks()[0].header
    assert first.chunk_id > 20

    async def find(name: str) -> tuple[str, int] | None:
        found = await find_life(rig.archive, node, "/", name, pins=rig.pins, memories=rig.memories)
        return None if found is None else (found[0].incarnation, found[1].next_offset)

    assert await find("or_ders") == (life, 20)  # what memory does not know may be this one's
    MemoryFile(rig.memories, life).save(StreamMemory(StreamId("/", "or.ders", life)))
    assert await find("or_ders") == (f"__or_ders_{first.timestamp * 10**6}", first.chunk_id)
    assert await find("or.ders") == (life, 20)


async def test_a_life_whose_last_segment_here_is_archived_this_moment_is_known_by_the_archive(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    spool(rig, LIFE, stream)
    stream.publish(300)
    stream.retain(1)
    newest_life = rig.archive.newest_life

    async def late(vhost: str, name: str) -> Incarnation | None:
        found = await newest_life(vhost, name)
        (path,) = (rig.pins / LIFE).iterdir()
        whole = SegmentSlice(path, Offset(0), Offset(300), SEGMENT_HEADER_BYTES, path.stat().st_size)
        rig.memory.uploader.upload(stage(whole, rig.memory.stream, rig.memory.objects, rig.memory.keys))
        path.unlink()
        return found

    rig.archive.newest_life = late
    assert await rig.find() == (LIFE, 300)


async def test_a_life_of_a_stream_whose_name_only_begins_alike_is_not_this_ones(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, "__orders_eu_1763600000000000000", stream)
    assert await rig.find() == (f"__orders_{stream.chunks()[0].header.timestamp * 10**6}", 0)


async def test_a_segment_that_is_let_go_while_it_is_looked_at_hides_no_other(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, LIFE, stream)
    (rig.pins / LIFE / f"{20:020}.segment").symlink_to("gone")
    assert await rig.find() == (LIFE, 20)


async def test_a_life_of_which_nothing_is_known_hides_no_other(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    empty = rig.pins / "__orders_1763900000000000000"
    empty.mkdir(parents=True)
    (empty / f"{0:020}.segment").touch()
    assert await rig.find() == (LIFE, tail)
