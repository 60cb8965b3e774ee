"""The notes that objects carry as metadata, on every implementation of `ports.ObjectStore`."""

from __future__ import annotations

import io
from zlib import crc32

from coldstream.manifest.note import EntryNote
from coldstream.store.ports import ObjectStore
from coldstream.units import Epoch, Offset

KEY = "0a1b2c3d___orders_1763700000000000000/data/00000000000000000000.fragment"
DATA = bytes(range(256)) * 40
NOTE = EntryNote(Offset(2**63), Epoch(3), None, 12, None, 0, points=tuple(range(0, 12_000, 24))).to_text()


def put(objects: ObjectStore, note: str | None = NOTE) -> None:
    objects.put_new(KEY, io.BytesIO(DATA), size_bytes=len(DATA), crc32=crc32(DATA), note=note)


def note_of(objects: ObjectStore) -> str | None:
    found = objects.info(KEY)
    assert found is not None
    return found.note


def test_an_object_keeps_its_note(objects: ObjectStore) -> None:
    put(objects)
    assert note_of(objects) == NOTE


def test_an_object_without_a_note_has_none(objects: ObjectStore) -> None:
    put(objects, note=None)
    assert note_of(objects) is None


def test_an_object_of_parts_gets_the_note_of_its_upload(objects: ObjectStore) -> None:
    upload_id = objects.create_upload(KEY, note=NOTE)
    part = objects.put_part(KEY, upload_id, 1, DATA, crc32=crc32(DATA))
    objects.complete_upload(KEY, upload_id, [part], crc32=crc32(DATA))
    assert note_of(objects) == NOTE


def test_a_note_goes_with_the_object_into_another_class(objects: ObjectStore) -> None:
    put(objects)
    found = objects.info(KEY)
    assert found is not None
    assert objects.copy_in_class(KEY, f"{KEY}.1", "STANDARD_IA", if_match=found.etag).note == NOTE
