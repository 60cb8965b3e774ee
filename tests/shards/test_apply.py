"""Definitions brought about on a broker in memory: in order, again, and from wherever a run stopped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import pytest

from coldstream.errors import (
    ColdstreamError,
    OutcomeUnknownError,
    ReservedNameError,
    ShardChangeError,
    UnavailableError,
)
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.state_item import StateItem
from coldstream.shards.apply import apply_shards
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerQueue
from coldstream.shards.context import ShardContext
from coldstream.shards.memory_broker import BrokerFault, MemoryShardBroker
from coldstream.store.control import ControlObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ObjectInfo
from coldstream.store.shard_maps import find_map, map_events
from tests.shards.conftest import NODES, context_of, defined

KINDS = {
    "super-stream": 'name = "orders"\nkind = "super-stream"\nshards = 3\nmax_age = "7D"',
    "binding-key": 'name = "orders"\nkind = "super-stream"\nhash = "binding-key"\nbinding_keys = ["eu", "us"]',
    "modulus": 'name = "orders"\nkind = "streams"\nshards = 4',
    "consistent": 'name = "orders"\nkind = "queues"\nshards_per_node = 2\nhash = "consistent"\nweights = [1, 3]',
    "random": 'name = "orders"\nkind = "queues"\nshards_per_node = 1\nhash = "random"',
}


class FailingTable(MemoryTable):
    """Fails at a write, counted from 0, before or after it was carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.fails_at: tuple[int, bool] | None = None

    def put_state(self, *items: StateItem) -> None:
        number, self.writes = self.writes, self.writes + 1
        if self.fails_at == (number, False):
            raise UnavailableError("not written")
        super().put_state(*items)
        if self.fails_at == (number, True):
            raise OutcomeUnknownError("written, and no answer")


def found_map(context: ShardContext) -> ShardMap:
    found = find_map(context.table, "/", "orders")
    assert found is not None
    return found


def state(broker: MemoryShardBroker) -> tuple[object, ...]:
    bound = {name: sorted(map(repr, some)) for name, some in broker.bound.items() if some}
    return broker.exchanges, bound, broker.declared


def test_a_super_stream_is_as_rabbitmq_streams_makes_it(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["super-stream"]))
    assert broker.exchanges == {"orders": BrokerExchange("orders", "direct", arguments={"x-super-stream": True})}
    assert broker.bound["orders"] == [
        BrokerBinding(f"orders-{number}", str(number), {"x-stream-partition-order": number}) for number in range(3)
    ]
    assert broker.declared["orders-2"].arguments == {"x-max-age": "7D"}
    assert found_map(context).newest.bound_at is not None


def test_binding_keys_name_the_partitions(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["binding-key"]))
    assert [(one.destination, one.routing_key) for one in broker.bound["orders"]] == [
        ("orders-eu", "eu"),
        ("orders-us", "us"),
    ]


def test_an_exchange_leads_to_one_of_its_version_and_that_to_shards_of_every_node(
    context: ShardContext, broker: MemoryShardBroker
) -> None:
    apply_shards(context, defined(KINDS["consistent"]))
    assert broker.bound["orders"] == [BrokerBinding("orders.v1", "1", destination_type="exchange")]
    names = [f"sharding: orders - {node} - {index}" for node in NODES for index in range(2)]
    assert [(one.destination, one.routing_key) for one in broker.bound["orders.v1"]] == list(
        zip(names, ["1", "3"] * 3, strict=True)
    )
    assert [broker.declared[name].node for name in names] == [node for node in NODES for _ in range(2)]


def test_shards_in_all_are_counted_by_key_and_by_name(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined('name = "orders"\nkind = "streams"\nshards = 12'))
    bound = broker.bound["orders.v1"]
    assert sorted(bound, key=lambda one: one.routing_key) == bound
    assert sorted(bound, key=lambda one: one.destination) == bound
    assert {broker.declared[one.destination].node for one in bound} == set(NODES)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_as_it_should_be_is_left_alone(context: ShardContext, broker: MemoryShardBroker, kind: str) -> None:
    apply_shards(context, defined(KINDS[kind]))
    before, revision = state(broker), found_map(context).revision
    report = apply_shards(context, defined(KINDS[kind]))
    assert (report.done, report.waiting, report.gone) == ((), (), ())
    assert (state(broker), found_map(context).revision) == (before, revision)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_tells_the_steps_and_touches_nothing(
    context: ShardContext, broker: MemoryShardBroker, kind: str
) -> None:
    told = apply_shards(context, defined(KINDS[kind]), dry_run=True)
    assert find_map(context.table, "/", "orders") is None
    assert not broker.exchanges
    assert not broker.declared
    assert told.done == apply_shards(context, defined(KINDS[kind])).done


