from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import CorruptionError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import cluster
from coldstream.manifest.entry import Head, Hold, Loss, Quarantine
from coldstream.manifest.policy import Policy
from coldstream.manifest.shard_changes import bound
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.rebuild.compare import differences
from coldstream.rebuild.facts_reader import FactsReader
from coldstream.rebuild.run import Rebuilder, find_incarnations, find_named
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.shard_maps import ShardMapWriter, iter_maps, map_events
from coldstream.store.streams import iter_streams
from coldstream.units import Offset, TimestampMs
from tests.manifest.shard_samples import sample_map
from tests.rebuild.samples import without_notes
from tests.rebuild.world import DONE, RandomArchive
from tests.support.segments import START, STREAM, MemoryArchive, write_stream

OTHER = StreamId("a/b", "späte %2F Post+", Incarnation("a_b_sp___1763700000000000001"))
KEYS = Keys("archive/")


def rebuilder(objects: MemoryObjects, table: MemoryTable, *, is_dry: bool = False) -> Rebuilder:
    return Rebuilder(table, objects, KEYS, lambda: DONE, 1000, is_dry=is_dry)


def test_all_streams_of_a_bucket_are_found_by_one_listing_each(tmp_path: Path) -> None:
    archive = RandomArchive(1, tmp_path)
    archive.live()
    control = ControlObjects(archive.objects, KEYS)
    control.write_stream(OTHER)
    control.write_grant(Grant("arn:aws:iam::1:role/x", "*/*"))
    for foreign in ("archive/readme.txt", "archive/0a1b2c3d_x/data/y", "archive/zz/a", "archive", "else/a", "archivf"):
        archive.objects.objects[foreign] = b""
    archive.objects.requests.clear()
    assert set(find_incarnations(archive.objects, KEYS)) == {STREAM.incarnation, OTHER.incarnation}
    assert archive.objects.requests["ListObjectsV2"] < 12
    assert list(find_incarnations(archive.objects, Keys("nothing/"))) == []


def test_streams_are_rebuilt_side_by_side_with_their_names(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path / "one")
    archive.live()
    other = MemoryArchive(stream=OTHER)
    other.use(objects=archive.objects)
    ControlObjects(other.objects, KEYS).write_stream(OTHER)
    write_stream(tmp_path / "other", chunks=100)
    other.announce(tmp_path / "other")
    table = MemoryTable()
    found = find_incarnations(archive.objects, KEYS)
    reports = list(rebuilder(archive.objects, table).streams(found, at_once=2))
    assert {report.stream for report in reports} == {STREAM, OTHER} == set(iter_streams(table))
    assert all(report.is_done and report.is_named for report in reports)
    assert archive.differences(table) == []


def test_shard_maps_are_rebuilt_at_their_newest_revision_with_the_journal() -> None:
    objects, table, before = MemoryObjects(), MemoryTable(), MemoryTable()
    writer = ShardMapWriter(before, ControlObjects(objects, KEYS), "anna")
    for name in ("orders", "payments"):
        writer.write(sample_map(name=name), ShardEventKind.DECLARE, START)
        writer.write(bound(sample_map(name=name), START), ShardEventKind.BIND, START)
    del objects.objects[KEYS.shard_note("/", "orders", 1)]
    rebuilder(objects, table, is_dry=True).of_no_stream()
    assert list(iter_maps(table)) == []
    for _ in range(2):
        rebuilder(objects, table).of_no_stream()
        assert list(iter_maps(table)) == list(iter_maps(before))
        assert list(map_events(table, "/", "payments")) == list(map_events(before, "/", "payments"))
        assert list(map_events(table, "/", "orders")) == list(map_events(before, "/", "orders"))[1:]


