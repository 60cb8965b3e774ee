from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import ReservedNameError
from coldstream.manifest.shard_changes import identified
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.direct_names import DirectName, add_name
from coldstream.store.memory.table import MemoryTable
from coldstream.store.reserved import StreamAction, check_names_free, check_not_reserved, partition_of
from tests.manifest.shard_samples import AT, named, sample_map
from tests.store.samples import ORDERS, commit, entry
from tests.support.written_maps import map_writer

LIFE = Incarnation("__orders-1_1763700000000000001")


def table_of(*maps: ShardMap) -> MemoryTable:
    table = MemoryTable()
    for found in maps:
        map_writer(table).write(found, ShardEventKind.DECLARE, AT)
    return table


@pytest.mark.parametrize("action", StreamAction)
def test_nothing_is_done_to_a_logical_name_as_to_a_stream(action: StreamAction) -> None:
    table = table_of(sample_map())
    with pytest.raises(ReservedNameError, match=f"sharded stream 'orders' in vhost '/', and is not {action}"):
        check_not_reserved(table, "/", "orders", action)
    check_not_reserved(table, "other", "orders", action)
    check_not_reserved(table, "/", "payments", action)


def test_the_refusal_says_what_to_do_instead() -> None:
    table = table_of(sample_map())
    with pytest.raises(ReservedNameError, match="--to-super-stream or --to-exchange"):
        check_not_reserved(table, "/", "orders", StreamAction.REPLAY_TO)
    with pytest.raises(ReservedNameError, match="coldstream shards show orders"):
        check_not_reserved(table, "/", "orders", StreamAction.TRUNCATE)


@pytest.mark.parametrize("action", StreamAction)
def test_of_a_partition_only_the_deletion_and_the_creation_are_refused(action: StreamAction) -> None:
    table = table_of(sample_map())
    if action not in {StreamAction.DELETE, StreamAction.CREATE}:
        check_not_reserved(table, "/", "orders-1", action)
        return
    with pytest.raises(ReservedNameError, match="'orders-1' is a partition of sharded stream 'orders'"):
        check_not_reserved(table, "/", "orders-1", action)
    check_not_reserved(table, "/", "orders-9", action)
    check_not_reserved(table, "other", "orders-1", action)


def test_an_incarnation_that_no_map_has_may_be_deleted() -> None:
    table = table_of(identified(replace(sample_map(), revision=0), {1: LIFE}))
    with pytest.raises(ReservedNameError):
        check_not_reserved(table, "/", "orders-1", StreamAction.DELETE, incarnation=LIFE)
    other = Incarnation("__orders-1_1763700000000000002")
    check_not_reserved(table, "/", "orders-1", StreamAction.DELETE, incarnation=other)
    check_not_reserved(table, "/", "orders", StreamAction.DELETE, incarnation=other)


def test_a_partition_that_no_archive_knows_yet_is_refused_by_its_name() -> None:
    with pytest.raises(ReservedNameError):
        check_not_reserved(table_of(sample_map()), "/", "orders-1", StreamAction.DELETE, incarnation=LIFE)


def test_a_partition_leads_to_its_map() -> None:
    table = table_of(sample_map(), sample_map(name="payments"))
    found = partition_of(table, "/", "payments-1")
    assert found is not None
    assert (found[0].name, found[1].number) == ("payments", 1)
    assert partition_of(table, "/", "payments") is None


def test_a_map_may_have_names_that_nobody_has() -> None:
    table = table_of(sample_map())
    check_names_free(table, sample_map())  # a later revision of itself
    check_names_free(table, sample_map(name="payments"))
    check_names_free(table, replace(sample_map(name="payments"), vhost="other"))
    check_names_free(table, replace(sample_map(), vhost="other"))


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (sample_map(name="orders-0"), "'orders-0' is a partition of sharded stream 'orders'"),
        (replace(sample_map(name="a"), partitions=tuple(sample_map().partitions)), "'orders-0' is a partition of"),
        (replace(sample_map(1, name="a"), partitions=(replace(named([0])[0], name="orders"),)), "the logical name of"),
        (replace(sample_map(1, name="a"), partitions=(replace(named([0])[0], name="a"),)), "also the name of"),
    ],
)
def test_a_name_that_another_map_has_is_refused(new: ShardMap, why: str) -> None:
    with pytest.raises(ReservedNameError, match=why):
        check_names_free(table_of(sample_map()), new)


def test_the_name_of_an_archived_stream_is_no_logical_name_but_may_be_a_partition() -> None:
    table = MemoryTable()
    commit(table, entry(0, 10))
    assert ORDERS.name == "orders"
    with pytest.raises(ReservedNameError, match="archived stream"):
        check_names_free(table, sample_map())
    check_names_free(table, replace(sample_map(1, name="a"), partitions=(replace(named([0])[0], name="orders"),)))


def test_a_direct_stream_becomes_no_partition() -> None:
    table = table_of()
    add_name(table, DirectName(StreamId("/", "orders-1", LIFE)))
    with pytest.raises(ReservedNameError, match="'orders-1' is a direct stream"):
        check_names_free(table, sample_map())
