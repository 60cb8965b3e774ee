"""What a broker has of a sharded stream already, made by hand, by the sharding plugin, or by `rabbitmq-streams`."""

from __future__ import annotations

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_map import Partition, ShardKind
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.drift import exchange_difference, queue_difference
from coldstream.shards.layout import PARTITION_ORDER, exchange_of, node_partitions, partitions_of, queue_of
from coldstream.shards.view import BrokerView


def adopted_partitions(definition: ShardDefinition, view: BrokerView) -> tuple[Partition, ...] | None:
    """Return the partitions that are bound already, in the order in which they are counted; None if there are none.

    Raises ShardChangeError if exchange, partitions or bindings are not what the definition says.
    """
    there = view.exchanges.get(definition.name)
    if there is None:
        return None
    if (difference := exchange_difference(exchange_of(definition), there)) is not None:
        raise _refusal(definition, f"exchange {definition.name!r}: {difference}")
    bindings = view.bindings.get(definition.name, ())
    if not bindings:
        return None
    if definition.kind is ShardKind.SUPER_STREAM:
        keys = {one.destination: (one.arguments.get(PARTITION_ORDER), one.routing_key) for one in bindings}
        expected = partitions_of(definition, view.running)
        should = {one.name: (at, one.binding_key or str(at)) for at, one in enumerate(expected)}
        if keys != should:
            raise _refusal(definition, f"it is bound to {_names(keys)}, and should be to {_names(should)}")
    else:
        expected = _of_plugin(definition, view)
    for one in expected:
        queue = queue_of(definition, one)
        if one.name not in view.queues:
            raise _refusal(definition, f"{one.name!r} is bound, and not there")
        if (difference := queue_difference(queue, view.queues[one.name])) is not None:
            raise _refusal(definition, f"{one.name!r} {difference}")
    return expected


def _of_plugin(definition: ShardDefinition, view: BrokerView) -> tuple[Partition, ...]:
    """Return the queues that the sharding plugin has bound: it names them by node, and binds all with one key."""
    bindings = view.bindings[definition.name]
    names = {one.destination for one in bindings if one.destination_type == "queue"}
    if len(names) != len(bindings):
        raise _refusal(definition, "it is bound to exchanges, or to a queue twice")
    nodes = [one.name for one in view.nodes]
    if definition.shards_per_node is None:
        raise _refusal(definition, f"it is bound to {_names(names)}: give shards_per_node, as its policy does")
    found = tuple(one for one in node_partitions(definition, nodes) if one.name in names)
    sharded = {one.node for one in found}
    if {one.name for one in found} != names or len(sharded) * definition.shards_per_node != len(found):
        raise _refusal(definition, f"it is bound to {_names(names)}: not {definition.shards_per_node} a node")
    return found


def _refusal(definition: ShardDefinition, problem: str) -> ShardChangeError:
    return ShardChangeError(
        f"{definition} cannot be adopted: {problem}. Make the definition say what is there, or declare another name"
    )


def _names(names: object) -> str:
    found = sorted(names)  # type: ignore[call-overload]
    return ", ".join(map(repr, found[:4])) + (f" and {len(found) - 4} more" if len(found) > 4 else "")  # noqa: PLR2004
