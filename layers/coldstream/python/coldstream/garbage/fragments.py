"""Fragments: which of the objects under a stream's `data/` nothing names, and the proof that nothing ever will.

The proof, for a window of objects that the log does not name:

1. A *fence*: a transaction that raises the head's generation above theirs. A writer that still holds such an object,
   however long it slept, is refused, and puts its bytes at a new key. So from here on no entry comes to name them.
2. The log is read after the fence, and so are the tombstones, for the first window of a stream. None of them names the
   object.
3. Nor does any of the changes up to the fence since the tombstones were read, nor the last before, as the journal
   recorded them: what a read shows only by half counts.

A removal that the look before the fence saw came before the fence, for the changes of a stream are serial. So what was
in the log a moment ago has its tombstone among what 2 or 3 shows, and is left to the sweep.

Without `delete` there is no fence, and nothing is written: what such a run reports as garbage is garbage unless a
writer wakes up that has slept for longer than `older_than_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from coldstream.garbage.buried import BuriedKeys
from coldstream.garbage.fence_notes import FenceNotes
from coldstream.garbage.holding import is_held
from coldstream.garbage.kinds import LONGEST_EVENT_MS, ObjectState, least_age_ms
from coldstream.garbage.log_names import LogNames
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.unknown_streams import UnknownStreams
from coldstream.manifest.entry import Head
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs

Judged = tuple[LookedAt, ObjectState]


@dataclass(frozen=True, slots=True)
class FragmentJudge:
    """Judges the fragments of streams, by one table, at one moment of AWS's clock."""

    table: ManifestTable
    options: GarbageOptions
    at: TimestampMs
    unknown: UnknownStreams
    now: Callable[[], TimestampMs]
    fence_notes: FenceNotes
    buried: BuriedKeys

    def judge(self, incarnation: Incarnation, objects: Iterable[LookedAt]) -> Iterator[Judged]:
        """Judge a window of objects of one stream, in the order of their keys. In memory: those that nothing names.

        Cost: a GetItem, and a Query for every 1,000 entries; if anything is unnamed, also a transaction with `delete`,
        the entries near these keys again, and what `BuriedKeys` reads.
        """
        head = self.table.head(incarnation)
        if head is None:
            yield from self._of_unknown(incarnation, objects)
            return
        log = LogNames(self.table, head)
        unnamed: list[LookedAt] = []
        for one in objects:
            if log.names(one.key, one.first_offset):
                yield one, ObjectState.IN_USE
            elif self.at - one.last_modified <= least_age_ms(one.kind, self.options.older_than_ms):
                yield one, ObjectState.YOUNG
            else:
                unnamed.append(one)
        named = retry_lost_races(lambda: self._named(incarnation, unnamed)) if unnamed else {}
        for one in unnamed:
            yield one, named.get(one.key, ObjectState.GARBAGE)

    def _named(self, incarnation: Incarnation, window: Sequence[LookedAt]) -> dict[str, ObjectState]:
        """Return the states on those objects of a window that are no garbage after all, by key."""
        head = self._fenced(incarnation, window)
        log = LogNames(self.table, head)
        found = {one.key: ObjectState.IN_USE for one in window if log.names(one.key, one.first_offset)}
        for key in self.buried.among(head, (one.key for one in window)):
            found.setdefault(key, ObjectState.REPLACED)
        holds = read_holds(self.table, head)
        for one in window:
            if is_held(holds, one):
                found.setdefault(one.key, ObjectState.HELD)
        return found

    def _fenced(self, incarnation: Incarnation, window: Sequence[LookedAt]) -> Head:
        head = self.table.head(incarnation)
        assert head is not None, "a head that was read once stays"
        if not self.options.delete:
            return head
        # Even if the generation is high enough already: the transaction proves that no other is under way.
        generation = max(head.generation, 1 + max(one.generation for one in window))
        change = plan_fence(head, generation, self.now())
        self.table.apply(change)
        self.fence_notes.note(head, change.head)
        return change.head

    def _of_unknown(self, incarnation: Incarnation, objects: Iterable[LookedAt]) -> Iterator[Judged]:
        """Judge objects of a stream without a head. No fence can hold its writers, so only their age does."""
        may_go = self.unknown.may_go(incarnation)
        for one in objects:
            is_old = self.at - one.last_modified > max(self.options.older_than_ms, LONGEST_EVENT_MS)
            yield one, ObjectState.GARBAGE if may_go and is_old else ObjectState.UNKNOWN
