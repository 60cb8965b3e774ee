"""The end of a partition that no version uses any more: archived to its end, then deleted at the broker.

    sealed -> archived up to its end at the broker -> incarnation in the map -> deleted there -> deletion in the map

Each step is in the map, or shown by the broker, before the next one: after a crash the next run goes on, and nothing is
deleted that the archive does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.errors import BrokerRefusedError, StreamNotFoundError, UnavailableError
from coldstream.manifest.shard_changes import identified
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardKind, ShardMap
from coldstream.manifest.stream import Incarnation
from coldstream.queues.state import find_state
from coldstream.shards.archived import archived_end, archived_stream, unexplained_gap
from coldstream.shards.broker_port import BrokerQueue
from coldstream.shards.context import ShardContext
from coldstream.shards.seal import NOT_COUNTED
from coldstream.units import Offset

_NAMED = 5


def ended_partitions(found: ShardMap) -> tuple[Partition, ...]:
    """Return the partitions that are in no newest version, and still at the broker as far as the map knows."""
    return tuple(
        one for one in found.partitions if one.number not in found.newest.partitions and one.deleted_at is None
    )


def retire_ended(context: ShardContext, found: ShardMap) -> tuple[ShardMap, tuple[str, ...]]:
    """Delete the ended partitions that are archived; return the map, and what is waited for. Cost: 5 requests each."""
    ended = ended_partitions(found)
    there = context.broker.queues([one.name for one in ended])
    seals = {edge.parent: edge.seal for edge in found.lineage if edge.seal is not None}
    ready: list[int] = []
    incarnations: dict[int, Incarnation] = {}
    waiting: list[str] = []
    for one in ended:
        stream = archived_stream(context.table, found, one.number)
        seal = seals.get(one.number, Offset(0))
        problem = _not_archived(context, found, one, there.get(one.name), seal)
        if problem is not None:
            waiting.append(problem)
            continue
        ready.append(one.number)
        if stream is not None:
            incarnations[one.number] = stream.incarnation
    if any(found.partitions[number].incarnation is None for number in incarnations):
        # Before it is gone: afterwards another stream may have its name, and nobody could tell which was this one.
        found = identified(found, incarnations)
        context.write(found, ShardEventKind.IDENTIFY, f"{len(incarnations)} partitions are archived")
    deleted = [number for number in ready if _delete(context, found, number, there, waiting)]
    if deleted:
        at = context.now()
        found = identified(found, {}, deleted=dict.fromkeys(deleted, at))
        context.write(found, ShardEventKind.DELETE_PARTITION, f"{len(deleted)} partitions")
        context.on_step(f"{found.name}: {len(deleted)} ended partitions deleted at the broker")
    return found, tuple(waiting[:_NAMED])


def _not_archived(
    context: ShardContext, found: ShardMap, one: Partition, queue: BrokerQueue | None, seal: Offset
) -> str | None:
    """Return why a partition must not be deleted yet."""
    end = seal
    if queue is not None and found.kind is ShardKind.QUEUES:
        if (problem := _not_drained(context, found, queue)) is not None:
            return problem
    elif queue is not None:
        try:
            end = max(seal, context.broker.end(one.name))
        except (StreamNotFoundError, UnavailableError) as err:
            return f"{one.name}: its leader at the broker, which does not say where it ends ({err})"
    held = archived_end(context.table, found, one.number)
    if held >= end:
        # The tail alone says nothing: a gap that nobody explained is what the broker may still have.
        stream = archived_stream(context.table, found, one.number)
        gap = None if queue is None or stream is None else unexplained_gap(context.table, stream)
        if gap is None:
            return None
        return (
            f"{one.name}: the archive, which lacks the offsets {gap.first_offset} to {gap.next_offset - 1}, and nobody"
            " announced that they are lost"
        )
    if queue is None:
        return f"{one.name}: nothing that can come; it is gone at the broker, and archived up to {held} of {end}"
    return (
        f"{one.name}: the archive, which holds it up to {held} of {end} (an agent with --max-lag archives what waits)"
    )


def _not_drained(context: ShardContext, found: ShardMap, queue: BrokerQueue) -> str | None:
    """Return what a classic queue still has that the archive may lack."""
    if queue.messages is None:
        return f"{queue.name}: {NOT_COUNTED}"
    if queue.messages:
        return f"{queue.name}: `coldstream shards archive`, {queue.messages} messages are left in it"
    state = find_state(context.table, found.vhost, queue.name)
    if state is not None and state.intent is not None:
        return f"{queue.name}: `coldstream shards archive`, which has a batch of it under way"
    return None


def _delete(
    context: ShardContext, found: ShardMap, number: int, there: Mapping[str, BrokerQueue], waiting: list[str]
) -> bool:
    name = found.partitions[number].name
    if name not in there:
        return True
    try:
        context.broker.delete_queue(name, only_empty=found.kind is ShardKind.QUEUES)
    except BrokerRefusedError as err:
        waiting.append(f"{name}: the broker does not delete it: {err}")
        return False
    return True
