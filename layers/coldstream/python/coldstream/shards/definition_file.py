"""The definition file of sharded streams, TOML or JSON.

    [[shards]]
    name = "orders"
    vhost = "/"                    the default
    kind = "super-stream"          super-stream, streams, queues
    shards = 4                     in all; or shards_per_node = 2 (streams, queues)
    hash = "murmur3"               super-stream: murmur3 (the default), binding-key
                                   streams, queues: modulus (the default), consistent, random
    binding_keys = ["eu", "us"]    binding-key: one partition each
    weights = [1, 2]               consistent: one of each shard, 1 if left out
    header = "customer"            consistent: hash this header, not the routing key; or property = "message_id"
    routing_key_field = "…"        super-stream, streams: where archived messages have their key, for a replay:
                                   properties.message_id, application_properties.NAME, message_annotations.NAME
    replicas = 3                   super-stream, streams: x-initial-cluster-size
    max_age = "7D"                 super-stream, streams: x-max-age, as the broker writes it
    max_length_bytes = "20GB"      super-stream, streams: x-max-length-bytes
    max_segment_bytes = "500MB"    super-stream, streams: x-stream-max-segment-size-bytes

In JSON it is `{"shards": [{"name": …}]}`. What is not known, or says two things, is refused with the entry and the key.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from coldstream.errors import InvalidSettingError
from coldstream.manifest.shard_map import MAX_PARTITIONS, ShardHash, ShardKind
from coldstream.manifest.stream import MAX_NAME_BYTES
from coldstream.shards.definition import HASHES, ShardDefinition, key_of
from coldstream.units import parse_size

MAX_TEXT_CHARACTERS = 1_000_000

_Word = TypeVar("_Word", bound=StrEnum)


def definitions_of(text: str, *, source: str) -> tuple[ShardDefinition, ...]:
    """Read a definition file, JSON if it begins with a brace, which no TOML does. `source` is for errors.

    Raises InvalidSettingError: it names the entry, by its name if it has one, and the key.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InvalidSettingError(source, f"has more than {MAX_TEXT_CHARACTERS} characters")
    content = _parsed(text, source, _json if text.lstrip().startswith("{") else tomllib.loads)
    if not isinstance(content, dict) or not isinstance(content.get("shards"), list) or not content["shards"]:
        raise InvalidSettingError(source, 'has no entry "shards": a table [[shards]] for each sharded stream')
    if unknown := sorted(content.keys() - {"shards"}):
        raise InvalidSettingError(f"{source}: {unknown[0]}", "is not known; all entries are in shards")
    found = tuple(
        _definition(entry, f"{source}: {_entry_name(number, entry)}") for number, entry in enumerate(content["shards"])
    )
    places = [(one.vhost, one.name) for one in found]
    for vhost, name in places:
        if places.count((vhost, name)) > 1:
            raise InvalidSettingError(f"{source}: {name!r} in vhost {vhost!r}", "is there twice")
    return found


def definition_of(text: str) -> ShardDefinition:
    """Read what `ShardDefinition.to_text` wrote, as a map keeps it. Raises InvalidSettingError."""
    return _definition(_parsed(text, "definition", _json), "definition")


def _parsed(text: str, source: str, parse: Any) -> Any:
    try:
        return parse(text)
    except (ValueError, RecursionError) as err:  # both parsers' errors are ValueErrors
        raise InvalidSettingError(source, f"cannot be read: {err}") from err


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice, as TOML does: which of both is meant?"""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:80]!r} is there twice")
        found[key] = value
    return found


def _entry_name(number: int, entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return repr(name[:80]) if isinstance(name, str) else f"entry {number + 1}"


def _definition(entry: Any, place: str) -> ShardDefinition:
    try:
        if not isinstance(entry, dict):
            raise InvalidSettingError("shards", "is not a table of keys")
        return _of_entry(entry)
    except InvalidSettingError as err:
        raise InvalidSettingError(f"{place}: {err.field}", err.problem) from err


def _of_entry(entry: Mapping[str, Any]) -> ShardDefinition:
    known = [key_of(field.name) for field in fields(ShardDefinition)]
    if unknown := sorted(entry.keys() - set(known)):
        raise InvalidSettingError(unknown[0][:80], f"is not known; there are {_listed(known)}")
    if "name" not in entry:
        raise InvalidSettingError("name", "is missing")
    kind = _word("kind", entry.get("kind"), ShardKind)
    hash_ = HASHES[kind][0] if "hash" not in entry else _word("hash", entry["hash"], ShardHash)
    binding_keys = _texts("binding_keys", entry)
    given_shards = _number("shards", entry)
    return ShardDefinition(
        name=_text("name", entry) or "",
        kind=kind,
        hash=hash_,
        vhost=_text("vhost", entry) if "vhost" in entry else "/",
        shards=len(binding_keys) if given_shards is None and binding_keys else given_shards,
        shards_per_node=_number("shards_per_node", entry),
        binding_keys=binding_keys,
        weights=tuple(_whole("weights", one) for one in _list("weights", entry)),
        hash_header=_text("header", entry) if "header" in entry else None,
        hash_property=_text("property", entry) if "property" in entry else None,
        routing_key_field=_text("routing_key_field", entry) if "routing_key_field" in entry else None,
        replicas=_number("replicas", entry),
        max_age=_text("max_age", entry) if "max_age" in entry else None,
        max_length_bytes=_size("max_length_bytes", entry),
        max_segment_bytes=_size("max_segment_bytes", entry),
    )


def _word(key: str, value: Any, words: type[_Word]) -> _Word:
    if value is None:
        raise InvalidSettingError(key, f"is missing: one of {_listed(list(words))}")
    try:
        return words(value)
    except ValueError as err:
        raise InvalidSettingError(key, f"{str(value)[:80]!r} is not one of {_listed(list(words))}") from err


def _text(key: str, entry: Mapping[str, Any]) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value:
        raise InvalidSettingError(key, f"{str(value)[:80]!r} is not a text")
    return value


def _list(key: str, entry: Mapping[str, Any]) -> Sequence[Any]:
    value = entry.get(key, ())
    if key in entry and (not isinstance(value, list) or not value or len(value) > MAX_PARTITIONS):
        raise InvalidSettingError(key, f"is not a list of 1 to {MAX_PARTITIONS}")
    return tuple(value)


def _texts(key: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    found = _list(key, entry)
    for one in found:
        if not isinstance(one, str) or not one or len(one.encode(errors="replace")) > MAX_NAME_BYTES:
            raise InvalidSettingError(key, f"{str(one)[:80]!r} is not a text of up to {MAX_NAME_BYTES} bytes")
    return tuple(found)


def _number(key: str, entry: Mapping[str, Any]) -> int | None:
    return None if key not in entry else _whole(key, entry[key])


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSettingError(key, f"{str(value)[:80]!r} is not a whole number")
    return value


def _size(key: str, entry: Mapping[str, Any]) -> int | None:
    if not isinstance(entry.get(key), str):
        return _number(key, entry)
    try:
        return parse_size(entry[key])
    except ValueError as err:
        raise InvalidSettingError(key, str(err)) from err


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
