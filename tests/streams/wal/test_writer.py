"""What a writer promises, one thing at a time; all of it together is in test_simulation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor

import pytest

from coldstream.errors import (
    BadCrcError,
    InvalidSettingError,
    ObjectExistsError,
    OutcomeUnknownError,
    UnavailableError,
    WalEndedError,
)
from coldstream.manifest.appender import WalPlace
from coldstream.store.wal_object import parse_header, seal_object
from coldstream.store.wal_window import KEPT
from coldstream.streams.wal.counters import WalCounters
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import MIB
from tests.support.wal_chunks import plain_chunk as chunk


class GatedStore(MemoryWalStore):
    """Creates the objects of the sequences that were let go, and calls `before` each create."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None
        self.gates: dict[int, threading.Event] = {}
        self.begun: list[int] = []

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        self.begun.append(sequence)
        if sequence in self.gates:
            assert self.gates[sequence].wait(60)
        self.before(sequence)
        super().create(place, sequence, body)
        self.after(sequence)

    def hold(self, *sequences: int) -> None:
        self.gates |= {at: threading.Event() for at in sequences}

    def let_go(self, *sequences: int) -> None:
        for at in sequences:
            self.gates[at].set()


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what threads do sets no event
            await asyncio.sleep(0.001)


async def begin(store: GatedStore, executor: Executor, options: WalOptions = WalOptions()) -> WalWriter:  # noqa: B008
    return await WalWriter.begin(store, "me", options, executor)


async def test_chunks_of_one_turn_share_an_object(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    assert await asyncio.gather(*[writer.submit(chunk(at)) for at in range(100)]) == [1] * 100
    assert store.requests["create"] == 2


async def test_what_comes_during_a_put_shares_the_next_object(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(interval_s=60))
    store.hold(1)
    first = writer.submit(chunk(0))
    await until(lambda: 1 in store.begun)
    rest = []
    for at in range(1, 6):
        rest.append(writer.submit(chunk(at)))
        await asyncio.sleep(0)
    assert (writer.in_flight, writer.queued_bytes > 0) == (1, True)
    store.let_go(1)
    assert await asyncio.gather(first, *rest) == [1, 2, 2, 2, 2, 2]


async def test_an_object_is_sent_for_its_size(store: GatedStore, executor: Executor) -> None:
    size = len(chunk(0).data) + 70
    writer = await begin(store, executor, WalOptions(interval_s=60, eager=False, max_bytes=3 * size))
    waiting = [writer.submit(chunk(0)), writer.submit(chunk(1))]
    await asyncio.sleep(0.01)
    assert not any(one.done() for one in waiting)
    waiting += [writer.submit(chunk(at)) for at in range(2, 5)]
    assert await waiting[0] == 1
    assert store.begun == [0, 1]


async def test_an_object_is_sent_for_its_age(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(interval_s=0.01, eager=False))
    assert await writer.submit(chunk(0)) == 1
    assert await writer.submit(chunk(1)) == 2


async def test_a_chunk_larger_than_an_object_has_one_to_itself(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=10))
    assert await asyncio.gather(*[writer.submit(chunk(at)) for at in range(3)]) == [1, 2, 3]


async def test_no_more_are_in_flight_than_may_be_those_that_wait_for_an_earlier_one_counted(
    store: GatedStore, executor: Executor
) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=1, in_flight=3))
    store.hold(1)
    waiting = [writer.submit(chunk(at)) for at in range(6)]
    await until(lambda: len(store.wals) == 3)  # 0, 2 and 3
    await asyncio.sleep(0.01)
    assert sorted(store.begun) == [0, 1, 2, 3]
    assert writer.in_flight == 3
    assert not any(one.done() for one in waiting)
    store.let_go(1)
    assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5, 6]


async def test_acknowledgements_come_in_the_order_of_submit(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=1, in_flight=4))
    store.hold(1, 2, 3, 4)
    resolved: list[int] = []
    waiting = [writer.submit(chunk(at)) for at in range(4)]
    for one in waiting:
        one.add_done_callback(lambda done: resolved.append(done.result()))
    store.let_go(4, 3)
    await until(lambda: len(store.wals) == 3)
    assert resolved == []
    store.let_go(1)
    await waiting[0]
    assert resolved == [1]
    store.let_go(2)
    await asyncio.gather(*waiting)
    assert resolved == [1, 2, 3, 4]


async def test_an_answer_that_was_lost_is_told_from_anothers_object(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_delay_s=0))
    lost = iter([True])

    def lose(_: int) -> None:
        if next(lost, False):
            raise OutcomeUnknownError("no answer")

    store.after = lose
    assert await writer.submit(chunk(0)) == 1
    assert (writer.counters.puts, writer.counters.retries, writer.counters.collisions) == (2, 1, 0)
    store.create(writer.place, 2, seal_object(bytes(16)))
    with pytest.raises(WalEndedError):
        await writer.submit(chunk(1))
    assert writer.counters.collisions == 1


async def test_bytes_that_did_not_arrive_as_they_were_sent_are_sent_again(
    store: GatedStore, executor: Executor
) -> None:
    writer = await begin(store, executor, WalOptions(max_delay_s=0))
    damaged = iter([True, True])

    def damage(_: int) -> None:
        if next(damaged, False):
            raise BadCrcError("key", 0, "not of the CRC-32 that was sent")

    store.before = damage
    assert await writer.submit(chunk(0)) == 1
    assert writer.ended is None


