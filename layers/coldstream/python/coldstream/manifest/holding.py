"""Legal holds: what no retention, deletion, erasure or sweep removes.

Every hold raises the revision, as every change does. So a removal that was planned on all holds, as many as the head
counts, passes only if there is still no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coldstream.errors import HeldError, LostRaceError, PurgedError
from coldstream.manifest.change import Change, DeleteHold, PutHold
from coldstream.manifest.entry import Head, Hold, JournalEvent, JournalKind
from coldstream.units import Offset, TimestampMs


def held(holds: Iterable[Hold], first_offset: Offset, next_offset: Offset) -> Hold | None:
    """Return the first of the holds that protects any of the offsets, None if none does."""
    for hold in holds:
        if hold.first_offset < next_offset and (hold.next_offset is None or hold.next_offset > first_offset):
            return hold
    return None


def check_not_held(head: Head, holds: Sequence[Hold], first_offset: Offset, next_offset: Offset) -> None:
    """Raise HeldError if a hold protects any of the offsets, LostRaceError unless `holds` are all that there are."""
    if len(holds) != head.holds:
        raise LostRaceError(f"{len(holds)} holds show, and the head counts {head.holds}")
    if (hold := held(holds, first_offset, next_offset)) is not None:
        raise HeldError(hold.id, first_offset, next_offset, hold.reason)


def check_no_holds(head: Head, holds: Sequence[Hold] = ()) -> None:
    """Raise HeldError if the stream has a hold. `holds` are for the error alone: the head counts them."""
    if head.holds:
        name, reason = (holds[0].id, holds[0].reason) if holds else ("?", f"{head.holds} holds")
        raise HeldError(name, head.first_offset or Offset(0), head.next_offset or Offset(0), reason)


def plan_hold(head: Head, hold: Hold) -> Change:
    """Plan putting a hold, on a deleted stream too. Raises PurgedError if the stream's purge has begun."""
    if head.purge_began_at is not None:
        raise PurgedError(str(head.stream))
    head = replace(head, revision=head.revision + 1, holds=head.holds + 1)
    return Change(head, _event(head, JournalKind.HOLD_PUT, hold, hold.at, hold.by), (PutHold(hold),))


def plan_release(head: Head, hold: Hold, at: TimestampMs, by: str) -> Change:
    """Plan releasing a hold."""
    head = replace(head, revision=head.revision + 1, holds=head.holds - 1)
    return Change(head, _event(head, JournalKind.HOLD_RELEASED, hold, at, by), (DeleteHold(hold),))


def _event(head: Head, kind: JournalKind, hold: Hold, at: TimestampMs, by: str) -> JournalEvent:
    detail = f"{hold.id}: {hold.reason}"
    return JournalEvent(head.revision, kind, at, hold.first_offset, hold.next_offset, detail=detail, by=by)
