"""What is missing is recorded once, and gaps give its reason, whichever came first."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.missing import PAGE_GAPS, record_loss, record_missing
from coldstream.archive.segment_lost import MAX_REASON_BYTES, SegmentLost
from coldstream.errors import InvalidEventError, LostRaceError, OutcomeUnknownError
from coldstream.manifest.commit import Change
from coldstream.manifest.entry import Gap, JournalKind, Loss, Quarantine
from coldstream.manifest.repair import plan_range_removal
from coldstream.manifest.stream import Incarnation
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS, entry
from tests.support.removing import delete, head_of, remove_prefix
from tests.support.transactions import SMALL

CONTROL = ControlObjects(MemoryObjects(), Keys())
INCARNATION = ORDERS.incarnation
WHY = "the disk was full"


def lose(table: MemoryTable, first: int, following: int, reason: str = WHY) -> None:
    record_loss(table, CONTROL, SegmentLost(ORDERS, Offset(first), Offset(following), reason), lambda: NOW)


def put_aside(table: MemoryTable, first: int, following: int, key: str = "quarantine/x") -> None:
    record_missing(table, ORDERS, Quarantine(Offset(first), Offset(following), "bad CRC", NOW, key, '"e"'))


def commit(table: MemoryTable, first: int, following: int) -> None:
    assert commit_fragment(table, ORDERS, entry(first, following), lambda: NOW)


def gaps(table: MemoryTable) -> list[tuple[int, int, str | None]]:
    return [(gap.first_offset, gap.next_offset, gap.reason) for gap in table.gaps(INCARNATION, 1000)]


def test_a_loss_that_is_announced_again_is_recorded_once() -> None:
    table = MemoryTable()
    for _ in range(3):
        lose(table, 10, 20)
    lose(table, 12, 18, "another reason")
    head = table.head(INCARNATION)
    assert head is not None
    assert (head.losses, head.revision, head.next_offset) == (1, 1, None)
    assert [one.reason for one in table.missing(INCARNATION)] == [WHY]
    (event,) = table.journal(INCARNATION)
    assert (event.kind, event.first_offset, event.next_offset) == (JournalKind.SEGMENT_LOST, 10, 20)
    assert (event.detail, event.at) == (WHY, NOW)


def test_a_loss_of_a_stream_that_is_not_archived_registers_it() -> None:
    table = MemoryTable()
    lose(table, 10, 20)
    assert table.incarnation_of("/", "orders") == INCARNATION


STEPS: list[Callable[[MemoryTable], None]] = [
    lambda table: commit(table, 0, 10),
    lambda table: commit(table, 30, 40),
    lambda table: lose(table, 10, 20),
    lambda table: lose(table, 20, 30, "retention was faster"),
    lambda table: commit(table, 50, 60),
    lambda table: put_aside(table, 40, 50),
]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_gap_and_its_losses_may_come_in_any_order(order: tuple[int, ...]) -> None:
    table = MemoryTable()
    for number in order:
        STEPS[number](table)
    assert gaps(table) == [(10, 30, f"{WHY}; retention was faster")]


def test_gaps_losses_and_quarantines_in_any_order_end_in_the_same_manifest() -> None:
    for seed in range(100):
        table = MemoryTable()
        for step in random.Random(seed).sample(STEPS * 2, 2 * len(STEPS)):
            try:
                step(table)
            except AssertionError:
                continue  # committed before
        assert gaps(table) == [(10, 30, f"{WHY}; retention was faster"), (40, 50, "in quarantine: bad CRC")]
        head = table.head(INCARNATION)
        assert head is not None
        assert (head.gaps, head.losses, head.quarantined, head.fragments) == (2, 2, 1, 3)
        assert len(list(table.journal(INCARNATION))) == len(STEPS)


def test_a_loss_waits_for_the_gap_past_the_tail_and_before_the_first_fragment() -> None:
    table = MemoryTable()
    commit(table, 20, 30)
    lose(table, 30, 40)
    lose(table, 10, 20, "older than the agent")
    assert gaps(table) == []
    commit(table, 40, 50)
    commit(table, 0, 10)
    assert gaps(table) == [(10, 20, "older than the agent"), (30, 40, WHY)]


def test_a_loss_that_is_archived_after_all_no_longer_has_a_gap() -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    commit(table, 40, 50)
    lose(table, 10, 40)
    commit(table, 20, 30)
    assert gaps(table) == [(10, 20, WHY), (30, 40, WHY)]
    commit(table, 10, 20)
    commit(table, 30, 40)
    assert gaps(table) == []
    head = table.head(INCARNATION)
    assert head is not None
    assert (head.gaps, head.losses) == (0, 1)


def test_a_gap_is_unexplained_until_all_of_it_is_explained() -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    commit(table, 40, 50)
    lose(table, 5, 30)
    assert gaps(table) == [(10, 40, None)]
    commit(table, 35, 40)
    assert gaps(table) == [(10, 35, None)]
    commit(table, 28, 35)
    assert gaps(table) == [(10, 28, WHY)]


def test_every_reason_follows_from_what_the_manifest_knows() -> None:
    rng = random.Random(4)
    explained = 0
    for _ in range(60):
        table = MemoryTable()
        spans = [(first, first + 5) for first in range(0, 200, 5) if rng.random() < 0.6]
        work: list[Callable[[], None]] = []
        for first, following in spans:
            work.append(lambda first=first, following=following, table=table: commit(table, first, following))
        for _ in range(rng.randrange(12)):
            first, size, act = rng.randrange(200), rng.randrange(1, 40), rng.choice([lose, put_aside])
            work.append(lambda act=act, first=first, size=size, table=table: act(table, first, first + size))
        rng.shuffle(work)
        for act in work:
            act()
        known = list(table.missing(INCARNATION))
        for first, following, reason in gaps(table):
            covered = all(
                any(one.first_offset <= offset < one.next_offset for one in known) for offset in range(first, following)
            )
            assert (reason is not None) == covered
            explained += covered
    assert explained > 50


def test_a_loss_over_many_gaps_gives_each_its_reason() -> None:
    table = MemoryTable()
    many = PAGE_GAPS + 20
    for number in range(many + 1):
        commit(table, number * 10, number * 10 + 5)
    lose(table, 0, many * 10)
    assert {reason for _, _, reason in gaps(table)} == {WHY}
    head = table.head(INCARNATION)
    assert head is not None
    assert (head.gaps, head.losses) == (many, 1)


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize(("more", "transactions"), [(0, 1), (1, 2)])
def test_a_transaction_takes_as_many_gaps_as_it_can(more: int, transactions: int) -> None:
    table = MemoryTable()
    many = SMALL["coldstream.archive.missing.MAX_GAPS"] + more
    for number in range(many + 1):
        commit(table, number * 10, number * 10 + 5)
    revision = head_of(table, INCARNATION).revision
    lose(table, 0, many * 10)
    assert [reason for _, _, reason in gaps(table)] == [WHY] * many
    assert head_of(table, INCARNATION).revision == revision + transactions


@pytest.mark.usefixtures("small_transactions")
def test_a_record_killed_between_two_transactions_is_finished_by_the_next() -> None:
    class Killed(BaseException):
        pass

    class Dying(MemoryTable):
        countdown = -1

        def apply(self, change: Change) -> None:
            self.countdown -= 1
            if self.countdown == 0:
                raise Killed
            super().apply(change)

    for countdown in (1, 2, 3, 4):
        table = Dying()
        for number in range(21):
            commit(table, number * 10, number * 10 + 5)
        table.countdown = countdown
        with pytest.raises(Killed):
            lose(table, 0, 300)
        lose(table, 0, 300)
        assert {reason for _, _, reason in gaps(table)} == {WHY}
        kinds = [event.kind for event in table.journal(INCARNATION)]
        assert kinds.count(JournalKind.SEGMENT_LOST) == 1


def test_a_loss_whose_answer_is_lost_is_recorded_once() -> None:
    class Forgetful(MemoryTable):
        def apply(self, change: Change) -> None:
            super().apply(change)
            raise OutcomeUnknownError("no answer")

    table = Forgetful()
    lose(table, 10, 20)
    head = table.head(INCARNATION)
    assert head is not None
    assert head.losses == 1


def test_a_loss_recorded_while_a_commit_is_planned_is_in_the_gap_that_it_makes() -> None:
    class Overtaken(MemoryTable):
        """Records a loss right before another writer's change is applied."""

        meanwhile: Callable[[], None] | None = None

        def apply(self, change: Change) -> None:
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            super().apply(change)

    table = Overtaken()
    commit(table, 0, 10)
    table.meanwhile = lambda: lose(table, 10, 20)
    commit(table, 20, 30)
    assert gaps(table) == [(10, 20, WHY)]
    table.meanwhile = lambda: commit(table, 40, 50)
    lose(table, 30, 40, "retention was faster")
    assert gaps(table) == [(10, 20, WHY), (30, 40, "retention was faster")]


