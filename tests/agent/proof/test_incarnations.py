"""Which incarnation of a stream the broker has, where its directory cannot be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.proof.incarnations import find_incarnation, incarnation_of_first_chunk
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.agent.state_directory import StateDirectory
from coldstream.agent.stream_file import RememberedStream
from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.format.chunk import Chunk
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs
from tests.support.node import Node, NodeStream
from tests.support.segments import MemoryArchive

INCARNATION = Incarnation("__orders_1763700000000000000")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.close()


def new_incarnation(stream: NodeStream, name: str = "orders") -> str:
    """The incarnation that a stream never seen before is."""
    return incarnation_of_first_chunk("/", name, stream.chunks()[0])


class Rig:
    def __init__(self, tmp_path: Path, node: Node) -> None:
        self.pins = tmp_path / "pins"
        self.state = StateDirectory(tmp_path)
        self.node = node
        self.memory = MemoryArchive(stream=StreamId("/", "orders", INCARNATION))
        bus: EventBridgeBus = None  # nothing is announced here
        self.archive = ArchiveClient(
            self.memory.table, self.memory.objects, bus, self.memory.keys, BandwidthLimit(None)
        )

    def archive_rolled(self, stream: NodeStream) -> int:
        """Archive all but the newest segment under INCARNATION; return the tail."""
        for segment in find_rolled(stream.directory):
            rolled = stage(segment, self.memory.stream, self.memory.objects, self.memory.keys)
            self.memory.uploader.upload(rolled)
        return int(stream.segments[-1].stem)

    async def find(self) -> tuple[str, int] | None:
        found = await find_incarnation(self.archive, self.node, "/", "orders", state=self.state)
        return None if found is None else (found[0].incarnation, found[1].next_offset)


@pytest.fixture
def rig(tmp_path: Path, node: Node) -> Rig:
    return Rig(tmp_path, node)


def spool(rig: Rig, incarnation: str, stream: NodeStream) -> None:
    """Leave all of a stream in the spool of an incarnation."""
    made = SegmentSpool(rig.pins / incarnation)
    made.recover()
    for path in stream.segments:
        made.append(path.read_bytes()[SEGMENT_HEADER_BYTES:], Offset(int(path.stem)), stream.next_offset)
    made.close_segment()


async def test_a_stream_that_the_broker_does_not_have_is_not_found(rig):
    with pytest.raises(StreamNotFoundError):
        await rig.find()


async def test_an_empty_stream_has_no_incarnation_yet(rig, node):
    node.declare("orders")
    assert await rig.find() is None


async def test_an_incarnation_never_seen_is_named_by_its_first_chunk_and_read_from_there(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    stream.retain(1)
    first = int(stream.segments[0].stem)
    assert await rig.find() == (new_incarnation(stream), first)
    assert await rig.find() == (new_incarnation(stream), first)


async def test_an_archived_incarnation_is_known_again_and_read_from_its_tail(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    assert await rig.find() == (INCARNATION, tail)


async def test_an_incarnation_of_which_retention_has_deleted_what_is_known_is_another(rig, node, caplog):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    stream.publish(300)
    stream.retain(1)
    found = await find_incarnation(rig.archive, node, "/", "orders", state=rig.state)
    assert found is not None
    stream_id, anchor = found
    assert (stream_id.incarnation, anchor.next_offset) == (new_incarnation(stream), int(stream.segments[0].stem))
    assert anchor.missed_from == tail
    assert "nothing shows that it is still the same incarnation" in caplog.text


@pytest.mark.parametrize("later_ms", [-120_000, -1000, 0, 1000, 3_600_000])
async def test_a_stream_declared_again_that_got_past_what_is_known_is_another(rig, node, later_ms: int):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = TimestampMs(stream.now + later_ms)
    again.publish(2000)
    again.retain(1)
    assert again.chunks()[0].header.chunk_id > 300
    assert await rig.find() == (new_incarnation(again), int(again.segments[0].stem))


async def test_another_chunk_of_the_same_offset_and_moment_is_of_another_incarnation(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    spool(rig, INCARNATION, stream)
    node.delete("orders")
    again = node.declare("orders")
    again.publish(300, size=480)
    assert again.chunks()[-1].header.timestamp == stream.now
    assert await rig.find() == (new_incarnation(again), 0)


async def test_a_chunk_of_a_later_epoch_is_not_the_archived_one(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.publish(300, epoch=2)
    assert await rig.find() == (new_incarnation(again), 0)


async def test_another_incarnation_with_as_many_messages_is_another(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = stream.now
    again.publish(400)
    assert await rig.find() == (new_incarnation(again), 0)


async def test_another_incarnation_with_fewer_messages_is_another(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    rig.archive_rolled(stream)
    node.delete("orders")
    again = node.declare("orders")
    again.now = stream.now
    again.publish(10)
    assert await rig.find() == (new_incarnation(again), 0)


async def test_an_incarnation_that_cannot_be_told_now_is_no_other_incarnation(rig, node):
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
    spool(rig, INCARNATION, stream)
    assert await rig.find() == (INCARNATION, stream.next_offset)


async def test_while_the_broker_does_not_answer_nothing_is_concluded(rig, node):
    stream = node.declare("orders")
    stream.publish(300)

    class Down(Node):
        async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
            raise UnavailableError("down")

    rig.node.__class__ = Down
    with pytest.raises(UnavailableError):
        await rig.find()


async def test_an_incarnation_that_had_another_after_it_is_not_taken_for_one_that_retention_has_cut(rig, node):
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
    assert await rig.find() == (new_incarnation(again), first.chunk_id)


async def test_an_incarnation_that_had_another_after_it_is_known_again_by_its_very_chunk(rig, node):
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


async def test_an_incarnation_of_another_stream_that_is_written_alike_is_not_taken_for_this_ones(rig, node):
    other = node.declare("or.ders")
    other.publish(20)
    incarnation = Incarnation("__or_ders_1763600000000000000")
    spool(rig, incarnation, other)
    stream = node.declare("or_ders")
    stream.now = other.now
    stream.publish(600)
    stream.retain(2)
    first = stream.chunks()[0].header
    assert first.chunk_id > 20

    async def find(name: str) -> tuple[str, int] | None:
        found = await find_incarnation(rig.archive, node, "/", name, state=rig.state)
        return None if found is None else (found[0].incarnation, found[1].next_offset)

    assert await find("or_ders") == (new_incarnation(stream, "or_ders"), first.chunk_id)
    rig.state.stream_file(incarnation).save(RememberedStream(StreamId("/", "or.ders", incarnation)))
    assert await find("or_ders") == (new_incarnation(stream, "or_ders"), first.chunk_id)
    assert await find("or.ders") == (incarnation, 20)


async def test_an_incarnation_whose_last_segment_here_is_archived_this_moment_is_known_by_the_archive(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    spool(rig, INCARNATION, stream)
    stream.publish(300)
    newest_incarnation = rig.archive.newest_incarnation

    async def late(vhost: str, name: str) -> Incarnation | None:
        found = await newest_incarnation(vhost, name)
        (path,) = (rig.pins / INCARNATION).iterdir()
        whole = SegmentSlice(path, Offset(0), Offset(300), SEGMENT_HEADER_BYTES, path.stat().st_size)
        rig.memory.uploader.upload(stage(whole, rig.memory.stream, rig.memory.objects, rig.memory.keys))
        path.unlink()
        return found

    rig.archive.newest_incarnation = late
    assert await rig.find() == (INCARNATION, 300)


async def test_an_incarnation_of_a_stream_whose_name_only_begins_alike_is_not_this_ones(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, "__orders_eu_1763600000000000000", stream)
    assert await rig.find() == (new_incarnation(stream), 0)


async def test_a_segment_that_is_let_go_while_it_is_looked_at_hides_no_other(rig, node):
    stream = node.declare("orders")
    stream.publish(20)
    spool(rig, INCARNATION, stream)
    (rig.pins / INCARNATION / f"{20:020}.segment").symlink_to("gone")
    assert await rig.find() == (INCARNATION, 20)


async def test_an_incarnation_of_which_nothing_is_known_hides_no_other(rig, node):
    stream = node.declare("orders")
    stream.publish(300)
    tail = rig.archive_rolled(stream)
    empty = rig.pins / "__orders_1763900000000000000"
    empty.mkdir(parents=True)
    (empty / f"{0:020}.segment").touch()
    assert await rig.find() == (INCARNATION, tail)
