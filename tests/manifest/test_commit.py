"""The log that results from commits is the same for every order of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from coldstream.errors import OverlapError
from coldstream.manifest.change import (
    MAX_ITEMS,
    DeleteGap,
    EntryVersion,
    PutGap,
    Relink,
    ReplaceGap,
    RequireEntry,
)
from coldstream.manifest.commit import Neighbourhood, is_append, is_settled, makes_gap, plan_commit
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalKind, Loss
from coldstream.manifest.missing import with_reason
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NOW = TimestampMs(1_763_700_000_000)


def entry(first: int, following: int, *, first_timestamp: int = 0, greatest: int = 0) -> FragmentEntry:
    point = SparsePoint(ChunkId(first), 0, 8, TimestampMs(first_timestamp), TimestampMs(first_timestamp))
    return FragmentEntry(
        first_offset=Offset(first),
        next_offset=Offset(following),
        first_timestamp=TimestampMs(first_timestamp),
        last_timestamp=TimestampMs(greatest),
        greatest_timestamp=TimestampMs(greatest),
        epoch=Epoch(1),
        chunks=1,
        records=following - first,
        messages=following - first,
        data_bytes=100,
        object_bytes=182,
        key=f"{first:020}.fragment",
        crc32=0,
        sparse=SparseIndex((point,)),
        last_user_chunk=None,
        segment_offset=Offset(first),
    )


class Log:
    """The least of a table: enough to plan commits on, and to apply them."""

    def __init__(self) -> None:
        self.head = Head(STREAM)
        self.entries: dict[int, FragmentEntry] = {}
        self.gaps: dict[int, Gap] = {}
        self.losses: list[Loss] = []
        self.largest_change = 0

    def commit(self, new: FragmentEntry) -> None:
        while True:
            change = plan_commit(self._around(new), new, NOW)
            self.largest_change = max(self.largest_change, change.items)
            assert change.head.revision == self.head.revision + 1
            self.head = change.head
            for version in (one.version for one in change.of(RequireEntry)):
                assert EntryVersion.of(self.entries[version.next_offset]) == version
            for relink in change.of(Relink):
                assert EntryVersion.of(self.entries[relink.next_offset]) == relink.before
                old = self.entries[relink.next_offset]
                self.entries[relink.next_offset] = replace(
                    old, prior_offset=relink.prior_offset, prior_timestamp=relink.prior_timestamp
                )
                assert self.entries[relink.next_offset].running_timestamp == relink.running_timestamp
            for old in (one.before for one in change.writes if isinstance(one, ReplaceGap | DeleteGap)):
                assert self.gaps.pop(old.first_offset) == self._with_reason(old)
            for gap in (one.gap for one in change.writes if isinstance(one, ReplaceGap | PutGap)):
                assert gap.first_offset not in self.gaps
                self.gaps[gap.first_offset] = gap
            self._never_falls()
            if change.new_entry is not None:
                self.entries[change.new_entry.next_offset] = change.new_entry
                self._never_falls()
                return

    def _with_reason(self, gap: Gap) -> Gap:
        return with_reason(gap, self.losses)

    def _never_falls(self) -> None:
        running = [self.entries[key].running_timestamp for key in sorted(self.entries)]
        assert running == sorted(running)

    def _around(self, new: FragmentEntry) -> Neighbourhood:
        if is_append(self.head, new):
            return Neighbourhood(self.head, missing=self.losses)
        log = [self.entries[key] for key in sorted(self.entries)]
        before = [old for old in log if old.next_offset <= new.first_offset]
        after = [old for old in log if old.next_offset > new.first_offset]
        settled = next((number for number, old in enumerate(after) if is_settled(old, new)), len(after))
        return Neighbourhood(self.head, before[-1] if before else None, after[: settled + 1], self.losses)

    def state(self) -> tuple[object, ...]:
        return ({**self.entries}, {**self.gaps}, self.head.first_offset, self.head.next_offset, self.head.gaps)


FRAGMENTS = [
    entry(0, 10, first_timestamp=5, greatest=20),
    entry(10, 30, first_timestamp=20, greatest=90),
    entry(30, 31, first_timestamp=15, greatest=16),
    entry(40, 50, first_timestamp=17, greatest=30),
    entry(50, 60, first_timestamp=31, greatest=120),
]


@pytest.mark.parametrize("order", list(permutations(range(5))))
def test_any_order_of_commits_gives_the_same_log(order: tuple[int, ...]) -> None:
    in_order, shuffled = Log(), Log()
    for fragment in FRAGMENTS:
        in_order.commit(fragment)
    for number in order:
        shuffled.commit(FRAGMENTS[number])
    assert shuffled.state() == in_order.state()


def test_links_and_gaps_describe_what_is_there() -> None:
    rng = random.Random(7)
    for _ in range(30):
        borders = sorted(rng.sample(range(1000), 40))
        spans = [span for span in pairwise(borders) if rng.random() < 0.7]
        fragments = [entry(*span, greatest=rng.randrange(500)) for span in spans]
        rng.shuffle(fragments)
        log = Log()
        for fragment in fragments:
            log.commit(fragment)
        running: int | None = None
        prior: int | None = None
        holes: dict[int, int] = {}
        for key in sorted(log.entries):
            here = log.entries[key]
            assert (here.prior_offset, here.prior_timestamp) == (prior, running)
            if prior is not None and prior < here.first_offset:
                holes[prior] = here.first_offset
            running = here.running_timestamp
            prior = here.next_offset
        assert {gap.first_offset: gap.next_offset for gap in log.gaps.values()} == holes
        assert log.head.gaps == len(holes)
        assert log.head.greatest_timestamp == running
        assert log.head.fragments == len(fragments)
        assert log.head.records == sum(fragment.records for fragment in fragments)


def test_a_late_entry_before_a_clock_step_raises_its_successors_in_batches_of_a_transaction() -> None:
    log = Log()
    log.commit(entry(0, 10, greatest=1))
    for number in range(2, 400):
        log.commit(entry(number * 10, number * 10 + 10, greatest=number))
    log.commit(entry(10, 20, greatest=1000))
    assert log.largest_change == MAX_ITEMS
    assert {old.running_timestamp for key, old in log.entries.items() if key > 10} == {1000}


def test_the_first_entry_has_no_links() -> None:
    change = plan_commit(Neighbourhood(Head(STREAM)), FRAGMENTS[1], NOW)
    assert change.new_entry is not None
    assert change.new_entry.prior_offset is None
    assert change.new_entry.prior_timestamp is None
    assert change.of(PutGap) == ()


def test_an_overlap_is_refused() -> None:
    log = Log()
    log.commit(entry(10, 20))
    with pytest.raises(OverlapError, match="10 to 19"):
        log.commit(entry(15, 25))


def test_a_gap_keeps_its_reason_when_it_shrinks() -> None:
    log = Log()
    log.losses = [Loss(Offset(5), Offset(45), "disk was full", NOW)]
    log.commit(entry(0, 10))
    log.commit(entry(40, 50))
    assert log.gaps == {10: Gap(Offset(10), Offset(40), "disk was full")}
    log.commit(entry(20, 30))
    assert log.gaps == {
        10: Gap(Offset(10), Offset(20), "disk was full"),
        30: Gap(Offset(30), Offset(40), "disk was full"),
    }
    assert log.head.gaps == 2


def test_a_gap_that_shrinks_to_what_is_explained_gets_its_reason() -> None:
    log = Log()
    log.losses = [Loss(Offset(20), Offset(30), "disk was full", NOW)]
    log.commit(entry(0, 10))
    log.commit(entry(30, 40))
    assert log.gaps == {10: Gap(Offset(10), Offset(30), None)}
    log.commit(entry(15, 20))
    assert log.gaps == {10: Gap(Offset(10), Offset(15)), 20: Gap(Offset(20), Offset(30), "disk was full")}


@pytest.mark.parametrize(
    ("new", "makes"),
    [
        (entry(20, 30), False),
        (entry(25, 30), True),
        (entry(0, 5), False),
        (entry(0, 4), True),
        (entry(10, 15), False),
        (entry(10, 14), True),
        (entry(11, 15), True),
        (entry(11, 14), True),
    ],
)
def test_an_entry_makes_a_gap_unless_it_touches_its_neighbours(new: FragmentEntry, makes: bool) -> None:  # noqa: FBT001
    log = Log()
    log.commit(entry(5, 10))
    log.commit(entry(15, 20))
    assert makes_gap(log._around(new), new) == makes
    change = plan_commit(log._around(new), new, NOW)
    assert bool(change.of(PutGap) or change.of(ReplaceGap)) == makes


def test_the_journal_says_what_was_committed() -> None:
    change = plan_commit(Neighbourhood(Head(STREAM, revision=6)), FRAGMENTS[0], NOW)
    event = change.event
    assert event.kind is JournalKind.FRAGMENT_COMMITTED
    assert (event.revision, event.first_offset, event.next_offset) == (7, 0, 10)
