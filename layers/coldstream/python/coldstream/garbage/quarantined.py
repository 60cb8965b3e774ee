"""Segments in quarantine, and the reasons beside them: which of them no record of the manifest is about any more.

The record names the copy that failed last, and counts the copies before it. So all that begin at the offset of a record
are kept. An upload copies a segment to quarantine before it writes the record: one that was killed in between is
repeated, for as long as its event lives, and copies the segment again, which makes the object young.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import LostRaceError
from coldstream.garbage.fragments import Judged
from coldstream.garbage.holding import is_held
from coldstream.garbage.kinds import ObjectState, least_age_ms
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.options import GarbageOptions
from coldstream.manifest.entry import Head, Hold, Quarantine
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class QuarantineJudge:
    """Judges segments in quarantine and their notes, by one table, at one moment of AWS's clock."""

    table: ManifestTable
    options: GarbageOptions
    at: TimestampMs

    def judge(self, incarnation: Incarnation, objects: Iterable[LookedAt]) -> Iterator[Judged]:
        """Judge objects of one stream. Cost: a GetItem and two Queries, or a few more for thousands of records."""
        records, holds = retry_lost_races(lambda: self._records(incarnation))
        for one in objects:
            if records is None:
                yield one, ObjectState.UNKNOWN
            elif one.first_offset in records:
                yield one, ObjectState.IN_USE
            elif self.at - one.last_modified <= least_age_ms(one.kind, self.options.older_than_ms):
                yield one, ObjectState.YOUNG
            else:
                yield one, ObjectState.HELD if is_held(holds, one) else ObjectState.GARBAGE

    def _records(self, incarnation: Incarnation) -> tuple[frozenset[Offset] | None, tuple[Hold, ...]]:
        """Return the first offsets of all records, None for a stream that the table does not know, and the holds.

        Raises LostRaceError while the head counts another number of records: one may not show yet.
        """
        head: Head | None = self.table.head(incarnation)
        if head is None:
            return None, ()
        records = [one for one in self.table.missing(incarnation) if isinstance(one, Quarantine)]
        if len(records) != head.quarantined:
            raise LostRaceError(f"segments of {head.stream} in quarantine changed while they were read")
        return frozenset(one.first_offset for one in records), read_holds(self.table, head)