def test_a_damaged_shard_map_is_never_replaced_by_an_earlier_one() -> None:
    objects, table = MemoryObjects(), MemoryTable()
    writer = ShardMapWriter(MemoryTable(), ControlObjects(objects, KEYS))
    writer.write(sample_map(), ShardEventKind.DECLARE, START)
    writer.write(bound(sample_map(), START), ShardEventKind.BIND, START)
    objects.objects[KEYS.shard_note("/", "orders", 2)] = b"\1damaged"
    with pytest.raises(CorruptionError, match="malformed shard map"):
        rebuilder(objects, table).of_no_stream()
    assert list(iter_maps(table)) == []


def test_what_is_of_no_stream_is_rebuilt_too() -> None:
    objects, table = MemoryObjects(), MemoryTable()
    control = ControlObjects(objects, KEYS)
    grant = Grant("arn:aws:iam::123456789012:role/analytics", "%2F/orders*", START)
    policy = Policy("weeks", "%2F/*", 1, max_age_ms=7 * 86_400_000)
    control.write_grant(grant)
    control.write_policy(policy)
    control.write_cluster("/", "orders", cluster("blue"))
    rebuilder(objects, table, is_dry=True).of_no_stream()
    assert table.grants() == ()
    for _ in range(2):
        rebuilder(objects, table).of_no_stream()
        assert table.grants() == (grant,)
        assert table.policies() == (policy,)
        assert table.bound_cluster("/", "orders") == "blue"


def test_an_archive_of_an_earlier_release_is_rebuilt_and_says_what_was_guessed(tmp_path: Path) -> None:
    archive = MemoryArchive()
    write_stream(tmp_path, chunks=200)
    archive.announce(tmp_path)
    without_notes(archive)
    archive.objects.delete(KEYS.stream_note(STREAM.incarnation))
    table = MemoryTable()
    report = rebuilder(archive.objects, table).stream(STREAM.incarnation)
    assert not report.is_named
    assert report.stream == STREAM
    assert list(differences(archive.table, table, STREAM.incarnation)) == []


def facts_of(objects: MemoryObjects, incarnation: Incarnation = STREAM.incarnation) -> FactsReader:
    return FactsReader(objects, KEYS)


def test_a_released_hold_is_none() -> None:
    objects = MemoryObjects()
    control = ControlObjects(objects, KEYS)
    holds = [Hold(name, Offset(0), None, "a lawsuit", "alice", START) for name in ("one", "two")]
    for hold in holds:
        control.write_hold(STREAM.incarnation, hold)
    control.write_release(STREAM.incarnation, holds[0], "bob")
    assert facts_of(objects).read(STREAM.incarnation).holds == (holds[1],)


def test_the_last_floor_counts() -> None:
    objects = MemoryObjects()
    control = ControlObjects(objects, KEYS)
    control.write_floor(Head(STREAM, revision=9, floor=Offset(10), generation=2, deleted_at=START))
    control.write_floor(Head(STREAM, revision=10, floor=Offset(20), floor_timestamp=START, generation=3))
    base = facts_of(objects).read(STREAM.incarnation).base
    assert (base.floor, base.next_offset, base.generation, base.deleted_at) == (20, 20, 3, None)
    assert base.greatest_timestamp == START


def test_copies_in_quarantine_count_in_the_order_in_which_they_failed() -> None:
    objects = MemoryObjects()
    for number, at in ((1, 30), (2, 10), (3, 20)):
        key = KEYS.quarantined(STREAM.incarnation, Offset(5), f'"{number}"')
        note = {"first_offset": 5, "next_offset": 9, "reason": f"bad {number}", "at": at, "etag": f'"{number}"'}
        objects.put(f"{key}.json", json.dumps(note).encode())
        objects.put(key, b"")
    found = facts_of(objects).read(STREAM.incarnation).quarantines
    assert [(one.etag, one.copies) for one in found] == [('"2"', 1), ('"3"', 2), ('"1"', 3)]


