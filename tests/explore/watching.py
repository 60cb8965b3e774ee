"""Holds the invariants against what the machine comes to; each of them once for equal values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from coldstream.manifest.cluster import NO_CLUSTER
from coldstream.manifest.state import ManifestState
from coldstream.store.control import ControlObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.explore import invariants, marks, removals
from tests.explore.base import INCARNATION, KEYS, STREAM
from tests.explore.ends import End, check_end, is_known_end
from tests.explore.machine import BUCKET, LOG, NAMES, NODES, NOW, TOLD, Machine, State, Told
from tests.explore.noted import copies_are_as_named, what_protects_is_noted
from tests.explore.removals import Past

CONTROL = KEYS.control(INCARNATION)


class Invariants:
    """Watches one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._past: dict[int, Past] = {}
        self._right: set[Hashable] = set()
        self._secrets: dict[Hashable, frozenset[int]] = {}
        self._ends: set[Hashable] = set()
        self._found: set[Hashable] = set()
        self._bound: set[Hashable] = set()
        self._noted: set[Hashable] = set()
        machine.watch = self

    def changed(self, before: int, after: int) -> None:
        """Hold a change against what was before."""
        log = self._machine.log
        old, new = log.partition(before), log.partition(after)
        assert new.change is not None
        invariants.nothing_lost(old.state, new.state, new.change.event)
        invariants.journal_is_enough(old.state, new.change, new.state)
        past = self._past_of(before).after(old.state, new.change, new.state, new.since)
        self._past[after] = past

    def deleted(self, keys: tuple[str, ...], partition: int, bucket: int, told: int, now: TimestampMs) -> None:
        """Hold deletions against what names the objects."""
        state, past = self._machine.log.partition(partition).state, self._past_of(partition)
        facts = self._told(told).facts
        answered = frozenset(fact for what, fact in facts if what == "held")
        note = ControlObjects(self.objects(bucket), KEYS).latest_floor(INCARNATION)
        for key in keys:
            removals.no_object_goes_too_soon(key, state, past, now, answered)
            removals.bucket_knows_first(key, state, past, note)

    def look(self, partition: int, bucket: int, told: int) -> int:
        """Hold a partition against its bucket; return what was told and seen by now."""
        log = self._machine.log.partition(partition)
        state, there = log.state, self._machine.bucket.state(bucket)
        if log.before >= 0:
            before = self._machine.log.partition(log.before).state
            removals.removed_stays_removed(before, state, self._past_of(partition), there.gone)
            removals.nothing_forgotten(before, state, there.objects, there.gone)
            marks.deleted_stays_as_it_was(before, state)
            marks.held_stays_as_it_is(before, state)
        if state.head is None:
            return told
        named = tuple(sorted((one.key, one.crc32, one.next_offset) for one in state.entries.values()))
        known = self._machine.told.values[told]
        objects = tuple(there.objects.get(key) for key, _, _ in named)
        key = named, objects, known.erased  # type: ignore[attr-defined]
        erased = self._secrets.get(key)
        if erased is None:
            double = self.objects(bucket)
            invariants.nothing_invented(state, double)
            erased = invariants.erased_stays_erased(state, double, known.erased)  # type: ignore[attr-defined]
            self._secrets[key] = erased
        essence = essence_of(state)
        if essence not in self._right:
            double = self.objects(bucket)
            invariants.no_silent_gap(state)
            invariants.overlap_is_harmless(state, double)
            invariants.one_query_or_two(state)
            invariants.fails_closed(state)
            self._right.add(essence)
        self._hold_notes(state, bucket)
        if erased == known.erased:  # type: ignore[attr-defined]
            return told
        return self._machine.told.number(Told(known.facts, erased, known.names))  # type: ignore[attr-defined]

    def _hold_notes(self, state: ManifestState, bucket: int) -> None:
        assert state.head is not None
        there = self._machine.bucket.state(bucket).objects
        notes = tuple(sorted(key for key in there if key.startswith(CONTROL)))
        key = tuple(sorted(one.id for one in state.holds.values())), state.head.is_deleted, notes
        if key not in self._noted:
            what_protects_is_noted(state, ControlObjects(self.objects(bucket), KEYS))
            self._noted.add(key)
        copies = tuple(sorted(key for key in there if "/quarantine/" in key))
        if (copies, key) not in self._noted:
            copies_are_as_named({key: there[key] for key in copies})
            self._noted.add((copies, key))

    def found(self, what: str, found: Hashable, begun: tuple[int, int], now: tuple[int, int]) -> None:
        """Hold what a look at the archive found against all moments since it began."""
        key = found, begun, now
        if key in self._found:
            return
        states = self._machine.log.between(begun[0], now[0])
        if what == "look up":
            invariants.answers_are_of_a_moment(found, states)  # type: ignore[arg-type]
        else:
            # What a sweep deletes between the listing and the reading is in neither.
            went = self._machine.bucket.state(now[1]).gone - self._machine.bucket.state(begun[1]).gone
            invariants.rebuild_has_what_stayed(found, states, went)  # type: ignore[arg-type]
        self._found.add(key)

    def ended(self, state: State) -> None:
        """Hold an end against what everybody said."""
        machine, number = self._machine, self._machine.log.partition_of(state[LOG])
        partition, bucket = machine.log.partition(number).state, machine.bucket.state(state[BUCKET])
        said = tuple(sorted(str(end.told) for node in state[NODES:] if (end := machine.end(node)) and end.told))
        self._bound_as_noted(state)
        names = machine.names.state(state[NAMES])
        known = is_known_end(partition, bucket, names, said, self._told(state[TOLD]))
        if known not in self._ends:
            objects, recorded = self.objects(state[BUCKET]), machine.log.recorded_until(number)
            check_end(
                End(machine.world, partition, objects, TimestampMs(state[NOW]), recorded=recorded, names=names),
                machine.world,
                said,
            )
            self._ends.add(known)

    def _bound_as_noted(self, state: State) -> None:
        key = state[NAMES], state[BUCKET], state[TOLD]
        if key in self._bound:
            return
        table = MemoryTable()
        self._machine.names.state(state[NAMES]).copy_into(table)
        notes = list(ControlObjects(self.objects(state[BUCKET]), KEYS).clusters())
        noted = notes[0].cluster if notes else NO_CLUSTER
        by = {fact for what, fact in self._told(state[TOLD]).facts if what == "archived by"}
        invariants.only_its_own_cluster(table.bound_cluster(STREAM.vhost, STREAM.name), noted, by)
        self._bound.add(key)

    def objects(self, bucket: int) -> MemoryObjects:
        """Return a double that holds the bucket of a number."""
        double = MemoryObjects(clock=lambda: TimestampMs(0), versioned=self._machine.world.faults.is_versioned)
        self._machine.bucket.state(bucket).copy_into(double)
        return double

    def _told(self, number: int) -> Told:
        return self._machine.told.values[number]  # type: ignore[return-value]

    def _past_of(self, partition: int) -> Past:
        return self._past.get(partition) or past_at_first(self._machine.log.partition(partition).state)


