"""Who may still publish by an earlier version: what was seen around the change, against what is seen now."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from coldstream.errors import CorruptionError
from coldstream.manifest.state_item import StateItem
from coldstream.shards.broker_port import StreamPublisher
from coldstream.shards.looks import LOOKS, MAX_JSON_BYTES, ShardLooks
from coldstream.shards.old_producers import GONE_MS, MAX_BETWEEN_MS, MAX_KNOWN, OldClient, OldProducers
from coldstream.units import TimestampMs
from tests.support.shard_world import producer

OLD, NEW = "orders-0", "orders-1"
ADDED = {NEW}


def at(second: float) -> TimestampMs:
    return TimestampMs(int(second * 1000))


def before(*publishers: StreamPublisher) -> OldProducers:
    return OldProducers.before(publishers, [one.connection for one in publishers], at(0))


def is_waited_for(known: OldProducers, *publishers: StreamPublisher) -> bool:
    return bool(known.unproven(publishers, ADDED))


def looked(known: OldProducers, start_s: int, end_s: int, publishers: Sequence[StreamPublisher] = ()) -> OldProducers:
    """Look every ten seconds."""
    for second in range(start_s, end_s + 1, 10):
        known = known.looked(publishers, ADDED, at(second))
    return known


def test_a_client_from_before_is_old_on_whatever_connection_it_comes_back() -> None:
    known = before(producer(OLD, "c1"))
    assert is_waited_for(known, producer(OLD, "c1"))
    assert is_waited_for(known, producer(OLD, "c2"))
    assert not is_waited_for(known, producer(OLD, "c2", client="another"))


def test_a_later_connection_with_a_publisher_on_a_new_partition_is_proven_as_a_whole() -> None:
    known = before(producer(OLD, "c1"))
    assert not is_waited_for(known, producer(OLD, "c2"), producer(NEW, "c2"))
    assert is_waited_for(known, producer(OLD, "c3"), producer(NEW, "c2"))


def test_a_new_partition_proves_nothing_on_a_connection_from_before() -> None:
    """Two producers of one program share it: the other one still has the old list."""
    known = before(producer(OLD, "c1"))
    assert is_waited_for(known, producer(OLD, "c1"), producer(NEW, "c1"))
    mixed = known.looked([producer(OLD, "c1"), producer(NEW, "c1")], ADDED, at(10))
    assert mixed.clients[0].is_doubtful
    # So not even a later connection of that client does.
    assert is_waited_for(mixed, producer(OLD, "c2"), producer(NEW, "c2"))


def test_who_came_while_the_bindings_changed_is_doubtful_whatever_it_shows() -> None:
    came = (producer(OLD, "c2", "late"), producer(NEW, "c2", "late"))
    known = before(producer(OLD, "c1")).during(came, ["c1", "c2"], at(5))
    assert is_waited_for(known, *came)
    assert is_waited_for(known, producer(OLD, "c3", "late"), producer(NEW, "c3", "late"))
    assert not is_waited_for(known, producer(OLD, "c4", "later"))


def test_a_known_client_on_a_connection_of_the_burst_is_doubtful_too() -> None:
    known = before(producer(OLD, "c1")).during([producer(OLD, "c2")], ["c2"], at(5))
    assert known.clients[0].is_doubtful


def test_a_connection_of_the_burst_whose_publisher_shows_late_proves_nothing() -> None:
    known = before(producer(OLD, "c1")).during([], ["c1", "c2"], at(5))
    assert is_waited_for(known, producer(OLD, "c2"), producer(NEW, "c2"))


def test_who_was_away_is_old_unless_proven() -> None:
    back = before().back([producer(OLD, "c2", "away"), producer(OLD, "c3", "new"), producer(NEW, "c3", "new")], ADDED)
    assert [one.client for one in back.clients] == ["away"]


def test_who_was_away_at_the_look_after_the_burst_is_proven_by_all_new_partitions_alone() -> None:
    """It may have come in the burst, and know a part of the partitions: that lacks one of the new ones."""
    added = {"orders-2", "orders-3"}
    part = [producer("orders-0", "c9", "came"), producer("orders-2", "c9", "came")]
    known = before().during([], ["c5"], at(5)).back(part, added)
    assert known.unproven(part, added)
    assert not known.unproven([*part, producer("orders-3", "c9", "came")], added)
    # Nor does anything on a connection of the burst.
    late = [producer(one, "c5", "came") for one in added]
    assert known.back(late, added).unproven(late, added)


def test_a_client_from_before_that_was_away_at_that_look_may_have_come_in_the_burst_too() -> None:
    added = {"orders-2", "orders-3"}
    part = [producer("orders-2", "c9")]
    known = before(producer(OLD, "c1"))
    assert not known.during([producer(OLD, "c1")], ["c1"], at(5)).unproven(part, added)
    assert known.during([], [], at(5)).unproven(part, added)


def test_a_client_is_gone_once_it_stayed_away_long_enough() -> None:
    known = looked(before(producer(OLD)), 10, 60)
    assert known.not_gone()
    assert not looked(known, 70, 70).not_gone()


def test_one_that_comes_back_is_waited_for_anew() -> None:
    known = looked(before(producer(OLD)), 10, 50)
    known = looked(known, 60, 60, [producer(OLD, "c9")])
    assert looked(known, 70, 120).not_gone()
    assert not looked(known, 70, 130).not_gone()


def test_looks_too_far_apart_or_out_of_order_show_no_absence() -> None:
    once = before(producer(OLD)).looked([], ADDED, at(10))
    late = once.looked([], ADDED, TimestampMs(at(10) + MAX_BETWEEN_MS + 1))
    assert late.not_gone()
    assert late.looked([], ADDED, TimestampMs(late.looked_at - GONE_MS)).not_gone()
    assert not late.looked([], ADDED, TimestampMs(late.looked_at + GONE_MS)).not_gone()


def test_all_clients_have_to_be_gone() -> None:
    known = before(producer(OLD, "c1", "a"), producer(OLD, "c2", "b"))
    stays = [producer(OLD, "c2", "b")]
    assert [one.client for one in looked(known, 10, 100, stays).not_gone()] == ["b"]


def test_whoever_publishes_to_an_ended_stream_is_old() -> None:
    assert before().unproven([producer(OLD, "c2", "new")], ADDED, {OLD})


def test_too_many_to_keep_is_told() -> None:
    known = OldProducers.before([], [str(number) for number in range(MAX_KNOWN + 1)], at(0))
    assert known.is_overfull
    assert len(known.connections) == MAX_KNOWN


def test_the_table_keeps_all_that_was_seen() -> None:
    seen = OldProducers((OldClient("a", True, at(5), is_unseen=True), OldClient("b")), ("c1",), at(7), is_closed=True)
    item = StateItem(LOOKS, "orders", 1, ShardLooks(2, seen).to_bytes())
    assert ShardLooks.from_item(item).producers == seen


@pytest.mark.parametrize("data", [b"", b"{}", zlib.compress(b"{}"), zlib.compress(b"[1]"), zlib.compress(b"[" * 2000)])
def test_damaged_looks_are_corruption_that_names_the_item(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=f"state item {LOOKS} orders"):
        ShardLooks.from_item(StateItem(LOOKS, "orders", 1, data))


def test_looks_that_inflate_without_end_are_refused() -> None:
    with pytest.raises(CorruptionError):
        ShardLooks.from_item(StateItem(LOOKS, "orders", 1, zlib.compress(b" " * (MAX_JSON_BYTES + 1) + b"{}")))
