"""Varints as in Protocol Buffers: LEB128, seven bits a byte, the least first; signed numbers are zigzag-coded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldstream.errors import TruncatedError


def put_varint(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value >= 0x80:  # noqa: PLR2004  seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def iter_varints(data: Iterable[int], *, source: str, position: int, what: str) -> Iterator[int]:
    """Yield the numbers of `data`, bytes from `position` on. Raises TruncatedError if `what` ends inside one."""
    value = shift = 0
    for byte in data:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield value
            value = shift = 0
    if shift:
        raise TruncatedError(source, position, f"{what} ends inside a number")


def zigzag(value: int) -> int:
    """Fold a signed number into one that is not negative."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    """Undo `zigzag`."""
    return -((value + 1) >> 1) if value & 1 else value >> 1
