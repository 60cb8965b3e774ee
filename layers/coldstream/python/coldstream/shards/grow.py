"""Growth by doubling: partition i + N gets the keys of partition i that the larger modulus takes there.

    map doubled -> partitions declared -> producers looked at -> bound in a burst -> looked at again -> map bound

A halving is brought about in the same way, but waits first until readers know its map (`halve`). Seals
follow (`seal`). A reader that keeps the order of keys reads partition i to its seal before it begins i + N.
"""

from __future__ import annotations

from coldstream.manifest.shard_changes import bound, doubled
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.halve import wait_for_readers
from coldstream.shards.naming import doubling_partitions
from coldstream.shards.seal import look_after, look_before, who_came
from coldstream.shards.switch import (
    bind_newest,
    check_free,
    check_moves_keys_once,
    check_ours,
    declare_added,
    drop_earlier_exchange,
    unbind_ended,
)
from coldstream.store.reserved import check_names_free


def begin_doubling(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> ShardMap:
    """Write the map of twice as many partitions. Raises ShardChangeError if the broker has one of their names."""
    nodes = [one.name for one in context.broker.nodes() if one.is_running]
    names = doubling_partitions(found, definition, nodes)
    check_ours(context, found)
    check_moves_keys_once(found)
    check_free(context, found, names)
    changed = doubled(found, names, definition.to_text(), context.now())
    check_names_free(context.table, changed)
    context.write(changed, ShardEventKind.DOUBLE, f"{len(names)} to {2 * len(names)} partitions")
    context.on_step(f"{found.name}: {len(names)} to {2 * len(names)} partitions")
    return changed


def bring_about(
    context: ShardContext, found: ShardMap, definition: ShardDefinition
) -> tuple[ShardMap, tuple[str, ...]]:
    """Take the broker to the newest version of the map, and record that it is there; or return what is waited for."""
    waiting = wait_for_readers(context, found)
    if waiting:
        return found, waiting
    declare_added(context, found, definition)
    look_before(context, found)
    began = context.now()
    made = bind_newest(context, found, definition)
    removed = unbind_ended(context, found)
    took_ms = context.now() - began
    came = look_after(context, found)
    drop_earlier_exchange(context, found)
    changed = bound(found, context.now())
    told = f"{made} bindings made and {removed} removed in {took_ms} ms{who_came(came)}"
    context.write(changed, ShardEventKind.BIND, told)
    context.on_step(f"{found.name}: {told}")
    return changed, ()
