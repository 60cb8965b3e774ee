"""The removal of the first fragments of a log: in batches, each one transaction, planned on a fresh read.

After each batch the log begins at the floor, whole. Objects get tombstones and are deleted by the sweep. A removal that
is killed goes on when it is asked for again: what it has left is still at the beginning of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import NotDeletedError
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.change import Change, fitting
from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.holding import held
from coldstream.manifest.removal import MAX_PREFIX, plan_prefix_removal
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import read_holds
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.prices import storage_usd
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs

PrefixChoice = Callable[[Head, Iterator[FragmentEntry]], Iterator[FragmentEntry]]
"""Says which entries at the beginning of a log are to go: it yields them, up to the first that stays."""


@dataclass(frozen=True, slots=True)
class PrefixRemoval:
    """What was removed from the beginning of a log, or would be.

    `first_offset` is the stream's first offset afterwards, None if nothing is left. `held` is the hold at which the
    removal stopped. `is_stopped` says that it ran out of time, and has more to do.
    """

    fragments: int = 0
    messages: int = 0
    object_bytes: int = 0
    saved_usd_a_month: float = 0.0
    first_offset: Offset | None = None
    held: Hold | None = None
    is_stopped: bool = False

    def with_entries(self, entries: Sequence[FragmentEntry]) -> PrefixRemoval:
        """Count more entries."""
        return replace(
            self,
            fragments=self.fragments + len(entries),
            messages=self.messages + sum(entry.messages for entry in entries),
            object_bytes=self.object_bytes + sum(entry.object_bytes for entry in entries),
            saved_usd_a_month=self.saved_usd_a_month
            + sum(storage_usd(entry.object_bytes, entry.storage_class) for entry in entries),
        )

    def to_json(self) -> dict[str, object]:
        """Return the removal for JSON."""
        return {
            "objects": self.fragments,
            "object_bytes": self.object_bytes,
            "messages": self.messages,
            "saved_usd_a_month": round(self.saved_usd_a_month, 6),
            "first_offset": self.first_offset,
            "held_by": None if self.held is None else self.held.id,
            "is_stopped": self.is_stopped,
        }


def foretell_removal(table: ManifestReads, incarnation: Incarnation, choice: PrefixChoice) -> PrefixRemoval:
    """Return what `remove_prefix` would remove now. Cost: up to three requests, and a Query every 1,000 entries."""
    stream = read_held_stream(table, incarnation)
    if stream is None:
        return PrefixRemoval()
    going = PrefixRemoval(first_offset=stream.head.first_offset)
    passed: Offset | None = None
    for entry in choice(stream.head, iter_log(table, incarnation, Offset(0))):
        going = replace(going, held=held(stream.holds, entry.first_offset, entry.next_offset))
        if going.held is not None:
            break
        going, passed = going.with_entries([entry]), entry.next_offset
    if passed is None:
        return going
    following = next(iter(table.log_from_offset(incarnation, passed, 1).entries), None)
    return replace(going, first_offset=None if following is None else following.first_offset)


def remove_prefix(
    stores: LifecycleStores,
    incarnation: Incarnation,
    choice: PrefixChoice,
    *,
    why: str,
    by: str,
    deleted_at: TimestampMs | None = None,
    due_at: Callable[[TimestampMs], TimestampMs] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_removed: Callable[[int], None] = lambda _: None,
) -> PrefixRemoval:
    """Remove the first entries of a log, as long as `choice` says so. Safe to repeat, and to run beside any writer.

    It stops before the first fragment that a hold overlaps. A compaction that somebody left unfinished is finished
    first. `deleted_at` is when the stream was deleted whose purge this is, None for a stream that is not deleted: in
    any other state nothing of it is removed. `due_at` returns when objects that are removed at a time may be deleted,
    by default after the grace of the stores. `on_removed` is told how many entries each batch had.

    At the end a note of the new floor is in the bucket. If the process ends before that, the sweep writes it, which
    deletes nothing without.

    Cost: two or three GetItems, as many Queries, and a transaction, for each MAX_PREFIX entries. Raises
    StreamDeletedError or NotDeletedError if the stream was deleted or undeleted meanwhile; HeldError if a hold was put
    on a deleted stream; and LostRaceError if others kept being first.
    """
    due_at = due_at or stores.due_at
    done = PrefixRemoval()
    is_more = True
    while is_more:
        if should_stop():
            done = replace(done, is_stopped=True)
            break
        finish(stores.table, incarnation, stores.now, stores.grace_ms)
        at = stores.now()
        batch = _Batch(stores.table, incarnation, choice, deleted_at, at, due_at(at), why, by)
        retry_lost_races(batch.remove)
        done = replace(done.with_entries(batch.removed), held=batch.held)
        is_more = batch.is_more
        on_removed(len(batch.removed))
    head = stores.table.head(incarnation)
    if head is not None and head.floor:
        stores.control.write_floor(head)
    return replace(done, first_offset=None if head is None else head.first_offset)


@dataclass(slots=True)
class _Batch:
    """One transaction of a removal: `removed` are its entries, `held` and `is_more` say how it goes on."""

    table: ManifestTable
    incarnation: Incarnation
    choice: PrefixChoice
    deleted_at: TimestampMs | None
    at: TimestampMs
    due_at: TimestampMs
    why: str
    by: str
    removed: tuple[FragmentEntry, ...] = ()
    held: Hold | None = None
    is_more: bool = False
    _sent: Change | None = None

    def remove(self) -> None:
        """Read, plan and write; called again after a race that was lost, and after an answer that never came."""
        head = self.table.head(self.incarnation)
        if self._sent is not None and head is not None and head.floor >= self._sent.head.floor:
            return  # the answer to this transaction never came; nothing else raises the floor so far
        self._sent, self.removed, self.is_more = None, (), False
        if head is None:
            return
        self._check_life(head)
        if head.first_offset is None:
            return
        log = self.table.log_from_offset(self.incarnation, Offset(0), MAX_PREFIX + 1).entries
        holds = read_holds(self.table, head)
        going = list(self._not_held(holds, self.choice(head, iter(log[:MAX_PREFIX]))))
        count = fitting(going, MAX_PREFIX) if going else 0
        if not count:
            return
        removed = tuple(going[:count])
        following = log[count] if count < len(log) else None
        gaps = self._gaps(removed, following) if head.gaps else ()
        change = plan_prefix_removal(
            head, removed, following, gaps, holds, at=self.at, due_at=self.due_at, why=self.why, by=self.by
        )
        self._sent, self.removed, self.is_more = change, removed, count == MAX_PREFIX or count < len(going)
        self.table.apply(change)

    def _check_life(self, head: Head) -> None:
        # Asked of each head that is planned on. Else a purge would remove what was undeleted since, and retention would
        # begin the purge of a stream that was deleted since, and could still be undeleted.
        if head.deleted_at != self.deleted_at:
            check_not_deleted(head)
            raise NotDeletedError(str(head.stream))

    def _not_held(self, holds: Sequence[Hold], entries: Iterator[FragmentEntry]) -> Iterator[FragmentEntry]:
        self.held = None
        for entry in entries:
            self.held = held(holds, entry.first_offset, entry.next_offset)
            if self.held is not None:
                return
            yield entry

    def _gaps(self, removed: Sequence[FragmentEntry], following: FragmentEntry | None) -> tuple[Gap, ...]:
        """Read the gaps after the first entry and before the one that follows. Each lies before one of them."""
        end = removed[-1].next_offset if following is None else following.first_offset
        found = self.table.gaps(self.incarnation, len(removed) + 1, from_offset=removed[0].next_offset)
        return tuple(gap for gap in found if gap.first_offset < end)
