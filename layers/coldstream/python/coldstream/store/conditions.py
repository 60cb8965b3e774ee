"""Conditions of a transaction: an item still has the version that the change was planned on."""

from __future__ import annotations

from pynamodb.expressions.condition import And, Condition, Or

from coldstream.manifest.change import EntryVersion
from coldstream.manifest.entry import Erasure, Gap, Head, Quarantine, Tombstone
from coldstream.manifest.state_item import StateItem
from coldstream.store.items import Item, attribute

IS_NEW: Condition = Item.item.does_not_exist()
IS_THERE: Condition = Item.item.exists()


def follows(head: Head) -> Condition:
    """The stored head has the revision before this one."""
    return IS_NEW if head.revision == 1 else _is("revision", head.revision - 1)


def follows_state(item: StateItem) -> Condition:
    """The stored state item has the revision before this one."""
    return IS_NEW if item.revision == 1 else _is("revision", item.revision - 1)


def is_version(version: EntryVersion) -> Condition:
    """The entry has this object and these links."""
    same_links = And(_is("prior_offset", version.prior_offset), _is("prior_timestamp", version.prior_timestamp))
    return And(_is("key", version.key), same_links)


def ends_as(gap: Gap) -> Condition:
    """The gap ends where this one does."""
    return _is("next_offset", gap.next_offset)


def is_gap(gap: Gap) -> Condition:
    """The gap is exactly this one."""
    return And(ends_as(gap), _is("reason", gap.reason))


def is_next_copy(quarantine: Quarantine) -> Condition:
    """The item counts one copy fewer than this; for the first copy there is no item."""
    if quarantine.copies == 1:
        return IS_NEW
    before = _is("copies", quarantine.copies - 1)
    if quarantine.copies > 2:  # noqa: PLR2004
        return before
    # Earlier releases did not count copies: an item without the attribute is of one copy.
    return Or(before, And(IS_THERE, attribute("copies").does_not_exist()))


def is_copy(quarantine: Quarantine) -> Condition:
    """The quarantine has this key, and counts these copies."""
    copies = _is("copies", quarantine.copies)
    if quarantine.copies == 1:
        copies = Or(copies, attribute("copies").does_not_exist())
    return And(_is("key", quarantine.key), copies)


def is_as_far(erasure: Erasure | None) -> Condition:
    """The erasure is as far as this one; there is none if this is None."""
    if erasure is None:
        return IS_NEW
    return And(_is("state", erasure.state), _is("reached", erasure.reached))


def takes_versions_of(tombstone: Tombstone) -> Condition:
    """The tombstone is there, and takes all versions if this one does."""
    return And(IS_THERE, _is("all_versions", 1 if tombstone.all_versions else None))


def _is(name: str, value: int | str | None) -> Condition:
    # None is stored as no attribute, and `=` never holds for a missing attribute.
    condition: Condition = attribute(name).does_not_exist() if value is None else attribute(name) == value
    return condition
