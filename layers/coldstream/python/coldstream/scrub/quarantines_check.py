"""Segments in quarantine: the bucket has each record's object and note, and the copies that came before."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entry import Quarantine
from coldstream.plain_json import read_json
from coldstream.scrub.damage import Damage
from coldstream.scrub.examiner import LOOKS, Examiner
from coldstream.scrub.snapshot import Snapshot
from coldstream.scrub.trouble import Trouble
from coldstream.store.control import MAX_NOTE_BYTES
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectInfo
from coldstream.store.sortkeys import row_key
from coldstream.units import ByteRange, Offset

_NOTE = ".json"


def check_quarantines(examiner: Examiner, keys: Keys, after: str) -> Iterator[str]:
    """Check what the records of quarantines say is in the bucket; yield where to go on.

    Cost: for each record two HEADs, a GET and a listing.
    """
    listed: Offset | None = None
    while rows := examiner.reads.rows(examiner.incarnation, "quarantine#", after):
        for row in rows:
            if isinstance(row, Quarantine):
                if examiner.reads.info(row.key) is None:
                    _confirm(examiner, row, Damage.QUARANTINE_OBJECT, row.key, f"there is no object {row.key}")
                else:
                    _check_note(examiner, row)
                if row.first_offset != listed:  # segments of several ends may begin at one offset
                    listed = row.first_offset
                    _check_earlier(examiner, keys, row)
            after = row_key(row)
            yield after


def _check_note(examiner: Examiner, row: Quarantine) -> None:
    """Compare the note with the record: a rebuild takes it for one."""
    key = f"{row.key}{_NOTE}"
    info = examiner.reads.info(key)
    if info is None:
        _confirm(examiner, row, Damage.QUARANTINE_NOTE, key, f"there is no object {key}")
    elif not any(_tells(row, _read(examiner, key, info)) for _ in range(LOOKS)):
        _confirm(examiner, row, Damage.QUARANTINE_NOTE, key, f"{key} does not tell the record's offsets and ETag")


def _read(examiner: Examiner, key: str, info: ObjectInfo) -> bytes:
    return examiner.reads.range(key, ByteRange(0, min(info.size_bytes, MAX_NOTE_BYTES)))


def _tells(row: Quarantine, data: bytes) -> bool:
    try:
        note = read_json(data)
        # Notes of earlier releases have no ETag.
        found = int(note["first_offset"]), int(note["next_offset"]), note.get("etag", row.etag)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return found == (row.first_offset, row.next_offset, row.etag)


def _check_earlier(examiner: Examiner, keys: Keys, row: Quarantine) -> None:
    """Check the copies that failed before the record's: no record names them any more, only their notes do.

    A copy comes before its note, and goes after it. Without any record, copies and notes are garbage.
    """
    there = examiner.reads.keys_under(f"{keys.quarantine(examiner.incarnation)}{row.first_offset:020}-")
    copies = {key.removesuffix(_NOTE) for key in there if key.endswith(_NOTE)} - there - {row.key}
    for copy in sorted(copies):
        # The listing may have passed the copy's place before it came.
        if examiner.reads.info(copy) is None and examiner.reads.info(f"{copy}{_NOTE}") is not None:
            detail = f"there is no object {copy}, an earlier copy"
            _confirm(examiner, row, Damage.QUARANTINE_OBJECT, copy, detail)


def _confirm(examiner: Examiner, row: Quarantine, damage: Damage, key: str, detail: str) -> None:
    def judge(snapshot: Snapshot) -> list[Trouble]:
        if snapshot.items.get(row_key(row)) != row:
            return []
        return [Trouble(damage, detail, row.first_offset, row.next_offset, key)]

    examiner.confirm([row_key(row)], judge)
