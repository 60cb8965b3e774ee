"""The steps by which a sharded stream is declared. Each is safe to repeat, and its text is a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import LostRaceError, OutcomeUnknownError
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerQueue
from coldstream.shards.context import ShardContext
from coldstream.store.shard_maps import find_map


@dataclass(frozen=True, slots=True)
class WriteMap:
    """Write a map, over the one of the revision before."""

    changed: ShardMap
    kind: ShardEventKind
    detail: str

    def __str__(self) -> str:
        version = self.changed.newest
        return f"write version {version.version} of the map, revision {self.changed.revision}: {self.detail}"

    def carry_out(self, context: ShardContext) -> None:
        """Write. Raises LostRaceError if somebody else was first."""
        try:
            context.write(self.changed, self.kind, self.detail)
        except (LostRaceError, OutcomeUnknownError):
            # After a lost answer, the map that is in the way may be the one that was sent.
            if find_map(context.table, self.changed.vhost, self.changed.name) != self.changed:
                raise
            context.protect(self.changed)


@dataclass(frozen=True, slots=True)
class DeclareExchange:
    """Declare an exchange."""

    exchange: BrokerExchange

    def __str__(self) -> str:
        return f"declare exchange {self.exchange.name!r} of type {self.exchange.type}"

    def carry_out(self, context: ShardContext) -> None:
        """Declare it."""
        context.broker.declare_exchange(self.exchange)


@dataclass(frozen=True, slots=True)
class DeclarePartition:
    """Declare a queue or stream, on its node if it has one."""

    queue: BrokerQueue

    def __str__(self) -> str:
        place = "" if self.queue.node is None else f" on {self.queue.node}"
        return f"declare {'stream' if self.queue.type == 'stream' else 'queue'} {self.queue.name!r}{place}"

    def carry_out(self, context: ShardContext) -> None:
        """Declare it."""
        context.broker.declare_queue(self.queue)


@dataclass(frozen=True, slots=True)
class BindAll:
    """Make bindings in one burst."""

    source: str
    bindings: tuple[BrokerBinding, ...]

    def __str__(self) -> str:
        return f"bind exchange {self.source!r} to {_destinations(self.bindings)}"

    def carry_out(self, context: ShardContext) -> None:
        """Bind."""
        context.broker.bind(self.source, self.bindings)


@dataclass(frozen=True, slots=True)
class UnbindAll:
    """Remove bindings in one burst."""

    source: str
    bindings: tuple[BrokerBinding, ...]

    def __str__(self) -> str:
        return f"unbind exchange {self.source!r} from {_destinations(self.bindings)}"

    def carry_out(self, context: ShardContext) -> None:
        """Unbind."""
        context.broker.unbind(self.source, self.bindings)


ShardStep = WriteMap | DeclareExchange | DeclarePartition | BindAll | UnbindAll


def _destinations(bindings: tuple[BrokerBinding, ...]) -> str:
    first = f"{bindings[0].destination!r}"
    return first if len(bindings) == 1 else f"{first} and {len(bindings) - 1} more"
