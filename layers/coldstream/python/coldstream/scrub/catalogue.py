"""What each kind of damage means, how bad it is, and what mends it. docs/scrub.md shows this table; a test compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coldstream.scrub.damage import Damage, Severity


class Repair(StrEnum):
    """What `coldstream scrub --repair` does about a kind of damage."""

    REBUILD_ENTRY = "rebuild the entry from the object"
    TAKE_AGAIN = "remove the entry, so that agents announce the range again"
    RECORD_CLASS = "record the object's storage class"
    RELINK = "rewrite the entry's links"
    REWRITE_HEAD = "rewrite the head from the log"
    REWRITE_GAP = "rewrite the gap item"
    DROP_TOMBSTONE = "delete the tombstone"
    RAISE_FENCE = "raise the head's generation"
    WRITE_NOTE = "write the control object again"
    ADD_NAME = "give the stream its name back"
    BY_HAND = "none"


@dataclass(frozen=True, slots=True)
class DamageKind:
    """A kind of damage, for people: its severity, its repair, what it means, and the command to run next."""

    severity: Severity
    repair: Repair
    meaning: str
    command: str


_REPAIR = "coldstream scrub NAME --repair"
_DEEP = "coldstream scrub NAME --deep --repair"
_REBUILD = "coldstream rebuild"


def _kind(severity: Severity, repair: Repair, meaning: str, command: str = _REPAIR) -> DamageKind:
    return DamageKind(severity, repair, meaning, command)


_WARNING, _ERROR, _CRITICAL = Severity.WARNING, Severity.ERROR, Severity.CRITICAL

CATALOGUE: Mapping[Damage, DamageKind] = {
    Damage.ITEM: _kind(_CRITICAL, Repair.BY_HAND, "An item of the table cannot be read as what it is.", _REBUILD),
    Damage.OBJECT_MISSING: _kind(_CRITICAL, Repair.TAKE_AGAIN, "An entry names an object that is not in the bucket."),
    Damage.OBJECT_SIZE: _kind(_CRITICAL, Repair.TAKE_AGAIN, "The object has another size than its entry says."),
    Damage.OBJECT_CHECKSUM: _kind(
        _CRITICAL, Repair.TAKE_AGAIN, "The CRC-32 that S3 keeps of the object is not the entry's."
    ),
    Damage.STORAGE_CLASS: _kind(
        _WARNING, Repair.RECORD_CLASS, "The object is in another storage class than its entry says."
    ),
    Damage.TRAILER: _kind(_CRITICAL, Repair.TAKE_AGAIN, "The end of the object is no trailer of a fragment."),
    Damage.INDEX: _kind(_CRITICAL, Repair.TAKE_AGAIN, "The index in the object is damaged."),
    Damage.SEEK_TABLE: _kind(_CRITICAL, Repair.TAKE_AGAIN, "The seek table of a compressed object is damaged."),
    Damage.CHUNKS: _kind(_CRITICAL, Repair.TAKE_AGAIN, "A chunk, or a frame that holds chunks, is damaged.", _DEEP),
    Damage.BYTES: _kind(
        _ERROR, Repair.TAKE_AGAIN, "The object's CRC-32 is another, though each chunk is sound.", _DEEP
    ),
    Damage.SPARSE_INDEX: _kind(
        _ERROR, Repair.REBUILD_ENTRY, "The entry's sparse index has a point that is no chunk of the object."
    ),
    Damage.FRAMES: _kind(
        _ERROR, Repair.REBUILD_ENTRY, "The entry's positions of frames are not those of the seek table."
    ),
    Damage.ENTRY: _kind(
        _ERROR, Repair.REBUILD_ENTRY, "The entry tells other offsets, times, counts or sizes than its sound object."
    ),
    Damage.LINK: _kind(_ERROR, Repair.RELINK, "An entry is not linked to the one before it."),
    Damage.RUNNING_TIMESTAMP: _kind(
        _ERROR, Repair.RELINK, "The running timestamp falls, or exceeds the greatest of the stream."
    ),
    Damage.OVERLAP: _kind(
        _ERROR, Repair.BY_HAND, "Two entries hold the same offsets, and no compaction explains it.", _REBUILD
    ),
    Damage.HEAD_BOUNDS: _kind(
        _ERROR, Repair.REWRITE_HEAD, "The head's first offset, tail or greatest timestamp is not that of the log."
    ),
    Damage.TIME_INDEX: _kind(
        _ERROR, Repair.RELINK, "The index by time does not have an entry where its running timestamp belongs."
    ),
    Damage.BELOW_FLOOR: _kind(
        _ERROR,
        Repair.BY_HAND,
        "An entry lies below the floor, where everything is removed for good.",
        "coldstream truncate NAME",
    ),
    Damage.GAP_MISSING: _kind(
        _ERROR, Repair.REWRITE_GAP, "Two neighbours have a hole between them, and no gap says so."
    ),
    Damage.GAP_EXTRA: _kind(_ERROR, Repair.REWRITE_GAP, "A gap is recorded where the log has no such hole."),
    Damage.GAP_REASON: _kind(
        _WARNING, Repair.REWRITE_GAP, "A gap's reason does not follow from the losses and quarantined segments."
    ),
    Damage.TOTALS: _kind(_WARNING, Repair.REWRITE_HEAD, "The head's totals are not the sums over the entries."),
    Damage.COUNTS: _kind(
        _ERROR, Repair.REWRITE_HEAD, "The head counts other losses, quarantines, holds or erasures than there are."
    ),
    Damage.TOMBSTONE_LIVE: _kind(
        _CRITICAL, Repair.DROP_TOMBSTONE, "An object that an entry names has a tombstone: a sweep would look at it."
    ),
    Damage.TOMBSTONE_OVERDUE: _kind(
        _WARNING, Repair.BY_HAND, "An object is due for days, and no sweep has deleted it.", "coldstream sweep"
    ),
    Damage.FENCE: _kind(
        _ERROR, Repair.RAISE_FENCE, "A removed object's key could be committed again: the head's generation is too low."
    ),
    Damage.QUARANTINE_OBJECT: _kind(
        _ERROR,
        Repair.BY_HAND,
        "The object of a quarantined segment is not in the bucket.",
        "coldstream quarantine discard NAME",
    ),
    Damage.QUARANTINE_NOTE: _kind(
        _WARNING,
        Repair.BY_HAND,
        "The note beside a quarantined segment is missing, or tells something else.",
        "coldstream quarantine show NAME",
    ),
    Damage.JOURNAL: _kind(_ERROR, Repair.BY_HAND, "A revision has no event in the journal.", _REBUILD),
    Damage.REPLAY: _kind(_ERROR, Repair.BY_HAND, "The journal, replayed, does not give the table.", _REBUILD),
    Damage.NO_HEAD: _kind(
        _CRITICAL, Repair.BY_HAND, "The registry has a stream of which the table has no head.", _REBUILD
    ),
    Damage.UNREGISTERED: _kind(
        _ERROR, Repair.BY_HAND, "The table has a stream that its registry does not list.", _REBUILD
    ),
    Damage.CLUSTER_NOTE: _kind(
        _WARNING, Repair.WRITE_NOTE, "The bucket tells another cluster for a stream than the table."
    ),
    Damage.STREAM_NOTE: _kind(_WARNING, Repair.WRITE_NOTE, "The bucket does not tell the stream's names."),
    Damage.FLOOR_NOTE: _kind(_WARNING, Repair.WRITE_NOTE, "The bucket does not tell the stream's floor, or its fence."),
    Damage.DIRECT_NOTE: _kind(
        _ERROR, Repair.WRITE_NOTE, "The bucket does not tell who appends to a direct stream, and where."
    ),
    Damage.DIRECT_NAME: _kind(_ERROR, Repair.ADD_NAME, "No client finds a direct stream by its name."),
    Damage.HOLD_NOTE: _kind(_WARNING, Repair.WRITE_NOTE, "The bucket does not tell a hold."),
    Damage.LOSS_NOTE: _kind(_WARNING, Repair.WRITE_NOTE, "The bucket does not tell a loss."),
    Damage.ERASURE_NOTE: _kind(_WARNING, Repair.WRITE_NOTE, "The bucket does not tell an erasure."),
    Damage.SHARD_NOTE: _kind(
        _WARNING,
        Repair.WRITE_NOTE,
        "The bucket does not tell the map of a sharded stream.",
        "coldstream scrub --repair",
    ),
    Damage.SHARD_MAP: _kind(
        _ERROR, Repair.BY_HAND, "The table lacks a sharded stream's map, its revision or its event.", _REBUILD
    ),
}
