"""The write side of the manifest's items: a PynamoDB model, and its items made from the values of `manifest.entry`.

`attributes` is the read side, and lists the attributes of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from pynamodb.attributes import Attribute, BinaryAttribute, UnicodeAttribute
from pynamodb.constants import NUMBER
from pynamodb.expressions.update import Action
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex
from pynamodb.models import Model

from coldstream.manifest.access import Grant
from coldstream.manifest.appender_text import appender_text
from coldstream.manifest.change import Change, Relink
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Erasure, FragmentEntry, Gap, Head, Hold, Missing, Tombstone
from coldstream.manifest.policy import Policy
from coldstream.manifest.recorded import recorded
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.attributes import LAST_USER_CHUNK, TYPES, claims_text
from coldstream.store.reads import BY_TIME
from coldstream.store.sortkeys import (
    ACCESS,
    CLUSTERS,
    CURSORS,
    LOG_HEAD,
    POLICIES,
    REGISTRY,
    TIME_OF_HEAD,
    erasure_key,
    event_key,
    gap_key,
    grant_key,
    hold_key,
    log_key,
    missing_key,
    names_key,
    registry_key,
    time_key,
    tombstone_key,
)


class IntegerAttribute(Attribute[int]):
    """An exact whole number; PynamoDB's own number may be a float."""

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

        index_name = BY_TIME
        projection = AllProjection()

    stream = UnicodeAttribute(hash_key=True)
    time = UnicodeAttribute(range_key=True)


_ATTRIBUTES: Mapping[str, Callable[[], Attribute[Any]]] = {
    "S": partial(UnicodeAttribute, null=True),
    "N": partial(IntegerAttribute, null=True),
    "B": partial(BinaryAttribute, null=True, legacy_encoding=False),
}
"""PynamoDB's attribute for each of DynamoDB's types."""


class Item(Model):
    """Any item of the table, with the attributes of `attributes.TYPES`.

    A subclass with PynamoDB's `Meta` binds it to one table.
    """

    by_time = ByTime()

    stream = UnicodeAttribute(hash_key=True)
    item = UnicodeAttribute(range_key=True)

    # Declared from the one list, so that writes and reads cannot differ.
    vars().update({name: _ATTRIBUTES[type_]() for name, type_ in TYPES.items() if name not in {"stream", "item"}})


def attribute(name: str) -> Attribute[Any]:
    """Return an attribute of the model, for a condition or an update."""
    return Item.get_attributes()[name]


def entry_item(model: type[Item], incarnation: Incarnation, entry: FragmentEntry) -> Item:
    """Return the item of an entry."""
    last = {} if entry.last_user_chunk is None else _attributes(entry.last_user_chunk)
    return model(
        incarnation,
        log_key(entry.next_offset),
        time=time_key(entry.running_timestamp, entry.next_offset),
        sparse_index=entry.sparse.to_bytes(),
        frames=None if entry.frames is None else entry.frames.to_bytes(),
        erased=1 if entry.erased else None,
        **{LAST_USER_CHUNK[name]: content for name, content in last.items()},
        **_attributes(entry, "sparse", "frames", "last_user_chunk", "erased"),
    )


def relink_actions(relink: Relink) -> list[Action]:
    """Return the update of an entry's item that gives it new links."""
    links = (("prior_offset", relink.prior_offset), ("prior_timestamp", relink.prior_timestamp))
    return [
        # The index orders entries by this: left as it was, lookups by time would begin at the wrong entry.
        attribute("time").set(time_key(relink.running_timestamp, relink.next_offset)),
        *(attribute(name).remove() if link is None else attribute(name).set(link) for name, link in links),
    ]


def gap_item(model: type[Item], incarnation: Incarnation, gap: Gap) -> Item:
    """Return the item of a gap."""
    return model(incarnation, gap_key(gap.first_offset), **_attributes(gap))


def missing_item(model: type[Item], incarnation: Incarnation, one: Missing) -> Item:
    """Return the item of a loss, or of a segment in quarantine."""
    return model(incarnation, missing_key(one), **_attributes(one))


def tombstone_item(model: type[Item], incarnation: Incarnation, one: Tombstone) -> Item:
    """Return the item of a tombstone."""
    all_versions = 1 if one.all_versions else None
    return model(incarnation, tombstone_key(one), all_versions=all_versions, **_attributes(one, "all_versions"))


def head_item(model: type[Item], head: Head) -> Item:
    """Return the item of a head."""
    return model(
        head.stream.incarnation,
        LOG_HEAD,
        time=TIME_OF_HEAD,
        vhost=head.stream.vhost,
        name=head.stream.name,
        claims=claims_text(head),
        appender=None if head.appender is None else appender_text(head.appender),
        **_attributes(head, "stream", "claims", "appender"),
    )


def hold_item(model: type[Item], incarnation: Incarnation, hold: Hold) -> Item:
    """Return the item of a hold."""
    return model(incarnation, hold_key(hold.id), **_attributes(hold))


def erasure_item(model: type[Item], incarnation: Incarnation, erasure: Erasure) -> Item:
    """Return the item of an erasure."""
    return model(incarnation, erasure_key(erasure.id), **_attributes(erasure))


def event_item(model: type[Item], change: Change) -> Item:
    """Return the item of a change's event, with the change."""
    key = event_key(change.event.revision)
    return model(change.head.stream.incarnation, key, change=recorded(change), **_attributes(change.event))


def binding_item(model: type[Item], vhost: str, name: str, cluster: Cluster) -> Item:
    """Return the item that binds a stream to a cluster."""
    return model(CLUSTERS, names_key(vhost, name), vhost=vhost, name=name, cluster=cluster)


def grant_item(model: type[Item], grant: Grant) -> Item:
    """Return the item of a grant."""
    return model(ACCESS, grant_key(grant), **_attributes(grant, "principal", "streams"))


def policy_item(model: type[Item], policy: Policy) -> Item:
    """Return the item of a policy."""
    return model(POLICIES, policy.name, **_attributes(policy, "name"))


def cursor_item(model: type[Item], name: str, data: bytes) -> Item:
    """Return the item of a cursor."""
    return model(CURSORS, name, data=data)


def state_item(model: type[Item], item: StateItem) -> Item:
    """Return the item of a state item."""
    return model(item.partition, item.key, revision=item.revision, data=item.data)


def registry_item(model: type[Item], stream: StreamId) -> Item:
    """Return the item that registers a stream."""
    key = registry_key(stream.vhost, stream.name, stream.incarnation)
    return model(REGISTRY, key, **_attributes(stream))


def _attributes(value: Any, *but: str) -> dict[str, Any]:
    """Return the fields of a dataclass that are not None, except those in `but`."""
    held = ((field.name, getattr(value, field.name)) for field in fields(value) if field.name not in but)
    return {name: content for name, content in held if content is not None}
