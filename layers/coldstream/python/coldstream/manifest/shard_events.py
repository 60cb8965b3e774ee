"""The journal of a shard map, and the bytes of both: each event holds the map after it, so any revision can be read.

The bytes are a version byte, then deflated JSON: `{"map": {…}, "event": {…}}` for an event, `{"map": {…}}` for the map.
Fields have the names of the dataclasses; what has its default is left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError, ShardChangeError
from coldstream.manifest.shard_map import Lineage, MapVersion, Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.state_item import MAX_STATE_BYTES
from coldstream.plain_json import read_json
from coldstream.units import TimestampMs

VERSION = 1
MAX_JSON_BYTES = 16_000_000
"""Bytes that are inflated at most: 65,536 edges and 4096 long names take less."""

_Value = TypeVar("_Value")


class ShardEventKind(StrEnum):
    """What happened to a shard map."""

    DECLARE = "declare"
    ADOPT = "adopt"
    DOUBLE = "double"
    HALVE = "halve"
    REPLACE = "replace"
    JOIN = "join"
    """Nodes came, and get partitions."""

    BIND = "bind"
    SEAL = "seal"
    IDENTIFY = "identify"
    DELETE_PARTITION = "delete-partition"


@dataclass(frozen=True, slots=True)
class ShardEvent:
    """What took a map to `revision`, when, by whom, and in words."""

    revision: int
    at: TimestampMs
    kind: ShardEventKind
    by: str = ""
    detail: str = ""


def map_bytes(found: ShardMap, event: ShardEvent | None = None) -> bytes:
    """Encode a map, or an event with the map after it. Raises ShardChangeError if no item can hold it."""
    content = {"map": _plain(found)} | ({} if event is None else {"event": _plain(event)})
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    data = bytes((VERSION,)) + zlib.compress(text, 9)
    if len(text) > MAX_JSON_BYTES or len(data) > MAX_STATE_BYTES:
        raise ShardChangeError(
            f"{found}: its map takes {len(data)} bytes, of {MAX_STATE_BYTES} at most: use fewer partitions, or shorter"
            " names"
        )
    return data


def map_of(data: bytes, *, source: str) -> ShardMap:
    """Decode a map. Raises CorruptionError; BadVersionError if a later release wrote it."""
    return _decoded(data, source)[0]


def event_of_map(data: bytes, *, source: str) -> tuple[ShardEvent, ShardMap]:
    """Decode an event, with the map after it. Raises CorruptionError; BadVersionError as `map_of`."""
    found, event = _decoded(data, source)
    if event is None or event.revision != found.revision:
        raise CorruptionError(source, 0, "no event of that map's revision")
    return event, found


def _decoded(data: bytes, source: str) -> tuple[ShardMap, ShardEvent | None]:
    if data[:1] != bytes((VERSION,)):
        raise BadVersionError(source, 0, "version of a shard map", expected=VERSION, found=data[:1].hex() or "nothing")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data[1:], MAX_JSON_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise CorruptionError(source, 0, "a shard map that does not end with its bytes")
        content = read_json(text)
        found = dict(content["map"])
        shard_map = _value(
            ShardMap,
            found
            | {
                "kind": ShardKind(found["kind"]),
                "versions": tuple(map(_version, found["versions"])),
                "partitions": tuple(_value(Partition, one) for one in found["partitions"]),
                "lineage": tuple(_value(Lineage, one) for one in found.get("lineage", ())),
            },
        )
        event = content.get("event")
        return shard_map, None if event is None else _value(ShardEvent, event | {"kind": ShardEventKind(event["kind"])})
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError, InvalidInputError) as err:
        raise CorruptionError(source, 0, f"malformed shard map: {err}") from err


def _version(content: Mapping[str, Any]) -> MapVersion:
    held = {"partitions": tuple(content["partitions"]), "hash": ShardHash(content["hash"])}
    if any(type(number) is not int for number in held["partitions"]):
        raise TypeError("the number of a partition is no whole number")
    return _value(MapVersion, {**content, **held})


def _value(shape: type[_Value], content: Mapping[str, Any]) -> _Value:
    kinds = _kinds(shape)  # type: ignore[arg-type]  # mypy holds a class of a type variable for unhashable
    for name, value in content.items():
        # Not isinstance: True is no number. A field of another name is refused by the dataclass.
        if type(value) not in kinds.get(name, (type(value),)):
            raise TypeError(f"{name} is {value!r:.80}")
        if isinstance(value, str):
            value.encode()  # JSON can hold half of a character, and no item can
    return shape(**content)


@cache
def _kinds(shape: type) -> Mapping[str, tuple[type, ...]]:
    """Return the types that each field of a dataclass may hold."""
    return {name: tuple(map(_kind, _either(hint))) for name, hint in get_type_hints(shape).items()}


def _either(hint: Any) -> tuple[Any, ...]:
    return (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)


def _kind(hint: Any) -> type:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__  # a NewType is its value
    kind: type = get_origin(hint) or hint
    return kind


def _plain(value: Any) -> Any:
    """Return a dataclass in JSON's types, without what has its default."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    held = ((field, getattr(value, field.name)) for field in fields(value))
    return {
        field.name: _plain(content) for field, content in held if field.default is MISSING or content != field.default
    }
