"""What takes parts of an archive away, as the simplest loop over its plans: retention, deletion, holds, fences."""

from __future__ import annotations

from coldstream.errors import LostRaceError
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.manifest.entry import FragmentEntry, Head, Hold, StorageClass
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.removal import MAX_PREFIX, plan_prefix_removal
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset, TimestampMs

NOW = TimestampMs(1_763_800_000_000)
DUE = TimestampMs(NOW + 1000)
PURGE_AT = TimestampMs(NOW + 5000)


def head_of(table: ManifestTable, incarnation: Incarnation) -> Head:
    """Return the head, which must be there."""
    head = table.head(incarnation)
    assert head is not None
    return head


def remove_prefix(table: ManifestTable, incarnation: Incarnation, limit: int) -> tuple[FragmentEntry, ...]:
    """Remove the first entries, at most so many; return them. Raises LostRaceError as the plan does."""
    head = head_of(table, incarnation)
    log = table.log_from_offset(incarnation, Offset(0), min(limit, MAX_PREFIX) + 1).entries
    removed, following = log[:limit], next(iter(log[limit:]), None)
    if not removed:
        return ()
    gaps = table.gaps(incarnation, 100) if head.gaps else ()
    if removed[0].prior_offset is not None:
        raise LostRaceError("the first entry does not show")
    table.apply(
        plan_prefix_removal(
            head, removed, following, gaps, table.holds(incarnation), at=NOW, due_at=DUE, why="retention", by=None
        )
    )
    return removed


def delete(table: ManifestTable, incarnation: Incarnation) -> None:
    """Delete a stream."""
    table.apply(plan_delete(head_of(table, incarnation), NOW, PURGE_AT, "an operator"))


def undelete(table: ManifestTable, incarnation: Incarnation) -> None:
    """Undo a deletion."""
    table.apply(plan_undelete(head_of(table, incarnation), NOW, "an operator"))


def put_hold(table: ManifestTable, incarnation: Incarnation, first: int, following: int | None) -> Hold:
    """Put a hold on offsets."""
    end = None if following is None else Offset(following)
    hold = Hold(f"case-{first}", Offset(first), end, "a lawsuit", "legal", NOW)
    table.apply(plan_hold(head_of(table, incarnation), hold))
    return hold


def raise_fence(table: ManifestTable, incarnation: Incarnation, generation: int) -> None:
    """Have keys below a generation never be committed again."""
    table.apply(plan_fence(head_of(table, incarnation), generation, NOW))


def move_to_class(
    table: ManifestTable, incarnation: Incarnation, number: int, storage_class: StorageClass
) -> FragmentEntry:
    """Have an entry name a copy of its object in a storage class, which nobody makes; return the new entry."""
    before = table.log_from_offset(incarnation, Offset(0), number + 1).entries[number]
    generation = before.generation + 1
    after = in_class(before, f"{before.key}.in-{storage_class}", generation, storage_class)
    holds = table.holds(incarnation)
    table.apply(plan_storage_class(head_of(table, incarnation), before, after, holds, at=NOW, due_at=DUE))
    return after
