"""Which slice of a stream's disk to archive next, and which segments to release."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.agent.disk.disk_segment import Hole
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.disk.retention import UnarchivedAge
from coldstream.agent.disk.slices import next_slices, unarchived_age
from coldstream.agent.disk.stream_disk import ReleasableSegment, StreamDisk
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.units import Offset, TimestampMs
from tests.support.node import START, Node, NodeStream
from tests.support.replica import Replica

LONG_AFTER = TimestampMs(START + 10**9)
NONE = Offset(0)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[NodeStream]:
    node = Node(tmp_path / "data")
    yield node.declare("orders")
    node.close()


def disk_of(stream: NodeStream | Replica, tmp_path: Path, every_ms: int | None = None) -> StreamDisk:
    disk = StreamDisk(StreamPins(tmp_path / "pins" / stream.incarnation, stream.directory), every_ms)
    disk.look(NONE, NONE)
    return disk


def bounds(stream: NodeStream) -> list[int]:
    return [int(path.stem) for path in stream.segments]


def test_a_segment_that_has_not_rolled_is_not_archived_yet(stream, tmp_path):
    stream.publish(20)
    assert next_slices(disk_of(stream, tmp_path).log, NONE, LONG_AFTER) == []


def test_rolled_segments_are_archived_whole_and_oldest_first(stream, tmp_path):
    stream.publish(200)
    disk = disk_of(stream, tmp_path)
    borders = bounds(stream)
    archived = NONE
    for path, end in zip(stream.segments, borders[1:], strict=False):
        (provable,) = next_slices(disk.log, archived, LONG_AFTER)
        assert (provable.slice.first_offset, provable.slice.next_offset) == (archived, end)
        assert (provable.slice.position, provable.slice.end) == (SEGMENT_HEADER_BYTES, path.stat().st_size)
        assert provable.witness.header.next_offset == end
        archived = Offset(end)
        disk.look(archived, NONE)
    assert next_slices(disk.log, archived, LONG_AFTER) == []
    assert [pin.first_offset for pin in disk.segments] == [borders[-1]]


def test_a_segment_that_ends_in_tracking_is_proven_by_the_next_message(stream, tmp_path):
    stream.publish(10)
    while len(stream.segments) == 1:
        stream.store_offset()
    disk = disk_of(stream, tmp_path)
    assert next_slices(disk.log, NONE, LONG_AFTER) == []
    stream.publish(10)
    (provable,) = next_slices(disk.log, NONE, LONG_AFTER)
    assert provable.slice.next_offset == bounds(stream)[1]
    assert provable.witness.header.chunk_id >= bounds(stream)[1]


def test_what_was_deleted_before_it_was_seen_is_a_hole(stream, tmp_path):
    stream.publish(200)
    borders = bounds(stream)
    stream.retain(2)
    disk = disk_of(stream, tmp_path)
    assert next_slices(disk.log, Offset(borders[1]), LONG_AFTER) == Hole(Offset(borders[1]), Offset(borders[-2]))


def test_with_a_max_lag_the_active_segment_is_archived_up_to_the_last_closed_span(stream, tmp_path):
    stream.publish(20, step_ms=400)
    first_span = stream.next_offset
    stream.publish(10, step_ms=2000)
    disk = disk_of(stream, tmp_path, every_ms=1000)
    (provable,) = next_slices(disk.log, NONE, stream.now)
    assert (provable.slice.first_offset, provable.slice.next_offset) == (0, first_span)
    (provable,) = next_slices(disk.log, NONE, TimestampMs(stream.now + 2000))
    assert provable.slice.next_offset == stream.next_offset
    (provable,) = next_slices(disk.log, Offset(first_span), TimestampMs(stream.now + 2000))
    assert (provable.slice.first_offset, provable.slice.next_offset) == (first_span, stream.next_offset)


def test_messages_before_trailing_tracking_do_not_wait_for_more(stream, tmp_path):
    stream.publish(10)
    stream.store_offset()
    disk = disk_of(stream, tmp_path, every_ms=1000)
    (provable,) = next_slices(disk.log, NONE, LONG_AFTER)
    assert provable.slice.next_offset == 10
    assert next_slices(disk.log, Offset(10), LONG_AFTER) == []


def test_a_damaged_segment_is_archived_whole_so_that_it_goes_to_quarantine(stream, tmp_path):
    stream.publish(200)
    damaged = stream.segments[0]
    content = bytearray(damaged.read_bytes())
    content[5000:9000] = bytes(4000)
    damaged.write_bytes(content)
    (provable,) = next_slices(disk_of(stream, tmp_path).log, NONE, LONG_AFTER)
    assert (provable.slice.next_offset, provable.slice.end) == (bounds(stream)[1], len(content))
    assert provable.witness.header.chunk_id >= bounds(stream)[1]


def test_a_slice_begins_at_a_border_even_if_half_of_it_is_archived(stream, tmp_path):
    stream.publish(200)
    (provable,) = next_slices(disk_of(stream, tmp_path).log, Offset(10), LONG_AFTER)
    assert (provable.slice.first_offset, provable.slice.position) == (0, SEGMENT_HEADER_BYTES)


def test_the_oldest_chunk_and_its_segments_age_are_known(stream, tmp_path):
    stream.publish(200)
    disk = disk_of(stream, tmp_path)
    oldest = unarchived_age(disk.log, NONE)
    assert oldest.written_at == START + 10
    age = oldest.segment
    assert age.bytes_after == sum(path.stat().st_size for path in stream.segments[1:])
    assert age.newest_at == stream.now
    assert unarchived_age(disk.log, stream.next_offset) == UnarchivedAge()


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path / "replicas")


def starts(replica: Replica) -> list[int]:
    return [int(path.stem) for path in replica.segments]


def offsets(disk: StreamDisk) -> list[int]:
    return [pin.first_offset for pin in disk.segments]


def test_what_was_truncated_away_is_let_go_once_the_broker_has_written_over_it(replica, tmp_path):
    replica.publish(2)
    replica.publish_alone(13)
    disk = disk_of(replica, tmp_path)
    assert offsets(disk) == [0, 18, 36]
    replica.lose_leader(1)
    replica.truncate()
    disk.look(NONE, NONE)
    assert offsets(disk) == [0, 18, 36]
    replica.publish(4, messages=4)
    disk.look(NONE, NONE)
    assert offsets(disk) == [0, *starts(replica)[1:], 36]
    replica.publish(6, messages=4)
    disk.look(NONE, NONE)
    assert offsets(disk) == starts(replica)


def test_what_may_be_committed_is_let_go_only_once_the_broker_has_all_of_it_again(replica, tmp_path):
    replica.publish(20)
    disk = disk_of(replica, tmp_path)
    assert offsets(disk) == [0, 18, 36, 54]
    log, replica.log = replica.log, replica.log[:8]
    replica.max_segment_bytes = 100_000
    replica.make_anew()
    disk.look(NONE, Offset(54))
    assert offsets(disk) == [0, 18, 36, 54]
    replica.log = log
    replica.publish(1)
    disk.look(NONE, Offset(54))
    assert offsets(disk) == [0]


def test_a_segment_is_archived_only_once_its_own_end_is(replica, tmp_path):
    """Its successor's name is not its end when that is another log's, and begins before it."""
    replica.publish(4)
    replica.publish_alone(4)
    disk_of(replica, tmp_path)
    replica.lose_leader(6, messages=1, size=400)
    replica.truncate()
    replica.publish(8)
    disk = disk_of(replica, tmp_path)
    end = starts(replica)[1]
    for path in replica.expendable(1):
        replica.delete_file(path)
    disk.look(Offset(end - 1), NONE)
    assert offsets(disk)[0] == 0
    disk.look(Offset(end), NONE)
    assert offsets(disk)[0] != 0


def test_chunks_are_linked_by_their_leader_or_by_segments_that_lead_to_one_another(replica, tmp_path):
    replica.publish(12)
    replica.lose_leader(12)
    replica.truncate()
    disk = disk_of(replica, tmp_path)
    first, same_leader, other_leader = (replica.log[number].header for number in (0, 8, 16))
    assert disk.log.is_linked(first, same_leader)
    assert disk.log.is_linked(first, other_leader)
    replica.retain(1)
    disk.look(NONE, NONE)
    assert disk.log.is_linked(first, other_leader)
    (tmp_path / "pins" / replica.incarnation / f"{starts(replica)[0] - 18:020}.segment").unlink()
    disk.look(NONE, NONE)
    newest = replica.log[-1].header
    assert not disk.log.is_linked(first, newest)
    assert disk.log.is_linked(other_leader, newest)


def test_nothing_is_taken_for_the_oldest_that_could_be_given_up_while_the_broker_has_it(replica, tmp_path):
    replica.publish(20)
    disk = disk_of(replica, tmp_path)
    assert disk.oldest() is None
    replica.retain(2)
    assert disk.oldest() == ReleasableSegment(disk.segments[0], Hole(Offset(0), Offset(18)))


@pytest.mark.parametrize("replaced_by", [0, 20])
def test_nothing_is_lost_of_a_tail_that_was_cut_off_since_the_last_look(replica, tmp_path, replaced_by):
    replica.publish(12)
    archived_to = replica.next_offset
    replica.publish_alone(15)
    disk = disk_of(replica, tmp_path)
    disk.look(archived_to, archived_to)
    assert disk.segments[0].first_offset == archived_to
    refuted = replica.alone[0].header
    assert disk.refuted(refuted, archived_to) is None
    replica.lose_leader(replaced_by, messages=2)
    replica.truncate()
    assert disk.refuted(refuted, archived_to) == ReleasableSegment(disk.segments[0], None)
    assert disk.oldest() is None


def test_a_tail_is_not_let_go_while_the_broker_has_nothing_in_its_place_yet(replica, tmp_path):
    replica.publish_alone(15)
    disk = disk_of(replica, tmp_path)
    refuted = replica.alone[0].header
    for path in replica.segments:
        path.unlink()
    assert disk.refuted(refuted, NONE) is None
    assert disk.oldest() is None
    replica.directory.rmdir()
    lost = ReleasableSegment(disk.segments[0], Hole(NONE, disk.segments[1].first_offset))
    assert disk.refuted(refuted, NONE) == disk.oldest() == lost


@pytest.mark.parametrize("every_ms", [None, 1000])
def test_what_the_agent_wrote_itself_is_archived_to_its_last_tracking_chunk(replica, tmp_path, every_ms):
    replica.publish(3)
    replica.track()
    (path,) = replica.segments
    own = tmp_path / "own"
    own.mkdir()
    path.rename(own / path.name)
    disk = StreamDisk(StreamPins(own, None), every_ms)
    disk.look(NONE, NONE)
    (provable, *_) = next_slices(disk.log, NONE, LONG_AFTER)
    assert provable.slice.next_offset == replica.next_offset


def test_a_tail_that_nothing_can_prove_any_more_is_a_hole(replica, tmp_path):
    replica.publish(3)
    replica.track()
    disk_of(replica, tmp_path)
    replica.lose_leader(30)
    replica.truncate()
    unseen = len(replica.log)
    replica.lose_leader(20)
    replica.truncate()
    replica.retain(1)
    assert replica.log[unseen].header.epoch == 3
    disk = disk_of(replica, tmp_path)
    (last,) = (int(path.stem) for path in replica.segments)
    slices = next_slices(disk.log, NONE, LONG_AFTER)
    assert isinstance(slices, list)
    end = slices[0].slice.next_offset
    assert next_slices(disk.log, end, LONG_AFTER) == Hole(end, Offset(last))


def test_a_segment_that_ends_where_another_logs_segment_begins_is_not_linked_to_it(replica, tmp_path):
    """A lost leader's segment ends at the very offset at which the next leader's log has a border, too."""
    replica.publish(12)
    replica.publish_alone(6)
    disk = disk_of(replica, tmp_path)
    uncommitted = replica.alone[0].header
    replica.lose_leader(20)
    replica.truncate()
    replica.retain(3)
    disk.look(NONE, NONE)
    assert not disk.log.is_linked(uncommitted, replica.log[-1].header)


def test_a_segment_is_followed_across_a_change_of_leader_if_the_broker_was_seen_to_have_both(replica, tmp_path):
    replica.publish(6)
    replica.lose_leader(8)
    replica.truncate()
    assert starts(replica) == [0, 18, 36]
    disk = disk_of(replica, tmp_path)
    before, after = replica.log[0].header, replica.log[7].header
    replica.retain(2)
    disk.look(NONE, NONE)
    assert disk.log.is_linked(before, after)
    assert disk_of(replica, tmp_path).log.is_linked(before, after), "after a restart"
    disk.look(Offset(18), NONE)
    assert not list((tmp_path / "pins" / replica.incarnation).glob("*.succession"))


def test_that_two_segments_meet_shows_nothing_if_nobody_saw_the_broker_have_both(replica, tmp_path):
    replica.publish(6)
    disk = disk_of(replica, tmp_path)
    replica.lose_leader(8)
    replica.truncate()
    replica.retain(2)
    disk.look(NONE, NONE)
    assert offsets(disk) == [0, 18, 36]
    assert not disk.log.is_linked(replica.log[0].header, replica.log[7].header)


def test_a_succession_is_remembered_though_it_cannot_be_written_down(replica, tmp_path, monkeypatch):
    def full(self: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    replica.publish(6)
    replica.lose_leader(8)
    replica.truncate()
    disk = disk_of(replica, tmp_path)
    replica.retain(2)
    disk.look(NONE, NONE)
    assert disk.log.is_linked(replica.log[0].header, replica.log[7].header)
