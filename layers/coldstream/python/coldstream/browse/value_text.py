"""AMQP values as one text for people, cut at a limit before it is made, as far as that is possible."""

from __future__ import annotations

import json
from uuid import UUID

from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.types import Decimal, Timestamp, Value
from coldstream.units import TimestampMs, format_timestamp


def value_text(value: Value, limit: int) -> tuple[str, int]:
    """Return up to `limit` characters of a value as text, and how many all of it has.

    Text is as it is, binary in hexadecimal, a list or map as JSON.
    """
    match value:
        case str():
            return str(value[:limit]), len(value)
        case bytes():
            digits = value[: limit // 2].hex()
            return (f"0x{digits}" if not isinstance(value, Decimal) else digits), 2 + 2 * len(value)
        case Timestamp():
            text = format_timestamp(TimestampMs(value))
        case UUID():
            text = str(value)
        case _:
            text = json_of(value)
    return text[:limit], len(text)


def json_of(value: Value) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(to_json(value), ensure_ascii=False)
