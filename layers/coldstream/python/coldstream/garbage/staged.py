"""Staged segments: which of them the archive has no more use for.

A staged copy is the only one of its bytes until the archive covers it or quarantine has it. It goes then, too, if the
upload function was killed before it could delete it; here this is done for it, once no event can come any more that
would have the copy compared. Other copies may come to the same key, so the deletion names the copy's ETag, and copies
are deleted one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.archive.coverage import covered_to
from coldstream.garbage.fragments import Judged
from coldstream.garbage.holding import is_held
from coldstream.garbage.kinds import ObjectState, least_age_ms
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.options import GarbageOptions
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class StagedJudge:
    """Judges staged segments, by one table, at one moment of AWS's clock."""

    table: ManifestTable
    options: GarbageOptions
    at: TimestampMs

    def judge(self, incarnation: Incarnation, objects: Iterable[LookedAt]) -> Iterator[Judged]:
        """Judge segments of one stream. Cost: for each old one a GetItem or two, and a Query."""
        for one in objects:
            if self.at - one.last_modified <= least_age_ms(one.kind, self.options.older_than_ms):
                yield one, ObjectState.YOUNG
            else:
                yield one, retry_lost_races(lambda one=one: self._state(incarnation, one))  # type: ignore[misc]

    def _state(self, incarnation: Incarnation, one: LookedAt) -> ObjectState:
        head = self.table.head(incarnation)
        if head is None or not self._is_needless(head, one):
            return ObjectState.WAITING
        return ObjectState.HELD if is_held(read_holds(self.table, head), one) else ObjectState.GARBAGE

    def _is_needless(self, head: Head, one: LookedAt) -> bool:
        if head.is_deleted:
            return not head.can_be_undeleted
        incarnation = head.stream.incarnation
        first_offset = max(one.first_offset, head.floor)
        if first_offset >= one.next_offset:
            return True
        if covered_to(self.table, incarnation, first_offset, one.next_offset) >= one.next_offset:
            return True
        record = self.table.quarantine(incarnation, one.first_offset, one.next_offset)
        return record is not None and record.etag == one.listed.etag
