"""End a quarantine: accept the archive's history of the offsets, or give the segment up.

The record goes first, then the notes beside the copies, because a rebuild from the bucket takes a note for a record.
If that is interrupted, a rebuild could bring a record back, which costs one more look; it never loses one. Copies go by
a claim, as all that a hold may be about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coldstream.archive.commit import read_missing
from coldstream.archive.missing import gaps_within
from coldstream.errors import ConflictError, InvalidInputError, StreamNotFoundError
from coldstream.manifest.change import Change
from coldstream.manifest.claiming import Span
from coldstream.manifest.entry import Gap, Head, Loss, Missing, Quarantine
from coldstream.manifest.holding import check_not_held
from coldstream.manifest.quarantining import MAX_GAPS_EXPLAINED, plan_discarded, plan_released
from coldstream.operate.quarantined_segments import QuarantinedSegment, is_archived, lacks_nothing
from coldstream.store.clock import TOLERANCE_MS
from coldstream.store.control import ControlObjects
from coldstream.store.holding import claim_deletion, end_claim
from coldstream.store.keys import Keys
from coldstream.store.ports import DeleteReport, ManifestTable, ObjectStore
from coldstream.store.races import retry_lost_races
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

MAX_OTHERS = 100
"""Records that begin at the same offset: cuts of one segment at different moments, a few at most."""


@dataclass(frozen=True, slots=True)
class QuarantineActions:
    """What an operator, `by` name, does with segments in quarantine. `now` is AWS's clock."""

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    control: ControlObjects
    now: Callable[[], TimestampMs]
    by: str

    def release(self, segment: QuarantinedSegment, *, delete: bool) -> DeleteReport:
        """Accept the archive's history of a segment's offsets: the record goes, and with `delete` all copies.

        Without it the copies stay, and are garbage from now on. Returns what was deleted. Raises InvalidInputError if
        the archive lacks any of the offsets, HeldError if copies are to be deleted that a hold protects, ConflictError
        if another copy failed since the record was read: nothing is deleted then.

        Cost: three or four requests for what is read, a transaction, a listing, and a POST; with `delete` two
        transactions more.
        """
        record = segment.record
        if not is_archived(self.table, segment.stream, record):
            raise InvalidInputError(
                "quarantine",
                f"the archive does not hold all of offsets {record.first_offset} to {record.next_offset - 1}, so there"
                " is no history to accept: retry the segment, or discard it",
            )

        def plan(head: Head, known: Sequence[Missing], gaps: Sequence[Gap]) -> Change:
            if delete:
                self._check_not_held(head, record)
            return plan_released(head, record, known, gaps, at=self.now(), by=self.by)

        return self._end(segment, plan, delete=delete)

    def discard(self, segment: QuarantinedSegment, *, why: str) -> DeleteReport:
        """Give a segment up: record and copies go, and a gap that it leaves says that it was discarded, and why.

        Returns what was deleted. Raises HeldError if a hold protects any of the offsets, ConflictError as `release`
        does. Cost: as for `release` with `delete`, and a PUT if anything is lost.
        """
        record, incarnation = segment.record, segment.stream.incarnation

        def plan(head: Head, known: Sequence[Missing], gaps: Sequence[Gap]) -> Change:
            self._check_not_held(head, record)
            at = self.now()
            loss = None
            # By this very head: what was removed since somebody looked is not lost.
            if not lacks_nothing(self.table, head, record):
                reason = f"discarded from quarantine: {why}"
                loss = Loss(max(record.first_offset, head.floor), record.next_offset, reason, at)
                # Before the transaction: the bucket must never know less of what is missing than the table.
                self.control.write_loss(incarnation, loss)
            return plan_discarded(head, record, known, gaps, loss=loss, at=at, by=self.by, why=why)

        return self._end(segment, plan, delete=True)

    def _end(
        self,
        segment: QuarantinedSegment,
        plan: Callable[[Head, Sequence[Missing], Sequence[Gap]], Change],
        *,
        delete: bool,
    ) -> DeleteReport:
        record, incarnation = segment.record, segment.stream.incarnation

        def attempt() -> bool:
            """End it, unless it is ended; return False if the record tells of another copy by now."""
            head = self.table.head(incarnation)
            if head is None:
                raise StreamNotFoundError(f"no stream {segment.stream}")
            known = read_missing(self.table, head)
            if record not in known:
                # Without any, an earlier attempt did it, whose answer never came, or somebody else.
                return not any(_is_of_same_segment(one, record) for one in known)
            gaps = gaps_within(self.table, head, record.first_offset, record.next_offset)
            if len(gaps) > MAX_GAPS_EXPLAINED:
                raise InvalidInputError("quarantine", f"{len(gaps)} gaps lie within it: too many for one change")
            self.table.apply(plan(head, known, gaps))
            return True

        if not retry_lost_races(attempt):
            raise ConflictError(
                f"another copy of offsets {record.first_offset} to {record.next_offset - 1} failed meanwhile, and"
                " nothing was deleted: look at the segment again, then decide"
            )
        keys = self._keys_to_delete(segment, copies_too=delete)
        return self._delete(segment, keys) if delete and keys else self.objects.delete_many(keys)

    def _delete(self, segment: QuarantinedSegment, keys: Sequence[str]) -> DeleteReport:
        """Delete copies with their notes, except those that a hold protects by now: these stay, as garbage."""
        record, incarnation = segment.record, segment.stream.incarnation

        def span_of(key: str) -> Span:
            # Of other copies than the record's, neither key nor table tells the end.
            is_own = key.removesuffix(".json") == record.key
            return record.first_offset, record.next_offset if is_own else Offset(MAX_OFFSET + 1)

        claimed = claim_deletion(self.table, incarnation, keys, span_of, self.now)
        if claimed is None:
            return DeleteReport((), ())
        report = self.objects.delete_many(claimed.objects, signed_at=claimed.claim.at)
        if not report.failed:
            end_claim(self.table, incarnation, claimed.claim, self.now)
        return report

    def _keys_to_delete(self, segment: QuarantinedSegment, *, copies_too: bool) -> tuple[str, ...]:
        """Return the keys of the notes, and of the copies, unless another record begins at the same offset.

        What was written after the record stays: an upload puts a copy first, and is about to record it.
        """
        first_offset, incarnation = segment.record.first_offset, segment.stream.incarnation
        nearest = self.table.missing_before(incarnation, Quarantine, first_offset, MAX_OTHERS)
        others = [one for one in nearest if isinstance(one, Quarantine) and one.first_offset == first_offset]
        if others:
            # Which copies are the other record's, keys do not tell: only the one that this record named is ours,
            # unless the same bytes failed again by now.
            is_ours = all(one.key != segment.record.key for one in others)
            mine = {segment.record.key, f"{segment.record.key}.json"} if is_ours else set()
        else:
            prefix = f"{self.keys.quarantine(incarnation)}{first_offset:020}-"
            recorded_at = segment.record.at + TOLERANCE_MS
            mine = {one.key for one in self.objects.listed(prefix) if one.last_modified <= recorded_at}
        # Notes first: a copy without a note is garbage, and a note without its copy is a record to a rebuild.
        left = (key for key in mine if copies_too or key.endswith(".json"))
        return tuple(sorted(left, key=lambda key: (not key.endswith(".json"), key)))

    def _check_not_held(self, head: Head, record: Quarantine) -> None:
        check_not_held(head, self.table.holds(head.stream.incarnation), record.first_offset, record.next_offset)


def _is_of_same_segment(one: Missing, record: Quarantine) -> bool:
    offsets = record.first_offset, record.next_offset
    return isinstance(one, Quarantine) and (one.first_offset, one.next_offset) == offsets
