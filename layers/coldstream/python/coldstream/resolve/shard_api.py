"""The bodies of /super as models: a shard map in the resolver's JSON, which its client reads back whole.

Fields have the names of `manifest.shard_map`; docs/openapi.json is generated from here.
"""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from coldstream.manifest.shard_map import Lineage, MapVersion, Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.stream import incarnation
from coldstream.resolve.api import ApiBody, Count, OffsetNumber, TimestampNumber
from coldstream.units import Offset, TimestampMs

_PARTITION: JsonDict = {
    "number": 2,
    "name": "orders-2",
    "node": None,
    "weight": 1,
    "binding_key": None,
    "start": 0,
    "incarnation": "__orders-2_1763700000000000000",
    "deleted_at": None,
}


class PartitionBody(ApiBody):
    """A partition of any version. Streams that had one name after another are different partitions."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_PARTITION]})

    number: Count = Field(description="Its place in the map, for good")
    name: str = Field(description="Name of the stream, or the queue; /ranges and /stream take it")
    node: str | None = Field(default=None, description="The broker's node that it was placed on; null if it chose")
    weight: int = Field(default=1, description="Of x-consistent-hash")
    binding_key: str | None = Field(default=None, description="The routing key that it is bound with, if keys choose")
    start: OffsetNumber = Field(default=0, description="Messages before this offset are a replay of earlier versions")
    incarnation: str | None = Field(default=None, description="Known once the partition is archived, else null")
    deleted_at: TimestampNumber | None = Field(
        default=None, description="When it was deleted at the broker, ms since 1970; null if it was not"
    )

    @classmethod
    def of(cls, partition: Partition) -> Self:
        """Encode the value."""
        return cls(**{name: getattr(partition, name) for name in cls.model_fields})

    def value(self) -> Partition:
        """Decode the body."""
        known = None if self.incarnation is None else incarnation(self.incarnation)
        return Partition(**self.model_dump() | {"incarnation": known})


class LineageBody(ApiBody):
    """From `child_from` on, the child comes after the parent up to `seal`, for readers that keep the order of keys."""

    child: Count = Field(description="Number of the partition that comes after the parent")
    parent: Count
    child_from: OffsetNumber
    seal: OffsetNumber | None = Field(
        default=None, description="Null while producers of the version before may still write the parent"
    )

    @classmethod
    def of(cls, edge: Lineage) -> Self:
        """Encode the value."""
        return cls(child=edge.child, parent=edge.parent, child_from=edge.child_from, seal=edge.seal)

    def value(self) -> Lineage:
        """Decode the body."""
        seal = None if self.seal is None else Offset(self.seal)
        return Lineage(self.child, self.parent, Offset(self.child_from), seal)


class MapVersionBody(ApiBody):
    """The partitions that producers route to at one time."""

    version: int
    partitions: list[Count] = Field(description="Numbers, in the order in which the hash counts them")
    hash: ShardHash = Field(description="How a message gets to its partition")
    since: TimestampNumber = Field(description="When the version was made, ms since 1970")
    bound_at: TimestampNumber | None = Field(
        default=None, description="When all of it was bound at the broker, ms since 1970; null until then"
    )

    @classmethod
    def of(cls, version: MapVersion) -> Self:
        """Encode the value."""
        return cls(
            **{name: getattr(version, name) for name in cls.model_fields if name != "partitions"},
            partitions=[*version.partitions],
        )

    def value(self) -> MapVersion:
        """Decode the body."""
        bound_at = None if self.bound_at is None else TimestampMs(self.bound_at)
        return MapVersion(self.version, tuple(self.partitions), self.hash, TimestampMs(self.since), bound_at)


class ShardMapBody(ApiBody):
    """The map of a sharded stream: every version, every partition, and which comes after which."""

    vhost: str = Field(description="Virtual host")
    name: str = Field(description="The logical name")
    kind: ShardKind = Field(description="What the partitions are, and what is in front of them")
    revision: int = Field(description="How often the map has changed")
    definition: str = Field(description="What it was declared by, as JSON text")
    versions: list[MapVersionBody] = Field(description="From 1 on; the last is the newest")
    partitions: list[PartitionBody] = Field(description="Those of all versions, by number")
    lineage: list[LineageBody]

    @classmethod
    def of(cls, found: ShardMap) -> Self:
        """Encode the value."""
        return cls(
            vhost=found.vhost,
            name=found.name,
            kind=found.kind,
            revision=found.revision,
            definition=found.definition,
            versions=[MapVersionBody.of(version) for version in found.versions],
            partitions=[PartitionBody.of(partition) for partition in found.partitions],
            lineage=[LineageBody.of(edge) for edge in found.lineage],
        )

    def value(self) -> ShardMap:
        """Decode the body. Raises InvalidInputError if it contradicts itself."""
        return ShardMap(
            self.vhost,
            self.name,
            self.kind,
            self.revision,
            self.definition,
            tuple(version.value() for version in self.versions),
            tuple(partition.value() for partition in self.partitions),
            tuple(edge.value() for edge in self.lineage),
        )
