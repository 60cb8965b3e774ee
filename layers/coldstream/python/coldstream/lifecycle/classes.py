"""Storage classes: the objects of old fragments are copied into a colder class.

A copy goes to a key of its own, of a later generation, because no key ever gets another object. Then its entry takes
the place of the old one, and the old object has a tombstone. Both steps can be repeated: a copy that a run left without
an entry is found by the next one at its key, and taken. Readers may use the old object until its grace is over.

Fragments only become colder. Small objects stay where they are: the colder classes charge for 128 KiB at least. So does
what must be restored before it is read, because S3 copies nothing that it cannot read, and what a hold protects, for
its object may not go. What tells the publishers of a direct stream goes to no class that must be restored: whoever
opens the stream reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from coldstream.errors import (
    HeldError,
    ObjectExistsError,
    ObjectNotFoundError,
    StaleGenerationError,
    StreamDeletedError,
    UnavailableError,
)
from coldstream.lifecycle.expiry import tells_publishers
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.prefix import PrefixRemoval
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry, StorageClass
from coldstream.manifest.holding import held
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.manifest.stream import Incarnation
from coldstream.store.discard import discard
from coldstream.store.log import iter_log
from coldstream.store.ports import ManifestReads
from coldstream.store.prices import GB, gets_usd, puts_usd, storage_usd
from coldstream.store.races import retry_lost_races
from coldstream.units import KIB, Offset, TimestampMs

MIN_OBJECT_BYTES = 128 * KIB
"""Smaller objects cost more in a colder class than in STANDARD, or are not moved by S3 itself, either."""

UPLOAD_POSTS = 2
"""What begins and completes an upload, beside a COPY for each GiB."""

MAX_GENERATIONS = 16
"""Keys tried for a copy."""

_COLDNESS = {
    None: 0,
    StorageClass.INTELLIGENT_TIERING: 1,
    StorageClass.STANDARD_IA: 1,
    StorageClass.ONEZONE_IA: 2,
    StorageClass.GLACIER_IR: 3,
    StorageClass.GLACIER: 4,
    StorageClass.DEEP_ARCHIVE: 5,
}


@dataclass(frozen=True, slots=True)
class ClassMoves:
    """Objects that were moved to a storage class, or would be.

    `cost_usd` is for their requests, and for reading them in the class where they are, once.
    """

    storage_class: StorageClass | None = None
    objects: int = 0
    object_bytes: int = 0
    saved_usd_a_month: float = 0.0
    cost_usd: float = 0.0
    is_stopped: bool = False


def foretell_moves(
    table: ManifestReads,
    incarnation: Incarnation,
    storage_class: StorageClass,
    before: TimestampMs,
    removal: PrefixRemoval | None = None,
) -> ClassMoves:
    """Return what `move_to_class` would move now, without what a removal takes away. Cost: a Query every 1,000."""
    first_offset = None if removal is None else removal.first_offset
    moves = ClassMoves(storage_class)
    for entry in _movable(table, incarnation, storage_class, before, first_offset or Offset(0)):
        moves = _with(moves, entry)
    return moves


def move_to_class(
    stores: LifecycleStores,
    incarnation: Incarnation,
    storage_class: StorageClass,
    before: TimestampMs,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_moved: Callable[[int], None] = lambda _: None,
) -> ClassMoves:
    """Move the objects of the fragments all of whose chunks are older than `before`. Safe to repeat.

    Cost: a Query every 1,000 fragments; for each that moves five HEADs, two POSTs, a COPY for each GiB, some reads of
    the table and a transaction. Raises LostRaceError if others kept being first.
    """
    moves = ClassMoves(storage_class)
    for entry in _movable(stores.table, incarnation, storage_class, before, Offset(0)):
        if should_stop():
            return replace(moves, is_stopped=True)
        if _move(stores, incarnation, entry, storage_class):
            moves = _with(moves, entry)
            on_moved(1)
    return moves


def _movable(
    table: ManifestReads,
    incarnation: Incarnation,
    storage_class: StorageClass,
    before: TimestampMs,
    first_offset: Offset,
) -> Iterator[FragmentEntry]:
    """Yield what is old, large and warm enough, readable, and not held, up to the first fragment that is too young."""
    stream = read_held_stream(table, incarnation)
    if stream is None:
        return
    for entry in iter_log(table, incarnation, first_offset):
        if entry.greatest_timestamp >= before:
            return
        is_warmer = _COLDNESS[entry.storage_class] < _COLDNESS[storage_class]
        is_readable = entry.storage_class is None or not entry.storage_class.must_be_restored
        is_held = held(stream.holds, entry.first_offset, entry.next_offset) is not None
        if storage_class.must_be_restored and tells_publishers(stream.head, entry):
            return
        if is_warmer and is_readable and entry.object_bytes >= MIN_OBJECT_BYTES and not is_held:
            yield entry


def _move(stores: LifecycleStores, incarnation: Incarnation, entry: FragmentEntry, storage_class: StorageClass) -> bool:
    """Move one object; return False if the entry names it no longer, or a hold protects it."""
    stream = read_held_stream(stores.table, incarnation)
    if stream is None or held(stream.holds, entry.first_offset, entry.next_offset) is not None:
        return False
    try:
        after = _copy(stores, incarnation, entry, storage_class, max(stream.head.generation, entry.generation + 1))
    except ObjectNotFoundError:
        there = _holder(stores.table, incarnation, entry)
        if there is not None and there.key == entry.key:
            raise
        return False  # entries are listed a thousand at a time: since then another took its place, and a sweep ran

    def attempt() -> bool:
        there = _holder(stores.table, incarnation, entry)
        if there is not None and there.key == after.key:
            return True  # an earlier attempt got through, and its answer did not
        stream = read_held_stream(stores.table, incarnation)
        if stream is None or there is None or there.key != entry.key:
            return False
        linked = in_class(there, after.key, after.generation, storage_class)
        at = stores.now()
        change = plan_storage_class(stream.head, there, linked, stream.holds, at=at, due_at=stores.due_at(at))
        stores.table.apply(change)
        return True

    try:
        is_moved = retry_lost_races(attempt)
    except (HeldError, StaleGenerationError, StreamDeletedError):
        is_moved = False
    if not is_moved:
        discard(stores.table, incarnation, [after], stores.now)
    return is_moved


def _holder(table: ManifestReads, incarnation: Incarnation, entry: FragmentEntry) -> FragmentEntry | None:
    """Return the entry that holds the last offset of another now, or the next one. Cost: a Query."""
    return next(iter(table.log_from_offset(incarnation, Offset(entry.next_offset - 1), 1).entries), None)


def _copy(
    stores: LifecycleStores,
    incarnation: Incarnation,
    entry: FragmentEntry,
    storage_class: StorageClass,
    least_generation: int,
) -> FragmentEntry:
    """Copy an object to the first key that is free, or that has such a copy; return the entry of the copy."""
    source = stores.objects.info(entry.key)
    if source is None:
        raise ObjectNotFoundError(entry.key)
    for generation in range(least_generation, least_generation + MAX_GENERATIONS):
        key = stores.keys.fragment(incarnation, entry.first_offset, generation)
        there = stores.objects.info(key)
        if there is None:
            with suppress(ObjectExistsError):
                there = stores.objects.copy_in_class(entry.key, key, storage_class, if_match=source.etag)
        alike = (entry.object_bytes, entry.crc32, storage_class)
        if there is not None and (there.size_bytes, there.crc32, there.storage_class) == alike:
            return in_class(entry, key, generation, storage_class)
    raise UnavailableError(f"offset {entry.first_offset}: all {MAX_GENERATIONS} keys that were tried have objects")


def _with(moves: ClassMoves, entry: FragmentEntry) -> ClassMoves:
    before, after = (storage_usd(entry.object_bytes, one) for one in (entry.storage_class, moves.storage_class))
    return replace(
        moves,
        objects=moves.objects + 1,
        object_bytes=moves.object_bytes + entry.object_bytes,
        saved_usd_a_month=moves.saved_usd_a_month + before - after,
        cost_usd=moves.cost_usd
        + puts_usd(UPLOAD_POSTS - -entry.object_bytes // GB, moves.storage_class)
        + gets_usd(1, entry.object_bytes, entry.storage_class),
    )
