"""Varints as in Protocol Buffers: LEB128, seven bits a byte, the least first; signed numbers are zigzag-coded."""

from __future__ import annotations

from collections.abc import Iterable

from coldstream.errors import TruncatedError


def put_varint(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value >= 0x80:  # noqa: PLR2004  seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varints(data: Iterable[int], *, source: str, position: int, what: str) -> list[int]:
    """Return the numbers of `data`, bytes from `position` on. Raises TruncatedError if `what` ends inside one."""
    # A list, for a lookup reads thousands of them: a generator would be resumed for each.
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        position += 1
        if byte & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        else:
            numbers.append(value | byte << shift)
            value = shift = 0
    if shift:
        raise TruncatedError(source, position, f"{what} ends inside a number")
    return numbers


def zigzag(value: int) -> int:
    """Fold a signed number into one that is not negative."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    """Undo `zigzag`."""
    return -((value + 1) >> 1) if value & 1 else value >> 1
