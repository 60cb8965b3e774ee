"""A recovery from the log, of every kind of object: damaged, of two histories, of a stream that is deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from coldstream.archive.events import event_of
from coldstream.errors import UnavailableError
from coldstream.format.writer import make_chunk
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.recovery import LogRecovery, RecoveryReport
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.segments import STREAM, MemoryArchive


def run_of(
    first: int, records: Sequence[int], *, epoch: int = 1, stream: StreamId = STREAM, at: int = 1000
) -> LoggedRun:
    """Make a run of chunks of so many messages each."""
    data, following = b"", first
    for count in records:
        messages = [b"%d of epoch %d" % (following + number, epoch) for number in range(count)]
        _, encoded = make_chunk(messages, chunk_id=ChunkId(following), timestamp=TimestampMs(at), epoch=Epoch(epoch))
        data += encoded
        following += count
    return LoggedRun(stream, Offset(first), Offset(following), data)


class World:
    """An archive whose function handles each event as soon as it is put."""

    def __init__(self) -> None:
        self.archive = MemoryArchive()
        self.at = 0

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        body = json.dumps({"source": source, "detail-type": detail_type, "detail": json.loads(detail)})
        event = event_of(body)
        self.archive.uploader.upload(event)  # type: ignore[arg-type]

    def log(self, *runs: LoggedRun, node: str = "node-1", cluster: str = "") -> str:
        self.at += 1
        key = Keys("archive/", Cluster(cluster)).span(node, TimestampMs(self.at))
        self.archive.objects.put(key, span_object(runs))
        return key

    def recover(self, *, dry_run: bool = False) -> RecoveryReport:
        archive = self.archive
        return LogRecovery(
            Announcer(archive.table, archive.objects, self, archive.keys, dry_run=dry_run), timeout_s=0.2
        ).run()

    @property
    def spans(self) -> list[str]:
        return list(self.archive.objects.keys("archive/spans/"))

    @property
    def archived(self) -> list[tuple[int, int]]:
        return [(entry.first_offset, entry.next_offset) for entry in self.archive.log()]


@pytest.fixture
def world() -> World:
    return World()


def test_runs_of_several_nodes_become_one_segment_whatever_overlaps(world):
    world.log(run_of(0, [2, 3]))
    world.log(run_of(5, [1]))
    world.log(run_of(2, [3, 1, 4]), node="node-2")
    report = world.recover()
    assert report.streams[0].recovered == [(0, 10)]
    assert world.archived == [(0, 10)]
    assert world.spans == []


def test_a_hole_makes_two_segments(world):
    world.log(run_of(0, [2]))
    world.log(run_of(5, [1]))
    assert world.recover().streams[0].recovered == [(0, 2), (5, 6)]
    assert world.archived == [(0, 2), (5, 6)]
    assert world.spans == []


def test_what_is_archived_already_is_not_staged_again(world):
    world.log(run_of(0, [2, 3]))
    world.recover()
    world.log(run_of(0, [2]))
    world.log(run_of(2, [3, 5]), node="node-2")
    report = world.recover()
    assert report.deleted == 2
    assert world.archived[-1] == (5, 10)


def test_a_second_history_in_the_log_goes_to_quarantine_whole(world):
    world.log(run_of(0, [2, 3]))
    world.log(run_of(2, [3, 4], epoch=2), node="node-2")
    report = world.recover()
    assert report.streams[0].recovered == [(0, 5)]
    assert report.streams[0].quarantined == [(2, 9)]
    assert world.archived == [(0, 5)]
    assert len(list(world.archive.objects.keys("archive/quarantine/"))) == 2
    assert world.spans == []


def test_a_history_other_than_the_archives_is_not_taken_for_covered(world):
    world.log(run_of(0, [2, 3]))
    world.recover()
    world.log(run_of(0, [2, 3], epoch=2, at=2000), node="node-2")
    report = world.recover()
    assert report.streams[0].quarantined == [(0, 5)]
    assert world.archived == [(0, 5)]
    assert world.spans == []


def test_a_damaged_header_keeps_its_object_and_the_rest_is_recovered(world):
    key = world.log(run_of(0, [2]))
    world.log(run_of(2, [3]))
    body = world.archive.body(key)
    world.archive.objects.put(key, body[:20] + b"\xff" + body[21:])
    report = world.recover()
    assert report.is_damaged
    assert [kept.key for kept in report.kept] == world.spans == [key]
    assert world.archived == [(2, 5)]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_damaged_run_keeps_its_object_unless_another_node_has_it(world, is_elsewhere):
    key = world.log(run_of(0, [2]), run_of(2, [3]))
    body = world.archive.body(key)
    world.archive.objects.put(key, body[:-1] + bytes((body[-1] ^ 1,)))
    if is_elsewhere:
        world.log(run_of(2, [3]), node="node-2")
    report = world.recover()
    assert report.is_damaged
    assert world.archived == [(0, 5)] if is_elsewhere else [(0, 2)]
    if not is_elsewhere:
        assert [kept.key for kept in report.kept] == world.spans == [key]
        assert "does not cover" in report.kept[0].why or "CRC" in report.kept[0].why


def test_a_damaged_run_of_what_is_archived_is_of_no_use_and_goes(world):
    world.log(run_of(0, [2, 3]))
    world.recover()
    key = world.log(run_of(0, [2, 3]))
    body = world.archive.body(key)
    world.archive.objects.put(key, body[:-1] + bytes((body[-1] ^ 1,)))
    report = world.recover()
    assert (report.is_damaged, report.kept, world.spans) == (False, [], [])


@pytest.mark.parametrize("at", [0, 20, -1], ids=["magic", "header", "run"])
def test_a_byte_that_was_wrong_once_is_no_damage(world, at, monkeypatch):
    world.log(run_of(0, [2, 3]))
    get_range, spoilt = MemoryObjects.get_range, []

    def get(self, key, byte_range, **options):
        found = get_range(self, key, byte_range, **options)
        if "spans/" not in key or spoilt or (at == -1) != bool(byte_range.start):
            return found
        spoilt.append(key)
        data = bytearray(found.data)
        data[at] ^= 1
        return replace(found, data=bytes(data))

    monkeypatch.setattr(MemoryObjects, "get_range", get)
    report = world.recover()
    assert spoilt
    assert (report.is_damaged, world.archived, world.spans) == (False, [(0, 5)], [])


def test_bytes_that_are_no_chunks_are_told_although_their_crc_is_right(world):
    key = world.log(replace(run_of(0, [2]), data=b"\x50" * 100))
    report = world.recover()
    assert report.is_damaged
    assert world.spans == [key]
    assert world.archived == []


def test_a_run_that_ends_elsewhere_than_it_says_is_told(world):
    key = world.log(replace(run_of(0, [2]), next_offset=Offset(3)))
    assert world.recover().is_damaged
    assert world.spans == [key]


def test_another_clusters_log_is_left_alone(world):
    key = world.log(run_of(0, [2]), cluster="eu")
    assert world.recover().objects == 0
    assert world.spans == [key]


def test_a_function_that_does_nothing_leaves_the_log_and_the_next_run_finishes(world, monkeypatch):
    world.log(run_of(0, [2]))
    with monkeypatch.context() as patch:
        patch.setattr(World, "put", lambda *_, **__: None)
        with pytest.raises(UnavailableError):
            world.recover()
    assert len(world.spans) == 1
    world.recover()
    assert world.archived == [(0, 2)]
    assert world.spans == []


def test_a_dry_run_changes_nothing_and_says_what_would_be(world):
    world.log(run_of(0, [2, 3]))
    before = dict.fromkeys(world.archive.objects.keys(""))
    report = world.recover(dry_run=True)
    assert report.streams[0].recovered == [(0, 5)]
    assert report.deleted == 1
    assert dict.fromkeys(world.archive.objects.keys("")) == before