async def test_a_put_that_stays_unknown_ends_the_wal_by_its_own_seal(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=1, attempts=2, max_delay_s=0, in_flight=4))
    tries: list[int] = []

    def refuse(sequence: int) -> None:
        if sequence == 2 and len(tries) < 2:
            tries.append(sequence)
            raise UnavailableError("not now")

    store.before = refuse
    ended: list[int] = []
    outcomes = [writer.submit(chunk(at)) for at in range(5)]
    writer.on_ended = lambda: ended.append(sum(one.done() for one in outcomes))
    found = await asyncio.gather(*outcomes, return_exceptions=True)
    assert found[0] == 1
    assert [type(one) for one in found[1:]] == [WalEndedError] * 4
    assert ended == [1]  # after the last acknowledgement, before the first failure
    assert writer.ended == 2 == seal(store, writer.place)
    with pytest.raises(WalEndedError):
        await writer.submit(chunk(9))


async def test_a_store_that_is_away_has_the_wal_abandoned(
    store: GatedStore, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.streams.wal.seal.ROUNDS", 2)
    writer = await begin(store, executor, WalOptions(attempts=2, max_delay_s=0))

    def away(_: int) -> None:
        raise UnavailableError("away")

    store.before = away
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await writer.submit(chunk(0))
    assert (writer.abandoned, writer.ended, writer.counters.abandoned) == (True, None, 1)
    await writer.close()
    assert store.wals  # left to whoever seals it


async def test_a_seal_ends_the_wal(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    assert await writer.submit(chunk(0)) == 1
    assert seal(store, writer.place) == 2
    with pytest.raises(WalEndedError):
        await writer.submit(chunk(1))
    assert writer.ended == 2
    assert seal(store, writer.place) == 2
    await writer.close()
    assert len(store.wals) == 3


async def test_the_newest_objects_are_never_trimmed_before_the_end(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=1, in_flight=16))
    last = KEPT + 10
    sequences = await asyncio.gather(*[writer.submit(chunk(at)) for at in range(last)])
    for sequence in reversed(sequences):
        writer.flushed(sequence)
    await until(lambda: writer.counters.trimmed == last - KEPT + 1)
    await asyncio.sleep(0.01)  # nothing more follows
    assert sorted(store.sequences(writer.place)) == list(range(last - KEPT + 1, last + 1))
    assert (writer.oldest_sequence, writer.untrimmed_bytes, len(store.wals)) == (last + 1, 0, KEPT)
    await writer.close()
    assert not store.wals


async def test_what_is_not_flushed_keeps_all_after_it(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor, WalOptions(max_bytes=1, in_flight=16))
    sequences = await asyncio.gather(*[writer.submit(chunk(at)) for at in range(KEPT + 10)])
    for sequence in sequences[:3] + sequences[4:]:
        writer.flushed(sequence)
    await writer.close()
    assert sorted(store.sequences(writer.place)) == list(range(4, KEPT + 11))


async def test_what_is_flushed_twice_is_a_mistake_of_the_caller(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    sequence = await writer.submit(chunk(0))
    with pytest.raises(ValueError, match="does not have them"):
        writer.flushed(sequence, 2)
    writer.flushed(sequence)
    with pytest.raises(ValueError, match="does not have them"):
        writer.flushed(sequence)


async def test_a_clean_close_leaves_nothing(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    writer.flushed(await writer.submit(chunk(0)))
    await writer.close()
    assert not store.wals


async def test_a_close_waits_for_what_is_under_way(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    store.hold(1)
    submitted = writer.submit(chunk(0))
    closing = asyncio.create_task(writer.close())
    await until(lambda: 1 in store.begun)
    assert not closing.done()
    store.let_go(1)
    await closing
    assert submitted.result() == 1
    assert sorted(store.sequences(writer.place)) == [0, 1]


async def test_a_caller_that_gives_up_changes_nothing(store: GatedStore, executor: Executor) -> None:
    writer = await begin(store, executor)
    given_up, other = writer.submit(chunk(0)), writer.submit(chunk(1))
    given_up.cancel()
    assert await other == 1
    header = parse_header(store.read(writer.place, 1), source="object")
    assert [entry.first_offset for entry in header.entries] == [0, 1]


async def test_counters_go_on_in_the_next_wal(store: GatedStore, executor: Executor) -> None:
    counters = WalCounters()
    for epoch in (1, 2):
        writer = await WalWriter.begin(store, "me", WalOptions(), executor, counters=counters)
        assert writer.place.epoch == epoch
        await writer.submit(chunk(0))
    assert (counters.wals, counters.puts, counters.objects, counters.chunks) == (2, 2, 2, 2)
    assert counters.ack.count == 2
    assert counters.put_bytes == sum(len(body) for (_, _, at), body in store.wals.items() if at)


async def test_an_epoch_that_another_took_is_not_begun(store: GatedStore, executor: Executor) -> None:
    def take(sequence: int) -> None:
        store.before = lambda _: None
        MemoryWalStore.create(store, WalPlace(store.kind, "me", 1), sequence, seal_object(bytes(16)))

    store.before = take
    assert (await begin(store, executor)).place.epoch == 2
    with pytest.raises(ObjectExistsError):
        store.create(WalPlace(store.kind, "me", 1), 0, b"")


def test_the_bodies_in_flight_are_bounded() -> None:
    assert WalOptions(max_bytes=16 * MIB, in_flight=16).in_flight == 16
    with pytest.raises(InvalidSettingError, match="max_bytes"):
        WalOptions(max_bytes=16 * MIB + 1, in_flight=16)
    for in_flight in (0, 17):
        with pytest.raises(InvalidSettingError, match="in_flight"):
            WalOptions(in_flight=in_flight)
