"""What protects is in the bucket first, and goes from it last: no rebuild may lack it. Notes tell what is there."""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.manifest.state import ManifestState
from coldstream.store.control import ControlObjects
from coldstream.store.memory.bucket import Version
from coldstream.store.parsed_keys import KeyKind
from tests.explore.base import INCARNATION, KEYS
from tests.explore.invariants import telling


def what_protects_is_noted(state: ManifestState, control: ControlObjects) -> None:
    """Hold 7 against a state: the bucket knows each hold, and calls no stream deleted that the table has back."""
    assert state.head is not None
    with telling(7):
        if state.holds:
            released = {one.id for one in control.releases(INCARNATION)}
            known = {one.id for one in control.holds(INCARNATION)} - released
            missing = {one.id for one in state.holds.values()} - known
            assert not missing, f"the bucket does not know of the holds {sorted(missing)}"
        if not state.head.is_deleted:
            note = control.latest_floor(INCARNATION)
            assert note is None or note.deleted_at is None, "the bucket calls a stream deleted that is not"


def copies_are_as_named(objects: Mapping[str, Version]) -> None:
    """Hold 3 against a bucket: a copy in quarantine has the ETag of its key, by which its record names it."""
    with telling(3):
        for key, one in objects.items():
            parsed = KEYS.parse(key)
            if parsed is not None and parsed.kind is KeyKind.QUARANTINED:
                assert one.etag.strip('"') in key, f"{key} has other bytes than its name says"