class StalePageTable(MemoryTable):
    """Shows the first page of the log as it was before a change."""

    page: LogPage | None = None

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page, self.page = self.page, None
        return page or super().log_from_offset(incarnation, offset, limit)


def test_a_loss_does_not_take_what_was_just_given_up_for_archived() -> None:
    table = StalePageTable()
    for first in (0, 10, 20):
        commit(table, first, first + 10)
    before = table.log_from_offset(INCARNATION, Offset(0), 100)
    change = plan_range_removal(
        head_of(table, INCARNATION),
        *before.entries,
        missing=(),
        holds=(),
        at=NOW,
        due_at=TimestampMs(NOW + 1),
        reason="damaged",
        by=None,
    )
    table.apply(change)
    table.page = before
    lose(table, 5, 20)
    assert table.page is None
    assert gaps(table) == [(10, 20, WHY)]


def test_losses_and_commits_at_once_end_in_the_same_manifest() -> None:
    table = MemoryTable()
    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(commit, table, first, first + 10) for first in range(0, 200, 20)]
        work += [pool.submit(lose, table, first, first + 10) for first in range(10, 190, 20)] * 2
        for future in work:
            try:
                future.result()
            except LostRaceError:
                pytest.fail("the delays are too short for eight at once")
    assert gaps(table) == [(first, first + 10, WHY) for first in range(10, 190, 20)]


