"""The positions of the frames of a `zstd-seekable` fragment in its object; the sparse index tells their content.

    frames      version u8 (1) · varints: the first position, then the difference of each to the one before

There is one position for each point of the sparse index, then the end of the last frame with chunks: about 3 bytes
each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from coldstream.errors import BadSequenceError, BadVersionError
from coldstream.manifest.varints import put_varint, read_varints
from coldstream.units import ByteRange

VERSION = 1


@dataclass(frozen=True, slots=True)
class Frames:
    """The byte of the object at which the frame of each sparse point begins, and the end of the last one."""

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.positions) < 2 or any(one >= other for one, other in pairwise(self.positions)):  # noqa: PLR2004
            raise ValueError(f"positions of frames must rise, got {self.positions[:8]}")

    def byte_range(self, first: int, following: int) -> ByteRange:
        """Return the range of the frames of the points `first` up to, not including, `following`."""
        return ByteRange(self.positions[first], self.positions[following])

    def to_bytes(self) -> bytes:
        """Encode."""
        out = bytearray((VERSION,))
        for before, position in pairwise((0, *self.positions)):
            put_varint(out, position - before)
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Frames:
        """Decode. Raises CorruptionError, naming `source`, unless `data` holds positions of frames."""
        if data[:1] != bytes((VERSION,)):
            found = data[:1].hex() or "nothing"
            raise BadVersionError(source, 0, "version of frame positions", expected=VERSION, found=found)
        numbers = read_varints(data[1:], source=source, position=1, what="frame positions")
        try:
            return cls(tuple(accumulate(numbers)))
        except ValueError as err:
            raise BadSequenceError(source, 0, f"positions of frames: {err}") from err
