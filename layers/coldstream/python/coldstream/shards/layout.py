"""What a sharded stream looks like at a broker: the names of its partitions, their places, exchanges and bindings.

    super-stream   direct exchange NAME, x-super-stream: true; bound with "0", "1" … or a binding key, each with
                   x-stream-partition-order, to the streams NAME-0, NAME-1 … or NAME-KEY
    streams,       exchange NAME of the hash's type, bound to the exchange NAME.v1 of the same type and arguments, and
    queues         that to `sharding: NAME - NODE - i` (shards_per_node) or `sharding: NAME - 0007` (shards)

x-modulus-hash counts its destinations in an order of the broker's. RabbitMQ up to 4.0 sorts them by binding key, then
by name (its table of routes is ordered); from 4.3 on by name alone; those between, with Khepri, in no order that lasts.
So binding keys are numbers of four digits. And so are the names of shards that no node has to be in, so that a
partition that is added later comes after all others on every release.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.shards.broker_port import Arguments, BrokerBinding, BrokerExchange, BrokerQueue
from coldstream.shards.definition import ShardDefinition

PARTITION_ORDER = "x-stream-partition-order"
SUPER_STREAM = "x-super-stream"

EXCHANGE_TYPES = {
    ShardHash.MURMUR3: "direct",
    ShardHash.BINDING_KEY: "direct",
    ShardHash.MODULUS: "x-modulus-hash",
    ShardHash.CONSISTENT: "x-consistent-hash",
    ShardHash.RANDOM: "x-random",
}


def partitions_of(definition: ShardDefinition, nodes: Sequence[str], *, first: int = 0) -> tuple[Partition, ...]:
    """Return the partitions of a definition in the order in which the hash counts them; `nodes` are those that run.

    `first` is the index to begin at, for those that a growth adds. Their numbers are for the map to give.
    """
    if definition.kind is ShardKind.SUPER_STREAM:
        return _super_stream_partitions(definition, first)
    if definition.shards_per_node is not None:
        return node_partitions(definition, nodes)
    return tuple(
        Partition(
            0,
            f"sharding: {definition.name} - {index:04}",
            node=nodes[index % len(nodes)],
            weight=definition.weights[index] if definition.weights else 1,
        )
        for index in range(first, definition.shards or 0)
    )


def node_partitions(definition: ShardDefinition, nodes: Sequence[str]) -> tuple[Partition, ...]:
    """Return the shards of these nodes, named as the sharding plugin names them, by name as all brokers sort them."""
    found = [
        Partition(
            0,
            f"sharding: {definition.name} - {node} - {index}",
            node=node,
            weight=definition.weights[index] if definition.weights else 1,
        )
        for node in nodes
        for index in range(definition.shards_per_node or 0)
    ]
    return tuple(sorted(found, key=lambda one: one.name.encode()))


def queue_of(definition: ShardDefinition, partition: Partition) -> BrokerQueue:
    """Return a partition as it is to be declared."""
    if definition.kind is ShardKind.QUEUES:
        return BrokerQueue(partition.name, "classic", partition.node)
    return BrokerQueue(partition.name, "stream", partition.node, definition.stream_arguments)


def exchange_of(definition: ShardDefinition, found: ShardMap | None = None) -> BrokerExchange:
    """Return the exchange that has the logical name: it keeps the type that it was declared with.

    It leads to one exchange, whose type is the version's. A map that is there tells what it was declared with.
    """
    hash_ = definition.hash if found is None else found.versions[0].hash
    return BrokerExchange(definition.name, EXCHANGE_TYPES[hash_], arguments=_exchange_arguments(definition))


def version_exchange_of(definition: ShardDefinition, version: int) -> BrokerExchange | None:
    """Return the exchange of a version; None for a super stream, whose partitions are bound to the logical name."""
    if definition.kind is ShardKind.SUPER_STREAM:
        return None
    name = version_exchange_name(definition.name, version)
    return BrokerExchange(name, EXCHANGE_TYPES[definition.hash], arguments=_exchange_arguments(definition))


def version_exchange_name(name: str, version: int) -> str:
    """Return the name of the exchange of a version of a logical name."""
    return f"{name}.v{version}"


def logical_binding(name: str, version: int) -> BrokerBinding:
    """Return the binding of the logical name to the exchange of a version; "1" is a weight, if it counts at all."""
    return BrokerBinding(version_exchange_name(name, version), "1", destination_type="exchange")


def bindings_of(found: ShardMap) -> tuple[BrokerBinding, ...]:
    """Return the bindings to the partitions of the newest version of a map, in the order in which they are counted."""
    return tuple(_binding(found, index, one) for index, one in enumerate(found.current))


def _binding(found: ShardMap, index: int, one: Partition) -> BrokerBinding:
    if found.kind is ShardKind.SUPER_STREAM:
        key = str(index) if one.binding_key is None else one.binding_key
        return BrokerBinding(one.name, key, {PARTITION_ORDER: index})
    key = str(one.weight) if found.newest.hash is ShardHash.CONSISTENT else f"{index:04}"
    return BrokerBinding(one.name, key)


def _super_stream_partitions(definition: ShardDefinition, first: int) -> tuple[Partition, ...]:
    if definition.binding_keys:
        keys = definition.binding_keys[first:]
        return tuple(Partition(0, f"{definition.name}-{key}", binding_key=key) for key in keys)
    return tuple(Partition(0, f"{definition.name}-{index}") for index in range(first, definition.shards or 0))


def _exchange_arguments(definition: ShardDefinition) -> Arguments:
    if definition.kind is ShardKind.SUPER_STREAM:
        return {SUPER_STREAM: True}
    if definition.hash_header is not None:
        return {"hash-header": definition.hash_header}
    if definition.hash_property is not None:
        return {"hash-property": definition.hash_property}
    return {}
