"""Claims: whoever deletes objects says so in the head first, in a change that passes only if no new hold was put.

A hold is one change, and a claim is another, so one of them is first. A hold that is first is seen by the claim, which
leaves out what it protects. A claim that is first is in the head that the hold is planned on: the hold counts from the
end of that claim on (`lifecycle.holds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import UnavailableError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import DeletionClaim, Head, Hold, JournalEvent, JournalKind
from coldstream.manifest.holding import check_not_held, held
from coldstream.units import Offset, TimestampMs

Span = tuple[Offset, Offset]
"""The offsets of an object, half-open."""

MAX_CLAIMS = 100
"""Claims in one head. Those that S3 refused in part stay until their time is over, and every change writes the head."""


def plan_claim(head: Head, spans: Sequence[Span], holds: Sequence[Hold], at: TimestampMs) -> Change:
    """Plan the claim to delete objects of these offsets, at least one; it is the last of the new head's `claims`.

    Claims that are over at `at`, whose makers died, go. Raises HeldError if a hold is on any of the offsets,
    LostRaceError unless `holds` are all that there are, and UnavailableError if there are MAX_CLAIMS already.
    """
    for first_offset, next_offset in spans:
        check_not_held(head, holds, first_offset, next_offset)
    claim = DeletionClaim(head.revision + 1, min(first for first, _ in spans), max(end for _, end in spans), at)
    left = tuple(one for one in head.claims if one.ends_at > at)
    if len(left) >= MAX_CLAIMS:
        raise UnavailableError(
            f"{head.stream}: {len(left)} deletions were not answered in full, and may still be under way: try again in"
            " 20 minutes"
        )
    return _changed(replace(head, claims=(*left, claim)), JournalKind.DELETION_CLAIMED, claim, at)


def plan_claim_end(head: Head, claim: DeletionClaim, at: TimestampMs) -> Change:
    """Plan the end of a claim that the head has: every request for it is answered."""
    left = tuple(one for one in head.claims if one != claim)
    return _changed(replace(head, claims=left), JournalKind.DELETION_ENDED, claim, at)


def open_claims(head: Head, hold: Hold, now: TimestampMs) -> tuple[DeletionClaim, ...]:
    """Return the claims for which objects that a hold overlaps may still go."""
    return tuple(
        one for one in head.claims if one.ends_at > now and held([hold], one.first_offset, one.next_offset) is not None
    )


def _changed(head: Head, kind: JournalKind, claim: DeletionClaim, at: TimestampMs) -> Change:
    head = replace(head, revision=head.revision + 1)
    return Change(head, JournalEvent(head.revision, kind, at, claim.first_offset, claim.next_offset))
