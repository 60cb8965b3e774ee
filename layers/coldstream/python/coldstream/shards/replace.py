"""Replacement: any change that is no doubling or halving makes new partitions, which hold a replay of all before.

    map replaced -> partitions declared, bound to nothing -> history replayed, in the order of keys
    -> the old ones unbound, so that a producer that starts now gets an error and no wrong route
    -> old producers gone, seals -> replayed up to the seals -> `start` of each in the map -> bound -> map bound

The replay goes on where it was: how far each partition is replayed is kept in the table, and the broker drops what it
has already. Behind an exchange nobody sees the producers: there the operator's word is needed before it is unbound.
"""

from __future__ import annotations

from dataclasses import replace

from coldstream.errors import ShardChangeError
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_changes import bound, identified, replaced
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import MapVersion, ShardKind, ShardMap
from coldstream.shards.archived import archived_end, archived_stream
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.looks import find_looks, keep_looks
from coldstream.shards.naming import replacing_partitions
from coldstream.shards.replay_port import ShardReplay
from coldstream.shards.seal import look_after, look_before, seal_parents, who_came
from coldstream.shards.switch import (
    bind_newest,
    check_free,
    check_ours,
    declare_added,
    drop_earlier_exchange,
    newest_is_bound,
    unbind_ended,
)
from coldstream.store.reserved import check_names_free

_NAMED = 5

MAX_SOURCES = 200
"""A broker remembers 255 publishers of a stream, the newest ones."""


def begin_replacement(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> ShardMap:
    """Write the map of a version of new partitions. Raises ShardChangeError if that is not possible, or not allowed."""
    _replay_of(context, found).check(definition)
    if len(_held_by(found, found.newest)) > MAX_SOURCES:
        raise ShardChangeError(
            f"{found}: {MAX_SOURCES} partitions can be replayed at most, as brokers forget who published before"
        )
    nodes = [one.name for one in context.broker.nodes() if one.is_running]
    partitions = replacing_partitions(found, definition, nodes)
    check_ours(context, found)
    check_free(context, found, partitions)
    changed = replaced(found, partitions, definition.hash, definition.to_text(), context.now())
    check_names_free(context.table, changed)
    told = f"{len(found.current)} partitions by {found.newest.hash} to {len(partitions)} by {definition.hash}"
    context.write(changed, ShardEventKind.REPLACE, told)
    context.on_step(f"{found.name}: {told}")
    return changed


def go_on_replacing(
    context: ShardContext, found: ShardMap, definition: ShardDefinition
) -> tuple[ShardMap, tuple[str, ...]]:
    """Take a replacement as far as goes now; return the map, and what is waited for."""
    if newest_is_bound(context, found):
        # Producers may be there already: the starts are in the map, and must not be read again.
        return _bind(context, found, definition), ()
    declare_added(context, found, definition)
    if found.unsealed:
        replay_history(context, found, definition)
        if found.kind is not ShardKind.SUPER_STREAM and not context.are_producers_restarted:
            return found, (f"{found.name}: its producers to stop publishing; say so by --producers-restarted",)
        found = _unbind(context, found)
        found, waiting = seal_parents(context, found)
        if waiting or found.unsealed:
            return found, waiting
    waiting = replay_history(context, found, definition)
    if waiting:
        return found, waiting
    starts = {one.number: context.broker.end(one.name) for one in found.current}
    if any(found.partitions[number].start != start for number, start in starts.items()):
        found = identified(found, {}, starts=starts)
        context.write(found, ShardEventKind.IDENTIFY, f"{sum(starts.values())} messages are replayed")
    return _bind(context, found, definition), ()


def _unbind(context: ShardContext, found: ShardMap) -> ShardMap:
    """Let nobody start to publish any more; tell who came meanwhile, as by growth."""
    look_before(context, found)
    began = context.now()
    removed = unbind_ended(context, found)
    if not removed:
        return found
    took_ms = context.now() - began
    told = f"{removed} bindings removed in {took_ms} ms{who_came(look_after(context, found))}"
    found = replace(found, revision=found.revision + 1)
    context.write(found, ShardEventKind.BIND, told)
    context.on_step(f"{found.name}: {told}")
    return found


def replay_history(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> tuple[str, ...]:
    """Replay what is archived of the versions before, up to the seals; return what is not archived yet.

    Each key's messages in their order: a partition is replayed as far as `KeyOrder` lets a reader read it.
    """
    replay = _replay_of(context, found)
    looks = find_looks(context.table, found)
    order = KeyOrder(found, looks.replayed)
    sources = _history(found)
    for one in found.partitions:
        if one.number not in sources:
            order.finish(one.number)
    seals = {edge.parent: edge.seal for edge in found.lineage if edge.seal is not None}
    moved = True
    while moved:
        moved = False
        for number in sources:
            bounds = (archived_end(context.table, found, number), seals.get(number), order.limit(number))
            end = min(one for one in bounds if one is not None)
            if end > order.position(number):
                source = archived_stream(context.table, found, number)
                assert source is not None  # it has an archived end
                replay.replay(source, order.position(number), end, found.current, definition)
                context.on_step(f"{source.name}: replayed up to {end}")
                order.read_to(number, end)
                replayed = {**looks.replayed, number: end}
                looks = keep_looks(context.table, found, replace(looks, replayed=replayed))
                moved = True
    behind = [
        f"{found.partitions[number].name}: the archive, which lacks offsets below {seals[number]} (an agent with"
        " --max-lag archives what waits)"
        for number in sources
        if number in seals and order.position(number) < seals[number]
    ]
    return tuple(behind[:_NAMED])


def _history(found: ShardMap) -> list[int]:
    """Return the partitions that together hold all before the newest version: none whose messages another replayed."""
    return _held_by(found, found.versions[-2])


def _held_by(found: ShardMap, version: MapVersion) -> list[int]:
    parents: dict[int, set[int]] = {}
    for edge in found.lineage:
        parents.setdefault(edge.child, set()).add(edge.parent)
    held: set[int] = set()
    queue = list(version.partitions)
    while queue:
        number = queue.pop()
        if number not in held:
            held.add(number)
            # One with a start holds its parents' messages already.
            queue += [] if found.partitions[number].start else parents.get(number, ())
    return sorted(held)


def _bind(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> ShardMap:
    began = context.now()
    made = bind_newest(context, found, definition)
    told = f"{made} bindings made in {context.now() - began} ms"
    drop_earlier_exchange(context, found)
    changed = bound(found, context.now())
    context.write(changed, ShardEventKind.BIND, told)
    context.on_step(f"{found.name}: {told}")
    return changed


def _replay_of(context: ShardContext, found: ShardMap) -> ShardReplay:
    if found.kind is ShardKind.QUEUES:
        raise ShardChangeError(f"{found}: queues cannot hold a replay; their number can be doubled or halved")
    if not context.may_replay or context.replay is None:
        raise ShardChangeError(
            f"{found}: this change needs all of its history replayed into new partitions; allow it by --replay"
        )
    return context.replay
