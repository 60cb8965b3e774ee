"""Seals: up to where producers of the version before wrote to each parent, found by looking at the broker twice.

The parents of a super stream are sealed once none of its old producers is left (`old_producers`). Behind an exchange
nobody is old as soon as the bindings are switched. Then come two looks at the ends, `SETTLE_S` apart, as a message that
was routed before may still be on its way: the later end is the seal. A parent that ended must not have moved between
them; one that lives on is written by new producers, and a seal that is too high costs a reader nothing but a wait.

A queue has no end: its messages get their offsets in the archive. So the first look, once the broker has counted all
that came before the bindings changed, takes what the archive has and what is still queued; the seal is what the archive
has as soon as it is that far, or the queue is empty. A queue that is gone at two looks, though its node is not down,
gets nothing any more, and what was taken of it is the archive's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.manifest.shard_changes import sealed
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardKind, ShardMap
from coldstream.queues.state import find_state
from coldstream.shards.archived import archived_end
from coldstream.shards.broker_port import StreamPublisher
from coldstream.shards.context import ShardContext
from coldstream.shards.looks import ShardLooks, find_looks, keep_looks
from coldstream.shards.old_producers import GONE_MS, OldProducers
from coldstream.shards.switch import added_partitions
from coldstream.units import Offset

SETTLE_S = 5.0
LATE_S = 10.0
"""How long publishers, and what queues hold, may show late: RabbitMQ's management collects them every five seconds."""

NOT_COUNTED = "the broker, which has not counted its messages yet"

_NAMED = 5
_MANY = 20

_MOVING = {
    ShardKind.SUPER_STREAM: "it to come to rest, as it is still written",
    ShardKind.STREAMS: "it to come to rest, as it is still written",
    ShardKind.QUEUES: "the archive, which does not have all yet that was queued (coldstream shards archive)",
}


def look_before(context: ShardContext, found: ShardMap) -> None:
    """Keep who publishes before the first binding changes, or who came since then. Cost: 4 requests."""
    if found.kind is not ShardKind.SUPER_STREAM:
        return
    looks = find_looks(context.table, found)
    publishers, connections = _publishers(context, found), context.broker.connections()
    if looks.producers is None:
        known = OldProducers.before(publishers, connections, context.now())
    else:
        known = looks.producers.during(publishers, connections, context.now())
    keep_looks(context.table, found, replace(looks, producers=known))


def look_after(context: ShardContext, found: ShardMap) -> tuple[str, ...]:
    """Keep who may have asked while the bindings changed, and take nobody else for old; return their connections."""
    if found.kind is not ShardKind.SUPER_STREAM:
        return ()
    looks = find_looks(context.table, found)
    known = looks.producers or OldProducers()
    came = sorted(context.broker.connections() - set(known.connections))
    context.pause(LATE_S)
    connections = context.broker.connections()
    known = known.during(_publishers(context, found), connections, context.now())
    keep_looks(context.table, found, replace(looks, producers=known, changed_at=context.now()))
    return tuple(came)


def who_came(connections: Sequence[str]) -> str:
    """Return the rest of a sentence that names the connections of `look_after`."""
    if not connections:
        return ""
    return f"; connections that came meanwhile, and may know a part of them: {', '.join(connections[:_MANY])}"


def seal_parents(context: ShardContext, found: ShardMap) -> tuple[ShardMap, tuple[str, ...]]:
    """Seal the parents that can be sealed now; return the map, and what is waited for. Cost: 2 requests a parent.

    It may be called again at any time, and goes on.
    """
    looks = find_looks(context.table, found)
    for is_last in (False, True):
        looks, waiting = _look_at_producers(context, found, looks)
        if waiting:
            keep_looks(context.table, found, replace(looks, ends={}, ends_at=None))
            return found, waiting
        if looks.ends_at is not None and context.now() - looks.ends_at >= SETTLE_S * 1000:
            return _sealed_now(context, found, looks)
        if looks.ends_at is None:
            _wait_for_counts(context, found)
            looked = _look_at_ends(context, found)
            ends = {number: one.bound for number, one in looked.items() if isinstance(one, ParentEnd)}
            looks = replace(looks, ends=ends, ends_at=context.now())
        looks = keep_looks(context.table, found, looks)
        if not is_last:
            context.pause(SETTLE_S)
    return found, (f"{found.name}: a second look at the ends of its partitions",)


def _sealed_now(context: ShardContext, found: ShardMap, looks: ShardLooks) -> tuple[ShardMap, tuple[str, ...]]:
    seals: dict[int, Offset] = {}
    waiting: list[str] = []
    ends = dict(looks.ends)
    looked = _look_at_ends(context, found)
    for number, now in looked.items():
        name, before = found.partitions[number].name, looks.ends.get(number)
        if isinstance(now, str):
            waiting.append(f"{name}: {now}")
            ends.pop(number, None)
        elif before is not None and now.is_seal_after(before, lives_on=number in found.newest.partitions):
            seals[number] = now.written
        else:
            # A queue's end only ever counts up to what was there at the first look.
            ends[number] = now.bound if before is None or found.kind is not ShardKind.QUEUES else before
            waiting.append(f"{name}: {_MOVING[found.kind]}")
    if waiting:
        keep_looks(context.table, found, replace(looks, ends=ends, ends_at=context.now()))
    if seals:
        found = sealed(found, seals)
        context.write(found, ShardEventKind.SEAL, f"{len(seals)} partitions")
        context.on_step(f"{found.name}: {len(seals)} partitions sealed")
    return found, tuple(waiting[:_NAMED])


