"""Footers: index and trailer, which follow the chunks of a fragment. A group's footers become the merged one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from zlib import crc32

from coldstream.errors import BadSequenceError
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    build_footer,
    iter_fragment_index,
)
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparsePoint
from coldstream.units import ByteRange


@dataclass(frozen=True, slots=True)
class Footer:
    """A fragment's trailer, and its index records with positions in the merged fragment.

    `crc32` is that of the `size_bytes` bytes of the footer as it was read.
    """

    trailer: FragmentTrailer
    records: bytes
    crc32: int
    size_bytes: int

    @classmethod
    def from_bytes(cls, data: bytes, entry: FragmentEntry, shift: int) -> Self:
        """Parse a footer, compare it with the manifest, and move its positions up by `shift`.

        `data` is all that follows the chunks, in the identity encoding. Raises CorruptionError of the kind that fits.
        """
        at = FRAGMENT_HEADER_BYTES + entry.data_bytes
        trailer = FragmentTrailer.from_bytes(data, source=entry.key, object_bytes=at + len(data))
        _check(
            entry,
            at,
            "fragment trailer",
            expected=(
                entry.first_offset,
                entry.next_offset,
                entry.first_timestamp,
                entry.data_bytes,
                entry.chunks,
            ),
            found=(
                trailer.first_offset,
                trailer.next_offset,
                trailer.first_timestamp,
                trailer.data_bytes,
                trailer.chunks,
            ),
        )
        records = bytearray()
        points = iter(entry.sparse.points)
        point = next(points, None)
        timestamp = greatest = trailer.first_timestamp
        index = data[: len(trailer.index_range)]
        for ordinal, record in enumerate(iter_fragment_index(index, trailer, source=entry.key)):
            timestamp = record.timestamp
            if point is not None and point.ordinal == ordinal:
                found = SparsePoint(record.chunk_id, ordinal, record.position, timestamp, greatest)
                _check(entry, record.position, "chunk at a point of the sparse index", expected=point, found=found)
                point = next(points, None)
            # After the comparison: a point has the greatest timestamp of the chunks before it.
            greatest = max(greatest, timestamp)
            records += FragmentIndexRecord(record.chunk_id, timestamp, record.position + shift).to_bytes()
        _check(
            entry,
            at,
            "last and greatest timestamp, and points not in the index",
            expected=(entry.last_timestamp, entry.greatest_timestamp, None),
            found=(timestamp, greatest, point),
        )
        return cls(trailer, bytes(records), crc32(data), len(data))


def footer_range(entry: FragmentEntry) -> ByteRange:
    """Return the bytes of an identity fragment's object that are its footer."""
    return ByteRange(FRAGMENT_HEADER_BYTES + entry.data_bytes, entry.object_bytes)


def join_footers(footers: Sequence[Footer], group: Group) -> bytes:
    """Make the footer that the merged fragment would have if the upload had cut it as one.

    Raises BadLengthError if the fragment is too large for the format.
    """
    first = footers[0].trailer
    return build_footer(
        b"".join(footer.records for footer in footers),
        source=group.entries[0].key,
        next_offset=group.next_offset,
        sequence_number=first.sequence_number,
        data_bytes=group.data_bytes,
        chunks_before=first.chunks_before,
        data_position=first.data_position,
    )


def _check(entry: FragmentEntry, position: int, what: str, *, expected: object, found: object) -> None:
    if expected != found:
        raise BadSequenceError(entry.key, position, f"{what}, as the manifest has it", expected=expected, found=found)
