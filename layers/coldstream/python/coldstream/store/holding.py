"""Holds as whoever deletes obeys them: read whole, and by a claim that a later hold waits for (`manifest.claiming`).

    claimed = claim_deletion(table, incarnation, objects, span_of, now)    what no hold is on, and nobody holds by now
    objects.delete_many(..., signed_at=claimed.claim.at)                   S3 refuses what comes too late for the claim
    end_claim(table, incarnation, claimed.claim, now)                      once all requests are answered

Whoever dies in between leaves the claim: it ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from coldstream.errors import LostRaceError
from coldstream.manifest.claiming import Span, plan_claim, plan_claim_end
from coldstream.manifest.entry import DeletionClaim, Head, Hold
from coldstream.manifest.holding import held
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs

_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True)
class ClaimedDeletion(Generic[_Object]):
    """Objects that may be deleted now, by the claim, which is in the head since this one."""

    claim: DeletionClaim
    head: Head
    objects: tuple[_Object, ...]


def read_holds(table: ManifestReads, head: Head) -> tuple[Hold, ...]:
    """Read the holds of a stream. Cost: nothing if the head counts none, else one Query.

    Raises LostRaceError unless they are as many as the head counts: by a shorter list, what is held would be removed.
    """
    if not head.holds:
        return ()
    holds = table.holds(head.stream.incarnation)
    if len(holds) != head.holds:
        raise LostRaceError(f"the holds of {head.stream} changed while they were read")
    return holds


def claim_deletion(
    table: ManifestTable,
    incarnation: Incarnation,
    objects: Sequence[_Object],
    span_of: Callable[[_Object], Span],
    now: Callable[[], TimestampMs],
) -> ClaimedDeletion[_Object] | None:
    """Claim the deletion of those objects that no hold overlaps; None if there are none, or no such stream.

    Cost: a GetItem and a transaction, and a Query if there are holds. Raises LostRaceError if others kept being first.
    """

    def attempt() -> ClaimedDeletion[_Object] | None:
        head = table.head(incarnation)
        if head is None:
            return None
        holds = read_holds(table, head)
        free = tuple(one for one in objects if held(holds, *span_of(one)) is None)
        if not free:
            return None
        # If the answer to this never comes, the next attempt makes another claim, and the one before ends by itself.
        change = plan_claim(head, [span_of(one) for one in free], holds, now())
        table.apply(change)
        return ClaimedDeletion(change.head.claims[-1], change.head, free)

    return retry_lost_races(attempt)


def end_claim(
    table: ManifestTable, incarnation: Incarnation, claim: DeletionClaim, now: Callable[[], TimestampMs]
) -> None:
    """Say that nothing is deleted for a claim any more. Cost: a GetItem and a transaction.

    Only if every request was answered, and did all that it was asked: one that was sent twice may fail, and yet be
    carried out when its first copy arrives.
    """

    def attempt() -> None:
        head = table.head(incarnation)
        if head is not None and claim in head.claims:
            table.apply(plan_claim_end(head, claim, now()))

    retry_lost_races(attempt)