def _wait_for_counts(context: ShardContext, found: ShardMap) -> None:
    """Wait until what the broker says of queues counts all that came before the bindings changed."""
    if found.kind is ShardKind.QUEUES and found.newest.bound_at is not None:
        left_ms = found.newest.bound_at + LATE_S * 1000 - context.now()
        if left_ms > 0:
            context.pause(min(left_ms / 1000, LATE_S))


def _parents(found: ShardMap) -> list[int]:
    return sorted({edge.parent for edge in found.unsealed})


@dataclass(frozen=True, slots=True)
class ParentEnd:
    """A look at a parent: `bound` is after all that was written by then, `written` what has its offset already."""

    bound: Offset
    written: Offset
    is_queue: bool = False

    def is_seal_after(self, bound: Offset, *, lives_on: bool) -> bool:
        """Tell whether all that an earlier look's bound counted is written, and nothing else comes."""
        if self.is_queue:
            return self.bound == self.written or self.written >= bound
        return lives_on or self.written == bound


def _look_at_ends(context: ShardContext, found: ShardMap) -> dict[int, ParentEnd | str]:
    """Look at each parent that is not sealed; return why it cannot be looked at, if so. Cost: 2 requests each."""
    parents = _parents(found)
    if found.kind is ShardKind.QUEUES:
        return _look_at_queues(context, found, parents)
    looked: dict[int, ParentEnd | str] = {}
    for number in parents:
        one = found.partitions[number]
        try:
            end = context.broker.end(one.name)
        except (UnavailableError, StreamNotFoundError) as err:
            looked[number] = f"its leader at the broker, which does not say where it ends ({err})"
        else:
            looked[number] = ParentEnd(end, end)
    return looked


def _look_at_queues(context: ShardContext, found: ShardMap, numbers: list[int]) -> dict[int, ParentEnd | str]:
    # What is queued first: a message that is archived between the two counts twice, and none is left out.
    there = context.broker.queues([found.partitions[number].name for number in numbers])
    down = {one.name for one in context.broker.nodes() if not one.is_running}
    looked: dict[int, ParentEnd | str] = {}
    for number in numbers:
        one = found.partitions[number]
        queue, held = there.get(one.name), archived_end(context.table, found, number)
        if queue is not None:
            left = queue.messages
            looked[number] = NOT_COUNTED if left is None else ParentEnd(Offset(held + left), held, is_queue=True)
        elif one.node in down:
            looked[number] = f"node {one.node}, which does not run, and has it"
        elif (state := find_state(context.table, found.vhost, one.name)) is not None and state.intent is not None:
            looked[number] = "its last batch to be archived (coldstream shards archive)"
        else:
            looked[number] = ParentEnd(held, held, is_queue=True)
    return looked


def _look_at_producers(context: ShardContext, found: ShardMap, looks: ShardLooks) -> tuple[ShardLooks, tuple[str, ...]]:
    if found.kind is not ShardKind.SUPER_STREAM:
        return looks, ()
    publishers, at = _publishers(context, found), context.now()
    known, changed_at = looks.producers, looks.changed_at or at
    if known is None:
        # A table that was rebuilt does not know who was there: so all who are there may be old.
        known = OldProducers().during(publishers, context.broker.connections(), at)
    added = {one.name for one in added_partitions(found)}
    ended = {found.partitions[number].name for number in _parents(found) if number not in found.newest.partitions}
    is_over = at - changed_at >= GONE_MS
    if not known.is_closed:
        known = replace(known.back(publishers, added), is_closed=is_over)
    known = known.looked(publishers, added, at)
    looks = replace(looks, producers=known, changed_at=changed_at)
    if context.are_producers_restarted:
        # Whoever publishes to a stream that has ended shows that the word is not true.
        return looks, tuple(_to_stop(one) for one in publishers if one.stream in ended)[:_NAMED]
    waiting = _waiting(known, known.unproven(publishers, added, ended), found)
    if not waiting and not is_over:
        waiting = (f"{found.name}: producers that may be away, until {GONE_MS // 1000} s after the change",)
    return looks, waiting


def _waiting(known: OldProducers, old: tuple[StreamPublisher, ...], found: ShardMap) -> tuple[str, ...]:
    if known.is_overfull:
        return (f"{found.name}: too many producers to tell apart; restart them, then say --producers-restarted",)
    told = [_to_restart(one) for one in old]
    present = {one.client for one in old}
    away = [one for one in known.not_gone() if one.client not in present]
    told += [f"{found.name}: producer {one.client!r}, to stay away for {GONE_MS // 1000} s" for one in away]
    more = len(told) - _NAMED
    return (*told[:_NAMED], f"{found.name}: {more} more producers") if more > 0 else tuple(told)


def _to_restart(one: StreamPublisher) -> str:
    return (
        f"{one.stream}: producer {one.client!r}, connection {one.connection!r}, to be restarted, or to be away for"
        f" {GONE_MS // 1000} s (if you know that all were restarted: --producers-restarted)"
    )


def _to_stop(one: StreamPublisher) -> str:
    return (
        f"{one.stream}: producer {one.client!r}, connection {one.connection!r}, to be restarted: it publishes there,"
        " whatever --producers-restarted says"
    )


def _publishers(context: ShardContext, found: ShardMap) -> tuple[StreamPublisher, ...]:
    names = {one.name for one in found.partitions if one.deleted_at is None}
    return tuple(one for one in context.broker.publishers() if one.stream in names)
