"""Quarantine: where a segment that cannot be archived is kept, whole, with the reason. Nothing is dropped.

The note beside the copy says all that the manifest's record says, so that the bucket alone gives the record back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from coldstream.archive.missing import record_missing
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import RemovedError
from coldstream.manifest.entry import Head, Missing, Quarantine
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs

NOTE_VERSION = 1


def quarantine(
    table: ManifestTable,
    objects: ObjectStore,
    keys: Keys,
    segment: SegmentRolled,
    *,
    etag: str,
    reason: str,
    now: Callable[[], TimestampMs],
) -> str:
    """Copy a staged segment to quarantine with its reason beside it, record it in the manifest, and return the key.

    Safe to repeat. The caller deletes the staged copy afterwards. Raises StreamDeletedError or BelowFloorError if the
    archive had these offsets removed meanwhile. Then it leaves nothing, except while the stream can be undeleted: its
    purge or the collection of garbage takes the copy then.
    """
    key = keys.quarantined(segment.stream.incarnation, segment.first_offset, etag)
    # The copy comes first, the record last: the manifest never names a quarantined object that is not there, and an
    # upload that dies in between is repeated, because the staged copy still exists.
    objects.copy(segment.staged_key, key, if_match=etag)

    def protect(one: Missing, _: Head) -> None:
        assert isinstance(one, Quarantine)
        objects.put(_note_key(key), _note(segment, one))

    record = Quarantine(segment.first_offset, segment.next_offset, reason, now(), key, etag)
    try:
        record_missing(table, segment.stream, record, protect)
    except RemovedError:
        if not _may_be_recorded(table, segment, key):
            # The note first: a rebuild would take it for a record of a copy that is gone.
            objects.delete(_note_key(key))
            objects.delete(key)
        raise
    return key


def _note_key(key: str) -> str:
    return f"{key}.json"


def _may_be_recorded(table: ManifestTable, segment: SegmentRolled, key: str) -> bool:
    """Tell whether a record names a copy that was refused one, or another upload of it may still write one.

    It may once the deletion is undone. No floor falls, and no purge is undone.
    """
    head = table.head(segment.stream.incarnation)
    if head is None:
        return False
    is_gone = segment.next_offset <= head.floor or head.purge_began_at is not None
    earlier = read_quarantine(table, segment)
    return not is_gone or (earlier is not None and earlier.key == key)


def read_quarantine(table: ManifestTable, segment: SegmentRolled) -> Quarantine | None:
    """Return the record of the latest copy of a segment that was quarantined, None if none was. Cost: one GetItem.

    The copy may be one of an earlier announcement: compare the record's ETag, which is that of the copy that failed.
    """
    return table.quarantine(segment.stream.incarnation, segment.first_offset, segment.next_offset)


def _note(segment: SegmentRolled, record: Quarantine) -> bytes:
    note = {
        "version": NOTE_VERSION,
        "vhost": segment.stream.vhost,
        "stream": segment.stream.name,
        "incarnation": segment.stream.incarnation,
        "cluster": segment.cluster,
        "first_offset": record.first_offset,
        "next_offset": record.next_offset,
        "size_bytes": segment.size_bytes,
        "cut_every_ms": segment.cut_every_ms,
        "quiet": None if segment.quiet is None else asdict(segment.quiet),
        "etag": record.etag,
        "at": record.at,
        "copies": record.copies,
        "reason": record.reason,
    }
    return json.dumps(note, ensure_ascii=False, indent=1).encode()
