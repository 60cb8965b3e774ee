"""What has to be, in every state that a schedule reaches, and at its end.

- every entry names an object that is there, whole, and holds the stream's chunks
- no object goes that an entry names, that a URL may still name, or that a hold protects
- what was archived stays archived until it lies below the floor; what is below it, or of a deleted stream, stays away
- a key that was buried, or deleted, is never named again
- messages that were erased never come back
- totals, links, gaps and timestamps are right, and every lookup finds what reading all chunks finds
- the journal's events hold the changes, and replayed they give the state
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from coldstream.erase.resume import resume_erasures
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.errors import InvalidQueryError, StreamDeletedError, StreamNotFoundError
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.holds import release_hold
from coldstream.lifecycle.tend import tend
from coldstream.manifest.change import Change, PutTombstone
from coldstream.manifest.entry import FragmentEntry, Gap, Head
from coldstream.manifest.holding import held
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.spec import LAST, NEXT, AtEnd, AtOffset, AtTimestamp
from coldstream.manifest.state import ManifestState, replay
from coldstream.rebuild.compare import differences
from coldstream.rebuild.run import Rebuilder
from coldstream.resolve.attach import attach
from coldstream.resolve.places import exact_place
from coldstream.resolve.tail import Tail
from coldstream.store.grace import MARGIN_MS
from coldstream.store.memory.table import MemoryTable
from coldstream.store.parsed_keys import KeyKind, ParsedKey
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs
from tests.manifest.world import World
from tests.support.compaction import identity_of
from tests.support.lifecycle_world import (
    DAY_MS,
    GRACE_MS,
    INCARNATION,
    KEYS,
    MESSAGES,
    STREAM,
    URL_EXPIRY_S,
    LifecycleWorld,
    Watcher,
    WholeChunk,
    chunks,
    secret,
)
from tests.support.weak import NOTHING, Found, found_at

ERASED = range(3, 5)
"""The offsets of messages that the erasure takes: the last of one fragment, and the first of the next."""

OFFSETS = tuple(map(AtOffset, map(Offset, range(19))))
TIMES = tuple(AtTimestamp(TimestampMs(chunk.header.timestamp + plus)) for chunk in chunks() for plus in (-1, 0, 1))
STARTS = (AtEnd("first"), LAST, NEXT, *OFFSETS, *TIMES)
SOME_STARTS = (AtOffset(Offset(2)), TIMES[4], LAST, AtOffset(Offset(9)), TIMES[16], NEXT)
"""One of each kind, for lookups that others interrupt."""

_RIGHT: set[object] = set()
"""States that were found to be right. Schedules reach the same ones again and again."""


def chunks_of(entries: Sequence[FragmentEntry]) -> list[WholeChunk]:
    """Return the chunks that entries hold."""
    return [
        chunk
        for chunk in chunks()
        if any(one.first_offset <= chunk.header.chunk_id < one.next_offset for one in entries)
    ]


def offsets_of(state: ManifestState) -> set[int]:
    return {offset for one in state.entries.values() for offset in range(one.first_offset, one.next_offset)}


class Model(Watcher):
    """Watches one world."""

    def __init__(self, world: LifecycleWorld) -> None:
        self.world = world
        world.watcher = self
        self.states = [world.state]
        self.buried = dict.fromkeys((one.key for one in world.state.tombstones.values()), world.state.head)
        """The keys that got a tombstone, and the head of the change that gave it: why the object goes."""

        self.gone: set[str] = set()
        self.unnamed_at: dict[str, int] = {}
        self.erased: set[int] = set()
        self.expected = set(range(8))

    def expect(self, first: int, following: int) -> None:
        """Take down that an upload said that it archived these offsets."""
        self.expected |= set(range(first, following))

    # Each change.

    def changed(self, before: ManifestState, change: Change, after: ManifestState) -> None:
        self.states.append(after)
        assert change_of(STREAM, change.event, recorded(change)) == change, "the journal holds another change"
        head, old = after.head, before.head
        assert head is not None
        was, now = offsets_of(before), offsets_of(after)
        if old is not None:
            assert head.floor >= old.floor, "the floor falls"
            assert head.generation >= old.generation, "the fence falls"
            if old.is_deleted:
                assert now <= was, "archived, though the stream is deleted"
            if old.purge_began_at is not None:
                assert head.is_deleted, "a purge that began is undone"
        assert min(now, default=head.floor) >= head.floor, "below the floor"
        assert not {offset for offset in was - now if offset >= head.floor}, "lost"
        for one in before.holds.values():
            kept = {offset for offset in was if held([one], Offset(offset), Offset(offset + 1)) is not None}
            assert kept <= now, f"removed in spite of {one.id}"
        for one in change.of(PutTombstone):
            self.buried.setdefault(one.tombstone.key, head)
        is_hidden = head.is_deleted and (old is None or not old.is_deleted)
        self._check_names(before, after, change.event.at, is_hidden=is_hidden)
        if before.holds:
            self._check_held_bytes(before, after)

    def _check_names(self, before: ManifestState, after: ManifestState, at: int, *, is_hidden: bool) -> None:
        names = {one.key for one in after.entries.values()}
        assert len(names) == len(after.entries), "two entries name one object"
        assert not names & self.buried.keys(), f"named, and buried: {names & self.buried.keys()}"
        assert not names & self.gone, f"named again after it was deleted: {names & self.gone}"
        # A process may sleep between its look at the clock and its transaction, for less than the margin of the grace.
        now = self.world.now if self.world.now - at <= MARGIN_MS else at
        for key in {one.key for one in before.entries.values()} - names:
            # Of a deleted stream no URL is signed any more.
            self.unnamed_at.setdefault(key, now)
        if is_hidden:
            self.unnamed_at |= dict.fromkeys(names, now)
        elif after.head is not None and not after.head.is_deleted:
            for key in names:
                self.unnamed_at.pop(key, None)

    def _check_held_bytes(self, before: ManifestState, after: ManifestState) -> None:
        for one in after.entries.values():
            hit = held(list(before.holds.values()), one.first_offset, one.next_offset)
            old = [was for was in before.entries.values() if was.first_offset < one.next_offset]
            was_erased = any(was.erased for was in old if one.first_offset < was.next_offset)
            assert hit is None or not one.erased or was_erased, f"erased in spite of {hit}"

    def deleted(self, key: str) -> None:
        parsed = KEYS.parse(key)
        if parsed is None or parsed.kind is not KeyKind.FRAGMENT:
            return
        state = self.world.state
        assert key not in {one.key for one in state.entries.values()}, f"{key} is deleted, and an entry names it"
        if key in self.unnamed_at:
            age_ms = self.world.now - self.unnamed_at[key]
            assert age_ms >= URL_EXPIRY_S * 1000, f"{key} is deleted {age_ms} ms after its entry went"
        for one in state.tombstones.values():
            if one.key == key:
                holds = [hold for hold in state.holds.values() if hold.id in self.world.answered_holds]
                protecting = held(holds, one.first_offset, one.next_offset)
                assert protecting is None, f"{key} is deleted in spite of {protecting}"
        why = self.buried.get(key)
        if why is None:
            self._check_fenced(parsed)
        # While a purge's own transaction shows by half, a second sweep may be earlier than its note: docs/proof.md.
        elif not (self.world.is_weak and why.purge_began_at is not None):
            self._check_marked(why, parsed)
        self.gone.add(key)

    def _check_fenced(self, key: ParsedKey) -> None:
        """The bucket knows of the fence that keeps the key of garbage from being used again, before it goes."""
        head = self.world.state.head
        with self.world.unseen():
            note = self.world.stores.control.latest_floor(INCARNATION)
        if head is not None and not head.is_deleted:
            assert note is not None, "garbage goes before the bucket knows of any fence"
            assert note.generation > (key.generation or 0), "the bucket knows of a lower fence than garbage needs"

    def _check_marked(self, why: Head, key: ParsedKey) -> None:
        """The bucket knows what removed an object before it goes: `why` is the head of that change.

        It need not know of what came later, as a deletion whose note is still to be written: of that no object goes.
        Nor of a fence that is higher than the object needs: garbage may go while it gets a tombstone with others.
        """
        with self.world.unseen():
            note = self.world.stores.control.latest_floor(INCARNATION)
        if why.floor or why.generation:
            assert note is not None, "an object goes before the bucket knows why"
            assert note.floor >= why.floor, "the bucket knows of a lower floor"
            enough = min(why.generation, 1 + (key.generation or 0))
            assert note.generation >= enough, "the bucket knows of a lower fence"
        if why.purge_began_at is not None:
            assert note is not None, "an object goes before the bucket knows that it was purged"
            assert note.deleted_at == why.deleted_at, "the bucket knows of another deletion"

    # Each state.

    def look(self) -> None:
        state = self.world.state
        if state.head is None:
            return
        for one in state.entries.values():
            assert one.key in self.world.objects.objects, f"{one.key} is named, and is not there"
        secrets = {offset: self._has(offset, state) for offset in ERASED}
        back = {offset for offset in self.erased if secrets[offset]}
        assert not back, f"erased messages are back: {back}"
        self.erased |= {offset for offset, there in secrets.items() if there is False}
        known = _essence(state)
        if known not in _RIGHT:
            self._check_state(state)
            _RIGHT.add(known)

    def _has(self, offset: int, state: ManifestState) -> bool | None:
        """Tell whether the archive has the message at an offset; None if it has nothing there."""
        holders = [one for one in state.entries.values() if one.first_offset <= offset < one.next_offset]
        if not holders:
            return None
        return any(secret(offset) in identity_of(self.world.objects, one) for one in holders)

    def _check_state(self, state: ManifestState) -> None:
        world = World()
        world.state = state
        world.check()
        table = _table_of(state)
        for start in STARTS:
            found = _ask(table, self.world, start)
            assert found in self._right(state, start), f"{start} attaches at {found}"

    def _right(self, state: ManifestState, start: object) -> set[Found]:
        right = {found_at(chunks_of(list(state.entries.values())), set(), start, state.head)}
        return right | ({NOTHING} if state.head is not None and state.head.is_deleted else set())

    def look_up_through(self, table: ManifestReads) -> None:
        """Ask, as a reader does while others write."""
        for start in SOME_STARTS:
            begun = self.world.settled
            found = _ask(table, self.world, start, exactly=False)
            right = set().union(*(self._right(state, start) for state in self.states[begun:]))
            assert found in right, f"{start} attaches at {found}, and at no moment there: {right}"

    # The end.

    def check_end(self) -> None:
        """Let all graces pass, sweep and collect, and look at what is left."""
        world = self.world
        world.table.settle()
        self.look()
        known = self._all_there_is()
        if known not in _RIGHT:
            self._check_kept_by_rebuild()
            self._check_end()
            _RIGHT.add(known)

    def _all_there_is(self) -> object:
        """Return what the rest depends on: the table without its journal, whose events were checked, and the bucket."""
        state, bucket = self.world.state, self.world.objects.objects
        items = tuple(sorted((one.key, one.due_at) for one in state.tombstones.values()))
        records = tuple(repr(one) for one in (*state.holds.values(), *state.erasures.values()))
        head = state.head and replace(state.head, revision=0)
        known = frozenset(self.expected), frozenset(self.erased), frozenset(self.buried), frozenset(self.gone)
        return head, _essence(state), items, records, frozenset(bucket.items()), self.world.now, known

    def _check_end(self) -> None:
        world = self.world
        for one in list(world.state.holds):
            release_hold(world.stores, INCARNATION, one, by="legal")
        for _ in range(3):
            world.wait(20 * DAY_MS)
            for report in tend(world.stores, [STREAM]):
                assert report.error is None, report.error
                assert not report.failures, report.failures
            GarbageCollector(world.table, world.objects, KEYS, world.aws).run(GarbageOptions(delete=True))
            for resumed in resume_erasures(Eraser(world.stores), [STREAM]):
                assert resumed.error is None, resumed.error
            self.look()
        if world.is_versioned and world.state.erasures.keys() - world.begun_erasures:
            self._erase_again()
        state = world.state
        assert state.head is not None
        self._check_bucket(state)
        self._check_secrets(state)
        assert replay(world.table.recorded_changes(INCARNATION)) == state, "the journal gives another table"
        if not state.head.is_deleted:
            lost = {offset for offset in self.expected if offset >= state.head.floor} - offsets_of(state)
            assert not lost, f"announced, and not archived: {lost}"
        self._check_rebuild()

    def _erase_again(self) -> None:
        """Do what docs/erasure.md asks for after an erasure died as it began: a sweep may have left versions then."""
        eraser, selection = Eraser(self.world.stores), Selection(Offset(min(ERASED)), Offset(max(ERASED) + 1))
        with suppress(StreamDeletedError, InvalidQueryError):  # then nothing is left in the log
            erasure, _, _ = eraser.begin(STREAM, selection, reason="ticket 2", by="alice", with_copies=True)
            assert not eraser.run(STREAM, erasure, selection).messages

    def _check_bucket(self, state: ManifestState) -> None:
        named = {one.key for one in state.entries.values()}
        kinds = {key: KEYS.parse(key) for key in self.world.objects.objects}
        left = {key for key, parsed in kinds.items() if parsed is None or parsed.kind is not KeyKind.CONTROL}
        assert left == named, f"left behind: {left - named}; missing: {named - left}"
        assert not state.tombstones, "tombstones are left"
        assert not self.world.objects.uploads_under(""), "an upload is left unfinished"

    def _check_secrets(self, state: ManifestState) -> None:
        done = {one.reached for one in state.erasures.values()}
        if not done:
            return
        for offset in ERASED:
            there = self._has(offset, state)
            assert not there or offset >= max(done), f"{offset} was to be erased"
            if not there:
                data = [body for body in self.world.objects.objects.values() if secret(offset) in body]
                assert not data, f"the message at {offset} is still in the bucket"
                # What nobody had committed may have left versions: docs/erasure.md.
                versions = [key for key in self.buried if self._has_version(key, secret(offset))]
                assert not versions, f"the message at {offset} is still in a version"

    def _has_version(self, key: str, message: bytes) -> bool:
        return any(message in (one.data or b"") for one in self.world.objects._all(key))

    def _check_kept_by_rebuild(self) -> None:
        """The bucket takes nothing away that the table has, as soon as everybody has done what they were asked."""
        head = self.world.state.head
        if head is None or head.is_deleted:
            return
        rebuilt = self._rebuilt().head(INCARNATION)
        assert rebuilt is not None, "the bucket does not know the stream"
        assert not rebuilt.is_deleted, "the bucket says that the stream is deleted"
        assert rebuilt.floor <= head.floor, "the bucket has a higher floor"

    def _rebuilt(self) -> MemoryTable:
        table, world = MemoryTable(), self.world
        report = Rebuilder(table, world.objects, KEYS, world.aws, GRACE_MS, reads_at_once=1).stream(INCARNATION)
        assert report.is_done
        return table

    def _check_rebuild(self) -> None:
        world = self.world
        table = self._rebuilt()
        found = [
            (one.item, one.fields)
            for one in differences(world.table, table, INCARNATION)
            # What protects is written to the bucket first, and taken away last: who dies between leaves a hold. And a
            # fence whose maker died before its note is low in the bucket: nothing goes by it, as each deletion shows.
            if not (one.item.startswith("hold#") and one.one is None)
            and (not one.fields or {*one.fields} - {"holds", "generation"})
        ]
        assert not found, f"the bucket gives another table: {found}"

    def check_rebuilt(self, table: MemoryTable, states: Sequence[ManifestState], doubtful: set[str]) -> None:
        """A rebuild beside writers has all that was archived all the while, or tells the object; and nothing else."""
        found = offsets_of(table._partitions.get(INCARNATION, ManifestState()))
        told = {
            offset
            for state in states
            for one in state.entries.values()
            if one.key in doubtful
            for offset in range(one.first_offset, one.next_offset)
        }
        always = set.intersection(*map(offsets_of, states))
        assert always <= found | told, f"the rebuild lacks {always - found}, and does not say so"
        assert found <= set(range(len(chunks()) * MESSAGES)), "the rebuild invents"


def _ask(table: ManifestReads, world: LifecycleWorld, start, *, exactly: bool = True) -> Found:  # noqa: PLR0911  one case a kind of answer
    try:
        found = attach(table, STREAM, start, 3)
    except StreamNotFoundError:
        return NOTHING
    match found:
        case Gap():
            return "gap", int(found.first_offset), int(found.next_offset)
        case Tail(next_offset):
            return "tail", int(next_offset), 0
    entry = found.entries[0]
    if not isinstance(start, AtOffset | AtTimestamp):
        return "chunk", int(found.start.chunk_id), 0
    if exactly:
        return "chunk", int(exact_place(world.objects, entry, start).chunk_id), 0
    # The object may be gone by now: which chunk of it is right is known here.
    held = [one.header for one in chunks_of([entry])]
    if isinstance(start, AtOffset):
        return "chunk", max((one.chunk_id for one in held if one.chunk_id <= start.offset), default=held[0].chunk_id), 0
    return "chunk", next((one.chunk_id for one in held if one.timestamp >= start.timestamp), -1), 0


def _table_of(state: ManifestState) -> MemoryTable:
    table = MemoryTable()
    table._partitions[INCARNATION] = state
    return table


def _essence(state: ManifestState) -> object:
    """Return what the checks of a state depend on."""
    head = state.head
    assert head is not None
    entries = tuple(
        (one.key, one.crc32, one.next_offset, one.prior_offset, one.prior_timestamp)
        for _, one in sorted(state.entries.items())
    )
    others = len(state.events), len(state.holds), len(state.erasures)
    return entries, others, head.floor, head.deleted_at, head.compacting, head.next_offset, head.gaps, head.messages
