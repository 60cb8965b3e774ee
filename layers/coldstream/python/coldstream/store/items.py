"""Items of the manifest: one PynamoDB model, and the values of `manifest.entry` to and from it.

docs/formats.md has the attributes of each item. An attribute has the name of the field that it holds; those that differ
are written out here. What is not known is absent, never null. Numbers are DynamoDB's, which hold 38 digits.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from pynamodb.attributes import Attribute, BinaryAttribute, UnicodeAttribute
from pynamodb.constants import NUMBER
from pynamodb.expressions.update import Action
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex
from pynamodb.models import Model

from coldstream.errors import BadVersionError, CorruptionError, InvalidNameError
from coldstream.manifest.commit import Relink
from coldstream.manifest.entry import (
    Encoding,
    FragmentEntry,
    Gap,
    Head,
    JournalEvent,
    JournalKind,
    LastUserChunk,
    Loss,
    Missing,
    Quarantine,
    Tombstone,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.sortkeys import (
    LOG_HEAD,
    MISSING,
    REGISTRY,
    TIME_OF_HEAD,
    event_key,
    gap_key,
    log_key,
    missing_key,
    registry_key,
    time_key,
    tombstone_key,
)

_Value = TypeVar("_Value")
_Named = TypeVar("_Named", bound=StrEnum)

_LAST_USER_CHUNK = {
    "chunk_id": "last_user_chunk_id",
    "position": "last_user_chunk_position",
    "timestamp": "last_user_chunk_timestamp",
}
"""Attributes of an entry's item, by the field of LastUserChunk that each holds."""


class IntegerAttribute(Attribute[int]):
    """A whole number, exact; PynamoDB's own number may be a float."""

    attr_type = NUMBER

    def serialize(self, value: int) -> str:
        """Write the digits."""
        return str(value)

    def deserialize(self, value: str) -> int:
        """Read the digits."""
        return int(value)


class ByTime(GlobalSecondaryIndex["Item"]):  # type: ignore[no-untyped-call]  # PynamoDB's __init_subclass__
    """The index that orders the log of a stream by running timestamp."""

    class Meta:
        """PynamoDB's settings of the index."""

        index_name = "by-time"
        projection = AllProjection()

    stream = UnicodeAttribute(hash_key=True)
    time = UnicodeAttribute(range_key=True)


class Item(Model):
    """Any item of the table. A subclass with PynamoDB's `Meta` binds it to one."""

    by_time = ByTime()

    stream = UnicodeAttribute(hash_key=True)
    item = UnicodeAttribute(range_key=True)
    time = UnicodeAttribute(null=True)
    # Entries, gaps, losses, quarantines, tombstones, events and the head.
    first_offset = IntegerAttribute(null=True)
    next_offset = IntegerAttribute(null=True)
    # Entries and the head.
    first_timestamp = IntegerAttribute(null=True)
    greatest_timestamp = IntegerAttribute(null=True)
    chunks = IntegerAttribute(null=True)
    records = IntegerAttribute(null=True)
    messages = IntegerAttribute(null=True)
    data_bytes = IntegerAttribute(null=True)
    # Entries, tombstones and the head.
    object_bytes = IntegerAttribute(null=True)
    # Entries, quarantines, tombstones and events.
    key = UnicodeAttribute(null=True)
    # Entries.
    last_timestamp = IntegerAttribute(null=True)
    prior_offset = IntegerAttribute(null=True)
    prior_timestamp = IntegerAttribute(null=True)
    epoch = IntegerAttribute(null=True)
    crc32 = IntegerAttribute(null=True)
    encoding = UnicodeAttribute(null=True)
    generation = IntegerAttribute(null=True)
    segment_offset = IntegerAttribute(null=True)
    sparse_index = BinaryAttribute(null=True, legacy_encoding=False)
    frames = BinaryAttribute(null=True, legacy_encoding=False)
    last_user_chunk_id = IntegerAttribute(null=True)
    last_user_chunk_position = IntegerAttribute(null=True)
    last_user_chunk_timestamp = IntegerAttribute(null=True)
    # The head and the registry.
    vhost = UnicodeAttribute(null=True)
    name = UnicodeAttribute(null=True)
    incarnation = UnicodeAttribute(null=True)
    # The head and events.
    revision = IntegerAttribute(null=True)
    # The head.
    fragments = IntegerAttribute(null=True)
    gaps = IntegerAttribute(null=True)
    quarantined = IntegerAttribute(null=True)
    losses = IntegerAttribute(null=True)
    compacting = IntegerAttribute(null=True)
    # Gaps, losses and quarantines.
    reason = UnicodeAttribute(null=True)
    # Quarantines.
    etag = UnicodeAttribute(null=True)
    # Tombstones.
    due_at = IntegerAttribute(null=True)
    # Losses, quarantines and events.
    at = IntegerAttribute(null=True)
    # Events.
    kind = UnicodeAttribute(null=True)
    detail = UnicodeAttribute(null=True)