@pytest.mark.parametrize("carried_out", ["not", "half", "in full"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_fails_at_any_call_of_the_broker_is_gone_on_with(
    kind: str, carried_out: Literal["not", "half", "in full"]
) -> None:
    undisturbed = MemoryShardBroker(*NODES)
    apply_shards(context_of(MemoryTable(), undisturbed), defined(KINDS[kind]))
    for at in range(len(undisturbed.calls)):
        broker = MemoryShardBroker(*NODES)
        context = context_of(MemoryTable(), broker)
        broker.fault = BrokerFault(at, carried_out)
        with pytest.raises(UnavailableError):
            apply_shards(context, defined(KINDS[kind]))
        apply_shards(context, defined(KINDS[kind]))
        assert state(broker) == state(undisturbed)
        assert found_map(context).newest.bound_at is not None
        assert apply_shards(context, defined(KINDS[kind])).done == ()


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("at", [0, 1])
def test_a_run_that_fails_at_a_write_of_the_map_is_gone_on_with(at: int, *, is_carried_out: bool) -> None:
    table = FailingTable()
    context = context_of(table, MemoryShardBroker(*NODES))
    table.fails_at = at, is_carried_out
    if is_carried_out:
        apply_shards(context, defined(KINDS["modulus"]))  # read again, the map is the one that was sent
    else:
        with pytest.raises(ColdstreamError):
            apply_shards(context, defined(KINDS["modulus"]))
    apply_shards(context, defined(KINDS["modulus"]))
    assert [event.kind for event, _ in map_events(table, "/", "orders")] == ["declare", "bind"]


def test_nothing_is_at_the_broker_before_the_map_knows_of_it(context: ShardContext, broker: MemoryShardBroker) -> None:
    def look(method: str) -> None:
        if method.startswith(("declare", "bind")):
            assert find_map(context.table, "/", "orders") is not None

    broker.on_call = look
    apply_shards(context, defined(KINDS["modulus"]))
    assert "declare_queue" in broker.calls


def test_a_super_stream_that_is_there_is_adopted(context: ShardContext, broker: MemoryShardBroker) -> None:
    broker.declare_exchange(BrokerExchange("orders", "direct", arguments={"x-super-stream": True}))
    for number in range(3):
        broker.declare_queue(BrokerQueue(f"orders-{number}", "stream", arguments={"x-max-age": "7D"}))
        broker.bind("orders", [BrokerBinding(f"orders-{number}", str(number), {"x-stream-partition-order": number})])
    before = state(broker)
    apply_shards(context, defined(KINDS["super-stream"]))
    assert state(broker) == before
    assert [event.kind for event, _ in map_events(context.table, "/", "orders")] == ["adopt", "bind"]


def plugin_made(broker: MemoryShardBroker, shards_per_node: int = 2) -> None:
    broker.declare_exchange(BrokerExchange("orders", "x-modulus-hash"))
    for node in NODES:
        for index in range(shards_per_node):
            name = f"sharding: orders - {node} - {index}"
            broker.declare_queue(BrokerQueue(name, "classic", node))
            broker.bind("orders", [BrokerBinding(name, "1234")])


def test_queues_that_the_sharding_plugin_made_are_adopted(context: ShardContext, broker: MemoryShardBroker) -> None:
    plugin_made(broker)
    before = state(broker)
    definition = defined('name = "orders"\nkind = "queues"\nshards_per_node = 2')
    apply_shards(context, definition)
    assert state(broker) == before
    assert len(found_map(context).current) == 6
    assert apply_shards(context, definition).done == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('kind = "queues"\nshards_per_node = 1', "not 1 a node"),
        ('kind = "queues"\nshards = 6', "give shards_per_node"),
        ('kind = "queues"\nshards_per_node = 2\nhash = "random"', "type is x-modulus-hash, and should be x-random"),
        ('kind = "streams"\nshards_per_node = 2', "is a classic queue, and should be stream"),
    ],
)
def test_what_is_there_and_differs_is_refused_and_left(
    context: ShardContext, broker: MemoryShardBroker, text: str, told: str
) -> None:
    plugin_made(broker)
    before = state(broker)
    with pytest.raises(ShardChangeError, match=told):
        apply_shards(context, defined(f'name = "orders"\n{text}'))
    assert state(broker) == before
    assert find_map(context.table, "/", "orders") is None


