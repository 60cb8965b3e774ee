"""Halving: partition i gets the keys of partition i + N back, which ends.

    ends of the kept half read -> map halved -> readers know it -> second half unbound -> map bound -> seals
    -> archived -> deleted

The ends come first: what partition i gets of the keys of i + N lies after them. A reader of partition i that does not
know the map yet would read that before the rest of i + N, so nothing is unbound for `MAP_SETTLE_S`. The last two steps
are in `retire`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from coldstream.manifest.shard_changes import halved
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import MAP_SETTLE_S, ShardKind, ShardMap
from coldstream.shards.archived import archived_end
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.looks import find_looks, keep_looks
from coldstream.shards.switch import check_moves_keys_once, check_ours


def begin_halving(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> ShardMap:
    """Write the map of half as many partitions. Cost: a request or two for each that stays."""
    check_ours(context, found)
    check_moves_keys_once(found)
    kept = found.current[: len(found.current) // 2]
    if found.kind is ShardKind.QUEUES:
        # What is queued now gets its offsets later: an end that is too low only holds some of it back for a while.
        ends = {one.number: archived_end(context.table, found, one.number) for one in kept}
    else:
        ends = {one.number: context.broker.end(one.name) for one in kept}
    changed = halved(found, ends, definition.to_text(), context.now())
    context.write(changed, ShardEventKind.HALVE, f"{2 * len(kept)} to {len(kept)} partitions")
    context.on_step(f"{found.name}: {2 * len(kept)} to {len(kept)} partitions")
    return changed


def wait_for_readers(context: ShardContext, found: ShardMap) -> tuple[str, ...]:
    """Return what is waited for until readers know what the map holds back; nothing if that is new partitions alone.

    Cost: a GetItem, and a PUT the first time.
    """
    kept = set(found.versions[-2].partitions) & set(found.newest.partitions)
    if not any(edge.child in kept and edge.seal is None for edge in found.lineage):
        return ()
    looks = find_looks(context.table, found)
    if looks.seen_at is None:
        # Not from the version's own time on: that was taken before the write, which may have taken long.
        looks = keep_looks(context.table, found, replace(looks, seen_at=context.now()))
        assert looks.seen_at is not None
    left_ms = looks.seen_at + MAP_SETTLE_S * 1000 - context.now()
    if left_ms <= 0:
        return ()
    return (f"{found.name}: readers to learn of the change, {math.ceil(left_ms / 1000)} s more",)
