"""What is held against each state of a direct stream: invariant 13 of docs/design.md, and what the bucket knows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from itertools import pairwise

from coldstream.errors import (
    ContradictionError,
    ExpiredEpochError,
    NotClosedError,
    StreamClosedError,
    StreamNotFoundError,
)
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.manifest.state import ManifestState
from coldstream.store.control import ControlObjects
from coldstream.store.direct_notes import DirectNote
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams.archive import DirectArchive
from coldstream.units import Offset, TimestampMs
from tests.explore.base import NOW
from tests.explore.direct import KEYS, STREAM, Appender, Doubles
from tests.explore.machine import BUCKET, LOG, TOLD, Machine, State, Told, Violation
from tests.support.flushing import archived


class Promises:
    """Holds invariant 13 of docs/design.md against each state: one appends, and what was acknowledged stays."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._judged: set[object] = set()
        self._known_notes: set[tuple[int, int]] = set()
        objects = MemoryObjects()
        machine.world.bucket.copy_into(objects)
        self._notes_before = {key for key in objects.objects if key.startswith(KEYS.direct_notes(STREAM.incarnation))}
        self._openings_before = {one.epoch: one for one in ControlObjects(objects, KEYS).openings(STREAM.incarnation)}
        machine.watch = self

    def changed(self, before: int, after: int) -> None:
        """The epoch never falls, and what is archived is without a hole."""
        old, new = (self._machine.log.partition(number).state for number in (before, after))
        assert old.head is not None
        assert new.head is not None
        assert old.head.appender is not None
        assert new.head.appender is not None
        was, now = old.head.appender, new.head.appender
        _hold(now.epoch >= was.epoch, "the epoch falls")
        is_over = was.is_sealed or old.head.is_deleted
        _hold(not is_over or new.head.next_offset in {None, old.head.next_offset}, "something comes after its end")
        _hold(not is_over or now.epoch == was.epoch, "it is opened after its end")
        log = sorted(new.entries.values(), key=lambda one: one.first_offset)
        _hold(all(one.next_offset == two.first_offset for one, two in pairwise(log)), "a hole")

    def deleted(self, keys: tuple[str, ...], partition: int, bucket: int, told: int, now: TimestampMs) -> None:
        """No entry names an object that goes."""
        names = {one.key for one in self._machine.log.partition(partition).state.entries.values()}
        _hold(not names & set(keys), f"deleted, and named: {names & set(keys)}")

    def look(self, partition: int, bucket: int, told: int) -> int:
        """What is archived is what was acknowledged at its offset, nothing refused, and nothing twice."""
        state = self._machine.log.partition(partition).state
        table, objects = self._double(state, bucket)
        lost = {one.key for one in state.entries.values()} - objects.objects.keys()
        _hold(not lost, f"is named, and is not there: {lost}")
        self._judge_notes(partition, bucket, objects)
        _judge_trims(state, self._told(told))
        found = _bodies(table, objects)
        _judge(found, self._told(told), is_end=False, floor=0)
        return told

    def found(self, what: str, found: Hashable, begun: tuple[int, int], now: tuple[int, int]) -> None:
        """Nobody looks at a direct stream here."""

    def ended(self, state: State) -> None:
        """Once more opened and recovered, the stream has all that was acknowledged."""
        partition = self._machine.log.partition(self._machine.log.partition_of(state[LOG])).state
        key = state[LOG], state[BUCKET], state[TOLD]
        if key in self._judged:
            return
        _judge_trims(partition, self._told(state[TOLD]))
        table, objects = self._double(partition, state[BUCKET])
        site = Doubles(table, objects)
        last = Appender(site, "z")  # type: ignore[arg-type]
        try:
            last.open()
        except (StreamNotFoundError, StreamClosedError, ContradictionError, NotClosedError, ExpiredEpochError):
            if self._is_refused(partition):
                return
            raise
        head = table.head(STREAM.incarnation)
        assert head is not None
        assert head.appender is not None
        _judge(
            _bodies(table, objects), self._told(state[TOLD]), is_end=True, floor=max(head.floor, head.appender.start)
        )
        self._judged.add(key)

    def _is_refused(self, partition: ManifestState) -> bool:
        """Tell whether nobody can open the stream, as it has ended, or as it was before the world began."""
        head = partition.head
        if head is None or head.is_deleted or head.appender is None or head.appender.is_sealed:
            return True
        return bool(self._openings_before)

    def _judge_notes(self, partition: int, bucket: int, objects: MemoryObjects) -> None:
        """What the bucket knows has been so, and it knows where the stream starts before anything goes."""
        if (partition, bucket) in self._known_notes:
            return
        control, known, starts = ControlObjects(objects, KEYS), set(), [Offset(0)]
        there = self._machine.log.partition(partition)
        head = there.state.head
        while True:
            if there.state.head is not None and there.state.head.appender is not None:
                known.add(DirectNote.of(there.state.head))
            if there.before < 0:
                break
            there = self._machine.log.partition(there.before)
        if head is None or head.appender is None:
            return
        for key in objects.objects:
            if key.startswith(KEYS.direct_notes(STREAM.incarnation)) and key not in self._notes_before:
                note = DirectNote.from_bytes(objects.objects[key], source=key)
                _hold(note in known, f"the bucket says of revision {note.revision} what never was")
                starts.append(note.appender.start)
        for opening in control.openings(STREAM.incarnation):
            before = self._openings_before.get(opening.epoch, opening)
            _hold(opening == before, f"epoch {opening.epoch} is noted twice")
            is_given = opening.epoch <= head.appender.epoch or opening.epoch in self._openings_before
            _hold(is_given, f"epoch {opening.epoch} is noted, and was not given")
        self._known_notes.add((partition, bucket))
        _hold(head.floor <= max(starts), f"goes up to {head.floor}, and the bucket knows of {max(starts)}")

    def _told(self, number: int) -> Told:
        return self._machine.told.values[number]  # type: ignore[return-value]

    def _double(self, state: ManifestState, bucket: int) -> tuple[MemoryTable, MemoryObjects]:
        table, objects = MemoryTable(), MemoryObjects(clock=lambda: NOW)
        table._partitions = {STREAM.incarnation: state}
        self._machine.bucket.state(bucket).copy_into(objects)
        return table, objects