def past_at_first(state: ManifestState) -> Past:
    """Return what is known of the past at first: what has a tombstone, and since when no URL of a stream is signed."""
    head = state.head
    if head is None:
        return Past()
    buried = {one.key: head for one in state.tombstones.values()}
    if head.deleted_at is None:
        return Past(buried)
    return Past(buried, dict.fromkeys((one.key for one in state.entries.values()), head.deleted_at))


def essence_of(state: ManifestState) -> Hashable:
    """Return what lookups depend on, and totals, links and gaps."""
    head = state.head
    assert head is not None
    # Whole entries: an upload that comes second may have the same key and end, and other counts.
    entries = tuple(entry for _, entry in sorted(state.entries.items()))
    missing = tuple(
        sorted((str(type(one)), one.first_offset, one.next_offset, one.reason) for one in state.missing.values())
    )
    gaps = tuple(sorted(state.gaps.values(), key=lambda one: one.first_offset))
    others = len(state.events) - head.revision, len(state.holds), len(state.erasures), missing, gaps
    # All of the head that follows from the items; not what each change makes anew.
    new = {"deleted_at": None, "purge_at": None, "purge_began_at": None, "purged_at": None}
    counted = replace(head, revision=0, claims=(), generation=0, **new)
    return entries, others, counted, head.is_deleted
