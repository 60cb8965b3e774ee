"""Changes of a sharded stream: what they do, what they wait for, and that any call may be the last of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import pytest

from coldstream.errors import ColdstreamError, ShardChangeError, UnavailableError
from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_map import MAP_SETTLE_S, Lineage, ShardHash, ShardKind, ShardMap
from coldstream.shards.apply import apply_shards
from coldstream.shards.broker_port import BrokerBinding, BrokerQueue
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.memory_broker import BrokerFault
from coldstream.shards.status import status_of
from coldstream.units import Offset
from tests.support.shard_world import ShardWorld, producer, streams, super_stream


def test_a_super_stream_doubles() -> None:
    world = ShardWorld(super_stream(2))
    world.broker.ends |= {"orders-0": 10, "orders-1": 7}
    assert world.change(super_stream(4)).waiting == ("orders: producers that may be away, until 60 s after the change",)
    world.pause(60)
    assert world.change(super_stream(4)).waiting == ()
    assert world.bound_to() == ["orders-0", "orders-1", "orders-2", "orders-3"]
    assert world.found.lineage == (
        Lineage(2, 0, Offset(0), Offset(10)),
        Lineage(3, 1, Offset(0), Offset(7)),
    )
    assert not world.found.is_changing
    assert world.change(super_stream(4)).done == ()


def test_eight_times_as_many_are_three_doublings() -> None:
    world = ShardWorld(super_stream(1))
    finish(world, super_stream(8))
    assert [len(one.partitions) for one in world.found.versions] == [1, 2, 4, 8]
    assert world.bound_to() == [f"orders-{number}" for number in range(8)]


def test_an_old_producer_is_waited_for_and_named() -> None:
    world = ShardWorld(super_stream(1))
    world.broker.present = [producer("orders-0", "127.0.0.1:5", "shop")]
    report = world.change(super_stream(2))
    assert report.done[-1] == "version 2 is bound"
    assert len(report.waiting) == 1
    assert "'shop'" in report.waiting[0]
    assert "127.0.0.1:5" in report.waiting[0]
    assert "to be restarted, or to be away for 60 s" in report.waiting[0]
    assert "if you know that all were restarted: --producers-restarted" in report.waiting[0]
    assert world.found.unsealed
    world.broker.present = []
    world.broker.ends["orders-0"] = 5
    assert "stay away for 60 s" in world.change(super_stream(2)).waiting[0]
    world.pause(60)
    assert world.change(super_stream(2)).waiting == ()
    assert world.found.lineage[0].seal == 5


def test_the_operator_may_say_that_no_old_producer_is_left() -> None:
    world = ShardWorld(super_stream(1))
    world.broker.present = [producer("orders-0")]
    assert world.change(super_stream(2)).waiting
    assert world.change(super_stream(2), restarted=True).waiting == ()


def test_his_word_does_not_count_for_streams_that_have_ended() -> None:
    world = ShardWorld(super_stream(2))
    world.broker.present = [producer("orders-1")]
    readers_know(world)
    (told,) = world.change(super_stream(1), restarted=True).waiting
    assert told.startswith("orders-1: producer ")
    assert "it publishes there, whatever --producers-restarted says" in told
    assert world.found.unsealed


def test_half_as_many_are_archived_before_they_are_deleted() -> None:
    world = ShardWorld(super_stream(2))
    world.broker.ends |= {"orders-0": 10, "orders-1": 7}
    world.archive({"orders-1": 6})
    readers_know(world)
    report = world.change(super_stream(1), restarted=True)
    assert report.waiting == (
        "orders-1: the archive, which holds it up to 6 of 7 (an agent with --max-lag archives what waits)",
    )
    assert "orders-1" in world.broker.declared
    assert world.bound_to() == ["orders-0"]
    assert world.found.lineage == (Lineage(0, 1, Offset(10), Offset(7)),)
    world.archive({"orders-1": 7})
    assert world.change(super_stream(1)).waiting == ()
    ended = world.found.partitions[1]
    assert ended.deleted_at is not None
    assert ended.incarnation == "__orders-1"
    assert "orders-1" not in world.broker.declared


def test_what_came_after_the_seal_is_archived_too_before_anything_is_deleted() -> None:
    world = ShardWorld(super_stream(2))
    readers_know(world)
    assert world.change(super_stream(1), restarted=True).waiting == ()  # empty, and so archived
    world = ShardWorld(super_stream(2))
    world.broker.ends["orders-1"] = 7
    readers_know(world)
    assert world.change(super_stream(1), restarted=True).waiting
    world.archive({"orders-1": 7})
    world.broker.ends["orders-1"] = 8
    assert "7 of 8" in world.change(super_stream(1)).waiting[0]


def test_the_archive_of_an_earlier_partition_of_the_name_does_not_count() -> None:
    world = ShardWorld(super_stream(2))
    world.broker.ends["orders-1"] = 7
    world.archive({"orders-1": 7})
    readers_know(world)
    assert world.change(super_stream(1), restarted=True).waiting == ()
    assert world.change(super_stream(2), restarted=True).waiting == ()
    world.broker.ends["orders-1"] = 3
    readers_know(world)
    assert "up to 0 of 3" in world.change(super_stream(1), restarted=True).waiting[0]
    assert "orders-1" in world.broker.declared


@pytest.mark.parametrize("kind", [ShardKind.STREAMS, ShardKind.QUEUES])
def test_behind_an_exchange_keys_move_from_one_inner_exchange_to_the_next(kind: ShardKind) -> None:
    world = ShardWorld(streams(2, kind=kind))
    seen: list[list[str]] = []

    def watch(method: str) -> None:
        seen.append(world.bound_to())
        if "orders.v2" in world.bound_to():
            assert len(world.bound_to("orders.v2")) == 4

    world.broker.on_call = watch
    assert world.change(streams(4, kind=kind)).waiting == ()
    assert [one for one, _ in itertools.groupby(seen)] == [["orders.v1"], ["orders.v1", "orders.v2"], ["orders.v2"]]
    assert "orders.v1" not in world.broker.exchanges


def test_a_queue_is_sealed_where_its_archive_has_what_was_queued() -> None:
    kind = ShardKind.QUEUES
    world = ShardWorld(streams(1, kind=kind))
    (name,) = world.broker.declared
    world.broker.declared[name] = replace(world.broker.declared[name], messages=4)
    world.archive({name: 10})
    (told,) = world.change(streams(2, kind=kind)).waiting
    assert "the archive, which does not have all" in told
    assert "(coldstream shards archive)" in told
    (told,) = status_of(world.broker, world.found).waiting
    assert "run `coldstream shards archive`, which takes what is queued" in told
    world.archive({name: 14})
    world.pause(5)
    assert world.change(streams(2, kind=kind)).waiting == ()
    assert world.found.lineage[0].seal == 14


def test_a_queue_that_the_broker_has_not_counted_is_not_sealed() -> None:
    kind = ShardKind.QUEUES
    world = ShardWorld(streams(1, kind=kind))
    (name,) = world.broker.declared
    world.broker.declared[name] = replace(world.broker.declared[name], messages=None)
    (told,) = world.change(streams(2, kind=kind)).waiting
    assert told.endswith("the broker, which has not counted its messages yet")
    assert world.found.unsealed
    world.broker.declared[name] = replace(world.broker.declared[name], messages=0)
    finish(world, streams(2, kind=kind))
    assert world.found.lineage[0].seal == 0


def test_what_a_queue_held_by_a_count_of_before_the_change_is_not_believed() -> None:
    kind = ShardKind.QUEUES
    world = ShardWorld(streams(1, kind=kind))
    (name,) = world.broker.declared
    empty = world.broker.declared[name]

    def count(call: str) -> None:
        bound_at = world.found.newest.bound_at
        if call == "queues" and len(world.found.versions) == 2 and bound_at is not None:
            is_counted = world.time >= bound_at + 9_000  # the broker counts every five seconds, and may be late
            world.broker.declared[name] = replace(empty, messages=4 if is_counted else 0)

    world.broker.on_call = count
    (told,) = world.change(streams(2, kind=kind)).waiting
    assert "the archive, which does not have all" in told
    assert world.found.unsealed


def test_a_dry_run_tells_what_a_change_under_way_goes_on_to() -> None:
    world = ShardWorld(super_stream(2))

    def would(definition: ShardDefinition) -> tuple[str, ...]:
        return apply_shards(world.context(), definition, dry_run=True).done

    assert would(super_stream(4)) == ("change from 2 by murmur3 to 4 by murmur3",)
    assert world.change(super_stream(4)).waiting
    under_way = "go on with the change to 4 by murmur3, version 2"
    assert would(super_stream(4)) == (under_way,)
    assert would(super_stream(8)) == (under_way, "change from 4 by murmur3 to 8 by murmur3")
    world.pause(60)
    assert world.change(super_stream(4)).waiting == ()
    assert would(super_stream(4)) == ()


def test_any_other_number_needs_a_replay() -> None:
    world = ShardWorld(super_stream(2))
    with pytest.raises(ShardChangeError, match="--replay"):
        world.change(super_stream(3))
    world.broker.ends |= {"orders-0": 10, "orders-1": 7}
    world.archive({"orders-0": 10, "orders-1": 6})
    report = world.change(super_stream(3), restarted=True, may_replay=True)
    assert "lacks offsets below 7" in report.waiting[0]
    assert world.bound_to() == []
    world.archive({"orders-1": 7})
    assert world.change(super_stream(3), may_replay=True).waiting == ()
    assert world.bound_to() == ["orders-v2-0", "orders-v2-1", "orders-v2-2"]
    assert world.found.partitions[2].start == 17
    assert {(edge.parent, edge.seal) for edge in world.found.lineage} == {(0, 10), (1, 7)}


def test_queues_cannot_be_replaced() -> None:
    world = ShardWorld(streams(2, kind=ShardKind.QUEUES))
    with pytest.raises(ShardChangeError, match="queues cannot"):
        world.change(streams(3, kind=ShardKind.QUEUES), may_replay=True)


def test_behind_an_exchange_a_replacement_waits_for_the_operators_word() -> None:
    world = ShardWorld(streams(2))
    target = streams(3, ShardHash.CONSISTENT)
    world.archive(dict.fromkeys(world.broker.declared, 0))
    assert "--producers-restarted" in world.change(target, may_replay=True).waiting[0]
    assert world.bound_to() == ["orders.v1"]
    assert world.change(target, may_replay=True, restarted=True).waiting == ()
    assert world.bound_to() == ["orders.v2"]
    assert world.bound_to("orders.v2") == ["orders-v2-0000", "orders-v2-0001", "orders-v2-0002"]


def test_a_stream_of_that_name_which_is_there_already_ends_the_change_before_it_begins() -> None:
    world = ShardWorld(super_stream(1))
    world.broker.declare_queue(BrokerQueue("orders-1", "stream"))
    with pytest.raises(ShardChangeError, match="'orders-1' already"):
        world.change(super_stream(2))
    assert world.found.newest.version == 1


def test_an_exchange_of_the_plugins_own_policy_is_not_changed() -> None:
    world = ShardWorld(streams(1))
    (name,) = world.broker.declared
    world.broker.bound["orders"] = [BrokerBinding(name, "#")]
    with pytest.raises(ShardChangeError, match="directly"):
        world.change(streams(2))


@pytest.mark.parametrize("definition", [super_stream(2), streams(2), streams(2, kind=ShardKind.QUEUES)])
def test_nothing_is_unbound_before_readers_know_the_halving(definition: ShardDefinition) -> None:
    world = ShardWorld(definition)
    target, before = replace(definition, shards=1), world.bound_to()
    assert "30 s more" in world.change(target, restarted=True).waiting[0]
    world.pause(29)
    assert "1 s more" in world.change(target, restarted=True).waiting[0]
    assert (world.bound_to(), world.found.newest.bound_at) == (before, None)
    world.pause(1)
    world.change(target, restarted=True)
    assert world.bound_to() != before


def readers_know(world: ShardWorld) -> None:
    """Begin a halving, and let pass what it waits for first."""
    half = world.found.current[: len(world.found.current) // 2]
    world.change(super_stream(len(half)), restarted=True)
    world.pause(MAP_SETTLE_S)


def test_what_is_behind_a_gap_that_nobody_explained_is_not_deleted() -> None:
    world = ShardWorld(super_stream(2))
    world.broker.ends["orders-1"] = 9
    world.archive({"orders-1": 9})
    world.table.holes["__orders-1"] = Gap(Offset(3), Offset(5))
    readers_know(world)
    assert "lacks the offsets 3 to 4" in world.change(super_stream(1), restarted=True).waiting[0]
    assert "orders-1" in world.broker.declared
    world.table.holes["__orders-1"] = Gap(Offset(3), Offset(5), "deleted by the broker")
    assert world.change(super_stream(1)).waiting == ()


def test_an_exchange_that_chooses_at_random_does_not_move_keys_once() -> None:
    world = ShardWorld(streams(2, ShardHash.RANDOM))
    finish(world, streams(3))
    with pytest.raises(ShardChangeError, match="at random"):
        world.change(streams(6))


def test_weights_are_a_change_that_needs_a_replay() -> None:
    world = ShardWorld(streams(2, ShardHash.CONSISTENT))
    with pytest.raises(ShardChangeError, match="--replay"):
        world.change(replace(streams(2, ShardHash.CONSISTENT), weights=(1, 2)))


@pytest.mark.parametrize("shards", [{"shards_per_node": 2, "shards": None}, {"shards_per_node": 1, "shards": None}])
def test_a_number_for_each_node_is_another_sharded_stream(shards: dict[str, int | None]) -> None:
    world = ShardWorld(streams(2))
    with pytest.raises(ShardChangeError, match="declare another name"):
        world.change(replace(streams(2), **shards))  # type: ignore[arg-type]


def grown() -> ShardWorld:
    world = ShardWorld(super_stream(2))
    world.broker.ends |= {"orders-0": 10, "orders-1": 7}
    return world


def halving() -> ShardWorld:
    world = grown()
    world.archive({"orders-0": 10, "orders-1": 7})
    return world


def test_a_halving_is_gone_on_with_after_its_seals_until_the_archive_has_all() -> None:
    world = grown()
    assert apply_shards(world.context(restarted=True), super_stream(1)).waiting  # for readers to know the map
    world.pause(MAP_SETTLE_S)
    for archived in (False, True, True):
        if archived:
            world.archive({"orders-0": 10, "orders-1": 7})
        report = apply_shards(world.context(restarted=True), super_stream(1))
        assert not world.found.is_changing
        assert bool(report.waiting) is not archived
        assert ("orders-1" in world.broker.declared) is not archived


def behind() -> ShardWorld:
    return ShardWorld(streams(2))


CHANGES: dict[str, tuple[Callable[[], ShardWorld], ShardDefinition]] = {
    "grow": (grown, super_stream(8)),
    "halve": (halving, super_stream(1)),
    "replace": (halving, super_stream(3)),
    "behind an exchange": (behind, streams(4)),
    "replaced behind an exchange": (behind, streams(3)),
}


def outcome(world: ShardWorld) -> tuple[object, ...]:
    """Return what has to be the same, however often a run broke off: all but times and revisions."""
    found: ShardMap = world.found
    return (
        [(one.partitions, one.hash, one.bound_at is not None) for one in found.versions],
        [(one.name, one.start, one.incarnation, one.deleted_at is not None) for one in found.partitions],
        found.lineage,
        {name: world.bound_to(name) for name in world.broker.exchanges},
        sorted(world.broker.declared),
        world.broker.ends,
    )


def finish(world: ShardWorld, target: ShardDefinition) -> None:
    for _ in range(20):
        if not world.change(target, restarted=True, may_replay=True).waiting:
            return
        world.pause(30)
    raise AssertionError(world.found)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("how", ["not", "half", "in full"])
def test_any_call_to_the_broker_may_be_the_last_of_a_run(name: str, how: Literal["not", "half", "in full"]) -> None:
    make, target = CHANGES[name]
    whole = make()
    finish(whole, target)
    calls = len(whole.broker.calls)
    assert calls > 10
    for at in range(calls):
        world = make()
        world.broker.calls.clear()
        world.broker.fault = BrokerFault(at, how)
        with suppress(UnavailableError):  # but for the looks at the ends, which are waited for
            finish(world, target)
        assert len(world.broker.calls) > at
        world.broker.fault = None
        finish(world, target)
        assert outcome(world) == outcome(whole), at


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("how", ["not", "in full"])
def test_any_write_to_the_table_may_be_the_last_of_a_run(name: str, how: Literal["not", "in full"]) -> None:
    make, target = CHANGES[name]
    whole = make()
    finish(whole, target)
    for at in range(whole.table.writes):
        world = make()
        world.table.fails = (at, how)
        with pytest.raises(ColdstreamError):
            finish(world, target)
        finish(world, target)
        assert outcome(world) == outcome(whole), at


def test_growth_costs_as_many_requests_as_there_are_partitions() -> None:
    for number in (2, 8, 64, 512):
        world = ShardWorld(super_stream(number))
        assert world.change(super_stream(2 * number), restarted=True).waiting == ()
        assert len(world.broker.calls) <= 3 * number + 20
        assert world.broker.calls.count("bind") == 1
        assert world.table.writes <= 8
