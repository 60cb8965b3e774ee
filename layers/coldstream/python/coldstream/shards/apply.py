"""A definition brought about: planned, and carried out step by step. Run again, it goes on from wherever it stopped."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import ShardChangeError
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardKind, ShardMap
from coldstream.shards.change import change_shards, next_number
from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.definition_file import definition_of
from coldstream.shards.drift import gone_nodes
from coldstream.shards.layout import partitions_of
from coldstream.shards.plan import ShardPlan, plan_first, plan_joining, steps_of
from coldstream.shards.retire import ended_partitions
from coldstream.shards.seal import seal_parents
from coldstream.shards.steps import ShardStep
from coldstream.shards.view import BrokerView, look, look_at
from coldstream.store.reserved import check_names_free
from coldstream.store.shard_maps import find_map, map_events


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What was done, or with `is_dry_run` would be; what is waited for; and nodes that do not run, in sentences."""

    vhost: str
    name: str
    done: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_dry_run: bool = False


def apply_shards(context: ShardContext, definition: ShardDefinition, *, dry_run: bool = False) -> ApplyReport:
    """Do what can be done now for a sharded stream to be as its definition says.

    Raises ShardChangeError for what is not changed, ReservedNameError, and what the table and the broker raise.
    """
    found = find_map(context.table, definition.vhost, definition.name)
    if found is not None:
        _check_same(found, definition)
        if not dry_run:
            context.protect(found)
    if found is None:
        running = [one.name for one in context.broker.nodes() if one.is_running]
        names = [one.name for one in partitions_of(definition, running)] if running else []
        view = look(context.broker, definition.name, 1, names)
        plan = plan_first(definition, view, context.now())
        check_names_free(context.table, plan.found)
        return _carry_out(context, definition, plan.steps, view, plan.found, dry_run=dry_run)
    view = look_at(context.broker, found)
    if _is_joining(context, found):
        return _finish_joining(context, found, definition, view, dry_run=dry_run)
    if _is_change(found, definition):
        if dry_run:
            return ApplyReport(definition.vhost, definition.name, _change_sentences(found, definition), is_dry_run=True)
        report = change_shards(context, found, definition)
        return ApplyReport(definition.vhost, definition.name, report.done, report.waiting, _gone(found, view))
    joining = plan_joining(found, definition, view, context.now())
    if joining is not None:
        check_names_free(context.table, joining.found)
        return _join(context, joining, definition, view, dry_run=dry_run)
    steps = steps_of(found, definition, view, context.now())
    return _carry_out(context, definition, steps, view, found, dry_run=dry_run)


def _carry_out(
    context: ShardContext,
    definition: ShardDefinition,
    steps: tuple[ShardStep, ...],
    view: BrokerView,
    found: ShardMap,
    *,
    dry_run: bool,
) -> ApplyReport:
    done = []
    for step in steps:
        if not dry_run:
            step.carry_out(context)
            context.on_step(str(step))
        done.append(str(step))
    return ApplyReport(definition.vhost, definition.name, tuple(done), gone=_gone(found, view), is_dry_run=dry_run)


def _join(
    context: ShardContext, plan: ShardPlan, definition: ShardDefinition, view: BrokerView, *, dry_run: bool
) -> ApplyReport:
    """Write the version of the nodes that joined, and go on as a run that finds it."""
    (step,) = plan.steps
    if dry_run:
        later = look_at(context.broker, plan.found)
        steps = (step, *steps_of(plan.found, definition, later, context.now()))
        return _carry_out(context, definition, steps, view, plan.found, dry_run=True)
    step.carry_out(context)
    context.on_step(str(step))
    report = _finish_joining(context, plan.found, definition, look_at(context.broker, plan.found), dry_run=False)
    return ApplyReport(report.vhost, report.name, (str(step), *report.done), report.waiting, report.gone)


