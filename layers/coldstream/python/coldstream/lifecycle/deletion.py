"""Deletion of a whole stream: marked at once, undone until its grace is over, then purged by the sweep.

A deleted stream is to readers as if it had never been archived, and takes no more fragments. A direct one loses its
name, which another may take. Its log stays as it is
until `Head.purge_at`. Whatever an upload that is under way has put by then, is discarded by that upload, or by the
purge.
"""

from __future__ import annotations

from coldstream.errors import LostRaceError, StreamDeletedError, StreamNotFoundError
from coldstream.lifecycle.markers import write_missing_markers
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.change import Change
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.direct_names import DirectName, add_name, remove_name
from coldstream.store.holding import read_holds
from coldstream.store.races import retry_lost_races
from coldstream.units import TimestampMs

DEFAULT_GRACE_MS = 7 * 24 * 3600 * 1000
"""Time in which a deletion can be undone: somebody notices what is missing within a week, weekends included."""


def delete_stream(stores: LifecycleStores, incarnation: Incarnation, *, grace_ms: int, by: str) -> Head:
    """Mark an incarnation as deleted, and return its head. If it is deleted already, nothing changes.

    Cost: a GetItem, a transaction and a PUT; a Query if it is held; a GetItem and a DELETE if it is direct. Raises
    StreamNotFoundError, HeldError if there is a hold on any of its offsets, and LostRaceError if others kept being
    first.
    """

    def attempt() -> Head:
        head = _head(stores, incarnation)
        at = stores.now()
        try:
            change = plan_delete(head, at, TimestampMs(at + grace_ms), by, holds=read_holds(stores.table, head))
        except StreamDeletedError:
            return head
        stores.table.apply(change)
        return change.head

    head = retry_lost_races(attempt)
    # After the transaction: a rebuild from the bucket must not delete a stream that was not deleted. If this process
    # ends before the note is written, the purge writes it.
    stores.control.write_floor(head)
    if head.appender is not None:
        # Last: as long as it has the name, whoever creates another one looks whether it is deleted.
        remove_name(stores.table, head.stream)
    return head


def undelete_stream(stores: LifecycleStores, incarnation: Incarnation, *, by: str) -> Head:
    """Undo a deletion, and return the head. The log is as it was; segments are archived again.

    Cost: two GetItems, two PUTs and a transaction, and two PUTs more for a direct stream. Raises StreamNotFoundError;
    NotDeletedError, when the bucket says so, too; PurgedError once the purge has begun; StreamExistsError if another
    direct stream has taken its name; and LostRaceError if others kept being first.
    """
    sent: Change | None = None
    head = _head(stores, incarnation)
    if head.can_be_undeleted:
        _add_name(stores, head)  # not in the attempt, which is made again after a conflict

    def attempt() -> Head:
        nonlocal sent
        head = _head(stores, incarnation)
        if sent is not None and not head.is_deleted:
            return head  # the answer to the transaction never came
        if not head.is_deleted:
            # Who undid it may have died before its last note.
            write_missing_markers(stores, head)
        sent = plan_undelete(head, stores.now(), by)
        # Before the transaction: what protects is written first. If the transaction then fails, a rebuild keeps a
        # stream that is deleted, until the next note says how it is.
        stores.control.write_undeletion(sent.head)
        try:
            stores.table.apply(sent)
        except LostRaceError:
            sent = None
            raise
        return sent.head

    head = retry_lost_races(attempt)
    stores.control.write_floor(head)
    # Again: while it was deleted, whoever created another stream could take the name from it.
    _add_name(stores, head)
    return head


def _add_name(stores: LifecycleStores, head: Head) -> None:
    if head.appender is not None:
        add_name(stores.table, DirectName.of(head))


def _head(stores: LifecycleStores, incarnation: Incarnation) -> Head:
    head = stores.table.head(incarnation)
    if head is None:
        raise StreamNotFoundError(f"no incarnation {incarnation!r}")
    return head
