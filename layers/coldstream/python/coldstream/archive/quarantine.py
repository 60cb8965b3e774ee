"""Put a segment that fails verification aside, whole, with the reason: nothing is dropped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from coldstream.archive.missing import record_missing
from coldstream.archive.rolled import SegmentRolled
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
    """Copy the staged segment to quarantine, its reason beside it, and write that in the manifest; return the key.

    Safe to repeat. The staged copy is the caller's to delete, after this.
    """
    key = keys.quarantined(segment.stream.incarnation, segment.first_offset, etag)
    objects.copy(segment.staged_key, key, if_match=etag)
    note = _note(segment, reason)
    with suppress(ObjectExistsError):  # an earlier try got this far
        objects.put_new(f"{key}.json", io.BytesIO(note), size_bytes=len(note), crc32=crc32(note))
    aside = Quarantine(segment.first_offset, segment.next_offset, reason, now(), key, etag)
    record_missing(table, segment.stream, aside)
    return key


def is_quarantined(table: ManifestTable, segment: SegmentRolled) -> Quarantine | None:
    """Return what is said of the copy of a segment that was put aside last, None when none was. Cost: one GetItem.

    It may be of an earlier announcement: its ETag is that of the staged copy which failed.
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
