"""The read side of the manifest's items: from the attributes that DynamoDB returns to the values of `manifest.entry`.

docs/formats.md lists the attributes of each item. An attribute has the name of the field that it holds; the exceptions
are written out here. An unknown value is absent, never null. Numbers are DynamoDB's, which hold 38 digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Literal, TypeVar

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError, InvalidNameError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster, cluster
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
from coldstream.manifest.stream import StreamId
from coldstream.store.sortkeys import MISSING

_Value = TypeVar("_Value")
_Named = TypeVar("_Named", bound=StrEnum)

RawItem = Mapping[str, Mapping[str, Any]]
"""An item in the form of the API, `{"item": {"S": "log#head"}}`, with binary content as bytes."""

Attributes = Mapping[str, Any]
"""An item's content by attribute: text, whole numbers, bytes. `stream` and `item` are its keys."""

TYPES: Mapping[str, Literal["S", "N", "B"]] = {
    **dict.fromkeys(("stream", "item", "time"), "S"),
    # Entries, gaps, losses, quarantines, tombstones, events and the head.
    **dict.fromkeys(("first_offset", "next_offset"), "N"),
    # Entries and the head.
    **dict.fromkeys(("first_timestamp", "greatest_timestamp", "chunks", "records", "messages"), "N"),
    **dict.fromkeys(("data_bytes", "epoch"), "N"),
    # Entries, tombstones and the head.
    "object_bytes": "N",
    # Entries, quarantines, tombstones and events.
    "key": "S",
    # Entries.
    **dict.fromkeys(("last_timestamp", "prior_offset", "prior_timestamp", "crc32"), "N"),
    **dict.fromkeys(("generation", "segment_offset", "first_epoch", "data_crc32"), "N"),
    **dict.fromkeys(("last_user_chunk_id", "last_user_chunk_position", "last_user_chunk_timestamp"), "N"),
    "encoding": "S",
    **dict.fromkeys(("sparse_index", "frames"), "B"),
    # The head and the registry.
    **dict.fromkeys(("vhost", "name", "incarnation"), "S"),
    # Bindings to clusters, which have vhost and name, too.
    "cluster": "S",
    # The head and events.
    "revision": "N",
    # The head.
    **dict.fromkeys(("fragments", "gaps", "quarantined", "quarantined_again", "losses", "compacting"), "N"),
    # Gaps, losses and quarantines.
    "reason": "S",
    # Quarantines.
    "etag": "S",
    "copies": "N",
    # Tombstones.
    "due_at": "N",
    # Losses, quarantines, events and grants.
    "at": "N",
    # Events.
    **dict.fromkeys(("kind", "detail"), "S"),
}
"""DynamoDB's type of every attribute; attributes that are not listed are of a later release, and ignored.

This is the one list of attributes: the model that writes items (`store.items`) is made from it.
"""

LAST_USER_CHUNK = {
    "chunk_id": "last_user_chunk_id",
    "position": "last_user_chunk_position",
    "timestamp": "last_user_chunk_timestamp",
}
"""Attributes of an entry's item, by the field of LastUserChunk that each holds."""


def attributes_of(item: RawItem) -> Attributes:
    """Read the attributes of an item. Raises CorruptionError if one has another type."""
    found: dict[str, Any] = {}
    for name, typed in item.items():
        if (type_ := TYPES.get(name)) is None:
            continue
        content = typed.get(type_)
        try:
            found[name] = int(content) if type_ == "N" and content is not None else content
        except ValueError:
            found[name] = None
        if found[name] is None:
            source = f"manifest item {item['stream']['S']} {item['item']['S']}"
            raise CorruptionError(source, 0, f"an attribute of another type: {name}", expected=type_, found=dict(typed))
    return found


def entry_of(item: Attributes) -> FragmentEntry:
    """Read the entry of an item. Raises CorruptionError."""
    last = {name: item[attribute] for name, attribute in LAST_USER_CHUNK.items() if attribute in item}
    return _value(
        FragmentEntry,
        item,
        encoding=_one_of(Encoding, item, "encoding"),
        sparse=SparseIndex.from_bytes(item.get("sparse_index", b""), source=_source(item)),
        frames=Frames.from_bytes(item["frames"], source=_source(item)) if "frames" in item else None,
        last_user_chunk=_value(LastUserChunk, item, **last) if last else None,
    )


def gap_of(item: Attributes) -> Gap:
    """Read the gap of an item. Raises CorruptionError."""
    return _value(Gap, item)


def missing_of(item: Attributes) -> Missing:
    """Read the loss or the quarantine of an item. Raises CorruptionError."""
    return _value(Loss, item) if item["item"].startswith(MISSING) else quarantine_of(item)


def quarantine_of(item: Attributes) -> Quarantine:
    """Read the quarantine of an item. Raises CorruptionError."""
    return _value(Quarantine, item)


def tombstone_of(item: Attributes) -> Tombstone:
    """Read the tombstone of an item. Raises CorruptionError."""
    return _value(Tombstone, item)


def head_of(item: Attributes) -> Head:
    """Read the head of an item. Raises CorruptionError."""
    return _value(Head, item, stream=_value(StreamId, item, incarnation=item["stream"]))


def cluster_of(item: Attributes) -> Cluster:
    """Read the cluster of a binding. Raises CorruptionError."""
    try:
        return cluster(item.get("cluster", ""))
    except InvalidNameError as err:
        raise CorruptionError(_source(item), 0, f"malformed item: {err}") from err


def event_of(item: Attributes) -> JournalEvent:
    """Read the event of an item. Raises CorruptionError."""
    return _value(JournalEvent, item, kind=_one_of(JournalKind, item, "kind"))


def stream_of(item: Attributes) -> StreamId:
    """Read the stream that an item registers. Raises CorruptionError."""
    return _value(StreamId, item)


def grant_of(item: Attributes) -> Grant:
    """Read the grant of an item. Raises CorruptionError."""
    principal, _, streams = item["item"].partition(" ")
    return _value(Grant, item, principal=principal, streams=streams)


def _value(shape: type[_Value], item: Attributes, **given: Any) -> _Value:
    """Make a dataclass from `given` fields, and from the attributes named like its other fields."""
    names = {field.name for field in fields(shape)} - given.keys()  # type: ignore[arg-type]  # shapes are dataclasses
    held = {name: content for name, content in item.items() if name in names}
    try:
        return shape(**held, **given)
    except (TypeError, ValueError, InvalidInputError) as err:
        raise CorruptionError(_source(item), 0, f"malformed item: {err}") from err


def _one_of(names: type[_Named], item: Attributes, attribute: str) -> _Named:
    found = item.get(attribute, "nothing")
    try:
        return names(found)
    except ValueError as err:
        raise BadVersionError(_source(item), 0, attribute, expected=" or ".join(names), found=found) from err


def _source(item: Attributes) -> str:
    return f"manifest item {item['stream']} {item['item']}"
