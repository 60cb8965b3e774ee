"""The bytes of control objects: JSON with the fields of a dataclass by name, and a version.

    {"version": 1, "id": "2026-audit", "first_offset": 0, "next_offset": null, ...}

Every field is there, null if it is None, and no other: what a later release writes differently has another version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from enum import StrEnum
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError

VERSION = 1

_Shape = TypeVar("_Shape")


def note_bytes(note: Any) -> bytes:
    """Write a frozen dataclass of text and whole numbers."""
    content = {field.name: getattr(note, field.name) for field in fields(note)}
    return json.dumps({"version": VERSION, **content}, ensure_ascii=False, indent=1).encode()


def parse_note(shape: type[_Shape], data: bytes, *, source: str) -> _Shape:
    """Read what `note_bytes` has written. Raises CorruptionError for anything else."""
    hints = get_type_hints(shape)
    content = note_fields(data, hints, source=source)
    try:
        return shape(**{name: _value(hints[name], value) for name, value in content.items()})
    except (TypeError, ValueError, InvalidInputError) as err:
        raise CorruptionError(source, 0, f"malformed: {err}") from err


def note_fields(data: bytes, names: Iterable[str], *, source: str) -> dict[str, Any]:
    """Read the fields of a note, which are exactly `names` and the version, without that.

    Raises CorruptionError for anything else.
    """
    try:
        content = json.loads(data.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as err:
        raise CorruptionError(source, 0, f"no JSON: {err}") from err
    if not isinstance(content, dict):
        raise CorruptionError(source, 0, "no JSON object")
    version = content.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise BadVersionError(source, 0, "version", expected=VERSION, found=version)
    if content.keys() != set(names):
        raise CorruptionError(source, 0, "other fields", expected=sorted(names), found=sorted(content))
    return content


def _value(hint: Any, value: Any) -> Any:
    """Return a value of JSON's as what a field holds. Raises TypeError or ValueError."""
    kinds = get_args(hint) or (hint,)
    if value is None and NoneType in kinds:
        return None
    (kind,) = (one for one in kinds if one is not NoneType)
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__  # a NewType is its value
    if issubclass(kind, StrEnum):
        return kind(value)
    if type(value) is not kind:  # not isinstance: True is no number
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field is there twice")
    return content
