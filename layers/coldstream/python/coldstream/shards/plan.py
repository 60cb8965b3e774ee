"""What has to be done for a sharded stream to be as its definition says: steps in the order that is safe. Pure.

The map is written first, so whatever is then made at the broker is known to the archive, and a run that is interrupted
goes on from the map. Partitions come before the bindings to them, as those of a super stream show at once; and the
version is bound to the logical name last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_changes import bound, first_map, rearranged, replaced
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardMap
from coldstream.shards.adoption import adopted_partitions
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.drift import Drift, adopted_sources, drift_of, is_gone
from coldstream.shards.layout import (
    bindings_of,
    exchange_of,
    logical_binding,
    node_partitions,
    partitions_of,
    queue_of,
    version_exchange_of,
)
from coldstream.shards.steps import BindAll, DeclareExchange, DeclarePartition, ShardStep, UnbindAll, WriteMap
from coldstream.shards.view import BrokerView
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The map that the steps lead from, after the first of them if that writes it, and the steps."""

    found: ShardMap
    steps: tuple[ShardStep, ...]


def plan_first(definition: ShardDefinition, view: BrokerView, at: TimestampMs) -> ShardPlan:
    """Plan a sharded stream that has no map: to declare it, or to adopt what a broker has of it already.

    Raises ShardChangeError if what is there differs, or if no node runs.
    """
    adopted = adopted_partitions(definition, view)
    if adopted is None and not view.running:
        raise ShardChangeError(f"{definition}: no node of the broker runs")
    partitions = partitions_of(definition, view.running) if adopted is None else adopted
    kind, word = (ShardEventKind.DECLARE, "declared") if adopted is None else (ShardEventKind.ADOPT, "adopted")
    first = first_map(
        definition.vhost,
        definition.name,
        definition.kind,
        definition.hash,
        partitions=partitions,
        definition=definition.to_text(),
        at=at,
    )
    detail = f"{word} with {_count(len(partitions))} by {definition.hash}"
    return ShardPlan(first, (WriteMap(first, kind, detail), *steps_of(first, definition, view, at)))


def plan_joining(found: ShardMap, definition: ShardDefinition, view: BrokerView, at: TimestampMs) -> ShardPlan | None:
    """Plan a version with the partitions of nodes that joined; None if none did, or each has its partitions.

    A partition has its node's messages alone, and stays in the map if the node leaves. By a hash, a new number of
    partitions moves keys between them, so all of the new version are new, and come after all of the old one.
    """
    placed = {one.node for one in found.current}
    joined = [node for node in view.running if node not in placed]
    if definition.shards_per_node is None or not joined or found.is_changing:
        return None
    if adopted_sources(found, view):
        raise ShardChangeError(
            f"{found}: {', '.join(joined)} joined, and the sharding plugin's policy binds new queues by itself, which"
            " moves keys; remove that policy, and declare a sharded stream of another name to move to"
        )
    if definition.hash is ShardHash.RANDOM:
        changed = rearranged(found, node_partitions(definition, joined), definition.to_text(), at)
    else:
        changed = replaced(
            found,
            _renamed(found, node_partitions(definition, view.running), definition),
            definition.hash,
            definition.to_text(),
            at,
        )
    detail = f"{', '.join(joined)} joined: {_count(len(changed.newest.partitions))}"
    return ShardPlan(changed, (WriteMap(changed, ShardEventKind.JOIN, detail),))


def steps_of(found: ShardMap, definition: ShardDefinition, view: BrokerView, at: TimestampMs) -> tuple[ShardStep, ...]:
    """Return the steps from what a broker shows to the newest version of a map; none if all is as it is to be.

    Raises ShardChangeError for what `apply` does not mend.
    """
    refuse(found, [line for line in drift_of(found, definition, view) if not line.is_mendable])
    version = None if view.is_direct(found.name) else version_exchange_of(definition, found.newest.version)
    exchanges = (exchange_of(definition, found), *(() if version is None else (version,)))
    steps: list[ShardStep] = [DeclareExchange(one) for one in exchanges if one.name not in view.exchanges]
    steps += [
        DeclarePartition(queue_of(definition, one))
        for one in found.current
        if one.name not in view.queues and (found.newest.bound_at is None or not is_gone(one, view))
    ]
    source = found.name if version is None else version.name
    if not adopted_sources(found, view):
        there = view.bindings.get(source, ())
        gone = {one.name for one in found.current if is_gone(one, view)} if found.newest.bound_at is not None else set()
        missing = tuple(one for one in bindings_of(found) if one not in there and one.destination not in gone)
        steps += [BindAll(source, missing)] if missing else []
    if version is not None:
        steps += _switch(found, view)
    if found.newest.bound_at is None:
        detail = f"version {found.newest.version} is bound"
        steps.append(WriteMap(bound(found, at), ShardEventKind.BIND, detail))
    return tuple(steps)


def refuse(found: ShardMap, lines: list[Drift]) -> None:
    """Raise ShardChangeError if there are any of these lines."""
    if lines:
        told = "; ".join(map(str, lines[:5])) + (f"; and {len(lines) - 5} more" if len(lines) > 5 else "")  # noqa: PLR2004
        raise ShardChangeError(
            f"{found}: the broker differs from the map: {told}. Nothing was changed. Put it right at the broker by"
            " hand; a partition that was deleted there stays in the archive, and leaves a version only by"
            " a change of the number"
        )


def _switch(found: ShardMap, view: BrokerView) -> list[ShardStep]:
    """Lead the logical name to the newest version: first that, then away from the earlier ones, so none is lost."""
    newest = logical_binding(found.name, found.newest.version)
    there = view.bindings.get(found.name, ())
    earlier = tuple(
        one
        for version in found.versions[:-1]
        for one in there
        if one.destination == logical_binding(found.name, version.version).destination
    )
    steps: list[ShardStep] = [] if newest in there else [BindAll(found.name, (newest,))]
    return [*steps, UnbindAll(found.name, earlier)] if earlier else steps


def _renamed(found: ShardMap, partitions: Sequence[Partition], definition: ShardDefinition) -> tuple[Partition, ...]:
    """Give partitions names that the map has not had: the index on a node goes on counting."""
    known = {one.name for one in found.partitions}
    renamed = []
    for one in partitions:
        stem, _, text = one.name.rpartition(" - ")
        index = int(text)
        while f"{stem} - {index}" in known:
            index += definition.shards_per_node or 1
        renamed.append(replace(one, name=f"{stem} - {index}"))
    return tuple(sorted(renamed, key=lambda one: one.name.encode()))


def _count(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"
