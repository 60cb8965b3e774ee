"""The end of a quarantine: its record goes, and what the manifest says of its offsets stays true.

Released, the archive has these offsets, and its history is the one that counts. Discarded, nobody brings the segment
any more: offsets that the archive lacks become a loss, in the same transaction, so that their gap still says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError
from coldstream.manifest.change import MAX_ITEMS, Change, DeleteQuarantine, PutLoss, ReplaceGap, RequireGap
from coldstream.manifest.entry import Gap, Head, JournalEvent, JournalKind, Loss, Missing, Quarantine
from coldstream.manifest.missing import is_known, with_reason
from coldstream.units import TimestampMs

MAX_GAPS_EXPLAINED = MAX_ITEMS - 4
"""Gaps of one change, beside the head, the event, the record and the loss."""


def plan_released(
    head: Head, record: Quarantine, known: Sequence[Missing], gaps: Sequence[Gap], *, at: TimestampMs, by: str
) -> Change:
    """Plan removing a record because the archive's history of its offsets is accepted. `known` is all that is missing.

    `gaps` are all gaps that overlap the record, at most MAX_GAPS_EXPLAINED. Raises LostRaceError if the record is not
    among `known`.
    """
    head = _without(head, record)
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.QUARANTINE_RELEASED,
        at=at,
        first_offset=record.first_offset,
        next_offset=record.next_offset,
        key=record.key,
        detail=record.reason,
        by=by,
    )
    return Change(head, event, (DeleteQuarantine(record), *_explained(gaps, _left(known, record))))


def plan_discarded(
    head: Head,
    record: Quarantine,
    known: Sequence[Missing],
    gaps: Sequence[Gap],
    *,
    loss: Loss | None,
    at: TimestampMs,
    by: str,
    why: str,
) -> Change:
    """Plan removing a record because its segment is given up; `loss` says so of offsets that the archive lacks.

    Gaps, and what is raised, are as in `plan_released`.
    """
    left = _left(known, record)
    head = _without(head, record)
    lost: tuple[PutLoss, ...] = ()
    if loss is not None and not is_known(loss, left):
        left, lost = [*left, loss], (PutLoss(loss),)
        head = replace(head, losses=head.losses + 1)
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.QUARANTINE_DISCARDED,
        at=at,
        first_offset=record.first_offset,
        next_offset=record.next_offset,
        key=record.key,
        detail=why,
        by=by,
    )
    return Change(head, event, (DeleteQuarantine(record), *lost, *_explained(gaps, left)))


def _without(head: Head, record: Quarantine) -> Head:
    return replace(
        head,
        revision=head.revision + 1,
        quarantined=head.quarantined - 1,
        quarantined_again=head.quarantined_again - (record.copies - 1),
    )


def _left(known: Sequence[Missing], record: Quarantine) -> list[Missing]:
    if record not in known:
        raise LostRaceError(f"the record of offsets {record.first_offset} to {record.next_offset - 1} changed")
    return [one for one in known if one != record]


def _explained(gaps: Sequence[Gap], missing: Sequence[Missing]) -> Iterator[RequireGap | ReplaceGap]:
    for before in gaps:
        after = with_reason(before, missing)
        yield RequireGap(before) if before == after else ReplaceGap(before, after)
