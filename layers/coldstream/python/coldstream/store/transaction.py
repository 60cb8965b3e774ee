"""A change as a DynamoDB transaction: one action with its condition for each write."""

from __future__ import annotations

from typing import assert_never

from pynamodb.transactions import TransactWrite

from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    RequireEntry,
    RequireGap,
    Write,
)
from coldstream.manifest.stream import Incarnation
from coldstream.store import conditions, items
from coldstream.store.items import Item
from coldstream.store.sortkeys import gap_key, hold_key, log_key, missing_key, tombstone_key


def fill(transaction: TransactWrite, model: type[Item], change: Change) -> None:
    """Add the actions of a change to a transaction on the table of `model`."""
    head = change.head
    transaction.save(items.head_item(model, head), condition=conditions.follows(head))
    # In the same transaction: a stream with a head and no registration would never be listed.
    if head.revision == 1:
        transaction.save(items.registry_item(model, head.stream))
    transaction.save(items.event_item(model, change), condition=conditions.IS_NEW)
    for write in change.writes:
        _add(transaction, model, head.stream.incarnation, write)


def _add(transaction: TransactWrite, model: type[Item], incarnation: Incarnation, write: Write) -> None:  # noqa: C901, PLR0912  one case a kind of write
    match write:
        case PutEntry(entry):
            transaction.save(items.entry_item(model, incarnation, entry), condition=conditions.IS_NEW)
        case ReplaceEntry(before, entry):
            transaction.save(items.entry_item(model, incarnation, entry), condition=conditions.is_version(before))
        case Relink(before):
            item = model(incarnation, log_key(before.next_offset))
            transaction.update(item, items.relink_actions(write), condition=conditions.is_version(before))
        case DeleteEntry(before):
            item = model(incarnation, log_key(before.next_offset))
            transaction.delete(item, condition=conditions.is_version(before))
        case RequireEntry(version):
            key = log_key(version.next_offset)
            transaction.condition_check(model, incarnation, key, condition=conditions.is_version(version))
        case PutGap(gap):
            transaction.save(items.gap_item(model, incarnation, gap), condition=conditions.IS_NEW)
        case ReplaceGap(before, gap):
            transaction.save(items.gap_item(model, incarnation, gap), condition=conditions.ends_as(before))
        case DeleteGap(before):
            item = model(incarnation, gap_key(before.first_offset))
            transaction.delete(item, condition=conditions.ends_as(before))
        case RequireGap(gap):
            key = gap_key(gap.first_offset)
            transaction.condition_check(model, incarnation, key, condition=conditions.is_gap(gap))
        case PutLoss(loss):
            transaction.save(items.missing_item(model, incarnation, loss), condition=conditions.IS_NEW)
        case PutQuarantine(quarantine):
            item = items.missing_item(model, incarnation, quarantine)
            transaction.save(item, condition=conditions.is_next_copy(quarantine))
        case DeleteLoss(loss):
            transaction.delete(model(incarnation, missing_key(loss)), condition=conditions.IS_THERE)
        case DeleteQuarantine(before):
            transaction.delete(model(incarnation, missing_key(before)), condition=conditions.is_copy(before))
        case PutHold(hold):
            transaction.save(items.hold_item(model, incarnation, hold), condition=conditions.IS_NEW)
        case DeleteHold(hold):
            transaction.delete(model(incarnation, hold_key(hold.id)), condition=conditions.IS_THERE)
        case PutErasure(before, erasure):
            item = items.erasure_item(model, incarnation, erasure)
            transaction.save(item, condition=conditions.is_as_far(before))
        case PutTombstone(tombstone):
            transaction.save(items.tombstone_item(model, incarnation, tombstone))
        case DeleteTombstone(tombstone):
            item = model(incarnation, tombstone_key(tombstone))
            transaction.delete(item, condition=conditions.takes_versions_of(tombstone))
        case _:
            assert_never(write)
