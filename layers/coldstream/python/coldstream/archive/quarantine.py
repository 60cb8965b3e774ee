"""Put a segment that fails verification aside, whole, with the reason: nothing is dropped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from coldstream.archive.commit import record_quarantine
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import ObjectExistsError
from coldstream.manifest.entry import JournalKind
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
    """Copy the staged segment to quarantine, its reason beside it, and write that in the journal; return the key.

    Safe to repeat. The staged copy is the caller's to delete, after this.
    """
    key = keys.quarantined(segment.stream.incarnation, segment.first_offset, etag)
    objects.copy(segment.staged_key, key, if_match=etag)
    note = _note(segment, reason)
    with suppress(ObjectExistsError):  # an earlier try got this far
        objects.put_new(f"{key}.json", io.BytesIO(note), size_bytes=len(note), crc32=crc32(note))
    record_quarantine(
        table,
        segment.stream,
        first_offset=segment.first_offset,
        next_offset=segment.next_offset,
        key=key,
        reason=reason,
        now=now,
    )
    return key


def is_quarantined(table: ManifestTable, segment: SegmentRolled) -> str | None:
    """Return the key where a copy of a segment was put aside, None when none was.

    Cost: one GetItem; where the stream has anything in quarantine, also a read of its journal.
    """
    head = table.head(segment.stream.incarnation)
    if head is None or head.quarantined == 0:
        return None
    for event in table.journal(segment.stream.incarnation):
        is_this = event.first_offset == segment.first_offset and event.next_offset == segment.next_offset
        if event.kind is JournalKind.SEGMENT_QUARANTINED and is_this:
            return event.key
    return None


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
