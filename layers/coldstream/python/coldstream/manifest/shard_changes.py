"""What a change makes of a shard map: the next version, a bound version, a seal. Pure: the broker is asked elsewhere.

Each returns the map at the next revision. Raises ShardChangeError for what the lineage does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_map import MAX_LINEAGE, Lineage, MapVersion, Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs


def first_map(
    vhost: str,
    name: str,
    kind: ShardKind,
    hash_: ShardHash,
    *,
    partitions: Sequence[Partition],
    definition: str,
    at: TimestampMs,
) -> ShardMap:
    """Return the first map of a logical name: version 1, not yet bound."""
    numbered = tuple(replace(one, number=number) for number, one in enumerate(partitions))
    version = MapVersion(1, tuple(range(len(numbered))), hash_, at)
    return ShardMap(vhost, name, kind, 1, definition, (version,), numbered)


def doubled(found: ShardMap, names: Sequence[Partition], definition: str, at: TimestampMs) -> ShardMap:
    """Add as many partitions as there are, each with one parent; `names` are those, in order, of any number."""
    _check_settled(found)
    newest = found.newest
    if not newest.hash.doubles or len(names) != len(newest.partitions):
        raise ShardChangeError(f"{found}: only murmur3 and modulus double, from {len(newest.partitions)} partitions")
    added = _numbered(found, names)
    edges = (Lineage(child.number, parent, Offset(0)) for parent, child in zip(newest.partitions, added, strict=True))
    order = newest.partitions + tuple(one.number for one in added)
    return _next(found, definition, MapVersion(newest.version + 1, order, newest.hash, at), added, tuple(edges))


def halved(found: ShardMap, ends: Mapping[int, Offset], definition: str, at: TimestampMs) -> ShardMap:
    """Drop the second half of the partitions; `ends` are the next offsets of the first half before the change began."""
    _check_settled(found)
    newest = found.newest
    half = len(newest.partitions) // 2
    if not newest.hash.doubles or half * 2 != len(newest.partitions):
        raise ShardChangeError(f"{found}: only an even number of partitions by murmur3 or modulus can be halved")
    kept, ending = newest.partitions[:half], newest.partitions[half:]
    edges = tuple(Lineage(child, parent, ends[child]) for child, parent in zip(kept, ending, strict=True))
    return _next(found, definition, MapVersion(newest.version + 1, kept, newest.hash, at), (), edges)


def replaced(
    found: ShardMap, partitions: Sequence[Partition], hash_: ShardHash, definition: str, at: TimestampMs
) -> ShardMap:
    """Begin a version of new partitions, each of which comes after all of the newest version from its `start` on."""
    _check_settled(found)
    _check_edges(found, len(found.newest.partitions) * len(partitions))
    added = _numbered(found, partitions)
    edges = tuple(Lineage(child.number, parent, child.start) for child in added for parent in found.newest.partitions)
    version = MapVersion(found.newest.version + 1, tuple(one.number for one in added), hash_, at)
    return _next(found, definition, version, added, edges)


def rearranged(found: ShardMap, added: Sequence[Partition], definition: str, at: TimestampMs) -> ShardMap:
    """Add partitions to those of an exchange that chooses at random, where no key has an order to keep.

    By any other hash a partition that stays would get messages by both versions at once, mixed, and each would have to
    be read before the other. So there a version of new partitions alone follows (`replaced`, from offset 0 on).
    """
    _check_settled(found)
    if found.newest.hash is not ShardHash.RANDOM:
        raise ShardChangeError(f"{found}: partitions chosen by {found.newest.hash} keep an order that this would break")
    numbered = _numbered(found, added)
    order = found.newest.partitions + tuple(one.number for one in numbered)
    version = MapVersion(found.newest.version + 1, order, found.newest.hash, at)
    return _next(found, definition, version, numbered, ())


def bound(found: ShardMap, at: TimestampMs) -> ShardMap:
    """Record that the newest version is bound at the broker."""
    newest = replace(found.newest, bound_at=at)
    return replace(found, revision=found.revision + 1, versions=(*found.versions[:-1], newest))


def sealed(found: ShardMap, seals: Mapping[int, Offset]) -> ShardMap:
    """Record up to where producers of earlier versions wrote, by the parent's number.

    That is after the newest version is bound; only partitions that are replaced are sealed before.
    """
    is_first = found.newest.version == 1
    shared = is_first or set(found.newest.partitions) & set(found.versions[-2].partitions)
    if found.newest.bound_at is None and shared:
        raise ShardChangeError(f"{found}: version {found.newest.version} is not bound yet")
    lineage = tuple(
        replace(edge, seal=seals[edge.parent]) if edge.seal is None and edge.parent in seals else edge
        for edge in found.lineage
    )
    return replace(found, revision=found.revision + 1, lineage=lineage)


def identified(
    found: ShardMap,
    incarnations: Mapping[int, Incarnation],
    *,
    deleted: Mapping[int, TimestampMs] | None = None,
    starts: Mapping[int, Offset] | None = None,
) -> ShardMap:
    """Record incarnations, deletions at the broker, and starts after a replay, by number."""

    def known(one: Partition) -> Partition:
        return replace(
            one,
            incarnation=incarnations.get(one.number, one.incarnation),
            deleted_at=(deleted or {}).get(one.number, one.deleted_at),
            start=(starts or {}).get(one.number, one.start),
        )

    lineage = tuple(replace(edge, child_from=(starts or {}).get(edge.child, edge.child_from)) for edge in found.lineage)
    partitions = tuple(map(known, found.partitions))
    return replace(found, revision=found.revision + 1, partitions=partitions, lineage=lineage)


def _check_settled(found: ShardMap) -> None:
    if found.is_changing:
        raise ShardChangeError(f"{found}: version {found.newest.version} is still being changed to; finish that first")


def _check_edges(found: ShardMap, more: int) -> None:
    if len(found.lineage) + more > MAX_LINEAGE:
        raise ShardChangeError(
            f"{found}: a replacement would add {more} edges of lineage to {len(found.lineage)}, of {MAX_LINEAGE} at"
            " most; replace by fewer partitions"
        )


def _numbered(found: ShardMap, partitions: Sequence[Partition]) -> tuple[Partition, ...]:
    return tuple(replace(one, number=number) for number, one in enumerate(partitions, len(found.partitions)))


def _next(
    found: ShardMap,
    definition: str,
    version: MapVersion,
    added: tuple[Partition, ...],
    edges: tuple[Lineage, ...],
) -> ShardMap:
    return replace(
        found,
        revision=found.revision + 1,
        definition=definition,
        versions=(*found.versions, version),
        partitions=found.partitions + added,
        lineage=found.lineage + edges,
    )
