"""The state of an appender as text: JSON, in the head's item and in each recorded change."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from coldstream.errors import CorruptionError, InvalidInputError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.plain_json import read_json
from coldstream.units import Epoch, Offset


def appender_text(appender: Appender) -> str:
    """Write it; `appender_of` is the inverse."""
    return json.dumps(appender_json(appender), separators=(",", ":"), ensure_ascii=False)


def appender_of(text: str, *, source: str) -> Appender:
    """Read it. Raises CorruptionError, which names `source`."""
    try:
        return appender_of_json(read_json(text))
    except (InvalidInputError, ValueError, TypeError, KeyError, AttributeError) as err:
        raise CorruptionError(source, 0, f"malformed state of an appender: {err}") from err


def appender_json(appender: Appender) -> dict[str, Any]:
    """Return it in JSON's types."""
    return {
        "epoch": appender.epoch,
        "openings": [opening_json(one) for one in appender.openings],
        "first": appender.first,
        "start": appender.start,
        "is_sealed": appender.is_sealed,
        "properties": dict(appender.properties),
    }


def appender_of_json(read: dict[str, Any]) -> Appender:
    """Read it from JSON's types. Raises ValueError, TypeError, KeyError, AttributeError or InvalidInputError."""
    openings = tuple(opening_of_json(one) for one in read["openings"])
    properties = tuple(sorted(read["properties"].items()))
    if not all(isinstance(text, str) for pair in properties for text in pair):
        raise TypeError("properties are text")
    if not isinstance(read["is_sealed"], bool):
        raise TypeError("is_sealed is true or false")
    return Appender(
        Epoch(_number(read["epoch"])),
        openings,
        Offset(_number(read["first"])),
        Offset(_number(read["start"])),
        read["is_sealed"],
        properties,
    )


def opening_json(opening: Opening) -> dict[str, Any]:
    """Return an opening in JSON's types; `opening_of_json` is the inverse, with the errors of `appender_of_json`."""
    return asdict(opening)


def opening_of_json(read: dict[str, Any]) -> Opening:
    """Read it."""
    wal = read["wal"]
    return Opening(Epoch(_number(read["epoch"])), WalPlace(WalKind(wal["kind"]), wal["writer"], _number(wal["epoch"])))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value
