"""Quarantine: where a segment that cannot be archived is kept, whole, with the reason. Nothing is dropped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from coldstream.archive.missing import record_missing
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import ObjectExistsError
from coldstream.manifest.entry import Quarantine
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs


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

    Safe to repeat. The caller deletes the staged copy afterwards.
    """
    key = keys.quarantined(segment.stream.incarnation, segment.first_offset, etag)
    # The copy comes first, the record last: the manifest never names a quarantined object that is not there, and an
    # upload that dies in between is repeated, because the staged copy still exists.
    objects.copy(segment.staged_key, key, if_match=etag)
    note = _note(segment, reason)
    with suppress(ObjectExistsError):  # an earlier attempt got this far
        objects.put_new(f"{key}.json", io.BytesIO(note), size_bytes=len(note), crc32=crc32(note))
    record = Quarantine(segment.first_offset, segment.next_offset, reason, now(), key, etag)
    record_missing(table, segment.stream, record)
    return key


def read_quarantine(table: ManifestTable, segment: SegmentRolled) -> Quarantine | None:
    """Return the record of the latest copy of a segment that was quarantined, None if none was. Cost: one GetItem.

    The copy may be one of an earlier announcement: compare the record's ETag, which is that of the copy that failed.
    """
    return table.quarantine(segment.stream.incarnation, segment.first_offset, segment.next_offset)


def _note(segment: SegmentRolled, reason: str) -> bytes:
    note = {
        "vhost": segment.stream.vhost,
        "stream": segment.stream.name,
        "incarnation": segment.stream.incarnation,
        "first_offset": segment.first_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size_bytes,
        "reason": reason,
    }
    return json.dumps(note, ensure_ascii=False, indent=1).encode()
