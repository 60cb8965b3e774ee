"""How a sharded stream is: where the broker differs from its map, which nodes are gone, and what is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.shard_map import ShardKind, ShardMap
from coldstream.shards.apply import gone_sentence
from coldstream.shards.broker_port import ShardBroker
from coldstream.shards.definition_file import definition_of
from coldstream.shards.drift import Drift, drift_of, gone_nodes
from coldstream.shards.view import look_at


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A map, held against what a broker shows. `waiting` and `gone` are sentences."""

    found: ShardMap
    drift: tuple[Drift, ...]
    gone: tuple[str, ...]
    waiting: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Tell whether the broker is as the map says, on nodes that run."""
        return not self.drift and not self.gone


def status_of(broker: ShardBroker, found: ShardMap) -> ShardStatus:
    """Look at a broker. Cost: as `view.look`, and the list of publishers while a super stream waits for them.

    Raises UnavailableError, AccessDeniedError.
    """
    view = look_at(broker, found)
    gone = tuple(gone_sentence(found, node, len(some)) for node, some in gone_nodes(found, view).items())
    return ShardStatus(found, drift_of(found, definition_of(found.definition), view), gone, _waiting(broker, found))


def _waiting(broker: ShardBroker, found: ShardMap) -> tuple[str, ...]:
    if found.newest.bound_at is None:
        return (f"version {found.newest.version} is not bound yet: run `coldstream shards apply`",)
    parents = sorted({edge.parent for edge in found.unsealed})
    if not parents:
        return ()
    names = {found.partitions[number].name for number in parents}
    told = f"{len(parents)} of {len(found.partitions)} partitions are not sealed:"
    if found.kind is ShardKind.QUEUES:
        return (f"{told} run `coldstream shards archive`, which takes what is queued, and `coldstream shards apply`",)
    told += " producers may write to them still; `coldstream shards apply` seals them"
    if found.kind is ShardKind.STREAMS:
        return (told,)
    clients = sorted({one.client for one in broker.publishers() if one.stream in names})
    return (told, *(f"there publishes {client}" for client in clients))