@pytest.mark.parametrize(
    ("after", "missing", "requests"),
    [
        ([(10, 20)], False, {"GetItem": 1, "TransactWriteItems": 1}),
        ([(10, 20)], True, {"GetItem": 1, "TransactWriteItems": 1}),
        ([(15, 20)], False, {"GetItem": 1, "TransactWriteItems": 1}),
        ([(15, 20)], True, {"GetItem": 1, "Query": 1, "TransactWriteItems": 1}),
    ],
    ids=["an append", "an append, where something is missing", "a gap", "a gap, where something is missing"],
)
def test_a_commit_reads_what_is_missing_only_if_it_makes_a_gap(
    after: list[tuple[int, int]], *, missing: bool, requests: dict[str, int]
) -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    if missing:
        lose(table, 500, 600)
    table.requests.clear()
    for first, following in after:
        commit(table, first, following)
    assert table.requests == requests


def test_a_first_loss_costs_two_requests_besides_those_of_the_claim() -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    table.requests.clear()
    lose(table, 10, 20)
    assert table.requests == {"GetItem": 2 + 1, "TransactWriteItems": 1}


@pytest.mark.parametrize(("first", "following"), [(5, 5), (9, 3), (-1, 4), (0, MAX_OFFSET + 1)])
def test_losses_of_impossible_offsets_are_refused(first: int, following: int) -> None:
    with pytest.raises(InvalidEventError, match="lost"):
        SegmentLost(ORDERS, Offset(first), Offset(following), WHY)