def _hold(holds: bool, told: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise Violation(f"invariant 13: {told}")


def _bodies(table: MemoryTable, objects: MemoryObjects) -> dict[int, str]:
    """Return the archived batches by offset."""
    found = {}
    for data in archived(DirectArchive(table, objects, KEYS), STREAM):
        (chunk,) = iter_chunks(data, source="archive")
        if chunk.header.type is ChunkType.USER:
            match = re.search(rb"<([a-z]\.\d+\.\d+)>", data)
            assert match is not None
            found[int(chunk.header.chunk_id)] = match[1].decode()
    return found


def _judge(found: dict[int, str], told: Told, *, is_end: bool, floor: int) -> None:
    _hold(len(set(found.values())) == len(found), f"a batch is there twice: {found}")
    given_up = max((int(fact) for what, fact in told.facts if what == "gave up"), default=0)
    for at, body in _acknowledged(told):
        if int(body.split(".")[1]) < given_up:
            continue  # somebody has forced his way
        if is_end and at >= floor:
            _hold(at in found, f"{body} was acknowledged at {at}, and is lost: {found}")
        _hold(found.get(at, body) == body, f"{body} was acknowledged at {at}, and there is {found.get(at)}")
    refused = {fact for what, fact in told.facts if what == "refused"}
    _hold(not refused & set(found.values()), f"refused, and there: {refused & set(found.values())}")


def _judge_trims(state: ManifestState, told: Told) -> None:
    for what, fact in told.facts:
        left = [one for one in state.entries.values() if what == "trimmed" and one.next_offset <= int(fact)]
        _hold(not left, f"trimmed to {fact}, and there: {len(left)}")


def _acknowledged(told: Told) -> Iterator[tuple[int, str]]:
    for what, fact in told.facts:
        if what == "acknowledged":
            at, _, body = fact.partition(" ")
            yield int(at), body
