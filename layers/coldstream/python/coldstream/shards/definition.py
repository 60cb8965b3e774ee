"""What a sharded stream is to be, and the text of it that the map keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields

from coldstream.errors import InvalidNameError, InvalidQueryError, InvalidSettingError
from coldstream.format.amqp.field import MessageField
from coldstream.manifest.shard_map import MAX_PARTITIONS, ShardHash, ShardKind
from coldstream.manifest.stream import check_name

HASHES: Mapping[ShardKind, tuple[ShardHash, ...]] = {
    ShardKind.SUPER_STREAM: (ShardHash.MURMUR3, ShardHash.BINDING_KEY),
    ShardKind.STREAMS: (ShardHash.MODULUS, ShardHash.CONSISTENT, ShardHash.RANDOM),
    ShardKind.QUEUES: (ShardHash.MODULUS, ShardHash.CONSISTENT, ShardHash.RANDOM),
}
"""What may be in front of each kind; the first is the default."""

PROPERTIES = ("correlation_id", "message_id", "timestamp")
"""What x-consistent-hash takes as `hash-property`."""

MIN_SEGMENT_BYTES = 10_000
"""A broker with segments of a few bytes rolls them without end."""

MAX_BYTES = (1 << 63) - 1
MAX_REPLICAS = 255
MAX_WEIGHT = 1000
"""x-consistent-hash keeps a bucket for each; more would cost it memory and nobody anything else."""

_AGE = re.compile(r"[1-9][0-9]{0,11}[YMDhms]")
_OF_STREAMS = ("replicas", "max_age", "max_length_bytes", "max_segment_bytes")
_OF_CONSISTENT = ("weights", "hash_header", "hash_property")
_KEYS = {"hash_header": "header", "hash_property": "property"}


@dataclass(frozen=True, slots=True)
class ShardDefinition:
    """One sharded stream as it is to be. Exactly one of `shards` and `shards_per_node` is given.

    Sizes are in bytes; `max_age` is as the broker writes it, such as `7D`. `routing_key_field` is where archived
    messages have the key that they were published by, such as `properties.message_id`, for a replay. Raises
    InvalidSettingError, which names the key, for what contradicts itself.
    """

    name: str
    kind: ShardKind
    hash: ShardHash
    vhost: str = "/"
    shards: int | None = None
    shards_per_node: int | None = None
    binding_keys: tuple[str, ...] = ()
    weights: tuple[int, ...] = ()
    hash_header: str | None = None
    hash_property: str | None = None
    routing_key_field: str | None = None
    replicas: int | None = None
    max_age: str | None = None
    max_length_bytes: int | None = None
    max_segment_bytes: int | None = None

    def __post_init__(self) -> None:
        self._check_names()
        if self.hash not in HASHES[self.kind]:
            raise InvalidSettingError(
                "hash", f"{self.hash} is not for {self.kind}, which has {', '.join(HASHES[self.kind])}"
            )
        self._check_number()
        self._check_consistent()
        self._check_stream_limits()
        self._check_routing_key_field()

    def __str__(self) -> str:
        return f"sharded stream {self.name!r} in vhost {self.vhost!r}"

    @property
    def stream_arguments(self) -> dict[str, str | int]:
        """The arguments of a partition that is a stream, without its type."""
        return {
            name: value
            for name, value in (
                ("x-initial-cluster-size", self.replicas),
                ("x-max-age", self.max_age),
                ("x-max-length-bytes", self.max_length_bytes),
                ("x-stream-max-segment-size-bytes", self.max_segment_bytes),
            )
            if value is not None
        }

    def to_text(self) -> str:
        """Write it as the map keeps it: JSON, sorted, without what has its default. Equal definitions write equal."""
        held = ((field, getattr(self, field.name)) for field in fields(self))
        content = {
            key_of(field.name): value for field, value in held if field.default is MISSING or value != field.default
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def _check_names(self) -> None:
        for key, value in (("name", self.name), ("vhost", self.vhost)):
            try:
                check_name(key, value)
            except InvalidNameError as err:
                raise InvalidSettingError(key, err.problem) from err
        if self.name.startswith("amq."):
            raise InvalidSettingError("name", f"{self.name!r} begins with amq., which brokers keep for themselves")

    def _check_number(self) -> None:
        if self.hash is ShardHash.BINDING_KEY:
            if not self.binding_keys:
                raise InvalidSettingError("binding_keys", "is missing: hash binding-key has a partition for each")
            if len(set(self.binding_keys)) != len(self.binding_keys):
                raise InvalidSettingError("binding_keys", "has a key twice")
            if self.shards != len(self.binding_keys):
                raise InvalidSettingError("shards", f"is {self.shards}, and binding_keys has {len(self.binding_keys)}")
        elif self.binding_keys:
            raise InvalidSettingError("binding_keys", f"is for hash binding-key, and hash is {self.hash}")
        if (self.shards is None) == (self.shards_per_node is None):
            given = "is missing, or shards_per_node" if self.shards is None else "contradicts shards_per_node"
            raise InvalidSettingError("shards", given)
        key = "shards" if self.shards_per_node is None else "shards_per_node"
        _check_range(key, getattr(self, key), 1, MAX_PARTITIONS)
        if self.shards_per_node is not None and self.kind is ShardKind.SUPER_STREAM:
            raise InvalidSettingError("shards_per_node", "is for kinds streams and queues: give shards")

    def _check_consistent(self) -> None:
        if self.hash is not ShardHash.CONSISTENT:
            for field in _OF_CONSISTENT:
                if getattr(self, field):
                    raise InvalidSettingError(key_of(field), f"is for hash consistent, and hash is {self.hash}")
        if self.hash_header is not None and self.hash_property is not None:
            raise InvalidSettingError("header", "contradicts property: x-consistent-hash takes one")
        if self.hash_property is not None and self.hash_property not in PROPERTIES:
            raise InvalidSettingError("property", f"{self.hash_property!r} is not one of {', '.join(PROPERTIES)}")
        number = self.shards or self.shards_per_node
        if self.weights and len(self.weights) != number:
            a_node = "" if self.shards else " a node"
            raise InvalidSettingError("weights", f"has {len(self.weights)}, for {number} shards{a_node}")
        for weight in self.weights:
            _check_range("weights", weight, 1, MAX_WEIGHT)

    def _check_stream_limits(self) -> None:
        for key in _OF_STREAMS if self.kind is ShardKind.QUEUES else ():
            if getattr(self, key) is not None:
                raise InvalidSettingError(key, "is for kinds super-stream and streams, and kind is queues")
        if self.replicas is not None:
            _check_range("replicas", self.replicas, 1, MAX_REPLICAS)
        if self.max_age is not None and not _AGE.fullmatch(self.max_age):
            raise InvalidSettingError("max_age", f"{self.max_age[:80]!r} is not a number and one of Y M D h m s, as 7D")
        if self.max_length_bytes is not None:
            _check_range("max_length_bytes", self.max_length_bytes, 1, MAX_BYTES)
        if self.max_segment_bytes is not None:
            _check_range("max_segment_bytes", self.max_segment_bytes, MIN_SEGMENT_BYTES, MAX_BYTES)

    def _check_routing_key_field(self) -> None:
        if self.routing_key_field is None:
            return
        if self.kind is ShardKind.QUEUES:
            raise InvalidSettingError("routing_key_field", "is for kinds super-stream and streams, and kind is queues")
        try:
            MessageField.parse(self.routing_key_field)
        except InvalidQueryError as err:
            raise InvalidSettingError("routing_key_field", err.problem) from err


def key_of(field: str) -> str:
    """Return the key in a definition file of a field of `ShardDefinition`."""
    return _KEYS.get(field, field)


def _check_range(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidSettingError(key, f"{value} is not {least} to {most}")
