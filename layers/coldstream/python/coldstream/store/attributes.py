"""The read side of the manifest's items: from the attributes that DynamoDB returns to the values of `manifest.entry`.

docs/formats.md lists the attributes of each item. An attribute has the name of the field that it holds; the exceptions
are written out here. An unknown value is absent, never null. Numbers are DynamoDB's, which hold 38 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError, InvalidNameError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster, cluster
from coldstream.manifest.entry import (
    DeletionClaim,
    Encoding,
    Erasure,
    ErasureState,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    JournalKind,
    LastUserChunk,
    Loss,
    Missing,
    Quarantine,
    Row,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.store.sortkeys import LOG_HEAD, MISSING
from coldstream.units import Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.manifest.appender import Appender
    from coldstream.manifest.policy import Policy
    from coldstream.manifest.state_item import StateItem

_Value = TypeVar("_Value")
_Named = TypeVar("_Named", bound=StrEnum)

RawItem = Mapping[str, Mapping[str, Any]]
"""An item in the form of the API, `{"item": {"S": "log#head"}}`, with binary content as bytes."""

Attributes = Mapping[str, Any]
"""An item's content by attribute: text, whole numbers, bytes. `stream` and `item` are its keys."""

TYPES: Mapping[str, Literal["S", "N", "B"]] = {
    **dict.fromkeys(("stream", "item", "time"), "S"),
    # Entries, gaps, losses, quarantines, tombstones, events, holds, erasures and the head.
    **dict.fromkeys(("first_offset", "next_offset"), "N"),
    # Entries and the head.
    **dict.fromkeys(("first_timestamp", "greatest_timestamp", "chunks", "records", "messages"), "N"),
    **dict.fromkeys(("data_bytes", "epoch", "generation"), "N"),
    # Entries, tombstones and the head.
    "object_bytes": "N",
    # Entries, quarantines, tombstones and events.
    "key": "S",
    # Entries.
    **dict.fromkeys(("last_timestamp", "prior_offset", "prior_timestamp", "crc32"), "N"),
    **dict.fromkeys(("segment_offset", "first_epoch", "data_crc32", "erased"), "N"),
    **dict.fromkeys(("last_user_chunk_id", "last_user_chunk_position", "last_user_chunk_timestamp"), "N"),
    **dict.fromkeys(("encoding", "storage_class"), "S"),
    **dict.fromkeys(("sparse_index", "frames"), "B"),
    # The head and the registry.
    **dict.fromkeys(("vhost", "name", "incarnation"), "S"),
    # Bindings to clusters, which have vhost and name, too.
    "cluster": "S",
    # The head, events and state items.
    "revision": "N",
    # The head.
    **dict.fromkeys(("fragments", "gaps", "quarantined", "quarantined_again", "losses", "compacting"), "N"),
    **dict.fromkeys(("floor", "floor_timestamp", "holds", "erasures"), "N"),
    **dict.fromkeys(("journal_from", "notes_from"), "N"),
    **dict.fromkeys(("deleted_at", "purge_at", "purge_began_at", "purged_at"), "N"),
    **dict.fromkeys(("claims", "appender"), "S"),
    # Gaps, losses, quarantines, holds and erasures.
    "reason": "S",
    # Quarantines.
    "etag": "S",
    "copies": "N",
    # Tombstones.
    **dict.fromkeys(("due_at", "all_versions"), "N"),
    # Losses, quarantines, events, holds, erasures and grants.
    "at": "N",
    # Events.
    **dict.fromkeys(("kind", "detail"), "S"),
    "change": "B",
    # Events, holds and erasures.
    "by": "S",
    # Holds and erasures.
    "id": "S",
    # Erasures, which have messages, too.
    **dict.fromkeys(("where", "digest", "state"), "S"),
    "reached": "N",
    # Policies, which have a storage class, too.
    "pattern": "S",
    **dict.fromkeys(("priority", "max_age_ms", "max_bytes", "least_messages", "least_bytes", "least_age_ms"), "N"),
    "storage_class_age_ms": "N",
    # Cursors and state items.
    "data": "B",
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
        erased=item.get("erased") == 1,
        storage_class=_one_of(StorageClass, item, "storage_class") if "storage_class" in item else None,
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
    return _value(Tombstone, item, all_versions=item.get("all_versions") == 1)


def head_of(item: Attributes) -> Head:
    """Read the head of an item. Raises CorruptionError."""
    stream = _value(StreamId, item, incarnation=item["stream"])
    # Heads of earlier releases do not have it, and their journals no changes.
    return _value(
        Head,
        item,
        stream=stream,
        journal_from=item.get("journal_from", 0),
        claims=_claims_of(item),
        appender=_appender_of(item) if "appender" in item else None,
    )


def _appender_of(item: Attributes) -> Appender:
    # Imported here, as in the functions below, because a resolver's first answer does without.
    from coldstream.manifest.appender_text import appender_of  # noqa: PLC0415

    return appender_of(item["appender"], source=_source(item))


def claims_text(head: Head) -> str | None:
    """Write the claims of a head as its item has them, None if there are none."""
    texts = (f"{one.revision}:{one.first_offset}:{one.next_offset}:{one.at}" for one in head.claims)
    return " ".join(texts) or None


def _claims_of(item: Attributes) -> tuple[DeletionClaim, ...]:
    found = []
    for text in item.get("claims", "").split():
        try:
            revision, first_offset, next_offset, at = map(int, text.split(":"))
        except ValueError as err:
            raise CorruptionError(_source(item), 0, f"malformed claim: {text}") from err
        found.append(DeletionClaim(revision, Offset(first_offset), Offset(next_offset), TimestampMs(at)))
    return tuple(found)


def hold_of(item: Attributes) -> Hold:
    """Read the hold of an item. Raises CorruptionError."""
    return _value(Hold, item, next_offset=item.get("next_offset"))


def erasure_of(item: Attributes) -> Erasure:
    """Read the erasure of an item. Raises CorruptionError."""
    return _value(Erasure, item, state=_one_of(ErasureState, item, "state"))


def cluster_of(item: Attributes) -> Cluster:
    """Read the cluster of a binding. Raises CorruptionError."""
    try:
        return cluster(item.get("cluster", ""))
    except InvalidNameError as err:
        raise CorruptionError(_source(item), 0, f"malformed item: {err}") from err


def event_of(item: Attributes) -> JournalEvent:
    """Read the event of an item. Raises CorruptionError."""
    offsets = {name: item.get(name) for name in ("first_offset", "next_offset")}
    return _value(JournalEvent, item, kind=_one_of(JournalKind, item, "kind"), **offsets)


def row_of(item: Attributes) -> Row:
    """Read any item of a stream's partition. Raises CorruptionError, BadVersionError for a kind of a later release."""
    if item["item"] == LOG_HEAD:
        return head_of(item)
    readers: Mapping[str, Callable[[Attributes], Row]] = {
        "erasure": erasure_of,
        "event": event_of,
        "gap": gap_of,
        "hold": hold_of,
        "log": entry_of,
        "loss": missing_of,
        "quarantine": missing_of,
        "tombstone": tombstone_of,
    }
    kind = item["item"].partition("#")[0]
    if (read := readers.get(kind)) is None:
        raise BadVersionError(_source(item), 0, "kind of item", expected=" or ".join(readers), found=kind)
    return read(item)


def stream_of(item: Attributes) -> StreamId:
    """Read the stream that an item registers. Raises CorruptionError."""
    return _value(StreamId, item)


def grant_of(item: Attributes) -> Grant:
    """Read the grant of an item. Raises CorruptionError."""
    principal, _, streams = item["item"].partition(" ")
    return _value(Grant, item, principal=principal, streams=streams)


def policy_of(item: Attributes) -> Policy:
    """Read the policy of an item. Raises CorruptionError."""
    from coldstream.manifest.policy import Policy  # noqa: PLC0415

    storage_class = _one_of(StorageClass, item, "storage_class") if "storage_class" in item else None
    return _value(Policy, item, name=item["item"], storage_class=storage_class)


def state_of(item: Attributes) -> StateItem:
    """Read a state item. Raises CorruptionError."""
    from coldstream.manifest.state_item import StateItem  # noqa: PLC0415

    return _value(StateItem, item, partition=item["stream"], key=item["item"], data=item.get("data", b""))


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
