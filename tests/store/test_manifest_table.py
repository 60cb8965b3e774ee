"""The contract of `ports.ManifestTable`, on every implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from coldstream.errors import InvalidNameError, InvalidQueryError, LostRaceError
from coldstream.manifest.access import Grant
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.appending import plan_close, plan_create, plan_open, plan_trim
from coldstream.manifest.change import (
    MAX_ITEMS,
    DeleteEntry,
    DeleteTombstone,
    EntryVersion,
    PutEntry,
    PutGap,
    PutTombstone,
    Relink,
    ReplaceEntry,
)
from coldstream.manifest.claiming import plan_claim, plan_claim_end
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.commit import Neighbourhood, plan_commit, plan_missing
from coldstream.manifest.entry import (
    DeletionClaim,
    Encoding,
    Gap,
    Head,
    JournalKind,
    LastUserChunk,
    Loss,
    Missing,
    Quarantine,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.policy import Policy
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import LogPage, ManifestTable, StreamPage
from coldstream.units import (
    MAX_OFFSET,
    MAX_TIMESTAMP_MS,
    MIN_TIMESTAMP_MS,
    ChunkId,
    Epoch,
    Offset,
    TimestampMs,
)
from tests.store.samples import NOW, ORDERS, commit, entry
from tests.support.changes import change_to

LIFE = ORDERS.incarnation

HOSTILE = [
    StreamId("/", "Bestellungen für Öl", Incarnation("__Bestellungen_f_r__l_1763700000000000001")),
    StreamId("a/b#c", "log#head", Incarnation("a_b_c_log_head_1763700000000000002")),
    StreamId("\0", "\0\0", Incarnation("_____1763700000000000003")),
    StreamId("é" * 127 + "x", "x" * 255, Incarnation("x" * 255)),
    StreamId("名前", "🐇", Incarnation("____________1763700000000000004")),
]


BAD = Quarantine(Offset(120), Offset(130), "bad", NOW, "quarantine/x", '"etag"')
LOST = Loss(Offset(30), Offset(40), "retention was faster: größer als der Rest", NOW)


def record(table: ManifestTable, one: Missing) -> None:
    """Write down what is missing, of a stream that has no gaps there."""
    change = plan_missing(table.head(LIFE) or Head(ORDERS), one, list(table.missing(LIFE)), [])
    assert change is not None
    table.apply(change)


def offsets(page: LogPage) -> list[int]:
    return [entry.first_offset for entry in page.entries]


def filled(table: ManifestTable, *borders: int, time_step: int = 10) -> None:
    for number, (first, following) in enumerate(pairwise(borders)):
        commit(table, entry(first, following, time=1000 + number * time_step))


def test_an_unknown_stream_has_no_head_and_an_empty_log(table: ManifestTable) -> None:
    assert table.head(LIFE) is None
    assert table.log_from_offset(LIFE, Offset(0), 10) == LogPage((), None)
    assert table.log_from_timestamp(LIFE, TimestampMs(0), 10) == LogPage((), None)
    assert table.log_before(LIFE, Offset(MAX_OFFSET), 10) == ()
    assert table.gaps(LIFE, 10) == ()
    assert table.gap(LIFE, Offset(0)) is None
    assert list(table.journal(LIFE)) == []


def test_an_entry_comes_back_as_it_was_committed(table: ManifestTable) -> None:
    points = [SparsePoint(ChunkId(7 + 10 * n), n, 8 + n, TimestampMs(-n), TimestampMs(5)) for n in range(70)]
    last = LastUserChunk(ChunkId(15), 4711, TimestampMs(-3))
    new = replace(entry(7, 20, last_user_chunk=last), sparse=SparseIndex(tuple(points)), generation=2)
    written = commit(table, new)
    assert table.log_from_offset(LIFE, Offset(7), 1).entries == (written,)
    assert table.log_from_timestamp(LIFE, TimestampMs(0), 1).entries == (written,)
    assert table.log_before(LIFE, Offset(20), 1) == (written,)


def test_a_head_comes_back_as_it_was_committed(table: ManifestTable) -> None:
    head = Head(ORDERS)
    for new in (entry(0, 10, time=5), entry(10, 30, time=4)):
        change = plan_commit(Neighbourhood(head), new, NOW)
        table.apply(change)
        head = change.head
    assert table.head(LIFE) == head
    assert head.records == 30


def test_claims_of_deletions_come_back_with_the_head_and_with_the_journal(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    spans = [(Offset(0), Offset(10)), (Offset(5), Offset(MAX_OFFSET + 1))]
    for span in spans:
        head = table.head(LIFE)
        assert head is not None
        table.apply(plan_claim(head, [span], (), NOW))
    head = table.head(LIFE)
    assert head is not None
    assert head.claims == (DeletionClaim(2, *spans[0], NOW), DeletionClaim(3, *spans[1], NOW))
    assert [(one.first_offset, one.next_offset) for one in table.journal(LIFE, 1)] == spans
    assert [change.head for _, change in table.recorded_changes(LIFE)][-1] == head
    table.apply(plan_claim_end(head, head.claims[0], NOW))
    after = table.head(LIFE)
    assert after is not None
    assert after.claims == head.claims[1:]


def test_the_appender_of_a_direct_stream_comes_back_with_the_head_and_with_the_journal(table: ManifestTable) -> None:
    properties = {"größe": "名前", "": '"'}
    table.apply(plan_create(ORDERS, NOW, first=Offset(7), properties=properties))
    heads = [table.head(LIFE)]
    for kind in WalKind:
        assert heads[-1] is not None
        table.apply(plan_open(heads[-1], WalPlace(kind, "host-1", 3), NOW))
        heads.append(table.head(LIFE))
    assert heads[-1] is not None
    last = Epoch(len(WalKind))
    trimmed = plan_trim(heads[-1], last, Offset(MAX_OFFSET + 1), NOW)
    assert trimmed is not None
    table.apply(trimmed)
    table.apply(plan_close(trimmed.head, last, NOW, is_sealed=True))
    head = table.head(LIFE)
    assert head is not None
    assert head.appender == Appender(
        last, (), Offset(7), Offset(MAX_OFFSET + 1), is_sealed=True, properties=(("", '"'), ("größe", "名前"))
    )
    opened = [Opening(Epoch(epoch), WalPlace(kind, "host-1", 3)) for epoch, kind in enumerate(WalKind, 1)]
    found = [change.head.appender for _, change in table.recorded_changes(LIFE)]
    assert [one and list(one.openings) for one in found] == [*(opened[:at] for at in range(last + 1)), opened, []]
    assert found[-1] == head.appender


def test_two_who_open_a_stream_at_once_get_no_epoch_both(table: ManifestTable) -> None:
    created = plan_create(ORDERS, NOW, first=Offset(0), properties={})
    table.apply(created)
    table.apply(plan_open(created.head, WalPlace(WalKind.S3, "one", 1), NOW))
    with pytest.raises(LostRaceError):
        table.apply(plan_open(created.head, WalPlace(WalKind.S3, "other", 1), NOW))


def test_a_brokers_stream_has_no_appender(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    head = table.head(LIFE)
    assert head is not None
    assert head.appender is None


def test_a_head_without_entries_keeps_its_unknowns(table: ManifestTable) -> None:
    record(table, BAD)
    head = table.head(LIFE)
    assert head is not None
    assert (head.stream, head.revision, head.quarantined) == (ORDERS, 1, 1)
    assert head.first_offset is None
    assert head.greatest_timestamp is None


@pytest.mark.parametrize(("offset", "first"), [(0, 5), (5, 5), (9, 5), (10, 10), (19, 10), (20, 20), (29, 20)])
def test_the_log_begins_at_the_entry_that_holds_the_offset(table: ManifestTable, offset: int, first: int) -> None:
    filled(table, 5, 10, 20, 30)
    assert offsets(table.log_from_offset(LIFE, Offset(offset), 1)) == [first]


def test_the_log_past_the_last_entry_is_the_head_alone(table: ManifestTable) -> None:
    filled(table, 0, 10)
    for offset in (10, 11, MAX_OFFSET):
        page = table.log_from_offset(LIFE, Offset(offset), 5)
        assert page == LogPage((), table.head(LIFE))
        assert page.head is not None


def test_entries_are_in_the_order_of_offsets_not_of_digits_or_commits(table: ManifestTable) -> None:
    for first, following in [(1000, 10_000), (0, 9), (99, 1000), (9, 10), (10, 99)]:
        commit(table, entry(first, following))
    assert offsets(table.log_from_offset(LIFE, Offset(0), 10)) == [0, 9, 10, 99, 1000]


@pytest.mark.parametrize(("limit", "head_seen"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_head_is_seen_exactly_when_the_page_reaches_the_end(
    table: ManifestTable,
    limit: int,
    head_seen: bool,  # noqa: FBT001
) -> None:
    filled(table, 0, 10, 20, 30)
    by_offset = table.log_from_offset(LIFE, Offset(0), limit)
    assert offsets(by_offset) == [0, 10, 20][:limit]
    assert (by_offset.head is not None) == head_seen
    by_time = table.log_from_timestamp(LIFE, TimestampMs(0), limit)
    assert by_time == by_offset


def test_the_log_before_an_offset_is_what_ends_at_or_before_it_nearest_first(table: ManifestTable) -> None:
    filled(table, 0, 10, 20, 30)
    assert [e.first_offset for e in table.log_before(LIFE, Offset(20), 10)] == [10, 0]
    assert [e.first_offset for e in table.log_before(LIFE, Offset(19), 10)] == [0]
    assert [e.first_offset for e in table.log_before(LIFE, Offset(MAX_OFFSET), 2)] == [20, 10]
    assert table.log_before(LIFE, Offset(9), 1) == ()


def test_a_time_that_repeats_is_found_at_its_first_entry(table: ManifestTable) -> None:
    for first, time in [(0, 1000), (10, 2000), (20, 2000), (30, 2000), (40, 3000)]:
        commit(table, entry(first, first + 10, time=time))
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(2000), 10)) == [10, 20, 30, 40]
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(2001), 10)) == [40]
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(1999), 1)) == [10]


def test_a_time_after_every_chunk_is_answered_with_the_head(table: ManifestTable) -> None:
    filled(table, 0, 10)
    assert table.log_from_timestamp(LIFE, TimestampMs(1001), 3) == LogPage((), table.head(LIFE))


def test_an_entry_of_an_older_clock_stands_under_the_time_before_it(table: ManifestTable) -> None:
    for first, time in [(0, 5000), (10, 1000), (20, 6000)]:
        commit(table, entry(first, first + 10, time=time))
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(900), 10)) == [0, 10, 20]
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(5001), 10)) == [20]


def test_an_entry_that_comes_late_moves_its_successors_to_its_time(table: ManifestTable) -> None:
    for first, time in [(0, 1000), (20, 2000), (30, 2500), (10, 9000)]:
        commit(table, entry(first, first + 10, time=time))
    page = table.log_from_timestamp(LIFE, TimestampMs(9000), 10)
    assert offsets(page) == [10, 20, 30]
    assert [e.prior_offset for e in page.entries] == [10, 20, 30]
    assert [e.prior_timestamp for e in page.entries] == [1000, 9000, 9000]
    assert table.log_from_offset(LIFE, Offset(10), 10) == page


def test_a_relink_can_take_the_links_away(table: ManifestTable) -> None:
    filled(table, 0, 10, 20)
    head = table.head(LIFE)
    assert head is not None
    (last,) = table.log_before(LIFE, Offset(20), 1)
    alone = Relink(EntryVersion.of(last), None, None, TimestampMs(1010))
    table.apply(change_to(replace(head, revision=head.revision + 1), (alone,)))
    found = table.log_from_offset(LIFE, Offset(10), 1).entries[0]
    assert (found.prior_offset, found.prior_timestamp) == (None, None)


@pytest.mark.parametrize("time", [MIN_TIMESTAMP_MS, -1000, -1, 0, MAX_TIMESTAMP_MS - 1])
def test_times_are_ordered_over_all_of_64_bits(table: ManifestTable, time: int) -> None:
    commit(table, entry(0, 10, time=time))
    commit(table, entry(10, 20, time=time + 1))
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(time), 10)) == [0, 10]
    assert offsets(table.log_from_timestamp(LIFE, TimestampMs(time + 1), 10)) == [10]
    assert table.log_from_offset(LIFE, Offset(0), 1).entries[0].first_timestamp == time


def test_offsets_and_epochs_reach_to_the_end_of_64_bits(table: ManifestTable) -> None:
    far = replace(entry(MAX_OFFSET - 5, MAX_OFFSET + 1), epoch=Epoch(MAX_OFFSET), segment_offset=Offset(MAX_OFFSET - 5))
    written = commit(table, far)
    for offset in (2**53 + 1, MAX_OFFSET - 5, MAX_OFFSET - 1):
        assert table.log_from_offset(LIFE, Offset(offset), 1).entries == (written,)
    assert table.log_from_offset(LIFE, Offset(MAX_OFFSET), 1).entries == (written,)
    head = table.head(LIFE)
    assert head is not None
    assert (head.first_offset, head.next_offset) == (MAX_OFFSET - 5, 2**64)


def test_a_number_past_53_bits_is_exact(table: ManifestTable) -> None:
    written = commit(table, replace(entry(2**53 + 1, 2**53 + 4), epoch=Epoch(2**63 + 1)))
    assert table.log_from_offset(LIFE, Offset(0), 1).entries == (written,)


def test_a_hole_has_a_gap_until_it_is_filled(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    commit(table, entry(30, 40))
    commit(table, entry(50, 60))
    assert table.gaps(LIFE, 10) == (Gap(Offset(10), Offset(30)), Gap(Offset(40), Offset(50)))
    assert table.gaps(LIFE, 1) == (Gap(Offset(10), Offset(30)),)
    assert table.gap(LIFE, Offset(40)) == Gap(Offset(40), Offset(50))
    assert table.gap(LIFE, Offset(41)) is None
    commit(table, entry(15, 20))
    assert table.gaps(LIFE, 10)[:2] == (Gap(Offset(10), Offset(15)), Gap(Offset(20), Offset(30)))
    commit(table, entry(10, 15))
    commit(table, entry(20, 30))
    assert table.gaps(LIFE, 10) == (Gap(Offset(40), Offset(50)),)
    head = table.head(LIFE)
    assert head is not None
    assert head.gaps == 1


def test_a_gap_keeps_its_reason(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    head = table.head(LIFE)
    assert head is not None
    gap = Gap(Offset(10), Offset(20), "retention was faster: größer als der Rest")
    table.apply(change_to(replace(head, revision=2), (PutGap(gap),)))
    assert table.gap(LIFE, Offset(10)) == gap


def test_gaps_are_found_from_an_offset_on_and_backwards(table: ManifestTable) -> None:
    for first in (0, 20, 40, 60):
        commit(table, entry(first, first + 10))
    gaps = [Gap(Offset(first), Offset(first + 10)) for first in (10, 30, 50)]
    assert table.gaps(LIFE, 10, from_offset=Offset(10)) == tuple(gaps)
    assert table.gaps(LIFE, 10, from_offset=Offset(11)) == tuple(gaps[1:])
    assert table.gaps(LIFE, 1, from_offset=Offset(30)) == (gaps[1],)
    assert table.gaps(LIFE, 10, from_offset=Offset(51)) == ()
    assert table.gaps_before(LIFE, Offset(MAX_OFFSET), 10) == tuple(reversed(gaps))
    assert table.gaps_before(LIFE, Offset(51), 2) == (gaps[2], gaps[1])
    assert table.gaps_before(LIFE, Offset(50), 2) == (gaps[1], gaps[0])
    assert table.gaps_before(LIFE, Offset(50), 1) == (gaps[1],)
    assert table.gaps_before(LIFE, Offset(10), 10) == ()
    assert table.gaps_before(LIFE, Offset(0), 10) == ()


def test_policies_are_put_listed_and_taken_back(table: ManifestTable) -> None:
    assert table.policies() == ()
    plain = Policy("b", "*/*", max_bytes=0)
    full = Policy("a.1", "%2F/\u540d*", -3, 1, 2, 3, 4, 5, StorageClass.DEEP_ARCHIVE, 6)
    for policy in (plain, replace(full, priority=9), full):
        table.put_policy(policy)
    assert table.policies() == (full, plain)
    assert table.delete_policy("b")
    assert not table.delete_policy("b")
    assert table.policies() == (full,)
    assert table.grants() == ()


def test_a_cursor_is_kept_until_it_is_deleted(table: ManifestTable) -> None:
    assert table.cursor("scrub/1") is None
    for data in (b"{}", bytes(range(256)), b""):
        table.put_cursor("scrub/1", data)
        assert table.cursor("scrub/1") == data
    table.put_cursor("scrub/2", b"other")
    table.delete_cursor("scrub/1")
    table.delete_cursor("scrub/1")
    assert (table.cursor("scrub/1"), table.cursor("scrub/2")) == (None, b"other")


def test_grants_are_put_listed_and_taken_back(table: ManifestTable) -> None:
    assert table.grants() == ()
    grants = [Grant("*", "%2F/orders*", NOW), Grant("arn:aws:iam::123456789012:role/r", "名前/%2A", NOW)]
    for grant in (*reversed(grants), grants[0]):
        table.put_grant(grant)
    assert table.grants() == tuple(grants)
    assert table.delete_grant(grants[0])
    assert not table.delete_grant(grants[0])
    assert table.grants() == (grants[1],)
    assert table.streams(None, 10) == StreamPage((), None)


def test_what_is_missing_comes_back_as_it_was_written_losses_first(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    far = Loss(Offset(MAX_OFFSET - 1), Offset(MAX_OFFSET), "x", TimestampMs(-5))
    overlapping = [replace(LOST, next_offset=Offset(400)), replace(BAD, next_offset=Offset(125), key="y")]
    for one in (BAD, far, LOST, *overlapping):
        record(table, one)
    assert list(table.missing(LIFE)) == [LOST, overlapping[0], far, overlapping[1], BAD]
    assert list(table.missing(Incarnation("__orders_1763700000000000001"))) == []
    head = table.head(LIFE)
    assert head is not None
    assert (head.losses, head.quarantined) == (3, 2)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Loss, lambda first, following: Loss(Offset(first), Offset(following), "gone", NOW)),
        (Quarantine, lambda first, following: replace(BAD, first_offset=Offset(first), next_offset=Offset(following))),
    ],
)
def test_what_is_missing_is_read_by_kind_from_an_offset_on_and_backwards(
    table: ManifestTable, kind: type[Missing], make: Callable[[int, int], Missing]
) -> None:
    filled(table, 0, 10)
    far = MAX_OFFSET - 1
    ones = [make(first, following) for first, following in ((0, 3), (5, 6), (5, 9), (9, 12), (far, MAX_OFFSET))]
    for one in (LOST, BAD, *ones):
        record(table, one)
    others = [one for one in (LOST, BAD) if isinstance(one, kind)]
    known = sorted([*others, *ones], key=lambda one: (one.first_offset, one.next_offset))
    for offset in (0, 4, 5, 6, 9, 30, 125, far, MAX_OFFSET):
        after = [one for one in known if one.first_offset > offset]
        before = [one for one in known if one.first_offset <= offset][::-1]
        for limit in (1, 3, 100):
            assert table.missing_after(LIFE, kind, Offset(offset), limit) == tuple(after[:limit])
            assert table.missing_before(LIFE, kind, Offset(offset), limit) == tuple(before[:limit])


def test_the_end_of_the_log_is_its_last_entries_and_the_head(table: ManifestTable) -> None:
    assert table.log_end(LIFE, 2) == LogPage((), None)
    filled(table, 0, 10, 20, 30)
    assert offsets(table.log_end(LIFE, 2)) == [10, 20]
    assert offsets(table.log_end(LIFE, 9)) == [0, 10, 20]
    assert table.log_end(LIFE, 1).head == table.head(LIFE)


def test_entries_are_read_with_the_head_as_of_one_moment(table: ManifestTable) -> None:
    assert table.log_at_once(LIFE, [Offset(10)]) is None
    filled(table, 0, 10, 20, 30)
    page = table.log_at_once(LIFE, [Offset(10), Offset(30)])
    assert page is not None
    assert offsets(page) == [0, 20]
    assert page.entries[0] == table.log_from_offset(LIFE, Offset(0), 1).entries[0]
    assert page.head == table.head(LIFE)
    assert table.log_at_once(LIFE, [Offset(10), Offset(25)]) is None


def test_items_of_any_kind_are_read_as_of_one_moment_and_absent_ones_are_left_out(table: ManifestTable) -> None:
    filled(table, 0, 10, 20, 30)
    keys = ["log#head", "log#" + f"{10:020}", "log#" + f"{11:020}", "event#" + f"{1:020}"]
    found = table.items_at_once(LIFE, keys)
    assert found is not None
    assert list(found) == [keys[0], keys[1], keys[3]]
    assert found["log#head"] == table.head(LIFE)
    assert found[keys[1]] == table.log_from_offset(LIFE, Offset(0), 1).entries[0]
    assert found[keys[3]] == next(table.journal(LIFE))


def test_a_quarantine_is_found_by_exactly_its_offsets_and_is_the_last_one(table: ManifestTable) -> None:
    assert table.quarantine(LIFE, Offset(120), Offset(130)) is None
    record(table, BAD)
    record(table, replace(LOST, first_offset=Offset(120), next_offset=Offset(131)))
    assert table.quarantine(LIFE, Offset(120), Offset(130)) == BAD
    assert table.quarantine(LIFE, Offset(120), Offset(131)) is None
    assert table.quarantine(LIFE, Offset(119), Offset(130)) is None
    again = replace(BAD, key="quarantine/y", etag='"another"', reason="worse")
    record(table, again)
    assert table.quarantine(LIFE, Offset(120), Offset(130)) == replace(again, copies=2)


def test_a_loss_that_loses_the_race_leaves_nothing_behind(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    head = table.head(LIFE)
    assert head is not None
    commit(table, entry(10, 20))
    change = plan_missing(head, LOST, [], [])
    assert change is not None
    with pytest.raises(LostRaceError):
        table.apply(change)
    assert list(table.missing(LIFE)) == []
    assert len(list(table.journal(LIFE))) == 2


def test_the_journal_has_every_change_in_order(table: ManifestTable) -> None:
    for first in range(0, 120, 10):
        commit(table, entry(first, first + 10))
    record(table, BAD)
    record(table, LOST)
    events = list(table.journal(LIFE))
    assert [event.revision for event in events] == list(range(1, 15))
    assert [event.kind for event in events[:12]] == [JournalKind.FRAGMENT_COMMITTED] * 12
    assert [event.kind for event in events[12:]] == [JournalKind.SEGMENT_QUARANTINED, JournalKind.SEGMENT_LOST]
    assert (events[2].first_offset, events[2].next_offset, events[2].key) == (
        20,
        30,
        "data/00000000000000000020.fragment",
    )
    assert (events[12].next_offset, events[12].key, events[12].detail) == (130, "quarantine/x", "bad")
    assert (events[13].next_offset, events[13].key, events[13].detail) == (40, None, LOST.reason)
    assert events[13].at == NOW
    assert [event.revision for event in table.journal(LIFE, after_revision=12)] == [13, 14]
    assert list(table.journal(LIFE, after_revision=14)) == []


@pytest.mark.parametrize("stream", HOSTILE, ids=lambda stream: ascii(stream.name)[:20])
def test_a_stream_of_any_name_is_registered_and_found(table: ManifestTable, stream: StreamId) -> None:
    commit(table, entry(0, 10), stream)
    assert table.incarnation_of(stream.vhost, stream.name) == stream.incarnation
    assert table.streams(None, 10) == StreamPage((stream,), None)
    head = table.head(stream.incarnation)
    assert head is not None
    assert head.stream == stream


def test_names_that_run_together_are_different_streams(table: ManifestTable) -> None:
    one = StreamId("a", "bc", Incarnation("a_bc_1763700000000000000"))
    other = StreamId("ab", "c", Incarnation("ab_c_1763700000000000000"))
    commit(table, entry(0, 10), one)
    assert table.incarnation_of("ab", "c") is None
    commit(table, entry(0, 10), other)
    assert table.incarnation_of("a", "bc") == one.incarnation
    assert table.incarnation_of("ab", "c") == other.incarnation


def test_the_newest_incarnation_is_the_one_declared_last(table: ManifestTable) -> None:
    lives = [Incarnation(f"__orders_17637000000000000{n:02}") for n in (5, 30, 12)]
    for life in lives:
        commit(table, entry(0, 10), StreamId("/", "orders", life))
    assert table.incarnation_of("/", "orders") == lives[1]
    assert {stream.incarnation for stream in table.streams(None, 10).streams} == set(lives)


def test_a_name_that_cannot_be_one_is_refused(table: ManifestTable) -> None:
    for vhost, name in [("/", ""), ("", "orders"), ("/", "x" * 256), ("/", "\ud800")]:
        with pytest.raises(InvalidNameError):
            table.incarnation_of(vhost, name)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_pages_of_streams_have_each_of_them_once(table: ManifestTable, limit: int) -> None:
    for stream in HOSTILE:
        commit(table, entry(0, 10), stream)
    seen: list[StreamId] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page = table.streams(cursor, limit)
        assert len(page.streams) <= limit
        seen += page.streams
        cursor = page.cursor
        pages += 1
    assert len(seen) == len(HOSTILE)
    assert set(seen) == set(HOSTILE)
    assert pages == -(-len(HOSTILE) // limit)


@pytest.mark.parametrize("cursor", ["", "x", "g" * 64 + "#orders", "0" * 64 + "#", "0" * 64 + "#a/b", "é"])
def test_a_cursor_that_no_page_gave_is_refused(table: ManifestTable, cursor: str) -> None:
    with pytest.raises(InvalidQueryError):
        table.streams(cursor, 10)


def test_only_one_of_two_changes_planned_on_the_same_revision_happens(table: ManifestTable) -> None:
    commit(table, entry(0, 10))
    head = table.head(LIFE)
    assert head is not None
    winner = plan_commit(Neighbourhood(head), entry(10, 20), NOW)
    loser = plan_commit(Neighbourhood(head), entry(10, 25), NOW)
    table.apply(winner)
    with pytest.raises(LostRaceError):
        table.apply(loser)
    assert table.head(LIFE) == winner.head
    assert offsets(table.log_from_offset(LIFE, Offset(0), 10)) == [0, 10]
    assert [event.next_offset for event in table.journal(LIFE)] == [10, 20]


def test_only_one_of_two_first_changes_happens(table: ManifestTable) -> None:
    first = plan_commit(Neighbourhood(Head(ORDERS)), entry(0, 10), NOW)
    second = plan_commit(Neighbourhood(Head(ORDERS)), entry(10, 20), NOW)
    table.apply(first)
    with pytest.raises(LostRaceError):
        table.apply(second)
    assert table.head(LIFE) == first.head


def test_a_change_to_a_later_revision_of_an_unknown_stream_loses(table: ManifestTable) -> None:
    with pytest.raises(LostRaceError):
        table.apply(plan_commit(Neighbourhood(Head(ORDERS, revision=4)), entry(0, 10), NOW))
    assert table.head(LIFE) is None


def test_a_change_that_may_not_happen_leaves_nothing_behind(table: ManifestTable) -> None:
    filled(table, 0, 10, 20)
    head = table.head(LIFE)
    assert head is not None
    change = plan_commit(Neighbourhood(head), entry(20, 30), NOW)
    nowhere = Relink(EntryVersion(Offset(15), "data/x", None, None), None, None, TimestampMs(0))
    bad = replace(change, writes=(*change.writes, nowhere, PutGap(Gap(Offset(5), Offset(6)))))
    with pytest.raises(LostRaceError):
        table.apply(bad)
    assert table.head(LIFE) == head
    assert offsets(table.log_from_offset(LIFE, Offset(0), 10)) == [0, 10]
    assert table.gaps(LIFE, 10) == ()
    assert len(list(table.journal(LIFE))) == 2


def test_an_entry_is_never_overwritten(table: ManifestTable) -> None:
    written = commit(table, entry(0, 10))
    head = table.head(LIFE)
    assert head is not None
    with pytest.raises(LostRaceError):
        table.apply(change_to(replace(head, revision=2), (PutEntry(replace(entry(0, 10), key="another")),)))
    assert table.log_from_offset(LIFE, Offset(0), 1).entries == (written,)


def test_an_entry_of_frames_comes_back_as_it_was_committed(table: ManifestTable) -> None:
    new = replace(entry(0, 10), encoding=Encoding.ZSTD_SEEKABLE, frames=Frames((17, 1 << 33)))
    written = commit(table, new)
    assert table.log_from_offset(LIFE, Offset(0), 1).entries == (written,)
    assert written.frames == new.frames


def next_head(table: ManifestTable) -> Head:
    head = table.head(LIFE)
    assert head is not None
    return replace(head, revision=head.revision + 1)


def versions(table: ManifestTable) -> list[EntryVersion]:
    return [EntryVersion.of(entry) for entry in table.log_from_offset(LIFE, Offset(0), 200).entries]


def test_an_entry_is_replaced_and_others_deleted(table: ManifestTable) -> None:
    filled(table, 0, 10, 20, 30, 40)
    merged = replace(entry(0, 30, time=1020), key="merged")
    head = replace(next_head(table), compacting=Offset(30))
    _, second, third, _ = versions(table)
    table.apply(change_to(head, (ReplaceEntry(third, merged), DeleteEntry(second))))
    page = table.log_from_offset(LIFE, Offset(0), 10)
    assert [(e.first_offset, e.next_offset) for e in page.entries] == [(0, 10), (0, 30), (30, 40)]
    assert page.entries[1] == merged
    assert page.head == head
    assert table.log_from_offset(LIFE, Offset(10), 1).entries == (merged,)
    assert table.log_from_timestamp(LIFE, TimestampMs(1011), 10).entries == page.entries[1:]
    assert table.log_before(LIFE, Offset(30), 2) == (merged, page.entries[0])


def test_an_entry_that_is_not_there_is_neither_replaced_nor_deleted(table: ManifestTable) -> None:
    filled(table, 0, 10, 20)
    before = table.log_from_offset(LIFE, Offset(0), 10)
    head = next_head(table)
    grave = Tombstone("data/x", NOW, Offset(0), Offset(10), 5)
    first, last = versions(table)
    nowhere = replace(last, next_offset=Offset(15))
    for change in (
        change_to(head, (ReplaceEntry(nowhere, entry(0, 15)), DeleteEntry(first), PutTombstone(grave))),
        change_to(head, (ReplaceEntry(last, entry(0, 20)), DeleteEntry(first), DeleteEntry(nowhere))),
    ):
        with pytest.raises(LostRaceError):
            table.apply(change)
    assert table.log_from_offset(LIFE, Offset(0), 10) == before
    assert table.tombstones(LIFE, NOW, 10) == ()


def test_tombstones_are_found_when_they_are_due_in_that_order_until_they_are_deleted(table: ManifestTable) -> None:
    filled(table, 0, 10)
    graves = [
        Tombstone(key, TimestampMs(due), Offset(0), Offset(10), 1 << 33)
        for due, key in [(900, "z~"), (1000, "a/ü"), (1000, "b"), (1001, "a"), (20_000, "a")]
    ]
    table.apply(change_to(next_head(table), tuple(map(PutTombstone, reversed(graves)))))
    assert table.tombstones(LIFE, TimestampMs(899), 10) == ()
    assert table.tombstones(LIFE, TimestampMs(1000), 10) == tuple(graves[:3])
    assert table.tombstones(LIFE, TimestampMs(1000), 2) == tuple(graves[:2])
    assert table.tombstones(LIFE, TimestampMs(1 << 60), 10) == tuple(graves)
    assert table.tombstones(Incarnation("__orders_1763700000000000001"), TimestampMs(1 << 60), 10) == ()
    table.apply(change_to(next_head(table), (DeleteTombstone(graves[0]), DeleteTombstone(graves[2]))))
    assert table.tombstones(LIFE, TimestampMs(1000), 10) == (graves[1],)
    assert len(list(table.missing(LIFE))) == 0


def test_a_change_of_a_hundred_items_happens(table: ManifestTable) -> None:
    head = Head(ORDERS)
    entries = [entry(first, first + 10, time=1000) for first in range(0, 990, 10)]
    for new in entries:
        change = plan_commit(Neighbourhood(head), new, NOW)
        table.apply(change)
        head = change.head
    relinks = tuple(Relink(one, Offset(0), TimestampMs(7), TimestampMs(1000)) for one in versions(table))
    change = change_to(replace(head, revision=head.revision + 1), relinks[1:])
    assert change.items == MAX_ITEMS == 100
    table.apply(change)
    assert {e.prior_timestamp for e in table.log_from_offset(LIFE, Offset(10), 100).entries} == {7}


def test_a_change_of_more_items_is_a_mistake(table: ManifestTable) -> None:
    gaps = tuple(PutGap(Gap(Offset(n), Offset(n + 1))) for n in range(MAX_ITEMS))
    with pytest.raises(AssertionError):
        table.apply(change_to(Head(ORDERS, revision=2), gaps))


def test_incarnations_do_not_see_each_other(table: ManifestTable) -> None:
    other = StreamId("/", "orders", Incarnation("__orders_1763700000000000001"))
    commit(table, entry(0, 10))
    commit(table, entry(0, 20), other)
    assert table.log_from_offset(LIFE, Offset(0), 9).entries[0].next_offset == 10
    assert table.log_from_timestamp(other.incarnation, TimestampMs(0), 9).entries[0].next_offset == 20
    assert len(list(table.journal(LIFE))) == 1


def test_a_stream_is_bound_to_the_first_cluster_that_asks(table: ManifestTable) -> None:
    assert table.bound_cluster("/", "orders") == NO_CLUSTER
    assert table.bind_cluster("/", "orders", Cluster("eu")) == "eu"
    assert table.bind_cluster("/", "orders", Cluster("us")) == "eu"
    assert table.bind_cluster("/", "orders", Cluster("eu")) == "eu"
    assert table.bound_cluster("/", "orders") == "eu"
    assert table.streams(None, 10) == StreamPage((), None)


def test_bindings_are_by_both_names(table: ManifestTable) -> None:
    for number, stream in enumerate(HOSTILE):
        assert table.bind_cluster(stream.vhost, stream.name, Cluster(f"cluster-{number}")) == f"cluster-{number}"
    for number, stream in enumerate(HOSTILE):
        assert table.bound_cluster(stream.vhost, stream.name) == f"cluster-{number}"
    assert table.bound_cluster("a/b#clog#head", "x") == NO_CLUSTER
    with pytest.raises(InvalidNameError):
        table.bound_cluster("", "orders")
    with pytest.raises(InvalidNameError):
        table.bind_cluster("/", "", Cluster("eu"))
