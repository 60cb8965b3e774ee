"""Legal holds: offsets of which nothing is removed, erased or deleted until somebody releases them.

A hold protects the fragments that overlap it, those that are archived later included. The bucket knows of a hold before
the table does, and of its release after the table: a rebuild from the bucket alone never drops one. A hold is not told
to be placed before the deletions are over that were under way by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep
from uuid import uuid4

from coldstream.errors import NotFoundError, StreamNotFoundError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.claiming import open_claims
from coldstream.manifest.entry import DeletionClaim, Head, Hold
from coldstream.manifest.holding import plan_hold, plan_release
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.ports import ManifestReads
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset

WAIT_S = 1.0
"""Between two looks at deletions that were under way when a hold was put."""


@dataclass(frozen=True, slots=True)
class HeldStream:
    """A stream's head with all of its holds."""

    head: Head
    holds: tuple[Hold, ...]


def read_held_stream(table: ManifestReads, incarnation: Incarnation) -> HeldStream | None:
    """Read a head and its holds, None for a stream that the table does not know. Cost: a GetItem, a Query if held.

    Raises LostRaceError if the two never agreed.
    """

    def attempt() -> HeldStream | None:
        head = table.head(incarnation)
        return None if head is None else HeldStream(head, read_holds(table, head))

    return retry_lost_races(attempt)


def put_hold(
    stores: LifecycleStores,
    incarnation: Incarnation,
    *,
    first_offset: Offset,
    next_offset: Offset | None,
    reason: str,
    by: str,
    wait: Callable[[Sequence[DeletionClaim]], None] = lambda _: sleep(WAIT_S),
) -> Hold:
    """Put a hold on offsets, up to the end of the stream and past it if `next_offset` is None, and return it.

    What was removed before is not brought back; its objects stay if they are still there when this returns. So it
    returns only when the deletions are over that had been claimed before: a second or two, or CLAIM_MS if the process
    was killed that claimed them. `wait` is called with those that may still be under way, as often as that is asked.
    `mirror_holds` then locks the objects.

    Cost: a PUT, a GetItem and a transaction, and a GetItem for each wait. Raises StreamNotFoundError, PurgedError, and
    LostRaceError if others kept being first.
    """
    hold = Hold(uuid4().hex[:12], first_offset, next_offset, reason, by, stores.now())
    if stores.table.head(incarnation) is None:
        raise StreamNotFoundError(f"no incarnation {incarnation!r}")
    stores.control.write_hold(incarnation, hold)

    def attempt() -> Head:
        head = stores.table.head(incarnation)
        if head is None:
            raise StreamNotFoundError(f"no incarnation {incarnation!r}")
        if hold in read_holds(stores.table, head):
            return head  # the answer to an earlier attempt never came; another hold of this id is refused by the table
        change = plan_hold(head, hold)
        stores.table.apply(change)
        return change.head

    _await_deletions(stores, retry_lost_races(attempt), hold, wait)
    return hold


def _await_deletions(
    stores: LifecycleStores, head: Head, hold: Hold, wait: Callable[[Sequence[DeletionClaim]], None]
) -> None:
    """Wait until nothing is deleted any more for the claims in `head`, which is the first with the hold.

    Claims that are made later leave out what the hold protects.
    """
    claims = open_claims(head, hold, stores.now())
    while claims:
        wait(claims)
        later = stores.table.head(head.stream.incarnation)
        # A head that was read may be older than the hold's, and lack a claim only because it is.
        is_later = later is not None and later.revision > head.revision
        left = claims if later is None or not is_later else [one for one in claims if one in later.claims]
        claims = tuple(one for one in left if one.ends_at > stores.now())


def release_hold(stores: LifecycleStores, incarnation: Incarnation, hold_id: str, *, by: str) -> Hold:
    """Release a hold, and return it. `mirror_holds` then releases the objects that no other hold overlaps.

    Cost: a GetItem, a Query, a transaction and a PUT. Raises NotFoundError if there is no such hold, when the bucket
    says so, too, and LostRaceError if others kept being first.
    """
    found: Hold | None = None

    def attempt() -> Hold:
        nonlocal found
        head = stores.table.head(incarnation)
        there = next((one for one in stores.table.holds(incarnation) if one.id == hold_id), None)
        if there is None and found is not None:
            return found  # the answer to an earlier attempt never came
        if head is None or there is None:
            _note_release(stores, incarnation, hold_id, by)
            raise NotFoundError(f"no hold {hold_id!r} on {incarnation!r}: `coldstream hold list` lists them")
        found = there
        stores.table.apply(plan_release(head, there, stores.now(), by))
        return there

    released = retry_lost_races(attempt)
    stores.control.write_release(incarnation, released, by)
    return released


def _note_release(stores: LifecycleStores, incarnation: Incarnation, hold_id: str, by: str) -> None:
    """Have the bucket say that a hold is released which only the bucket knows: who released or put it has died."""
    released = {one.id for one in stores.control.releases(incarnation)}
    for hold in stores.control.holds(incarnation):
        if hold.id == hold_id and hold.id not in released:
            stores.control.write_release(incarnation, hold, by)
