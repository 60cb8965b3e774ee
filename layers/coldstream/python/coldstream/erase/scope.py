"""The scope of an erasure: its offsets, pinned, and the fragments that it reads; checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from coldstream.erase.selection import Selection
from coldstream.errors import InvalidQueryError, NotRestoredError, StreamNotFoundError
from coldstream.lifecycle.holds import HeldStream, read_held_stream
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.holding import check_not_held
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Scope:
    """What an erasure is about: a selection with both ends, and the fragments of the log that overlap it.

    `first_offset` up to `next_offset` are the borders of those fragments, which are rewritten whole. `gaps` counts the
    holes among the selection's offsets.
    """

    selection: Selection
    first_offset: Offset
    next_offset: Offset
    fragments: int
    data_bytes: int
    gaps: int


def read_scope(stores: LifecycleStores, incarnation: Incarnation, selection: Selection) -> Scope:
    """Pin a selection to what is archived now, and check that all of it may be erased. Writes nothing.

    Cost: a GetItem, a Query for each thousand entries, and a HEAD for each object of an archived class. Raises
    StreamNotFoundError, StreamDeletedError, InvalidQueryError for offsets that are not archived yet or removed,
    HeldError, NotRestoredError.
    """
    stream = read_held_stream(stores.table, incarnation)
    if stream is None:
        raise StreamNotFoundError(f"no incarnation {incarnation!r}")
    scope = _walk(stores, stream.head, _pinned(stream.head, selection))
    check_holds(stream, scope.first_offset, scope.next_offset)
    return scope


def iter_settled(table: ManifestReads, head: Head, offset: Offset) -> Iterator[FragmentEntry]:
    """Yield the entries that end after an offset, without those that an unfinished compaction has replaced already.

    Cost: a Query a page; one more if a compaction is unfinished.
    """
    merged: FragmentEntry | None = None
    incarnation = head.stream.incarnation
    if head.compacting is not None:
        merged = next(iter(table.log_from_offset(incarnation, Offset(head.compacting - 1), 1).entries), None)
    for entry in iter_log(table, incarnation, offset):
        if merged is None or not merged.first_offset <= entry.first_offset < entry.next_offset < merged.next_offset:
            yield entry


def check_holds(stream: HeldStream, first_offset: Offset, next_offset: Offset) -> None:
    """Raise HeldError if a hold overlaps the offsets, StreamDeletedError if the stream is deleted."""
    check_not_deleted(stream.head)
    check_not_held(stream.head, stream.holds, first_offset, next_offset)


def _pinned(head: Head, selection: Selection) -> Selection:
    """Give a selection both ends.

    Offsets past the tail are refused and not cut off: what is archived there later would keep its bytes, and nobody
    would know.
    """
    check_not_deleted(head)
    tail = head.next_offset
    if head.first_offset is None or tail is None:
        raise InvalidQueryError("offsets", f"{head.stream} has nothing to erase")
    next_offset = tail if selection.next_offset is None else selection.next_offset
    if next_offset > tail:
        raise InvalidQueryError("offsets", f"end past the tail, {tail}: what is not archived yet cannot be erased")
    if next_offset <= head.first_offset:
        raise InvalidQueryError("offsets", f"end at or before the first archived offset, {head.first_offset}")
    return replace(selection, first_offset=max(selection.first_offset, head.first_offset), next_offset=next_offset)


def _walk(stores: LifecycleStores, head: Head, selection: Selection) -> Scope:
    assert selection.next_offset is not None
    first_offset, reached = selection.first_offset, selection.first_offset
    fragments = data_bytes = gaps = 0
    for entry in iter_settled(stores.table, head, selection.first_offset):
        gaps += reached < min(entry.first_offset, selection.next_offset)
        if entry.first_offset >= selection.next_offset:
            break
        is_archived = entry.storage_class is not None and entry.storage_class.must_be_restored
        if is_archived and not stores.objects.restore_state(entry.key).is_readable:
            raise NotRestoredError(entry.key, str(entry.storage_class))
        first_offset, reached = min(first_offset, entry.first_offset), entry.next_offset
        fragments += 1
        data_bytes += entry.data_bytes
    return Scope(selection, first_offset, max(reached, selection.next_offset), fragments, data_bytes, gaps)
