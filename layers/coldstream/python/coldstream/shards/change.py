"""A change of the number or the hash of a sharded stream that has a map, taken as far as goes now.

    twice as many, by murmur3 or modulus      grow
    half as many                              halve, then retire
    anything else                             replace, by replay

Four times as many are two doublings, each finished before the next. What is to be done next follows from the map and
from what the broker shows, so a run that ended anywhere is gone on with by the next one.
"""

from __future__ import annotations

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_map import ShardMap
from coldstream.shards.context import ChangeReport, ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.definition_file import definition_of
from coldstream.shards.grow import begin_doubling, bring_about
from coldstream.shards.halve import begin_halving
from coldstream.shards.replace import begin_replacement, go_on_replacing
from coldstream.shards.retire import ended_partitions, retire_ended
from coldstream.shards.seal import seal_parents


def change_shards(context: ShardContext, found: ShardMap, definition: ShardDefinition) -> ChangeReport:
    """Take a map, and the broker, from what they are towards a definition, as far as goes now.

    Raises ShardChangeError for what cannot be, LostRaceError if another command changes the same, OutcomeUnknownError
    and UnavailableError: after each of them it can be run again.
    """
    done: list[str] = []
    while True:
        found, waiting = _go_on(context, found, done)
        if waiting:
            return ChangeReport(tuple(done), waiting)
        if found.is_changing or ended_partitions(found):
            continue
        _check_possible(found, definition)
        step = next_number(found, definition)
        if step is None:
            return ChangeReport(tuple(done))
        done.append(f"{len(found.current)} partitions by {found.newest.hash} to {step} by {definition.hash}")
        found = _begin(context, found, definition, step)


def _go_on(context: ShardContext, found: ShardMap, done: list[str]) -> tuple[ShardMap, tuple[str, ...]]:
    """Take the change under way one step further; return the map, and what is waited for."""
    # What is under way goes on as it was begun, whatever the file says by now.
    definition = definition_of(found.definition)
    version = f"version {found.newest.version}"
    waiting: tuple[str, ...] = ()
    if found.newest.bound_at is None and _is_replacement(found):
        found, waiting = go_on_replacing(context, found, definition)
        step = f"{version} holds all before, and is bound"
    elif found.newest.bound_at is None:
        found, waiting = bring_about(context, found, definition)
        step = f"{version} is bound"
    elif found.unsealed:
        found, waiting = seal_parents(context, found)
        step = f"{version} is sealed off from the one before"
    elif ended_partitions(found):
        found, waiting = retire_ended(context, found)
        step = "ended partitions are archived, and deleted at the broker"
    else:
        return found, ()
    done += [] if waiting else [step]
    return found, waiting


def next_number(found: ShardMap, definition: ShardDefinition) -> int | None:
    """Return the number of partitions of the next version on the way to a definition, None if it is there."""
    wanted, now = definition.shards, len(found.newest.partitions)
    if wanted is None or (wanted == now and _is_same_hash(found, definition)):
        return None
    if definition.hash is found.newest.hash and definition.hash.doubles:
        if _is_doubling(now, wanted):
            return 2 * now
        if _is_doubling(wanted, now):
            return now // 2
    return wanted


def _is_doubling(less: int, more: int) -> bool:
    """Tell whether `more` is `less` times two, or four, or eight and so on."""
    while less < more:
        less *= 2
    return less == more


def _is_same_hash(found: ShardMap, definition: ShardDefinition) -> bool:
    """Tell whether a definition puts keys where the newest version does, if the number is the same."""
    return (
        definition.hash is found.newest.hash
        and (definition.weights or (1,) * len(found.current)) == tuple(one.weight for one in found.current)
        and (not definition.binding_keys or definition.binding_keys == tuple(one.binding_key for one in found.current))
    )


def _check_possible(found: ShardMap, definition: ShardDefinition) -> None:
    """Raise ShardChangeError for a change that no step leads to."""
    held = definition_of(found.definition)
    before, after = held.shards_per_node, definition.shards_per_node
    if before is None and after is None:
        return
    if (before, held.hash, held.weights) != (after, definition.hash, definition.weights):
        raise ShardChangeError(
            f"{found}: it has {_number(held)} by {held.hash}, and {_number(definition)} by {definition.hash} is nothing"
            " that it can be taken to, as its shards are counted by name and their names are their nodes'; declare"
            " another name with shards, and let producers publish there"
        )


def _number(definition: ShardDefinition) -> str:
    return f"{definition.shards} shards" if definition.shards else f"{definition.shards_per_node} shards a node"


def _begin(context: ShardContext, found: ShardMap, definition: ShardDefinition, step: int) -> ShardMap:
    # The definition as a whole goes into each map, so that who applies it again goes on to its end.
    now = len(found.newest.partitions)
    if definition.hash is found.newest.hash and definition.hash.doubles:
        if step == 2 * now:
            return begin_doubling(context, found, definition)
        if 2 * step == now:
            return begin_halving(context, found, definition)
    return begin_replacement(context, found, definition)


def _is_replacement(found: ShardMap) -> bool:
    """Tell whether the newest version shares no partition with the one before."""
    return found.newest.version > 1 and not set(found.newest.partitions) & set(found.versions[-2].partitions)
