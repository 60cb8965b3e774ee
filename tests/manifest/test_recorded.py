"""A recorded change comes back exactly, whatever it writes."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import get_args

import pytest

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.manifest import recorded as module
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    EntryVersion,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    ReplaceQuarantine,
    RequireEntry,
    RequireGap,
    Write,
)
from coldstream.manifest.commit import Neighbourhood, plan_commit
from coldstream.manifest.entry import (
    Encoding,
    Erasure,
    ErasureState,
    Gap,
    Head,
    Hold,
    JournalEvent,
    JournalKind,
    LastUserChunk,
    Loss,
    Quarantine,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import MAX_OFFSET, MIN_TIMESTAMP_MS, ChunkId, Epoch, Offset, TimestampMs
from tests.manifest.world import AT, DUE, STREAM, entry

BARE = entry(0, 10)
FULL = replace(
    BARE,
    encoding=Encoding.ZSTD_SEEKABLE,
    frames=Frames((17, 1 << 40)),
    last_user_chunk=LastUserChunk(ChunkId(0), 0, TimestampMs(MIN_TIMESTAMP_MS)),
    first_epoch=Epoch(MAX_OFFSET),
    data_crc32=0,
    prior_offset=Offset(0),
    prior_timestamp=TimestampMs(-1),
    generation=3,
    erased=True,
    storage_class=StorageClass.GLACIER_IR,
)
VERSIONS = [EntryVersion(Offset(10), "data/ü", None, None), EntryVersion(Offset(10), "", Offset(0), TimestampMs(0))]
GAPS = [Gap(Offset(0), Offset(MAX_OFFSET + 1)), Gap(Offset(0), Offset(5), "größer\n\0")]
LOSS = Loss(Offset(0), Offset(1), "", AT)
BAD = Quarantine(Offset(0), Offset(9), "bad", AT, "quarantine/x", '"etag"', copies=3)
HOLDS = [Hold("a", Offset(0), None, "r", "b", AT), Hold("ü", Offset(0), Offset(1), "r", "b", TimestampMs(0))]
ERASURE = Erasure(
    "e",
    Offset(0),
    Offset(9),
    "x = 'y'",
    "r",
    "b",
    AT,
    messages=0,
    digest="",
    state=ErasureState.DONE,
    reached=Offset(0),
)
GRAVE = Tombstone("data/x", DUE, Offset(0), Offset(9), 1 << 40)

WRITES: tuple[Write, ...] = (
    PutEntry(BARE),
    PutEntry(FULL),
    *(ReplaceEntry(version, FULL) for version in VERSIONS),
    Relink(VERSIONS[0], None, None, TimestampMs(0)),
    Relink(VERSIONS[1], Offset(0), TimestampMs(0), TimestampMs(-5)),
    *map(DeleteEntry, VERSIONS),
    *map(RequireEntry, VERSIONS),
    *map(PutGap, GAPS),
    ReplaceGap(*GAPS),
    *map(DeleteGap, GAPS),
    *map(RequireGap, GAPS),
    PutLoss(LOSS),
    DeleteLoss(LOSS),
    PutQuarantine(BAD),
    PutQuarantine(replace(BAD, copies=1)),
    ReplaceQuarantine(BAD, replace(BAD, key="y")),
    DeleteQuarantine(BAD),
    *map(PutHold, HOLDS),
    *map(DeleteHold, HOLDS),
    PutErasure(None, ERASURE),
    PutErasure(ERASURE, replace(ERASURE, state=ErasureState.RUNNING)),
    PutTombstone(GRAVE),
    DeleteTombstone(GRAVE),
)

HEADS = [
    Head(STREAM, 7),
    Head(STREAM, 7, journal_from=0),
    Head(
        STREAM,
        7,
        Offset(0),
        Offset(9),
        TimestampMs(0),
        TimestampMs(-1),
        epoch=Epoch(0),
        compacting=Offset(9),
        floor=Offset(3),
        floor_timestamp=TimestampMs(0),
        deleted_at=AT,
        purge_at=DUE,
        purge_began_at=TimestampMs(0),
        purged_at=AT,
        generation=9,
        holds=1,
        erasures=2,
    ),
    Head(STREAM, 7, appender=Appender()),
    Head(
        STREAM,
        7,
        appender=Appender(
            Epoch(2),
            (Opening(Epoch(1), WalPlace(WalKind.DISK, "a", 1)), Opening(Epoch(2), WalPlace(WalKind.S3, "b", 9))),
            Offset(3),
            Offset(MAX_OFFSET + 1),
            is_sealed=True,
            properties=(("ü", ""),),
        ),
    ),
]


def change_of_writes(writes: tuple[Write, ...], head: Head = HEADS[0]) -> Change:
    return Change(head, JournalEvent(7, JournalKind.FRAGMENT_COMMITTED, AT, None, None, key="data/ü"), writes)


def test_every_kind_of_write_is_tried() -> None:
    assert {type(write) for write in WRITES} == set(get_args(Write))


@pytest.mark.parametrize("write", WRITES, ids=lambda write: type(write).__name__)
def test_a_write_comes_back_exactly(write: Write) -> None:
    change = change_of_writes((write,))
    assert change_of(STREAM, change.event, recorded(change)) == change


@pytest.mark.parametrize("head", HEADS)
def test_a_head_comes_back_exactly_with_all_writes_at_once(head: Head) -> None:
    change = change_of_writes(WRITES, head)
    found = change_of(STREAM, change.event, recorded(change))
    assert found == change
    assert [type(write) for write in found.writes] == [type(write) for write in change.writes]


def test_the_event_of_a_commit_of_64_mib_fits_into_a_kilobyte() -> None:
    points = tuple(
        SparsePoint(
            ChunkId(6007 * n), 31 * n, 8 + 1_060_000 * n, TimestampMs(AT + 1999 * n), TimestampMs(AT + 1999 * n)
        )
        for n in range(64)
    )
    new = replace(
        entry(0, 400_000, time=AT), sparse=SparseIndex(points), data_bytes=67_108_864, object_bytes=67_200_000
    )
    change = plan_commit(Neighbourhood(Head(STREAM, 4711, Offset(0), Offset(0))), new, AT)
    # The item's other attributes, with their names, take about 220 bytes.
    assert len(recorded(change)) < 1024 - 220


def test_damaged_bytes_are_corruption() -> None:
    change = change_of_writes(WRITES)
    data = recorded(change)
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            change_of(STREAM, change.event, data[:length])
    with pytest.raises(CorruptionError):
        change_of(STREAM, change.event, data + b"\0")
    with pytest.raises(CorruptionError):
        change_of(STREAM, replace(change.event, key="another"), data)
    with pytest.raises(BadVersionError):
        change_of(STREAM, change.event, b"\x02" + data[1:])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"[]", CorruptionError),
        (b'{"head":{}}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutComet",{}]]}', BadVersionError),
        (b'{"head":{"revision":8},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7,"comet":1},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutGap",{"gap":{"comet":1}}]]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutGap"]]}', CorruptionError),
        (b'{"head":{"revision":7,"appender":7},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7,"appender":{"epoch":1}},"writes":[]}', CorruptionError),
        (b'{"head":{"revision":7},"writes":[["PutEntry",{"entry":{"sparse":1}}]]}', CorruptionError),
    ],
)
def test_what_is_no_change_is_corruption(text: bytes, error: type[CorruptionError]) -> None:
    change = change_of_writes(())
    packer = zlib.compressobj(zdict=module._dictionary(STREAM, change.event))
    with pytest.raises(error):
        change_of(STREAM, change.event, b"\x01" + packer.compress(text) + packer.flush() + b"\x01")


def test_what_inflates_without_end_is_refused() -> None:
    change = change_of_writes(())
    packer = zlib.compressobj(zdict=module._dictionary(STREAM, change.event))
    with pytest.raises(CorruptionError):
        change_of(STREAM, change.event, b"\x01" + packer.compress(b" " * (40 << 20)) + packer.flush())
