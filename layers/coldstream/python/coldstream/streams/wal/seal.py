"""Find the end of a write-ahead log, and seal it there, so that nothing that comes later counts.

A seal is an object at the sequence that the writer would take next: its PUT collides, and it knows that it is over.
Whoever opens a stream whose writer may be dead seals that writer's WAL before it reads it. See `store.wal_window` for
why a listing can be trusted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from coldstream.errors import ObjectExistsError, ObjectNotFoundError, OutcomeUnknownError, UnavailableError
from coldstream.flow.window import map_ahead
from coldstream.manifest.appender import WalPlace
from coldstream.retry import Backoff
from coldstream.store.wal_object import FIXED_BYTES, NONCE_BYTES, WalObjectKind, kind_and_nonce, seal_object
from coldstream.store.wal_window import REACH, what_counts
from coldstream.streams.wal.store import WalStore
from coldstream.units import ByteRange

ROUNDS = 12
"""Listings before a sealer gives up: each but the last is followed by creates that were too late, or that failed."""

_CALLS = 16


@dataclass(frozen=True, slots=True)
class WalEnd:
    """The first sequence that the writer did not take. Unless it is sealed, the writer may still take it.

    `free` are the sequences within reach that had no object, the end first.
    """

    sequence: int
    is_sealed: bool
    free: tuple[int, ...] = ()


def seal(store: WalStore, place: WalPlace, *, executor: Executor | None = None) -> int:
    """Seal a WAL, and return the sequence at which it ends: all below are durable, nothing from it on counts.

    Every sealer of a WAL gets the same answer, except for a WAL that its writer closes meanwhile: of that one nothing
    is left to be read. Idempotent. Cost: two LISTs, a PUT, and up to 64 GETs of 32 bytes, in `executor` or in
    threads of its own; more if the writer is alive, or the store fails. Raises UnavailableError if the store keeps
    failing, or the writer keeps being faster.
    """
    if executor is None:
        with ThreadPoolExecutor(_CALLS) as own:
            return seal(store, place, executor=own)
    backoff = Backoff(0.05, 1)
    body = seal_object(os.urandom(NONCE_BYTES))
    failure: Exception | None = None
    for number in range(ROUNDS):
        try:
            end = find_end(store, place, executor)
            if end.is_sealed:
                return end.sequence
            # One seal is enough against a dead writer. A live one was faster, and would be again: take what it needs.
            wanted = end.free[:1] if number == 0 else end.free
            _create(store, place, wanted, body, executor)
        except (UnavailableError, OutcomeUnknownError, ObjectNotFoundError) as err:
            failure = err
            time.sleep(backoff.next_delay_s())
    reason = "its writer was faster each time" if failure is None else str(failure)
    raise UnavailableError(f"the write-ahead log {place} was not sealed in {ROUNDS} attempts: {reason}") from failure


def find_end(store: WalStore, place: WalPlace, executor: Executor) -> WalEnd:
    """Return where a WAL ends as of now. All below is durable. Cost: one LIST, up to 32 GETs of 32 bytes.

    Raises UnavailableError, and ObjectNotFoundError if the writer trimmed what the listing had shown: ask again.
    """
    there = set(store.sequences(place))
    counting = what_counts(there)
    first_hole = next((at for at in counting if at not in there), counting.stop)
    run = range(counting.start, first_hole)
    kinds = map_ahead(executor, lambda at: _kind(store, place, at), run, max_calls=_CALLS)
    for sequence, kind in zip(run, kinds, strict=True):
        if kind is WalObjectKind.SEAL:
            return WalEnd(sequence, is_sealed=True)
    free = tuple(at for at in range(first_hole, first_hole + REACH) if at not in there)
    return WalEnd(first_hole, is_sealed=False, free=free)


def _kind(store: WalStore, place: WalPlace, sequence: int) -> WalObjectKind:
    view = store.read(place, sequence, ByteRange(0, FIXED_BYTES))
    return kind_and_nonce(view, source=f"{place}/{sequence}")[0]


def _create(store: WalStore, place: WalPlace, wanted: Iterable[int], body: bytes, executor: Executor) -> None:
    """Create seals. One that is there already is as good, and so is a failure: the next listing tells."""
    failure: Exception | None = None
    for outcome in map_ahead(executor, lambda at: _create_one(store, place, at, body), wanted, max_calls=REACH):
        failure = outcome or failure
    if failure is not None:
        raise failure


def _create_one(store: WalStore, place: WalPlace, sequence: int, body: bytes) -> Exception | None:
    try:
        store.create(place, sequence, body)
    except ObjectExistsError:
        return None
    except (UnavailableError, OutcomeUnknownError) as err:
        return err
    return None
