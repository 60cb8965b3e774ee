"""Erlang's `erlang:phash2`, which is the same on every release and machine: the hash of the broker's exchanges.

It is Bob Jenkins' hash of 1996 over three 32-bit words, as `make_hash2` in erts has it (utils.c, later
erl_term_hashing.c). Of the terms of Erlang these are here:

    bytes        a binary
    int, float   an integer of any size, a float
    Atom         an atom, in ASCII
    list         a proper list
    tuple        a tuple

Small integers from -2^27 up to, not including, 2^27 are hashed as one word, others as digits of 64 bits, least first.
"""

from __future__ import annotations

import struct
from typing import NewType, TypeAlias

from coldstream.errors import InvalidInputError

RANGE = 1 << 27
"""What hashes are below, if nothing else is said."""

Atom = NewType("Atom", str)
Term: TypeAlias = "bytes | int | float | str | list[Term] | tuple[Term, ...]"
"""A `str` is an atom: text is bytes in Erlang."""

UNDEFINED = Atom("undefined")

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_SMALL, _NIL, _ATOM, _STRING, _TUPLE, _NEGATIVE, _POSITIVE, _FLOAT, _BINARY = (
    _GOLDEN * factor & _MASK for factor in (1, 2, 3, 4, 9, 10, 11, 12, 13)
)
_NIL_TAG = 2
_NIL_ALONE = 3468870702
_BLOCK = struct.Struct("<III")
_DOUBLE = struct.Struct(">d")
_DOUBLE_WORDS = struct.Struct(">II")


def phash2(term: Term, range_: int = RANGE) -> int:
    """Return the hash of a term, 0 up to, not including, `range_`, which is 2^32 at most."""
    if not 1 <= range_ <= 1 << 32:
        raise InvalidInputError("range", f"{range_} is not 1 to 2^32")
    return _hash(term, 0) % range_


def _hash(term: Term, state: int) -> int:  # noqa: PLR0911  one return a kind of term
    # bool is an int in Python, and an atom in Erlang.
    if isinstance(term, bool):
        return _atom("true" if term else "false", state)
    if isinstance(term, bytes):
        return _binary(term, state)
    if isinstance(term, int):
        return _integer(term, state)
    if isinstance(term, float):
        high, low = _DOUBLE_WORDS.unpack(_DOUBLE.pack(term or 0.0))  # both zeros are one
        return _mix(_FLOAT + high, _FLOAT + low, state)
    if isinstance(term, str):
        return _atom(term, state)
    if isinstance(term, tuple):
        state = _mix(_TUPLE + len(term), _TUPLE, state)
        for element in term:
            state = _hash(element, state)
        return state
    return _list(term, state)


def _binary(data: bytes, state: int) -> int:
    c = _BINARY + state & _MASK
    if not data:
        return c
    a = b = _GOLDEN
    whole = len(data) - len(data) % _BLOCK.size
    for x, y, z in _BLOCK.iter_unpack(memoryview(data)[:whole]):
        a, b, c = _mixed(a + x, b + y, c + z)
    # The lowest byte of the last word counts the bytes.
    last = data[whole:].ljust(_BLOCK.size, b"\0")
    x, y, z = _BLOCK.unpack(last[:8] + b"\0" + last[8:11])
    return _mix(a + x, b + y, c + z + len(data))


def _integer(value: int, state: int) -> int:
    if -RANGE <= value < RANGE:
        if value < 0:
            state = _mix(_SMALL - value, _SMALL, state)  # negative ones are mixed twice
        return _mix(_SMALL + value, _SMALL, state)
    constant, left = (_NEGATIVE if value < 0 else _POSITIVE), abs(value)
    while left:
        state = _mix(constant + left, constant + (left >> 32), state)
        left >>= 64
    return state


def _atom(name: str, state: int) -> int:
    if not name.isascii():
        raise InvalidInputError("atom", f"{name!r} is not ASCII")
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        if high := value & 0xF0000000:
            value ^= (high >> 24) ^ high
    # A state of 0 means that nothing came before, and the atom's own hash is the whole.
    return _mix(_ATOM + value, _ATOM, state) if state else value


def _list(terms: list[Term], state: int) -> int:
    position = 0
    while position < len(terms):
        string = _leading_bytes(terms[position:])
        for start in range(0, len(string), 4):
            state = _mix(_STRING + int.from_bytes(string[start : start + 4]), _STRING, state)
        position += len(string)
        if position < len(terms):
            state = _hash(terms[position], state)
            position += 1
    return _mix(_NIL + _NIL_TAG, _NIL, state) if state else _NIL_ALONE


def _leading_bytes(terms: list[Term]) -> bytes:
    """Return the integers that a list begins with and that are characters: those are hashed four at a time."""
    found = bytearray()
    for term in terms:
        if isinstance(term, bool) or not isinstance(term, int) or not 0 <= term < 1 << 8:
            break
        found.append(term)
    return bytes(found)


def _mix(a: int, b: int, c: int) -> int:
    return _mixed(a, b, c)[2]


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    b, c = b & _MASK, c & _MASK
    a = (a - b - c & _MASK) ^ c >> 13
    b = (b - c - a ^ a << 8) & _MASK
    c = (c - a - b & _MASK) ^ b >> 13
    a = (a - b - c & _MASK) ^ c >> 12
    b = (b - c - a ^ a << 16) & _MASK
    c = (c - a - b & _MASK) ^ b >> 5
    a = (a - b - c & _MASK) ^ c >> 3
    b = (b - c - a ^ a << 10) & _MASK
    c = (c - a - b & _MASK) ^ b >> 15
    return a, b, c
