"""Where a broker differs from a map: each line is something missing, something that differs, or something extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from coldstream.manifest.shard_map import Partition, ShardKind, ShardMap
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerQueue
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.layout import (
    bindings_of,
    exchange_of,
    logical_binding,
    queue_of,
    version_exchange_name,
    version_exchange_of,
)
from coldstream.shards.view import BrokerView


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. `is_mendable` tells whether `apply` mends it: what is missing and holds no messages."""

    kind: Literal["missing", "differs", "extra"]
    what: str
    detail: str = ""
    is_mendable: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}{f': {self.detail}' if self.detail else ''}"


def drift_of(found: ShardMap, definition: ShardDefinition, view: BrokerView) -> tuple[Drift, ...]:
    """Hold what a broker shows against a map and the definition that it keeps."""
    return (
        *_exchanges(found, definition, view),
        *(line for one in found.current if one.deleted_at is None for line in _partition(found, definition, view, one)),
        *_bindings(found, view),
    )


def gone_nodes(found: ShardMap, view: BrokerView) -> Mapping[str, tuple[Partition, ...]]:
    """Return the nodes that partitions of the newest version are placed on and that do not run, with those."""
    gone: dict[str, tuple[Partition, ...]] = {}
    for one in found.current:
        if is_gone(one, view) and one.node is not None:
            gone[one.node] = (*gone.get(one.node, ()), one)
    return gone


def is_gone(one: Partition, view: BrokerView) -> bool:
    """Tell whether the node that a partition was placed on does not run, or is no node of the cluster any more."""
    return one.node is not None and one.node not in view.running and one.deleted_at is None


def exchange_difference(expected: BrokerExchange, there: BrokerExchange) -> str | None:
    """Say how an exchange differs from what it is to be, None if it does not."""
    for word, should, is_now in (
        ("type", expected.type, there.type),
        ("durable", expected.is_durable, there.is_durable),
        ("arguments", dict(expected.arguments), dict(there.arguments)),
    ):
        if should != is_now:
            return f"{word} is {is_now}, and should be {should}"
    return None


def queue_difference(expected: BrokerQueue, there: BrokerQueue) -> str | None:
    """Say how a queue or stream differs from what it is to be, None if it does not; its node may change."""
    if expected.type != there.type:
        return f"is a {there.type} queue, and should be {expected.type}"
    if dict(expected.arguments) != dict(there.arguments):
        return f"arguments are {dict(there.arguments)}, and should be {dict(expected.arguments)}"
    return None


def _exchanges(found: ShardMap, definition: ShardDefinition, view: BrokerView) -> Iterator[Drift]:
    expected = [exchange_of(definition, found)]
    version = version_exchange_of(definition, found.newest.version)
    if version is not None and not view.is_direct(found.name):
        expected.append(version)
    for one in expected:
        there = view.exchanges.get(one.name)
        if there is None:
            yield Drift("missing", f"exchange {one.name!r}", is_mendable=True)
        elif (difference := exchange_difference(one, there)) is not None:
            yield Drift("differs", f"exchange {one.name!r}", difference)


def _partition(found: ShardMap, definition: ShardDefinition, view: BrokerView, one: Partition) -> Iterator[Drift]:
    what = f"{'queue' if found.kind is ShardKind.QUEUES else 'stream'} {one.name!r}"
    there = view.queues.get(one.name)
    if there is None and is_gone(one, view):
        return  # brokers do not show the classic queues of a node that does not run, nor what is bound to them
    if there is None:
        # Once bound, it may have had messages: declared again it would be another partition, of another incarnation.
        yield Drift("missing", what, is_mendable=found.newest.bound_at is None)
    elif (difference := queue_difference(queue_of(definition, one), there)) is not None:
        yield Drift("differs", what, difference)


def _bindings(found: ShardMap, view: BrokerView) -> Iterator[Drift]:
    source = view.source_of(found)
    expected = {source: [] if source in adopted_sources(found, view) else list(bindings_of(found))}
    if source != found.name:
        expected[found.name] = [logical_binding(found.name, found.newest.version)]
    for exchange, bindings in expected.items():
        there = view.bindings.get(exchange, ())
        for one in bindings:
            partition = found.partition_named(one.destination)
            if one not in there and not (partition is not None and is_gone(partition, view)):
                yield Drift("missing", _binding_text(exchange, one), is_mendable=True)
        for one in there:
            if one not in bindings and not _is_known(found, one):
                yield Drift("extra", _binding_text(exchange, one))


def adopted_sources(found: ShardMap, view: BrokerView) -> frozenset[str]:
    """Return the exchange that the sharding plugin has made and bound, by keys of its own; the map took it over."""
    return frozenset((found.name,) if found.kind is not ShardKind.SUPER_STREAM and view.is_direct(found.name) else ())


def _is_known(found: ShardMap, binding: BrokerBinding) -> bool:
    """Tell whether a binding leads to what this map knows: a partition, or the exchange of a version."""
    if binding.destination_type == "queue":
        return found.partition_named(binding.destination) is not None
    versions = (version_exchange_name(found.name, one.version) for one in found.versions)
    return binding.destination in versions


def _binding_text(exchange: str, one: BrokerBinding) -> str:
    return (
        f"binding of exchange {exchange!r} to {one.destination_type} {one.destination!r} with key {one.routing_key!r}"
    )
