"""Histories of a writer and its sealers in virtual time; and that each rule they keep is needed for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import pytest

import coldstream.streams.wal.seal as sealing
import coldstream.streams.wal.writer as writing
from coldstream.errors import ObjectExistsError, ObjectNotFoundError, OutcomeUnknownError, UnavailableError
from coldstream.manifest.appender import WalPlace
from coldstream.streams.wal import trimming
from coldstream.streams.wal.seal import WalEnd
from coldstream.streams.wal.store import WalStore
from coldstream.streams.wal.writer import WalWriter
from tests.support.wal_simulation import StuckError, ViolationError, play

SEEDS = 3000
"""Histories that have to show that a rule is missing; the fewest need ten, the most some hundred."""


@pytest.mark.parametrize("hundred", range(4))
def test_every_promise_is_kept(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        play(seed)


def test_every_promise_is_kept_with_the_bounds_as_they_are() -> None:
    for seed in range(60):
        play(seed, is_small=False)


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(1, 6))
def test_every_promise_is_kept_in_many_histories(thousand: int) -> None:
    for seed in range(1000 * thousand, 1000 * thousand + 1000):
        play(seed, is_small=seed % 10 > 0)


def test_a_seed_gives_the_same_history_again() -> None:
    assert [str(one) for one in play(7).outcomes] == [str(one) for one in play(7).outcomes]


def _ignore_the_nonce(patch: pytest.MonkeyPatch) -> None:
    def create(store: WalStore, place: WalPlace, sequence: int, body: bytes, nonce: bytes) -> bool:
        try:
            store.create(place, sequence, body)
        except ObjectExistsError:
            return True
        return True

    patch.setattr(writing, "_create_own", create)


def _take_every_object_for_anothers(patch: pytest.MonkeyPatch) -> None:
    def create(store: WalStore, place: WalPlace, sequence: int, body: bytes, nonce: bytes) -> bool:
        try:
            store.create(place, sequence, body)
        except ObjectExistsError:
            return False
        return True

    patch.setattr(writing, "_create_own", create)


def _acknowledge_at_once(patch: pytest.MonkeyPatch) -> None:
    settle: Callable[[WalWriter], None] = WalWriter._settle

    def acknowledge(writer: WalWriter) -> None:
        for sequence, flight in writer._flights.items():
            for one in flight.submissions:
                if flight.fate is writing._Fate.OWN and not one.acknowledgement.done():
                    one.acknowledgement.set_result(sequence)
        settle(writer)

    patch.setattr(WalWriter, "_settle", acknowledge)


def _end_at_the_first_collision(patch: pytest.MonkeyPatch) -> None:
    settle: Callable[[WalWriter], None] = WalWriter._settle

    def end(writer: WalWriter) -> None:
        settle(writer)
        for sequence, flight in writer._flights.items():
            if flight.fate is writing._Fate.ANOTHERS:
                writer._end(sequence)
                return

    patch.setattr(WalWriter, "_settle", end)


def _give_up_without_a_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WalWriter, "_give_up", lambda writer: writer._end(writer._first))


def _trim_all_but_the_newest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trimming, "KEPT", 1)


def _trim_the_newest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trimming, "KEPT", 0)


def _trim_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    deletable = property(lambda self: self.oldest + len(self._objects) - trimming.KEPT)
    patch.setattr(trimming.WalTrimming, "_deletable", deletable)


def _do_not_look_again(patch: pytest.MonkeyPatch) -> None:
    find_end = sealing.find_end

    def seal(store: WalStore, place: WalPlace, *, executor: Executor | None = None) -> int:
        own: Any = sealing.ThreadPoolExecutor(1)
        while True:
            try:
                end = find_end(store, place, executor or own)
                if end.is_sealed:
                    return end.sequence
                store.create(place, end.sequence, sealing.seal_object(bytes(16)))
            except (ObjectExistsError, ObjectNotFoundError, OutcomeUnknownError, UnavailableError):
                continue
            return end.sequence

    patch.setattr(sealing, "seal", seal)


def _believe_the_whole_listing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sealing, "what_counts", lambda there: range(min(there, default=0), max(there, default=-1) + 1))


def _take_any_seal_for_the_end(patch: pytest.MonkeyPatch) -> None:
    find_end = sealing.find_end

    def take(store: WalStore, place: WalPlace, executor: Executor) -> WalEnd:
        found = find_end(store, place, executor)
        for sequence in sorted(store.sequences(place)):
            if sequence > found.sequence and sealing._kind(store, place, sequence) is sealing.WalObjectKind.SEAL:
                return WalEnd(sequence, is_sealed=True)
        return found

    patch.setattr(sealing, "find_end", take)


class _NotYetDurable(dict[int, Any]):
    """Flights, of which only those count that may not be durable."""

    def __len__(self) -> int:
        return sum(one.fate is not writing._Fate.OWN for one in self.values())

    def __bool__(self) -> bool:
        return any(True for _ in self)


def _count_only_what_is_not_durable_as_in_flight(patch: pytest.MonkeyPatch) -> None:
    init = WalWriter.__init__

    def begin(writer: WalWriter, *arguments: Any) -> None:
        init(writer, *arguments)
        writer._flights = _NotYetDurable()

    patch.setattr(WalWriter, "__init__", begin)


def _seal_out_of_reach(patch: pytest.MonkeyPatch) -> None:
    find_end = sealing.find_end

    def find(store: WalStore, place: WalPlace, executor: Executor) -> WalEnd:
        found = find_end(store, place, executor)
        return WalEnd(found.sequence, found.is_sealed, tuple(found.sequence + 2 * at for at in range(sealing.REACH)))

    patch.setattr(sealing, "find_end", find)


@pytest.mark.parametrize(
    "forget",
    [
        _ignore_the_nonce,
        _take_every_object_for_anothers,
        _acknowledge_at_once,
        _end_at_the_first_collision,
        _give_up_without_a_seal,
        _trim_all_but_the_newest,
        _trim_the_newest,
        _trim_what_is_not_flushed,
        _do_not_look_again,
        _believe_the_whole_listing,
        _take_any_seal_for_the_end,
        _count_only_what_is_not_durable_as_in_flight,
        _seal_out_of_reach,
    ],
)
def test_each_rule_is_needed(forget: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    with pytest.raises((ViolationError, StuckError)):
        _play_all()


def _play_all() -> None:
    for seed in range(SEEDS):
        play(seed)
