"""What a mark of the head, a deletion or a hold, forbids to every change, whatever that was planned on."""

from __future__ import annotations

from coldstream.manifest.holding import held
from coldstream.manifest.state import ManifestState
from tests.explore.invariants import telling


def deleted_stays_as_it_was(before: ManifestState, after: ManifestState) -> None:
    """Hold 10 against a change: a deleted stream is deleted once, and until it is undeleted its log can only shrink."""
    head, old = after.head, before.head
    if old is None or head is None or not old.is_deleted or not head.is_deleted:
        return
    with telling(10):
        assert (head.deleted_at, head.purge_at) == (old.deleted_at, old.purge_at), "deleted again, and kept for longer"
        new = {one.key for one in after.entries.values()} - {one.key for one in before.entries.values()}
        assert not new, f"the stream is deleted, and its log gets {sorted(new)}"


def held_stays_as_it_is(before: ManifestState, after: ManifestState) -> None:
    """Hold 1 against a change: a stream with a hold is not deleted, nor its purge begun, and what is held stays."""
    head, old = after.head, before.head
    if old is None or head is None or not before.holds:
        return
    with telling(1):
        assert old.is_deleted or not head.is_deleted, "deleted in spite of a hold"
        assert old.purge_began_at is not None or head.purge_began_at is None, "a purge begins in spite of a hold"
        assert old.purged_at is not None or head.purged_at is None, "purged in spite of a hold"
        there = {one.key for one in after.entries.values()}
        for one in before.entries.values():
            hold = held(before.holds.values(), one.first_offset, one.next_offset)
            assert hold is None or one.key in there, f"{one.key} is removed or replaced in spite of {hold}"