def entry_item(model: type[Item], incarnation: Incarnation, entry: FragmentEntry) -> Item:
    """Make the item of an entry."""
    last = {} if entry.last_user_chunk is None else _attributes(entry.last_user_chunk)
    return model(
        incarnation,
        log_key(entry.next_offset),
        time=time_key(entry.running_timestamp, entry.next_offset),
        sparse_index=entry.sparse.to_bytes(),
        frames=None if entry.frames is None else entry.frames.to_bytes(),
        **{_LAST_USER_CHUNK[name]: content for name, content in last.items()},
        **_attributes(entry, "sparse", "frames", "last_user_chunk"),
    )


def entry_of(item: Item) -> FragmentEntry:
    """Read the entry of an item. Raises CorruptionError."""
    values = item.attribute_values
    last = {name: values[attribute] for name, attribute in _LAST_USER_CHUNK.items() if attribute in values}
    return _value(
        FragmentEntry,
        item,
        encoding=_one_of(Encoding, item, "encoding"),
        sparse=SparseIndex.from_bytes(values.get("sparse_index", b""), source=_source(item)),
        frames=Frames.from_bytes(values["frames"], source=_source(item)) if "frames" in values else None,
        last_user_chunk=_value(LastUserChunk, item, **last) if last else None,
    )


def relink_actions(relink: Relink) -> list[Action]:
    """Make the update of an entry's item that gives it new links."""
    links = ((Item.prior_offset, relink.prior_offset), (Item.prior_timestamp, relink.prior_timestamp))
    return [
        Item.time.set(time_key(relink.running_timestamp, relink.next_offset)),
        *(attribute.remove() if link is None else attribute.set(link) for attribute, link in links),
    ]


def gap_item(model: type[Item], incarnation: Incarnation, gap: Gap) -> Item:
    """Make the item of a gap."""
    return model(incarnation, gap_key(gap.first_offset), **_attributes(gap))


def gap_of(item: Item) -> Gap:
    """Read the gap of an item. Raises CorruptionError."""
    return _value(Gap, item)


def missing_item(model: type[Item], incarnation: Incarnation, one: Missing) -> Item:
    """Make the item of a loss, or of a segment in quarantine."""
    return model(incarnation, missing_key(one), **_attributes(one))


def missing_of(item: Item) -> Missing:
    """Read the loss or the quarantine of an item. Raises CorruptionError."""
    return _value(Loss, item) if item.item.startswith(MISSING) else quarantine_of(item)


def quarantine_of(item: Item) -> Quarantine:
    """Read the quarantine of an item. Raises CorruptionError."""
    return _value(Quarantine, item)


def tombstone_item(model: type[Item], incarnation: Incarnation, one: Tombstone) -> Item:
    """Make the item of a tombstone."""
    return model(incarnation, tombstone_key(one), **_attributes(one))


def tombstone_of(item: Item) -> Tombstone:
    """Read the tombstone of an item. Raises CorruptionError."""
    return _value(Tombstone, item)


def head_item(model: type[Item], head: Head) -> Item:
    """Make the item of a head."""
    return model(
        head.stream.incarnation,
        LOG_HEAD,
        time=TIME_OF_HEAD,
        vhost=head.stream.vhost,
        name=head.stream.name,
        **_attributes(head, "stream"),
    )


def head_of(item: Item) -> Head:
    """Read the head of an item. Raises CorruptionError."""
    return _value(Head, item, stream=_value(StreamId, item, incarnation=item.stream))


def event_item(model: type[Item], incarnation: Incarnation, event: JournalEvent) -> Item:
    """Make the item of an event."""
    return model(incarnation, event_key(event.revision), **_attributes(event))


def event_of(item: Item) -> JournalEvent:
    """Read the event of an item. Raises CorruptionError."""
    return _value(JournalEvent, item, kind=_one_of(JournalKind, item, "kind"))


def registry_item(model: type[Item], stream: StreamId) -> Item:
    """Make the item that registers a stream."""
    key = registry_key(stream.vhost, stream.name, stream.incarnation)
    return model(REGISTRY, key, **_attributes(stream))


def stream_of(item: Item) -> StreamId:
    """Read the stream that an item registers. Raises CorruptionError."""
    return _value(StreamId, item)


def _attributes(value: Any, *but: str) -> dict[str, Any]:
    """List the fields of a dataclass that are there, `but` some."""
    held = ((field.name, getattr(value, field.name)) for field in fields(value) if field.name not in but)
    return {name: content for name, content in held if content is not None}


def _value(shape: type[_Value], item: Item, **given: Any) -> _Value:
    """Make a dataclass of what is `given` and of the attributes that have its other fields' names."""
    names = {field.name for field in fields(shape)} - given.keys()  # type: ignore[arg-type]  # shapes are dataclasses
    held = {name: content for name, content in item.attribute_values.items() if name in names}
    try:
        return shape(**held, **given)
    except (TypeError, ValueError, InvalidNameError) as err:
        raise CorruptionError(_source(item), 0, f"item that is not one: {err}") from err


def _one_of(names: type[_Named], item: Item, attribute: str) -> _Named:
    found = item.attribute_values.get(attribute, "nothing")
    try:
        return names(found)
    except ValueError as err:
        raise BadVersionError(_source(item), 0, attribute, expected=" or ".join(names), found=found) from err


def _source(item: Item) -> str:
    return f"manifest item {item.stream} {item.item}"
