"""Make the broker lead producers to the newest version of a map: partitions declared, bindings switched in a burst.

    super-stream       bindings of NAME: the new ones are made, then those of ended partitions are removed
    streams, queues    NAME.v2 with all of its bindings; then NAME is bound to it, and then no longer to NAME.v1

While NAME is bound to both, a message goes to one of the two, the same for each key: keys move once, and no message is
lost or doubled. The clients of a super stream ask for its bindings when they start, so one that starts within the
burst may see a part of them. All of it may be done again at any point.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.shards.archived import may_be_of
from coldstream.shards.broker_port import BrokerBinding
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.layout import (
    bindings_of,
    logical_binding,
    queue_of,
    version_exchange_name,
    version_exchange_of,
)


def added_partitions(found: ShardMap) -> tuple[Partition, ...]:
    """Return the partitions that only the newest version has."""
    before = set(found.versions[-2].partitions) if len(found.versions) > 1 else set()
    return tuple(one for one in found.current if one.number not in before)


def check_free(context: ShardContext, found: ShardMap, partitions: Sequence[Partition]) -> None:
    """Refuse names that the broker has already: what is in those streams is not this one's.

    Cost: a request, and one to the table for each. Raises ShardChangeError.
    """
    taken = sorted(context.broker.queues([one.name for one in partitions]))
    if taken:
        raise ShardChangeError(f"{found}: the broker has {taken[0]!r} already; delete it there, or take another number")
    for one in partitions:
        archived = context.table.incarnation_of(found.vhost, one.name)
        is_known = any(archived == other.incarnation for other in found.partitions)
        if archived is not None and not is_known and may_be_of(archived, context.now()):
            raise ShardChangeError(f"{found}: another {one.name!r} was there just now; try again in ten minutes")


def check_ours(context: ShardContext, found: ShardMap) -> None:
    """Refuse an exchange that leads to its queues directly, as the sharding plugin's own policies do it.

    Raises ShardChangeError.
    """
    if found.kind is ShardKind.SUPER_STREAM:
        return
    if any(one.destination_type == "queue" for one in context.broker.bindings(found.name)):
        raise ShardChangeError(
            f"{found}: the exchange leads to its shards directly, under a policy of its plugin,"
            " so keys would not move at once; declare another name, and let producers publish there"
        )


def check_moves_keys_once(found: ShardMap) -> None:
    """Refuse an exchange that sends a key to either version while it leads to both. Raises ShardChangeError."""
    if found.kind is not ShardKind.SUPER_STREAM and found.versions[0].hash is ShardHash.RANDOM:
        raise ShardChangeError(
            f"{found}: its exchange was declared to choose at random, and keeps that, so each key would go to both"
            " versions while they change places; declare another name, or another number that needs a --replay"
        )


def declare_added(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> None:
    """Declare the new partitions that are not there. Cost: a request, and one for each."""
    added = added_partitions(found)
    there = context.broker.queues([one.name for one in added])
    for one in added:
        if one.name not in there:
            context.broker.declare_queue(queue_of(definition, one))


def unbind_ended(context: ShardContext, found: ShardMap) -> int:
    """Remove the bindings that lead to ended partitions, or to earlier versions' exchanges; return how many."""
    ended = {one.name for one in found.partitions} - {one.name for one in found.current}
    if found.kind is not ShardKind.SUPER_STREAM:
        earlier = found.versions[:-1]
        ended = {version_exchange_name(found.name, one.version) for one in earlier}
    gone = [one for one in context.broker.bindings(found.name) if one.destination in ended]
    if gone:
        context.broker.unbind(found.name, gone)
    return len(gone)


def bind_newest(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> int:
    """Make the bindings of the newest version that are not there; return how many."""
    inner = version_exchange_of(definition, found.newest.version)
    if inner is None:
        return _bind_missing(context, found.name, bindings_of(found))
    context.broker.declare_exchange(inner)
    made = _bind_missing(context, inner.name, bindings_of(found))
    # Last: from here on keys go there, so all of its partitions have to be bound.
    return made + _bind_missing(context, found.name, [logical_binding(found.name, found.newest.version)])


def drop_earlier_exchange(context: ShardContext, found: ShardMap) -> None:
    """Delete the exchange of the version before, to which nothing leads any more."""
    if found.kind is not ShardKind.SUPER_STREAM and len(found.versions) > 1:
        context.broker.delete_exchange(version_exchange_name(found.name, found.versions[-2].version))


def newest_is_bound(context: ShardContext, found: ShardMap) -> bool:
    """Tell whether any binding of the logical name leads to the newest version only."""
    added = {one.name for one in added_partitions(found)} | {version_exchange_name(found.name, found.newest.version)}
    return any(one.destination in added for one in context.broker.bindings(found.name))


def _bind_missing(context: ShardContext, exchange: str, wanted: Sequence[BrokerBinding]) -> int:
    # Not by their arguments: a broker may show more of them than were given.
    held = {(one.destination_type, one.destination, one.routing_key) for one in context.broker.bindings(exchange)}
    missing = [one for one in wanted if (one.destination_type, one.destination, one.routing_key) not in held]
    if missing:
        context.broker.bind(exchange, missing)
    return len(missing)
