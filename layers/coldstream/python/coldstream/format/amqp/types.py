"""The types of AMQP 1.0 values that Python has no type for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, UUID, list; a tuple for an array, a dict for a map, and the classes below.

A map with a key that no dict can hold, such as a list, is a tuple of pairs. Of equal keys the last one counts.
"""


class Symbol(str):
    """A string from a fixed set, such as a content type or the key of an annotation."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, signed 64-bit."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal floating point number: the 4, 8 or 16 bytes of IEEE 754's binary integer decimal encoding."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value of a type that AMQP does not define; the descriptor, a ulong or a symbol, names the type."""

    descriptor: Value
    value: Value