def test_a_note_of_an_earlier_release_names_the_stream_and_its_etag() -> None:
    objects = MemoryObjects(clock=lambda: TimestampMs(7000))
    key = KEYS.quarantined(OTHER.incarnation, Offset(5), '"ab-2"')
    note = {"vhost": "a/b", "stream": OTHER.name, "first_offset": 5, "next_offset": 9, "reason": "bad"}
    objects.put(f"{key}.json", json.dumps(note).encode())
    facts = facts_of(objects).read(OTHER.incarnation)
    assert (facts.stream, facts.is_named) == (OTHER, False)
    assert facts.quarantines == (Quarantine(Offset(5), Offset(9), "bad", TimestampMs(7000), key, '"ab-2"'),)


def test_of_a_purged_stream_nothing_is_missing_whatever_notes_were_left_behind() -> None:
    objects = MemoryObjects()
    control = ControlObjects(objects, KEYS)
    control.write_loss(STREAM.incarnation, Loss(Offset(5), Offset(9), "a disk", START))
    note = {"first_offset": 5, "next_offset": 9, "reason": "bad"}
    objects.put(f"{KEYS.quarantined(STREAM.incarnation, Offset(5), 'x')}.json", json.dumps(note).encode())
    head = Head(STREAM, revision=9, floor=Offset(9), deleted_at=START, purge_at=START)
    control.write_floor(head)
    facts = facts_of(objects).read(STREAM.incarnation)
    assert (len(facts.losses), len(facts.quarantines)) == (1, 1)
    control.write_floor(replace(head, revision=10, purge_began_at=START, purged_at=START))
    facts = facts_of(objects).read(STREAM.incarnation)
    assert (facts.losses, facts.quarantines) == ((), ())


def test_a_note_that_was_moved_to_another_segment_is_damaged() -> None:
    objects = MemoryObjects()
    key = f"{KEYS.quarantined(STREAM.incarnation, Offset(7), 'x')}.json"
    objects.put(key, b'{"first_offset": 5, "next_offset": 9, "reason": "bad"}')
    with pytest.raises(CorruptionError, match="first offset"):
        facts_of(objects).read(STREAM.incarnation)


def test_a_damaged_control_object_stops_its_stream_and_no_other(tmp_path: Path) -> None:
    archive = RandomArchive(4, tmp_path)
    archive.live()
    ControlObjects(archive.objects, KEYS).write_stream(OTHER)
    damaged = KEYS.loss_note(OTHER.incarnation, Offset(0), Offset(1))
    archive.objects.put(damaged, b"{")
    table = MemoryTable()
    reports = rebuilder(archive.objects, table).streams([OTHER.incarnation, STREAM.incarnation], at_once=1)
    damage, done = reports
    assert (damage.stream.incarnation, damage.is_done, damage.unread) == (OTHER.incarnation, False, 1)
    assert [doubt.key for doubt in damage.unreadable] == [damaged]
    assert table.head(OTHER.incarnation) is None
    assert done.is_done
    assert archive.differences(table) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"first_offset": 1}', b'{"first_offset": "x"}'])
def test_a_damaged_note_stops_the_stream_and_is_named(content: bytes) -> None:
    objects = MemoryObjects()
    key = f"{KEYS.quarantined(STREAM.incarnation, Offset(5), 'x')}.json"
    objects.put(key, content)
    with pytest.raises(CorruptionError) as caught:
        facts_of(objects).read(STREAM.incarnation)
    assert caught.value.source == key


def test_of_streams_that_are_not_named_only_their_names_are_read() -> None:
    objects, keys = MemoryObjects(), Keys()
    control = ControlObjects(objects, keys)
    others = StreamId("/", "others", Incarnation("__others_1763700000000000009"))
    for stream in (STREAM, others):
        control.write_stream(stream)
        control.write_hold(stream.incarnation, Hold("h", Offset(0), None, "case", "me", TimestampMs(1)))
    reads: list[str] = []
    get_range = objects.get_range

    def read(key: str, *arguments: Any, **options: Any) -> Any:
        reads.append(key)
        return get_range(key, *arguments, **options)

    objects.get_range = read  # type: ignore[method-assign]
    assert list(find_named(objects, keys, others.vhost, ["others"])) == [others.incarnation]
    assert sorted(reads) == sorted(keys.stream_note(stream.incarnation) for stream in (STREAM, others))
