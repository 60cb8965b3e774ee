"""The invariants of what is removed and deleted: it may go, the bucket knows why, and it stays away."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from coldstream.manifest.change import Change, PutTombstone
from coldstream.manifest.entry import Head
from coldstream.manifest.holding import held
from coldstream.manifest.state import ManifestState
from coldstream.store.control import FloorNote
from coldstream.store.parsed_keys import KeyKind
from coldstream.units import Offset
from tests.explore.base import KEYS, URL_EXPIRY_S
from tests.explore.invariants import telling
from tests.explore.lookups import offsets_of


@dataclass(frozen=True, slots=True)
class Past:
    """What the journal says of the past: the keys that got a tombstone with the head of that change, and since when no
    entry names a key any more."""

    buried: Mapping[str, Head] = field(default_factory=dict)
    unnamed: Mapping[str, int] = field(default_factory=dict)

    def after(self, before: ManifestState, change: Change, after: ManifestState, since: int) -> Past:
        """Return the past after a change that was written at `since`."""
        head, old = after.head, before.head
        assert head is not None
        buried = {one.tombstone.key: head for one in change.of(PutTombstone)} | dict(self.buried)
        unnamed = dict(self.unnamed)
        names = {one.key for one in after.entries.values()}
        for key in {one.key for one in before.entries.values()} - names:
            unnamed.setdefault(key, since)  # of a deleted stream no URL is signed any more
        if head.is_deleted and (old is None or not old.is_deleted):
            unnamed |= dict.fromkeys(names, since)
        elif not head.is_deleted:
            unnamed = {key: at for key, at in unnamed.items() if key not in names}
        return Past(buried, unnamed)


def removed_stays_removed(before: ManifestState, after: ManifestState, past: Past, gone: frozenset[str]) -> None:
    """Hold 10 against a change: floor and fence never fall, and no key comes back that was buried or deleted."""
    with telling(10):
        head, old = after.head, before.head
        assert head is not None
        was, now = offsets_of(before), offsets_of(after)
        if old is not None:
            assert head.floor >= old.floor, "the floor falls"
            assert head.generation >= old.generation, "the fence falls"
            assert not old.is_deleted or now <= was, "archived, though the stream is deleted"
            assert old.purge_began_at is None or head.is_deleted, "a purge that began is undone"
        assert min(now, default=head.floor) >= head.floor, "below the floor"
        names = {one.key for one in after.entries.values()}
        assert len(names) == len(after.entries), "two entries name one object"
        assert not names & past.buried.keys(), f"named, and buried: {names & past.buried.keys()}"
        assert not names & gone, f"named again after it was deleted: {names & gone}"
        for one in after.entries.values():
            hit = held(list(before.holds.values()), one.first_offset, one.next_offset)
            if hit is None or not one.erased:
                continue
            was_erased = any(
                old_one.erased
                for old_one in before.entries.values()
                if old_one.first_offset < one.next_offset and one.first_offset < old_one.next_offset
            )
            assert was_erased, f"erased in spite of {hit}"


def nothing_forgotten(
    before: ManifestState, after: ManifestState, there: Collection[str], gone: frozenset[str]
) -> None:
    """Hold 10 against a change: a tombstone goes after its object has gone, unless an entry names that.

    An object that is there again was made by a creator that had stalled: its key was deleted before, and is garbage.
    """
    with telling(10):
        named = {one.key for one in after.entries.values()}
        left = {one.key for one in before.tombstones.values()} - {one.key for one in after.tombstones.values()}
        forgotten = {key for key in left & set(there) if key not in named and key not in gone}
        assert not forgotten, f"no tombstone is left of what is still there: {forgotten}"


def no_object_goes_too_soon(
    key: str, state: ManifestState, past: Past, now: int, answered_holds: frozenset[str]
) -> None:
    """Hold 5 and 10 against a deletion: no entry names the object, no valid URL, and no hold that was answered."""
    with telling(5):
        assert key not in {one.key for one in state.entries.values()}, f"{key} is deleted, and an entry names it"
        since = past.unnamed.get(key)
        if since is not None:
            assert now - since >= URL_EXPIRY_S * 1000, f"{key} is deleted {now - since} ms after its entry went"
    with telling(10):
        spans = [(one.first_offset, one.next_offset) for one in state.tombstones.values() if one.key == key]
        parsed = KEYS.parse(key)
        if parsed is not None and parsed.kind is KeyKind.QUARANTINED and parsed.first_offset is not None:
            spans.append((parsed.first_offset, Offset(parsed.first_offset + 1)))
        for span in spans:
            holds = [hold for hold in state.holds.values() if hold.id in answered_holds]
            protecting = held(holds, *span)
            assert protecting is None, f"{key} is deleted in spite of {protecting}"


def bucket_knows_first(key: str, state: ManifestState, past: Past, note: FloorNote | None) -> None:
    """Hold 7 against a deletion: before an object goes, the bucket knows of the removal or the fence that lets it go.

    It need not know of what came later, as a deletion whose note is still to be written: of that no object goes. Nor of
    a fence that is higher than the object needs: garbage may go while it gets a tombstone with others. Nor of any fence
    once it knows that the purge began.
    """
    parsed = KEYS.parse(key)
    if parsed is None or parsed.kind is not KeyKind.FRAGMENT:
        return
    why, head = past.buried.get(key), state.head
    with telling(7):
        needed = 1 + (parsed.generation or 0)
        if why is None:
            if head is not None and not head.is_deleted:
                assert note is not None, "garbage goes before the bucket knows of any fence"
                assert note.generation >= needed, "the bucket knows of a lower fence than garbage needs"
            return
        if why.floor or why.generation:
            assert note is not None, "an object goes before the bucket knows why"
            assert note.floor >= why.floor, "the bucket knows of a lower floor"
            # Once the purge began, nothing of the stream can be committed again, by whatever fence.
            is_fenced = note.purge_began_at is not None or note.generation >= min(why.generation, needed)
            assert is_fenced, "the bucket knows of a lower fence"
        if why.purge_began_at is not None:
            assert note is not None, "an object goes before the bucket knows that it was purged"
            assert note.deleted_at == why.deleted_at, "the bucket knows of another deletion"
            assert note.purge_began_at is not None, "the bucket does not know that the purge began"