def test_a_missing_binding_is_made_again(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["super-stream"]))
    before = state(broker)
    broker.unbind("orders", broker.bound["orders"][1:2])
    assert apply_shards(context, defined(KINDS["super-stream"])).done == ("bind exchange 'orders' to 'orders-1'",)
    assert state(broker) == before


def test_drift_that_apply_does_not_mend_is_refused(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["super-stream"]))
    broker.delete_queue("orders-1")
    with pytest.raises(ShardChangeError, match="missing: stream 'orders-1'"):
        apply_shards(context, defined(KINDS["super-stream"]))
    assert "orders-1" not in broker.declared


def test_a_foreign_binding_is_told_and_stays(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["modulus"]))
    broker.declare_queue(BrokerQueue("spy", "classic"))
    broker.bind("orders.v1", [BrokerBinding("spy", "0")])
    with pytest.raises(ShardChangeError, match=r"extra: binding of exchange 'orders\.v1' to queue 'spy'"):
        apply_shards(context, defined(KINDS["modulus"]))
    assert broker.bound["orders.v1"][-1].destination == "spy"


@pytest.mark.parametrize("text", ['kind = "streams"\nshards = 3', 'kind = "super-stream"\nshards = 3\nmax_age = "8D"'])
def test_what_no_change_leads_to_is_refused(context: ShardContext, text: str) -> None:
    apply_shards(context, defined(KINDS["super-stream"]))
    with pytest.raises(ShardChangeError):
        apply_shards(context, defined(f'name = "orders"\n{text}'))


def test_a_node_that_joins_gets_shards_that_come_after_all_before(
    context: ShardContext, broker: MemoryShardBroker
) -> None:
    definition = defined('name = "orders"\nkind = "streams"\nshards_per_node = 1')
    broker.running = dict.fromkeys(NODES[:2], True)
    apply_shards(context, definition)
    broker.ends |= {one.name: 10 + one.number for one in found_map(context).current}
    broker.running[NODES[2]] = True
    report = apply_shards(context, definition)
    found = found_map(context)
    assert (report.waiting, found.is_changing) == ((), False)
    assert found.newest.partitions == (2, 3, 4)
    assert {(edge.child, edge.parent, edge.child_from, edge.seal) for edge in found.lineage} == {
        (child, parent, 0, 10 + parent) for child in (2, 3, 4) for parent in (0, 1)
    }
    assert broker.bound["orders"] == [BrokerBinding("orders.v2", "1", destination_type="exchange")]
    assert [one.destination for one in broker.bound["orders.v2"]] == [
        f"sharding: orders - {node} - {index}" for node, index in zip(NODES, (1, 1, 0), strict=True)
    ]
    assert apply_shards(context, definition).done == ()


def test_a_partition_that_still_moves_is_waited_for(context: ShardContext, broker: MemoryShardBroker) -> None:
    definition = defined('name = "orders"\nkind = "streams"\nshards_per_node = 1')
    broker.running = dict.fromkeys(NODES[:2], True)
    apply_shards(context, definition)
    moving = found_map(context).current[0].name
    broker.running[NODES[2]] = True

    def publish(method: str) -> None:
        if method == "end":
            broker.ends[moving] += 1

    broker.on_call = publish
    assert apply_shards(context, definition).waiting == (f"{moving}: it to come to rest, as it is still written",)
    assert {edge.parent for edge in found_map(context).unsealed} == {0}
    broker.on_call = None
    apply_shards(context, definition)  # it had moved since the last look
    assert apply_shards(context, definition).waiting == ()
    assert found_map(context).unsealed == ()


def test_queues_of_nodes_before_others_joined_are_sealed_where_their_archive_ends(
    context: ShardContext, broker: MemoryShardBroker
) -> None:
    definition = defined('name = "orders"\nkind = "queues"\nshards_per_node = 1')
    broker.running = dict.fromkeys(NODES[:2], True)
    apply_shards(context, definition)
    first, second = found_map(context).current
    broker.declared[first.name] = replace(broker.declared[first.name], messages=1)
    broker.running |= {NODES[1]: False, NODES[2]: True}
    hidden = broker.declared.pop(second.name)
    told = apply_shards(context, definition).waiting
    assert f"{first.name}: the archive, which does not have all yet" in told[0]
    assert told[1] == f"{second.name}: node {NODES[1]}, which does not run, and has it"
    broker.declared |= {first.name: replace(broker.declared[first.name], messages=0), second.name: hidden}
    broker.running[NODES[1]] = True
    while apply_shards(context, definition).waiting:
        context.pause(5)
    assert found_map(context).unsealed == ()


