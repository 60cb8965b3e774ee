"""A frame as a value: what is common to all of them, and how they become bytes and come out of bytes.

    frame; all integers big-endian
     0  length     u32    of what follows
     4  key        u16    bit 15 marks an answer
     6  version    u16
     8  fields            of a request and its answer: first the correlation id, u32

`to_bytes` begins with the length; `from_body` takes what follows the length. What comes after the last field is left
alone: a later version may have put it there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from coldstream.errors import BadFrameError
from coldstream.gateway.frames.fields import Field, FieldCursor

_HEAD = struct.Struct(">IHH")
_KEY = struct.Struct(">HH")
LENGTH_BYTES = 4
KEY_BYTES = 4


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """Base of all frames. `KEY` has the bit of an answer; `FIELDS` are in the order of the dataclass's fields."""

    KEY: ClassVar[int]
    VERSION: ClassVar[int] = 1
    FIELDS: ClassVar[tuple[Field, ...]]

    @classmethod
    def from_body(cls, body: memoryview | bytes) -> Self:
        """Decode what follows the length. Raises BadFrameError."""
        cursor = FieldCursor(body, KEY_BYTES)
        values: list[Any] = [field.read(cursor) for field in cls.FIELDS]
        return cls(*values)

    def to_bytes(self) -> bytes:
        """Encode with the length. Raises BadFrameError for a text that is too long."""
        out = bytearray(_HEAD.size)
        names: tuple[str, ...] = tuple(self.__slots__)
        for field, name in zip(self.FIELDS, names, strict=True):
            field.write(getattr(self, name), out)
        _HEAD.pack_into(out, 0, len(out) - LENGTH_BYTES, self.KEY, self.VERSION)
        return bytes(out)


def key_of(body: memoryview | bytes) -> tuple[int, int]:
    """Return key and version of what follows the length. Raises BadFrameError."""
    if len(body) < KEY_BYTES:
        raise BadFrameError(f"a frame of {len(body)} bytes has no key")
    key, version = _KEY.unpack_from(body)
    return key, version
