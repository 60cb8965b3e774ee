"""A change of every kind, with values at their bounds, for whatever keeps changes as bytes."""

from __future__ import annotations

from dataclasses import replace

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
    RequireEntry,
    RequireGap,
    Write,
)
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
