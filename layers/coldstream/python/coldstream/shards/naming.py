"""The names of partitions that a change adds: those of the layout, unless the map's own go another way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from coldstream.manifest.shard_map import Partition, ShardKind, ShardMap
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.layout import partitions_of


def doubling_partitions(found: ShardMap, definition: ShardDefinition, nodes: Sequence[str]) -> tuple[Partition, ...]:
    """Return the second half of a doubled version; it sorts after the first, as some brokers count by name."""
    half = len(found.newest.partitions)
    added = partitions_of(replace(definition, shards=2 * half), nodes, first=half)
    replaced_by = re.match(re.escape(found.name) + r"-v(\d+)-", found.current[0].name)
    if replaced_by is None or not _is_replacement(found, int(replaced_by[1])):
        return added
    return _versioned(found, added, int(replaced_by[1]), first=half)


def replacing_partitions(found: ShardMap, definition: ShardDefinition, nodes: Sequence[str]) -> tuple[Partition, ...]:
    """Return the partitions of a version that has none of those before."""
    return _versioned(found, partitions_of(definition, nodes), found.newest.version + 1)


def _versioned(found: ShardMap, partitions: Sequence[Partition], version: int, first: int = 0) -> tuple[Partition, ...]:
    # Four digits behind an exchange, where the order of names may be that of the hash.
    digits = 1 if found.kind is ShardKind.SUPER_STREAM else 4
    return tuple(
        replace(one, name=f"{found.name}-v{version}-{index:0{digits}}") for index, one in enumerate(partitions, first)
    )


def _is_replacement(found: ShardMap, version: int) -> bool:
    """Tell it from a logical name that only looks so."""
    return 1 < version <= len(found.versions)
