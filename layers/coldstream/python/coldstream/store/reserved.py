"""Names that are reserved: the logical names of sharded streams, and the names of their partitions.

Only `coldstream shards` declares and takes away what is behind a logical name, as the sharding plugin refuses to let
its queues' names be declared, bound, deleted or purged. For us that comes to:

    name            what is refused                               why
    logical name    every action on a stream of that name         it is none; readers of the name get the partitions
    partition       its deletion                                  the map names it for good, with offsets in it, and
                                                                  readers would miss all of it
                    that it is created as a direct stream         a broker has it, or will

A partition may be truncated, erased, announced, restored and replayed into as any stream may: its offsets stay, and
what is gone is a gap with a reason. Cost: each check reads the maps by one Query a megabyte of them; an archive without
sharded streams pays one Query of nothing. No path that archives or reads messages asks.
"""

from __future__ import annotations

from enum import StrEnum

from coldstream.errors import ReservedNameError
from coldstream.manifest.shard_map import Partition, ShardMap
from coldstream.store.direct_names import find_name
from coldstream.store.ports import ManifestReads
from coldstream.store.shard_maps import find_map, iter_maps


class StreamAction(StrEnum):
    """What is about to be done to a stream, by its name."""

    CREATE = "created"
    DELETE = "deleted"
    UNDELETE = "undeleted"
    TRUNCATE = "truncated"
    ERASE = "erased"
    ANNOUNCE = "announced"
    REPLAY_TO = "replayed to"


_ADVICE = {
    StreamAction.CREATE: "choose another name",
    StreamAction.REPLAY_TO: "--to-super-stream or --to-exchange publishes to all of its partitions",
    StreamAction.ANNOUNCE: "--name takes the name of the partition whose segments these are",
}


def check_not_reserved(
    table: ManifestReads, vhost: str, name: str, action: StreamAction, *, incarnation: str | None = None
) -> None:
    """Raise ReservedNameError if a sharded stream forbids an action on a stream.

    `incarnation` is what the caller was told: one that is of no map is not reserved. Cost: one GetItem; for a deletion
    and for the creation of a direct stream one Query a megabyte of maps more.
    """
    if incarnation is None and (found := find_map(table, vhost, name)) is not None:
        advice = _ADVICE.get(action, f"each partition has its own name: `coldstream shards show {name}`")
        raise ReservedNameError("stream name", f"{name!r} is {found}, and is not {action} as a stream; {advice}")
    if action is StreamAction.CREATE and (held := partition_of(table, vhost, name)) is not None:
        raise ReservedNameError("stream name", f"{name!r} is a partition of {held[0]}, which a broker has")
    if action is StreamAction.DELETE and (held := partition_of(table, vhost, name)) is not None:
        of, partition = held
        if incarnation is None or partition.incarnation in {None, incarnation}:
            raise ReservedNameError(
                "stream name",
                f"{name!r} is a partition of {of}, whose readers need it; truncate it, or set a policy, if old messages"
                " are to go",
            )


def partition_of(table: ManifestReads, vhost: str, name: str) -> tuple[ShardMap, Partition] | None:
    """Return the map that has a partition of a name, with its newest of that name. Cost: a Query a megabyte of maps."""
    for found in iter_maps(table):
        if found.vhost == vhost and (partition := found.partition_named(name)) is not None:
            return found, partition
    return None


def check_names_free(table: ManifestReads, new: ShardMap) -> None:
    """Check that the names of a map, new or changed, are nobody else's. Raises ReservedNameError.

    Its logical name is neither that of an archived stream, as a reader of the name could mean either, nor a partition
    of another map, or of its own; its partitions are neither logical names nor partitions of another map, nor direct
    streams. Broker's streams that are archived already may become partitions. Cost: a Query a megabyte of maps, one
    Query, and a GetItem a partition.
    """
    names = {one.name for one in new.partitions}
    if new.name in names:
        raise ReservedNameError("logical name", f"{new.name!r} is also the name of a partition")
    for other in iter_maps(table):
        if other.vhost != new.vhost or other.name == new.name:
            continue
        if other.name in names:
            raise ReservedNameError("partition", f"{other.name!r} is the logical name of {other}")
        taken = {one.name for one in other.partitions}
        if new.name in taken:
            raise ReservedNameError("logical name", f"{new.name!r} is a partition of {other}")
        if both := names & taken:
            raise ReservedNameError("partition", f"{min(both)!r} is a partition of {other}")
    for name in sorted(names):
        if find_name(table, new.vhost, name) is not None:
            raise ReservedNameError("partition", f"{name!r} is a direct stream, to which no broker publishes")
    if table.incarnation_of(new.vhost, new.name) is not None:
        raise ReservedNameError(
            "logical name", f"{new.name!r} is an archived stream in vhost {new.vhost!r}; choose another name"
        )
