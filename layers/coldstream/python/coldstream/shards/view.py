"""What a broker shows of one sharded stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coldstream.manifest.shard_map import ShardKind, ShardMap
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerNode, BrokerQueue, ShardBroker
from coldstream.shards.layout import version_exchange_name


@dataclass(frozen=True, slots=True)
class BrokerView:
    """Nodes, the exchange of the logical name, those of its versions, their bindings, and the partitions."""

    nodes: tuple[BrokerNode, ...]
    exchanges: Mapping[str, BrokerExchange]
    bindings: Mapping[str, tuple[BrokerBinding, ...]]
    queues: Mapping[str, BrokerQueue]

    @property
    def running(self) -> tuple[str, ...]:
        """The nodes that run, by name."""
        return tuple(one.name for one in self.nodes if one.is_running)

    def source_of(self, found: ShardMap) -> str:
        """Return the exchange that leads to the partitions of the newest version.

        Not the version's own if partitions are bound to the logical name directly: of super streams, and of exchanges
        that the sharding plugin has made.
        """
        if found.kind is ShardKind.SUPER_STREAM or self.is_direct(found.name):
            return found.name
        return version_exchange_name(found.name, found.newest.version)

    def is_direct(self, name: str) -> bool:
        """Tell whether an exchange leads to queues or streams without another exchange between."""
        return any(one.destination_type == "queue" for one in self.bindings.get(name, ()))


def look(broker: ShardBroker, name: str, versions: int, partitions: Iterable[str]) -> BrokerView:
    """Ask a broker what it has of a logical name, up to a version, and which of these partitions.

    Cost: a request for the nodes, two for each exchange, one for each partition, and those bound besides. Raises
    UnavailableError, AccessDeniedError.
    """
    exchanges, bindings = {}, {}
    for one in (name, *(version_exchange_name(name, version) for version in range(1, versions + 1))):
        if (exchange := broker.exchange(one)) is not None:
            exchanges[one] = exchange
            bindings[one] = broker.bindings(one)
    bound = (one.destination for some in bindings.values() for one in some if one.destination_type == "queue")
    queues = broker.queues(dict.fromkeys((*partitions, *bound)))
    return BrokerView(broker.nodes(), exchanges, bindings, queues)


def look_at(broker: ShardBroker, found: ShardMap) -> BrokerView:
    """Ask a broker what it has of a map. Raises as `look`."""
    return look(broker, found.name, found.newest.version, (one.name for one in found.current))