@pytest.mark.parametrize("reason", ["", "x" * (MAX_REASON_BYTES + 1), "é" * 501, "\ud800"])
def test_impossible_reasons_are_refused(reason: str) -> None:
    with pytest.raises(InvalidEventError, match="reason"):
        SegmentLost(ORDERS, Offset(0), Offset(1), reason)
    assert SegmentLost(ORDERS, Offset(0), Offset(1), "é" * 500).reason == "é" * 500


def test_a_loss_is_named_by_its_first_and_last_offset() -> None:
    lost = SegmentLost(ORDERS, Offset(10), Offset(20), WHY)
    assert str(lost) == f"loss of offsets 10 to 19 of {ORDERS}"


def test_a_gap_without_anything_missing_has_no_reason() -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    commit(table, 20, 30)
    assert table.gaps(INCARNATION, 10) == (Gap(Offset(10), Offset(20)),)


def test_a_loss_of_what_was_removed_is_none_and_of_one_across_the_floor_only_the_rest_is() -> None:
    table = MemoryTable()
    for first, following in ((0, 10), (10, 20), (30, 40)):
        commit(table, first, following)
    remove_prefix(table, INCARNATION, 2)
    control = ControlObjects(MemoryObjects(), Keys())
    assert not record_loss(table, control, SegmentLost(ORDERS, Offset(3), Offset(20), WHY), lambda: NOW)
    assert list(table.missing(INCARNATION)) == []
    assert record_loss(table, control, SegmentLost(ORDERS, Offset(3), Offset(30), WHY), lambda: NOW)
    assert list(table.missing(INCARNATION)) == [Loss(Offset(20), Offset(30), WHY, NOW)]
    assert list(control.losses(INCARNATION)) == [Loss(Offset(20), Offset(30), WHY, NOW)]


def test_a_loss_of_a_deleted_stream_is_none_once_its_purge_has_begun() -> None:
    table = MemoryTable()
    commit(table, 0, 10)
    delete(table, INCARNATION)
    control = ControlObjects(MemoryObjects(), Keys())
    assert record_loss(table, control, SegmentLost(ORDERS, Offset(10), Offset(20), WHY), lambda: NOW)
    assert list(table.missing(INCARNATION)) == [Loss(Offset(10), Offset(20), WHY, NOW)]
    remove_prefix(table, INCARNATION, 1)
    assert not record_loss(table, control, SegmentLost(ORDERS, Offset(20), Offset(30), WHY), lambda: NOW)
    assert head_of(table, INCARNATION).losses == 1
    assert len(list(control.losses(INCARNATION))) == 1


def test_a_loss_is_in_the_bucket_before_it_is_in_the_manifest_and_only_if_it_will_be() -> None:
    control = ControlObjects(MemoryObjects(), Keys())
    seen: list[list[Loss]] = []

    class Watched(MemoryTable):
        def apply(self, change: Change) -> None:
            seen.append(list(control.losses(INCARNATION)))
            super().apply(change)

    table = Watched()
    lost = SegmentLost(ORDERS, Offset(10), Offset(20), WHY)
    record_loss(table, control, lost, lambda: NOW)
    assert seen == [[Loss(Offset(10), Offset(20), WHY, NOW)]]
    assert control.stream(INCARNATION) == ORDERS
    # Wholly covered by the first, so the manifest does not record it: nor may the bucket.
    record_loss(table, control, SegmentLost(ORDERS, Offset(12), Offset(14), "again"), lambda: NOW)
    assert list(control.losses(INCARNATION)) == list(table.missing(INCARNATION))
