"""The note beside a quarantined segment, as those read it who want a field of it and can do without."""

from __future__ import annotations

from typing import Any

from coldstream.errors import BadLengthError, ObjectNotFoundError
from coldstream.plain_json import read_json
from coldstream.store.control import MAX_NOTE_BYTES
from coldstream.store.ports import ObjectStore


def quarantine_note(objects: ObjectStore, segment_key: str) -> dict[str, Any]:
    """Return what the note beside a segment says; nothing if there is none, or none that is an object of JSON.

    Earlier releases wrote fewer fields. Cost: one GET. Raises BadCrcError and UnavailableError.
    """
    try:
        note = read_json(objects.get_whole(f"{segment_key}.json", MAX_NOTE_BYTES))
    except (ObjectNotFoundError, BadLengthError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