def _finish_joining(
    context: ShardContext, found: ShardMap, definition: ShardDefinition, view: BrokerView, *, dry_run: bool
) -> ApplyReport:
    """Bind the version of nodes that joined, then seal what came before: nobody writes that once it is unbound."""
    steps = steps_of(found, definition, view, context.now())
    report = _carry_out(context, definition, steps, view, found, dry_run=dry_run)
    if dry_run or not found.lineage:
        return report
    now_there = find_map(context.table, found.vhost, found.name)
    assert now_there is not None
    if not now_there.unsealed:
        return report
    before = len(now_there.unsealed)
    now_there, waiting = seal_parents(context, now_there)
    done = report.done
    if len(now_there.unsealed) < before:
        done = (*done, f"{_parents(found) - _parents(now_there)} partitions of earlier versions are sealed")
    return ApplyReport(report.vhost, report.name, done, waiting, report.gone)


def _parents(found: ShardMap) -> int:
    return len({edge.parent for edge in found.unsealed})


def _is_joining(context: ShardContext, found: ShardMap) -> bool:
    """Tell whether a version is unfinished that nodes which joined began: the journal says who began it."""
    if not found.is_changing or found.newest.version == 1:
        return False
    began = next(
        event
        for event, changed in map_events(context.table, found.vhost, found.name)
        if changed.newest.version == found.newest.version
    )
    return began.kind is ShardEventKind.JOIN


def _check_same(found: ShardMap, definition: ShardDefinition) -> None:
    """Raise ShardChangeError for what no change takes a sharded stream to."""
    held = definition_of(found.definition)
    if definition.kind is not found.kind:
        raise ShardChangeError(f"{found}: it is of kind {found.kind}, and stays; declare another name")
    for key in ("stream_arguments", "hash_header", "hash_property"):
        before, after = getattr(held, key), getattr(definition, key)
        if before != after:
            raise ShardChangeError(
                f"{found}: it was declared with {before}, and a broker changes none of that after: not to {after}. For"
                " retention, set a policy at the broker, which overrides it"
            )


def _is_change(found: ShardMap, definition: ShardDefinition) -> bool:
    """Tell whether the number or the hash is another than in the map, or such a change is under way."""
    if found.is_changing and found.newest.version > 1:
        return True
    held = definition_of(found.definition)
    # A change ends with the deletion of what it left, long after its seals. Nodes that join leave partitions to stay.
    if held.shards_per_node is None and ended_partitions(found):
        return True
    return (held.hash, held.shards, held.shards_per_node, held.binding_keys, held.weights) != (
        definition.hash,
        definition.shards,
        definition.shards_per_node,
        definition.binding_keys,
        definition.weights,
    )


def _change_sentences(found: ShardMap, definition: ShardDefinition) -> tuple[str, ...]:
    """Say what a run would go on with, and what it would begin after that."""
    now = f"{len(found.newest.partitions)} by {found.newest.hash}"
    number = definition.shards or f"{definition.shards_per_node} a node"
    change = f"change from {now} to {number} by {definition.hash}"
    if not found.is_changing and not ended_partitions(found):
        return (change,)
    begun = f"go on with the change to {now}, version {found.newest.version}"
    return (begun,) if next_number(found, definition) is None else (begun, change)


def _gone(found: ShardMap, view: BrokerView) -> tuple[str, ...]:
    return tuple(gone_sentence(found, node, len(some)) for node, some in gone_nodes(found, view).items())


def gone_sentence(found: ShardMap, node: str, partitions: int) -> str:
    """Say what a node that does not run means for those who publish."""
    meanwhile = "a stream without replicas on other nodes is not confirmed until it is back"
    if found.kind is ShardKind.QUEUES:
        meanwhile = "the exchange chooses among the rest until it is back, so keys move, and their messages stay there"
    return (
        f"node {node} does not run, with {partitions} of {len(found.newest.partitions)} partitions: they stay in the"
        f" map; {meanwhile}"
    )
