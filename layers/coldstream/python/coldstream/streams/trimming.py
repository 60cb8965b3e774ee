"""Trimming and destroying a direct stream: the metadata first, then the objects, as for any stream of the archive."""

from __future__ import annotations

from coldstream.errors import HeldError
from coldstream.lifecycle.deletion import DEFAULT_GRACE_MS, delete_stream
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.appending import plan_trim
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.store.direct_names import remove_name
from coldstream.store.races import retry_lost_races
from coldstream.streams.archive import DirectArchive
from coldstream.streams.opening import give_up_deleted, head_of
from coldstream.units import Epoch, Offset

BY = "its appender"
"""Who trims and destroys, in the journal."""


def trim_stream(archive: DirectArchive, stores: LifecycleStores, stream: StreamId, epoch: Epoch, to: Offset) -> None:
    """Have a stream start at `to`, and remove its whole fragments below, but for the last if it tells publishers.

    Raises ExpiredEpochError, StreamNotFoundError, and HeldError if a hold is on some of what would go.
    """

    def attempt() -> Head:
        head = head_of(archive, stream)
        change = plan_trim(head, epoch, to, archive.now())
        if change is None:
            return head
        archive.table.apply(change)
        return change.head

    archive.control.write_direct(retry_lost_races(attempt))
    removal = truncate(stores, stream.incarnation, up_to_offset(to), why="trimmed", by=BY)
    if removal.held is not None:
        held = removal.held
        end = to if held.next_offset is None else held.next_offset
        raise HeldError(held.id, held.first_offset, end, held.reason)


def destroy_stream(archive: DirectArchive, stores: LifecycleStores, stream: StreamId) -> None:
    """Delete a stream, then give its name back: in between, nobody can create or open one of that name.

    What is in a WAL alone is given up: once this returns, the WAL may forget it. Raises HeldError.
    """
    delete_stream(stores, stream.incarnation, grace_ms=DEFAULT_GRACE_MS, by=BY)
    give_up_deleted(archive, stream)
    remove_name(archive.table, stream)
