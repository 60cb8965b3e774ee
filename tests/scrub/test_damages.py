"""Each kind of damage is made, found alone, mended if it has a repair, and is then gone, with every message there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import CorruptionError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.appending import plan_close, plan_open
from coldstream.manifest.change import Change, PutLoss
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.deletion import plan_delete
from coldstream.manifest.entry import (
    Erasure,
    ErasureState,
    FragmentEntry,
    Gap,
    Hold,
    Loss,
    Quarantine,
    Tombstone,
)
from coldstream.manifest.erasing import plan_erasure_begin, plan_erasure_done, plan_erasure_progress
from coldstream.manifest.fence import plan_discard, plan_fence
from coldstream.manifest.frames import Frames
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.shard_events import ShardEvent, ShardEventKind
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import Incarnation
from coldstream.scrub.catalogue import CATALOGUE, Repair
from coldstream.scrub.damage import Damage
from coldstream.store.direct_names import DirectName, add_name, remove_name
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage, ObjectInfo
from coldstream.store.shard_maps import ShardMapWriter, events_partition
from coldstream.units import Epoch, Offset, TimestampMs
from tests.manifest.shard_samples import bound_map, sample_map
from tests.support.archive import NOW, ChunkArchive
from tests.support.changes import change_to
from tests.support.compacting import scanned
from tests.support.scrubbing import LATER, control_of, damages, scrub, small_archive

D = Damage
DAY = 24 * 3600 * 1000
OLD = TimestampMs(NOW - 3 * DAY)


ERASURE = Erasure(
    id="erasure-1",
    first_offset=Offset(40),
    next_offset=Offset(45),
    where='{"offsets":[40,45]}',
    reason="a request",
    by="alice",
    at=OLD,
    messages=0,
    digest="",
    state=ErasureState.RUNNING,
    reached=Offset(40),
)


def state_of(archive: ChunkArchive) -> Any:
    return archive.table._partitions[archive.stream.incarnation]


def edit(archive: ChunkArchive, **changes: object) -> None:
    archive.table._partitions[archive.stream.incarnation] = replace(state_of(archive), **changes)


def edit_head(archive: ChunkArchive, **changes: object) -> None:
    edit(archive, head=replace(state_of(archive).head, **changes))


def entry_of(archive: ChunkArchive, number: int) -> FragmentEntry:
    entries = state_of(archive).entries
    return entries[sorted(entries)[number]]


def edit_entry(archive: ChunkArchive, number: int, **changes: Any) -> None:
    entry = entry_of(archive, number)
    edit(archive, entries={**state_of(archive).entries, entry.next_offset: replace(entry, **changes)})


def edit_bytes(archive: ChunkArchive, number: int, position: int) -> None:
    """Change a byte of an object, and let the entry and the bucket think that it has always been so."""
    entry = entry_of(archive, number)
    body = bytearray(archive.objects.objects[entry.key])
    body[position] ^= 1
    archive.objects.objects[entry.key] = bytes(body)
    edit_entry(archive, number, crc32=crc32(body))


class NoChecksums(MemoryObjects):
    def info(self, key: str) -> ObjectInfo | None:
        found = super().info(key)
        return None if found is None else replace(found, crc32=None)


class LostFromIndex(MemoryTable):
    """An index by time that has forgotten an entry, until that is written again."""

    lost: Offset | None = Offset(50)

    def log_from_timestamp(self, *arguments: Any) -> LogPage:
        page = super().log_from_timestamp(*arguments)
        return replace(page, entries=tuple(one for one in page.entries if one.next_offset != self.lost))

    def apply(self, change: Any) -> None:
        super().apply(change)
        if any(getattr(write, "next_offset", None) == self.lost for write in change.writes):
            self.lost = None


class Malformed(MemoryTable):
    def log_from_offset(self, *arguments: Any) -> LogPage:
        raise CorruptionError("log#1", 0, "an attribute is missing")


def with_table(archive: ChunkArchive, kind: type[MemoryTable]) -> None:
    table = kind()
    table.__dict__.update({**archive.table.__dict__})
    archive.table = table


def object_missing(archive: ChunkArchive) -> None:
    del archive.objects.objects[entry_of(archive, 2).key]


def object_size(archive: ChunkArchive) -> None:
    archive.objects.objects[entry_of(archive, 2).key] += b"?"


def object_checksum(archive: ChunkArchive) -> None:
    key = entry_of(archive, 2).key
    body = bytearray(archive.objects.objects[key])
    body[100] ^= 1
    archive.objects.objects[key] = bytes(body)


def entry_checksum(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, crc32=7)


def storage_class(archive: ChunkArchive) -> None:
    key = entry_of(archive, 2).key
    archive.objects._change(key, storage_class="STANDARD_IA")


def trailer(archive: ChunkArchive) -> None:
    edit_bytes(archive, 2, -1)


def next_offset_in_the_trailer(archive: ChunkArchive) -> None:
    edit_bytes(archive, 2, -46 + 23)


def index(archive: ChunkArchive) -> None:
    edit_bytes(archive, 2, -48)  # the position of the last record


def seek_table(archive: ChunkArchive) -> None:
    edit_bytes(archive, 0, -1)


def frame(archive: ChunkArchive) -> None:
    frames = entry_of(archive, 0).frames
    assert frames is not None
    edit_bytes(archive, 0, frames.positions[0] + 20)


def footer_frame(archive: ChunkArchive) -> None:
    frames = entry_of(archive, 0).frames
    assert frames is not None
    edit_bytes(archive, 0, frames.positions[-1])


def chunk(archive: ChunkArchive) -> None:
    edit_bytes(archive, 2, 100)


def bytes_differ(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, crc32=7)
    objects = NoChecksums()
    objects.__dict__.update(archive.objects.__dict__)
    archive.objects = objects


def sparse_index(archive: ChunkArchive) -> None:
    points = entry_of(archive, 2).sparse.points
    edit_entry(archive, 2, sparse=SparseIndex((points[0]._replace(timestamp=TimestampMs(7)), *points[1:])))


def sparse_index_past_the_end(archive: ChunkArchive) -> None:
    points = entry_of(archive, 2).sparse.points
    edit_entry(archive, 2, sparse=SparseIndex((*points, points[-1]._replace(ordinal=9, position=9_999))))


def frames(archive: ChunkArchive) -> None:
    there = entry_of(archive, 0).frames
    assert there is not None
    edit_entry(archive, 0, frames=Frames((*there.positions[:-1], there.positions[-1] - 1)))


def entry_times(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, last_timestamp=TimestampMs(7))


def entry_size(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, data_bytes=entry_of(archive, 2).data_bytes - 1)


def entry_far_too_large(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, data_bytes=1 << 30)


def entry_messages(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, messages=3)


def link(archive: ChunkArchive) -> None:
    edit_entry(archive, 3, prior_offset=Offset(20))


def link_to_nothing(archive: ChunkArchive) -> None:
    edit_entry(archive, 3, prior_offset=Offset(44))


def link_missing(archive: ChunkArchive) -> None:
    edit_entry(archive, 3, prior_offset=None)


def link_of_first(archive: ChunkArchive) -> None:
    edit_entry(archive, 0, prior_offset=Offset(0))


def running_too_small(archive: ChunkArchive) -> None:
    edit_entry(archive, 3, prior_timestamp=TimestampMs(3))


def running_too_great(archive: ChunkArchive) -> None:
    edit_entry(archive, 3, prior_timestamp=TimestampMs(NOW))
    edit_entry(archive, 4, prior_timestamp=TimestampMs(NOW))


def overlap(archive: ChunkArchive) -> None:
    edit_entry(archive, 4, first_offset=Offset(55))


def first_offset(archive: ChunkArchive) -> None:
    edit_head(archive, first_offset=Offset(4))


def tail(archive: ChunkArchive) -> None:
    edit_head(archive, next_offset=Offset(75))


def greatest_timestamp(archive: ChunkArchive) -> None:
    edit_head(archive, greatest_timestamp=TimestampMs(1605 - 6))


def time_index(archive: ChunkArchive) -> None:
    with_table(archive, LostFromIndex)


def below_floor(archive: ChunkArchive) -> None:
    edit_head(archive, floor=Offset(30))
    control_of(archive).write_floor(state_of(archive).head)


def gap_missing(archive: ChunkArchive) -> None:
    edit(archive, gaps={})


def gap_too_short(archive: ChunkArchive) -> None:
    edit(archive, gaps={Offset(30): Gap(Offset(30), Offset(39))})


def gap_extra(archive: ChunkArchive) -> None:
    edit(archive, gaps={**state_of(archive).gaps, Offset(42): Gap(Offset(42), Offset(45))})


def gap_between_neighbours(archive: ChunkArchive) -> None:
    edit(archive, gaps={**state_of(archive).gaps, Offset(50): Gap(Offset(50), Offset(55))})


def gap_past_the_tail(archive: ChunkArchive) -> None:
    edit(archive, gaps={**state_of(archive).gaps, Offset(70): Gap(Offset(70), Offset(75))})


def gap_reason(archive: ChunkArchive) -> None:
    edit(archive, gaps={Offset(30): Gap(Offset(30), Offset(40), "nobody knows")})


def gap_unexplained(archive: ChunkArchive) -> None:
    loss = Loss(Offset(30), Offset(40), "given up", NOW)
    control_of(archive).write_loss(archive.stream.incarnation, loss)
    record_missing(archive.table, archive.stream, loss)
    edit(archive, gaps={Offset(30): Gap(Offset(30), Offset(40))})


def totals(archive: ChunkArchive) -> None:
    edit_head(archive, messages=state_of(archive).head.messages + 1)


def count_of_gaps(archive: ChunkArchive) -> None:
    edit_head(archive, gaps=0)


def counts(archive: ChunkArchive) -> None:
    edit_head(archive, losses=1)


def tombstone(archive: ChunkArchive) -> None:
    entry = entry_of(archive, 2)
    one = Tombstone(entry.key, TimestampMs(NOW + DAY), entry.first_offset, entry.next_offset, entry.object_bytes)
    edit(archive, tombstones={**state_of(archive).tombstones, (one.due_at, one.key): one})


def overdue(archive: ChunkArchive) -> None:
    tombstones = dict(state_of(archive).tombstones)
    (due, key), one = next(iter(tombstones.items()))
    old = replace(one, due_at=TimestampMs(NOW - 3 * DAY))
    del tombstones[due, key]
    edit(archive, tombstones={**tombstones, (old.due_at, key): old})


def fence(archive: ChunkArchive) -> None:
    key = entry_of(archive, 2).key.replace(f"{40:020}", f"{30:020}").replace(f"{20:020}", f"{30:020}")
    one = Tombstone(key, TimestampMs(NOW + DAY), Offset(30), Offset(35), 100)
    edit(archive, tombstones={**state_of(archive).tombstones, (one.due_at, one.key): one})


def quarantine_object(archive: ChunkArchive) -> None:
    bad = Quarantine(Offset(100), Offset(110), "bad", NOW, "quarantine/gone", '"etag"')
    record_missing(archive.table, archive.stream, bad)


def in_quarantine(archive: ChunkArchive, *tags: str) -> list[str]:
    """Put copies of one segment in quarantine, one after the other; return their keys."""
    copies = []
    for tag in tags:
        key = Keys().quarantined(archive.stream.incarnation, Offset(100), tag)
        bad = Quarantine(Offset(100), Offset(110), "bad", NOW, key, f'"{tag}"')
        archive.objects.put(key, b"bad")
        note = {"first_offset": 100, "next_offset": 110, "etag": bad.etag}
        archive.objects.put(f"{key}.json", json.dumps(note).encode())
        record_missing(archive.table, archive.stream, bad)
        copies.append(key)
    return copies


def earlier_copy(archive: ChunkArchive) -> None:
    first, _ = in_quarantine(archive, "a", "b")
    del archive.objects.objects[first]


def quarantine_note(archive: ChunkArchive) -> None:
    (key,) = in_quarantine(archive, "a")
    del archive.objects.objects[f"{key}.json"]


def note_of_another_quarantine(archive: ChunkArchive) -> None:
    _, key = in_quarantine(archive, "a", "b")
    archive.objects.put(f"{key}.json", b'{"first_offset": 100, "next_offset": 111}')


def journal(archive: ChunkArchive) -> None:
    edit(archive, events={revision: event for revision, event in state_of(archive).events.items() if revision != 3})


def newest_event(archive: ChunkArchive) -> None:
    events = state_of(archive).events
    edit(archive, events={revision: event for revision, event in events.items() if revision != max(events)})


def segment_of_entry(archive: ChunkArchive) -> None:
    edit_entry(archive, 2, segment_offset=Offset(7))


def no_head(archive: ChunkArchive) -> None:
    del archive.table._partitions[archive.stream.incarnation]


def unregistered(archive: ChunkArchive) -> None:
    archive.table._registry.clear()


def malformed(archive: ChunkArchive) -> None:
    with_table(archive, Malformed)


def stream_note(archive: ChunkArchive) -> None:
    del archive.objects.objects[Keys().stream_note(archive.stream.incarnation)]


def another_stream_note(archive: ChunkArchive) -> None:
    archive.objects.put(Keys().stream_note(archive.stream.incarnation), b"{}")


def cluster_note(archive: ChunkArchive) -> None:
    archive.table.bind_cluster(archive.stream.vhost, archive.stream.name, Cluster("east"))
    control_of(archive).write_cluster(archive.stream.vhost, archive.stream.name, Cluster("west"))


def floor_note_missing(archive: ChunkArchive) -> None:
    head = archive.table.head(archive.stream.incarnation)
    log = archive.table.log_from_offset(archive.stream.incarnation, Offset(0), 2).entries
    change = plan_prefix_removal(head, log[:1], log[1], (), (), at=OLD, due_at=LATER, why="retention", by="policy")
    archive.table.apply(change)


def fence_note_missing(archive: ChunkArchive) -> None:
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.table.apply(plan_fence(head, head.generation + 5, OLD))


def fence_note_outdated(archive: ChunkArchive) -> None:
    fence_note_missing(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    control_of(archive).write_floor(replace(head, generation=head.generation - 1))


def floor_note_ahead(archive: ChunkArchive) -> None:
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    control_of(archive).write_floor(replace(head, floor=Offset(40)))


WAL = WalPlace(WalKind.S3, "host-1", 1)


def direct_archive(archive: ChunkArchive) -> None:
    """Have the stream be a direct one, of long ago, that is open; all of it is noted."""
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    opening = Opening(Epoch(2), WAL)
    head = replace(head, revision=head.revision + 1, appender=Appender(Epoch(2), (opening,)))
    archive.table.apply(change_to(head))
    control_of(archive).write_opening(archive.stream, opening)
    control_of(archive).write_direct(head)
    add_name(archive.table, DirectName.of(head))


def direct_note_missing(archive: ChunkArchive) -> None:
    """The note of what created the stream, and of all after it."""
    direct_archive(archive)
    for key in list(archive.objects.keys(Keys().direct_notes(archive.stream.incarnation))):
        archive.objects.delete(key)


def direct_note_outdated(archive: ChunkArchive) -> None:
    """Whoever closed it died before the note."""
    direct_archive(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.table.apply(plan_close(head, Epoch(2), OLD, is_sealed=True))


def direct_note_damaged(archive: ChunkArchive) -> None:
    direct_archive(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.objects.put(Keys().direct_note(archive.stream.incarnation, head.note_revision), b"{")


def opening_note_missing(archive: ChunkArchive) -> None:
    """Its write-ahead log would not be found after a rebuild."""
    direct_archive(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.table.apply(plan_open(head, WAL, OLD))


def direct_note_ahead(archive: ChunkArchive) -> None:
    """The table is one of before: somebody else has taken the next epoch."""
    direct_archive(archive)
    control_of(archive).write_opening(archive.stream, Opening(Epoch(3), WAL))


def direct_name_missing(archive: ChunkArchive) -> None:
    direct_archive(archive)
    remove_name(archive.table, archive.stream)


def direct_name_of_another(archive: ChunkArchive) -> None:
    direct_name_missing(archive)
    add_name(archive.table, DirectName(replace(archive.stream, incarnation=Incarnation("__other_1"))))


def hold_note(archive: ChunkArchive) -> None:
    hold = Hold("case-7", Offset(0), None, "case", "counsel", NOW)
    archive.table.apply(plan_hold(archive.table.head(archive.stream.incarnation), hold))


def loss_note(archive: ChunkArchive) -> None:
    record_missing(archive.table, archive.stream, Loss(Offset(100), Offset(110), "given up", NOW))


def erasure_note(archive: ChunkArchive) -> None:
    """An erasure that began long ago, and of which a sweep has written nothing either."""
    head = archive.table.head(archive.stream.incarnation)
    archive.table.apply(plan_erasure_begin(head, ERASURE, ()))


@dataclass(frozen=True)
class Case:
    damage: Damage
    make: Callable[[ChunkArchive], None]
    deep: bool = False
    is_lost: bool = False
    """Whether the range has to be taken again, and is a known gap until then."""
    also: frozenset[Damage] = frozenset()
    """What the same damage is at other places."""


def write_maps(archive: ChunkArchive, *maps: ShardMap) -> None:
    for found in maps:
        ShardMapWriter(archive.table, control_of(archive)).write(found, ShardEventKind.DECLARE, OLD)


def shard_note(archive: ChunkArchive) -> None:
    write_maps(archive, sample_map(name="payments"), bound_map(name="payments"), sample_map(), bound_map())
    archive.objects.delete(Keys().shard_note("/", "orders", 2))


def another_shard_note(archive: ChunkArchive) -> None:
    write_maps(archive, sample_map(name="payments"), sample_map())
    archive.objects.put(Keys().shard_note("/", "orders", 1), b"x")


def shard_map(archive: ChunkArchive) -> None:
    write_maps(archive, sample_map(name="payments"))
    control_of(archive).write_shard_map(ShardEvent(1, OLD, ShardEventKind.DECLARE), sample_map())


def shard_map_behind(archive: ChunkArchive) -> None:
    write_maps(archive, sample_map())
    control_of(archive).write_shard_map(ShardEvent(2, OLD, ShardEventKind.BIND), bound_map())


def shard_event(archive: ChunkArchive) -> None:
    write_maps(archive, sample_map())
    archive.table.delete_state(next(iter(archive.table.state_items(events_partition("/", "orders")))))


CASES = [
    Case(D.ITEM, malformed),
    Case(D.OBJECT_MISSING, object_missing, is_lost=True),
    Case(D.OBJECT_SIZE, object_size, is_lost=True),
    Case(D.OBJECT_CHECKSUM, object_checksum, is_lost=True),
    Case(D.OBJECT_CHECKSUM, entry_checksum),
    Case(D.STORAGE_CLASS, storage_class),
    Case(D.TRAILER, trailer, is_lost=True),
    Case(D.TRAILER, footer_frame, is_lost=True),
    Case(D.TRAILER, next_offset_in_the_trailer, is_lost=True),
    Case(D.TRAILER, next_offset_in_the_trailer, is_lost=True, deep=True),
    Case(D.INDEX, index, is_lost=True),
    Case(D.SEEK_TABLE, seek_table, is_lost=True),
    Case(D.CHUNKS, chunk, deep=True, is_lost=True),
    Case(D.CHUNKS, frame, deep=True, is_lost=True),
    Case(D.BYTES, bytes_differ, deep=True),
    Case(D.SPARSE_INDEX, sparse_index),
    Case(D.SPARSE_INDEX, sparse_index_past_the_end),
    Case(D.FRAMES, frames),
    Case(D.ENTRY, entry_times),
    Case(D.ENTRY, entry_size, also=frozenset({D.TOTALS})),
    Case(D.ENTRY, entry_far_too_large, also=frozenset({D.TOTALS})),
    Case(D.ENTRY, entry_messages, deep=True, also=frozenset({D.TOTALS})),
    Case(D.LINK, link),
    Case(D.LINK, link_to_nothing),
    Case(D.LINK, link_missing),
    Case(D.LINK, link_of_first),
    Case(D.RUNNING_TIMESTAMP, running_too_small),
    Case(D.RUNNING_TIMESTAMP, running_too_great, also=frozenset({D.HEAD_BOUNDS})),
    Case(D.OVERLAP, overlap, also=frozenset({D.ENTRY})),
    Case(D.HEAD_BOUNDS, first_offset),
    Case(D.HEAD_BOUNDS, tail),
    Case(D.HEAD_BOUNDS, greatest_timestamp),
    Case(D.TIME_INDEX, time_index),
    Case(D.BELOW_FLOOR, below_floor),
    Case(D.GAP_MISSING, gap_missing),
    Case(D.GAP_MISSING, gap_too_short),
    Case(D.GAP_EXTRA, gap_extra),
    Case(D.GAP_EXTRA, gap_between_neighbours),
    Case(D.GAP_EXTRA, gap_past_the_tail),
    Case(D.GAP_REASON, gap_reason),
    Case(D.GAP_REASON, gap_unexplained),
    Case(D.TOTALS, totals),
    Case(D.TOTALS, count_of_gaps),
    Case(D.COUNTS, counts),
    Case(D.TOMBSTONE_LIVE, tombstone),
    Case(D.TOMBSTONE_OVERDUE, overdue),
    Case(D.FENCE, fence),
    Case(D.QUARANTINE_OBJECT, quarantine_object),
    Case(D.QUARANTINE_OBJECT, earlier_copy),
    Case(D.QUARANTINE_NOTE, quarantine_note),
    Case(D.QUARANTINE_NOTE, note_of_another_quarantine),
    Case(D.JOURNAL, journal),
    Case(D.JOURNAL, newest_event),
    Case(D.REPLAY, segment_of_entry, deep=True),
    Case(D.NO_HEAD, no_head),
    Case(D.STREAM_NOTE, stream_note),
    Case(D.STREAM_NOTE, another_stream_note),
    Case(D.CLUSTER_NOTE, cluster_note),
    Case(D.FLOOR_NOTE, floor_note_missing),
    Case(D.FLOOR_NOTE, fence_note_missing),
    Case(D.FLOOR_NOTE, fence_note_outdated),
    Case(D.DIRECT_NOTE, direct_note_missing),
    Case(D.DIRECT_NOTE, direct_note_outdated),
    Case(D.DIRECT_NOTE, direct_note_damaged),
    Case(D.DIRECT_NOTE, opening_note_missing),
    Case(D.DIRECT_NAME, direct_name_missing),
    Case(D.HOLD_NOTE, hold_note),
    Case(D.LOSS_NOTE, loss_note),
    Case(D.ERASURE_NOTE, erasure_note),
    Case(D.SHARD_NOTE, shard_note),
    Case(D.SHARD_NOTE, another_shard_note),
    Case(D.SHARD_MAP, shard_map),
    Case(D.SHARD_MAP, shard_map_behind),
    Case(D.SHARD_MAP, shard_event),
]
"""One at least of each kind; what only a named stream shows is tested below."""


def name(case: Case) -> str:
    return f"{case.damage}-{case.make.__name__}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_damage_is_found_and_nothing_else_is(case: Case) -> None:
    archive = small_archive()
    case.make(archive)
    found = set(damages(scrub(archive, deep=case.deep)))
    # A deep scrub sees in the journal, too, that an item is another.
    assert found - case.also - ({D.REPLAY} if case.deep else set()) - {case.damage} == set()
    assert case.damage in found


def test_copies_of_one_segment_in_quarantine_are_no_damage() -> None:
    archive = small_archive()
    in_quarantine(archive, "a", "b", "a")
    assert damages(scrub(archive, deep=True)) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if CATALOGUE[case.damage].repair is not Repair.BY_HAND], ids=name
)
def test_a_damage_with_a_repair_is_mended_and_every_message_is_there(case: Case) -> None:
    archive = small_archive()
    whole = list(scanned(archive))
    case.make(archive)
    if case.make is floor_note_missing:  # which removes a fragment, as retention does
        whole = list(scanned(archive))
    mended = scrub(archive, deep=case.deep, repair=True, take_again=True)
    assert case.damage in {finding.damage for finding in mended.mended}
    for _ in range(3):  # what one repair shows is mended by the next
        scrub(archive, deep=case.deep, repair=True, take_again=True)
    assert damages(scrub(archive, deep=case.deep)) == []
    left = list(scanned(archive))
    if not case.is_lost:
        assert left == whole
        return
    assert set(left) < set(whole)
    (loss,) = archive.table.missing(archive.stream.incarnation)
    assert loss.reason == "the archived object is damaged"


@pytest.mark.parametrize("case", [case for case in CASES if case.is_lost], ids=name)
def test_a_damaged_range_is_only_given_up_if_that_is_wanted(case: Case) -> None:
    archive = small_archive()
    case.make(archive)
    before = dict(state_of(archive).entries)
    report = scrub(archive, deep=case.deep, repair=True)
    assert case.damage not in {finding.damage for finding in report.mended}
    assert state_of(archive).entries == before


def test_a_range_that_is_given_up_is_told_to_the_bucket_before_the_table() -> None:
    archive = small_archive()
    object_missing(archive)
    seen: list[bool] = []
    apply = archive.table.apply

    def spied(change: Change) -> None:
        notes = list(control_of(archive).losses(archive.stream.incarnation))
        seen.append(not change.of(PutLoss) or len(notes) == 1)
        apply(change)

    archive.table.apply = spied  # type: ignore[method-assign]
    scrub(archive, repair=True, take_again=True)
    assert seen
    assert all(seen)


def test_every_kind_of_damage_has_a_test_that_makes_it() -> None:
    assert {case.damage for case in CASES} | {D.UNREGISTERED} == set(Damage)


def test_a_stream_that_the_registry_does_not_list_is_found_by_its_incarnation() -> None:
    archive = small_archive()
    archive.table._registry.clear()
    assert damages(scrub(archive, only=[archive.stream])) == [D.UNREGISTERED]


def test_a_floor_that_is_ahead_of_the_table_is_found_and_left_for_people() -> None:
    archive = small_archive()
    floor_note_ahead(archive)
    assert damages(scrub(archive)) == [D.FLOOR_NOTE]
    report = scrub(archive, repair=True)
    assert report.left


def test_a_direct_stream_is_no_damage() -> None:
    archive = small_archive()
    direct_archive(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    assert damages(scrub(archive, deep=True)) == []


def test_what_was_done_a_moment_ago_may_have_its_note_soon() -> None:
    archive = small_archive()
    direct_archive(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.table.apply(plan_close(head, Epoch(2), LATER))
    assert damages(scrub(archive)) == []


@pytest.mark.parametrize("make", [direct_note_ahead, direct_name_of_another])
def test_what_only_people_can_tell_of_a_direct_stream_is_left_to_them(make: Callable[[ChunkArchive], None]) -> None:
    archive = small_archive()
    make(archive)
    report = scrub(archive, repair=True)
    assert len(damages(report)) == 1
    assert report.mended == ()
    assert damages(scrub(archive)) == damages(report)


def test_a_deleted_direct_stream_has_no_name() -> None:
    archive = small_archive()
    direct_name_missing(archive)
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    archive.table.apply(plan_delete(head, OLD, LATER, "alice"))
    control_of(archive).write_floor(replace(head, revision=head.revision + 1, deleted_at=OLD, purge_at=LATER))
    assert damages(scrub(archive)) == []


@pytest.mark.parametrize("due_at", [LATER, TimestampMs(LATER - 2 * DAY)])
def test_a_fence_that_the_next_sweep_writes_is_no_damage_until_that_is_overdue(due_at: TimestampMs) -> None:
    """An erasure raises the fence without a note, as the object before it is there until the sweep."""
    archive = small_archive()
    head, key = state_of(archive).head, Keys().fragment(archive.stream.incarnation, Offset(40), 4)
    assert head is not None
    tombstone = Tombstone(key, due_at, Offset(40), Offset(45), 100)
    archive.table.apply(plan_discard(head, [tombstone], 5, OLD))
    is_found = D.FLOOR_NOTE in damages(scrub(archive))
    assert is_found is (due_at != LATER)


def test_an_erasure_has_a_note_once_it_is_old_and_its_last_one_once_it_is_done() -> None:
    archive = small_archive()
    incarnation = archive.stream.incarnation
    archive.table.apply(plan_erasure_begin(archive.table.head(incarnation), replace(ERASURE, at=NOW), ()))
    assert damages(scrub(archive)) == []
    control_of(archive).write_erasure(incarnation, replace(ERASURE, at=NOW))
    further = replace(ERASURE, at=NOW, reached=Offset(45))
    archive.table.apply(plan_erasure_progress(archive.table.head(incarnation), replace(ERASURE, at=NOW), further, NOW))
    assert D.ERASURE_NOTE not in damages(scrub(archive, now=LATER + 3 * DAY))
    done = replace(further, state=ErasureState.DONE, reached=ERASURE.next_offset)
    archive.table.apply(plan_erasure_done(archive.table.head(incarnation), further, done, NOW))
    assert D.ERASURE_NOTE in damages(scrub(archive, now=LATER + 3 * DAY))


def test_every_kind_of_damage_is_in_the_catalogue() -> None:
    assert set(CATALOGUE) == set(Damage)
