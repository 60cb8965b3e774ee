"""The parts of a merged identity fragment: which S3 copies by itself, and which have to be gathered here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.compact.part_upload import MIN_PART_BYTES
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.manifest.groups import Group
from coldstream.units import MIB, ByteRange

MAX_COPY_BYTES = 256 * MIB
"""Size of a copied part. S3 takes 5 GiB, but answers this well within the client's timeout, and it is few requests."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a fragment's object."""

    key: str
    byte_range: ByteRange
    is_whole: bool = False
    """All chunks of the fragment, gathered: one read brings them and the footer, which comes right after them."""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """The pieces of one part. S3 copies the part, or it is gathered here. The last one ends with the new footer."""

    pieces: tuple[Piece, ...]
    is_copied: bool

    @property
    def size_bytes(self) -> int:
        """Size of all pieces."""
        return sum(len(piece.byte_range) for piece in self.pieces)


def plan_parts(group: Group) -> Iterator[PartPlan]:
    """Plan the parts of the merged object, in order; the last one, to which the footer goes, is gathered.

    Every part before the last has at least 5 MiB. A copied part has at most MAX_COPY_BYTES, a gathered one less than
    10 MiB: small fragments, and as much of a large neighbour as fills 5 MiB.
    """
    gathered: list[Piece] = []
    gathered_bytes = 0
    start = 0
    for entry in group.entries:
        end = FRAGMENT_HEADER_BYTES + entry.data_bytes
        if gathered or end - start < MIN_PART_BYTES:
            missing = MIN_PART_BYTES - gathered_bytes
            # A rest too small to be copied is gathered, too.
            border = start + missing if end - start - missing >= MIN_PART_BYTES else end
            gathered.append(Piece(entry.key, ByteRange(start, border), is_whole=border == end))
            gathered_bytes += border - start
            start = border
        if gathered_bytes >= MIN_PART_BYTES:
            yield PartPlan(tuple(gathered), is_copied=False)
            gathered, gathered_bytes = [], 0
        if start < end:
            # Equal copies: of unequal ones the last could be smaller than S3 allows a part to be.
            copies = -(-(end - start) // MAX_COPY_BYTES)
            borders = [start + (end - start) * number // copies for number in range(copies + 1)]
            for number in range(copies):
                piece = Piece(entry.key, ByteRange(borders[number], borders[number + 1]))
                yield PartPlan((piece,), is_copied=True)
        start = FRAGMENT_HEADER_BYTES  # the merged fragment has one header, that of the first entry
    yield PartPlan(tuple(gathered), is_copied=False)


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """How many requests an object takes: `puts` are all that S3 charges as a PUT, `gets` those charged as a GET."""

    puts: int
    gets: int


def count_requests(group: Group) -> RequestCounts:
    """Count the requests of merging a group, with the HEAD that finds its key free."""
    parts = pieces = whole = 0
    for part in plan_parts(group):
        parts += 1
        if not part.is_copied:
            pieces += len(part.pieces)
            whole += sum(piece.is_whole for piece in part.pieces)
    return RequestCounts(puts=parts + 2, gets=1 + pieces + len(group.entries) - whole)