@pytest.mark.parametrize("kind", ["streams", "random"])
@pytest.mark.parametrize("carried_out", ["not", "half", "in full"])
def test_a_joining_that_fails_at_any_call_is_gone_on_with(
    kind: str, carried_out: Literal["not", "half", "in full"]
) -> None:
    text = 'kind = "streams"\nshards_per_node = 2' + ('\nhash = "random"' if kind == "random" else "")
    definition = defined(f'name = "orders"\n{text}')

    def joined() -> tuple[ShardContext, MemoryShardBroker]:
        broker = MemoryShardBroker(*NODES[:2])
        context = context_of(MemoryTable(), broker)
        apply_shards(context, definition)
        broker.running[NODES[2]] = True
        broker.calls.clear()
        return context, broker

    undisturbed, expected = joined()
    apply_shards(undisturbed, definition)
    for at in range(len(expected.calls)):
        context, broker = joined()
        broker.fault = BrokerFault(at, carried_out)
        with suppress(UnavailableError):  # but for the looks at the ends, which are waited for
            apply_shards(context, definition)
        broker.fault = None
        runs = 0
        while apply_shards(context, definition).waiting:
            runs += 1
            assert runs < 5
        assert state(broker) == state(expected)
        assert without_times(found_map(context)) == without_times(found_map(undisturbed))


def without_times(found: ShardMap) -> ShardMap:
    versions = tuple(replace(one, since=0, bound_at=one.bound_at and 1) for one in found.versions)
    return replace(found, revision=0, versions=versions)


def test_a_node_that_leaves_is_told_and_its_shards_stay(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["random"]))
    before = found_map(context)
    broker.running[NODES[1]] = False
    report = apply_shards(context, defined(KINDS["random"]))
    assert len(report.gone) == 1
    assert report.gone[0].startswith("node rabbit@b does not run, with 1 of 3 partitions")
    del broker.running[NODES[1]]
    assert len(apply_shards(context, defined(KINDS["random"])).gone) == 1
    assert found_map(context) == before


def test_queues_that_a_broker_hides_with_their_node_are_not_declared_anew(
    context: ShardContext, broker: MemoryShardBroker
) -> None:
    """As RabbitMQ does: the queues of a node that does not run are not shown, nor what is bound to them."""
    apply_shards(context, defined(KINDS["random"]))
    broker.running[NODES[1]] = False
    broker.delete_queue(f"sharding: orders - {NODES[1]} - 0")
    before = state(broker)
    report = apply_shards(context, defined(KINDS["random"]))
    assert (report.done, len(report.gone)) == ((), 1)
    assert state(broker) == before


class DyingObjects(MemoryObjects):
    """A bucket that is out of reach, as to a process that dies before it gets there."""

    def put(self, key: str, data: bytes, **options: Any) -> ObjectInfo:
        raise UnavailableError("the process died")


def test_the_note_of_a_map_whose_writer_died_is_there_before_the_broker_is_touched(
    context: ShardContext, broker: MemoryShardBroker
) -> None:
    with suppress(UnavailableError):
        apply_shards(replace(context, objects=DyingObjects()), defined(KINDS["modulus"]))
    written = found_map(context)
    assert broker.declared == {}
    notes = ControlObjects(context.objects, context.keys)
    assert list(notes.shard_maps()) == []
    noted: list[list[int]] = []
    step = replace(context, on_step=lambda _: noted.append([found.revision for _, found in notes.shard_maps()]))
    apply_shards(step, defined(KINDS["modulus"]), dry_run=True)
    assert list(notes.shard_maps()) == []
    apply_shards(step, defined(KINDS["modulus"]))
    assert noted[0] == [written.revision]
    assert [found for _, found in notes.shard_maps()] == [
        found for _, found in map_events(context.table, "/", "orders")
    ]


def test_a_name_that_another_sharded_stream_has_is_refused(context: ShardContext, broker: MemoryShardBroker) -> None:
    apply_shards(context, defined(KINDS["super-stream"]))
    taken = defined('name = "orders-1"\nkind = "super-stream"\nshards = 3')
    for dry_run in (True, False):
        with pytest.raises(ReservedNameError, match="is a partition of"):
            apply_shards(context, taken, dry_run=dry_run)
    assert find_map(context.table, "/", "orders-1") is None
    assert "orders-1" not in broker.exchanges
    # Growth, too: the fourth partition's name is taken meanwhile.
    apply_shards(context, defined('name = "orders-3"\nkind = "streams"\nshards = 1'))
    before = found_map(context)
    with pytest.raises(ReservedNameError, match="is the logical name of"):
        apply_shards(context, replace(defined(KINDS["super-stream"]), shards=6))
    assert found_map(context) == before
