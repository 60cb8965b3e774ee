"""An entry against the end of its object: seek table, index and trailer. Pure; the chunks are not needed.

One GET has all of it: what follows the chunks of an `identity` object, and for `zstd-seekable` what follows the last
frame with chunks, which ends with the seek table (`tail_range`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from coldstream.errors import CorruptionError
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FRAGMENT_TRAILER_BYTES,
    FragmentIndexRecord,
    FragmentTrailer,
    iter_fragment_index,
)
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.sparse import SparsePoint
from coldstream.scrub.damage import Damage
from coldstream.scrub.trouble import Trouble, differs
from coldstream.units import ByteRange

_TABLE_BYTES, _TABLE_ENTRY_BYTES = 17, 8
"""Of a seek table (format.seekable): header and footer, and what each frame takes."""

_FIRST_CHUNKS = 1
"""The number of the first frame with chunks: the one before it holds the fragment's header."""


_SPARE_FRAMES = 16
"""Frames that a seek table may have more than the entry knows of, and is still read whole."""


def tail_range(entry: FragmentEntry) -> ByteRange:
    """Return the bytes of the object that follow its chunks, as the entry has it, or more if the entry cannot be right.

    There is always room for a trailer, or for the seek table.
    """
    if entry.frames is None:
        start, needed = FRAGMENT_HEADER_BYTES + entry.data_bytes, FRAGMENT_TRAILER_BYTES
    else:
        start = entry.frames.positions[-1]
        needed = _TABLE_BYTES + _TABLE_ENTRY_BYTES * (len(entry.sparse.points) + _SPARE_FRAMES)
    return ByteRange(max(0, min(start, entry.object_bytes - needed)), entry.object_bytes)


def tail_troubles(entry: FragmentEntry, tail: bytes) -> Iterator[Trouble]:
    """Yield what is wrong with the bytes of `tail_range`, or contradicts the entry."""
    start = tail_range(entry).start
    footer: bytes | memoryview = tail
    identity_bytes = entry.object_bytes
    if entry.frames is not None:
        # Imported here because it loads zstandard, which functions need for nothing else.
        from coldstream.format.seekable import SeekTable, decompress_frames, frame_positions  # noqa: PLC0415

        try:
            table = SeekTable.from_bytes(tail, source=entry.key, object_bytes=entry.object_bytes)
        except CorruptionError as err:
            yield Trouble.of(Damage.SEEK_TABLE, entry, str(err))
            return
        count = len(entry.sparse.points)
        positions = frame_positions(table.frames)[_FIRST_CHUNKS : _FIRST_CHUNKS + count + 1]
        contents = tuple(accumulate(one.content_bytes for one in table.frames))[:count]
        points = tuple(point.position for point in entry.sparse.points)
        if positions != entry.frames.positions:
            yield Trouble.of(
                Damage.FRAMES,
                entry,
                differs("the entry's list of frames", expected=positions[:4], found=entry.frames.positions[:4]),
            )
            return  # the footer was read from where the entry has it
        if contents != points:
            yield Trouble.of(
                Damage.SPARSE_INDEX, entry, differs("the first frames", expected=contents[:4], found=points[:4])
            )
            return
        last = table.frames[_FIRST_CHUNKS + count :]
        position = positions[-1]
        frames = tail[position - start :][: sum(one.compressed_bytes for one in last)]
        try:
            footer = decompress_frames(
                frames, sum(one.content_bytes for one in last), source=entry.key, position=position
            )
        except CorruptionError as err:
            yield Trouble.of(Damage.TRAILER, entry, str(err))
            return
        identity_bytes = table.content_bytes
    yield from footer_troubles(entry, footer, identity_bytes)


def footer_troubles(entry: FragmentEntry, footer: bytes | memoryview, identity_bytes: int) -> Iterator[Trouble]:
    """Yield what is wrong with index and trailer, in the identity encoding, or contradicts the entry.

    `footer` ends where the fragment of `identity_bytes` does, and holds at least what follows the chunks.
    """
    try:
        trailer = FragmentTrailer.from_bytes(footer, source=entry.key, object_bytes=identity_bytes)
    except CorruptionError as err:
        yield Trouble.of(Damage.TRAILER, entry, str(err))
        return
    if trailer.data_bytes != entry.data_bytes:
        detail = differs("the entry's size of the data", expected=trailer.data_bytes, found=entry.data_bytes)
        yield Trouble.of(Damage.ENTRY, entry, detail)
        return  # the index is not where the entry has it
    try:
        index = footer[len(footer) - (identity_bytes - trailer.index_range.start) :][: len(trailer.index_range)]
        records = iter_fragment_index(index, trailer, source=entry.key)
        yield from _entry_troubles(entry, trailer, records)
    except CorruptionError as err:
        yield Trouble.of(Damage.INDEX, entry, str(err))


def _entry_troubles(
    entry: FragmentEntry, trailer: FragmentTrailer, records: Iterator[FragmentIndexRecord]
) -> Iterator[Trouble]:
    points = list(entry.sparse.points)
    last = greatest = trailer.first_timestamp
    bad_point: tuple[SparsePoint, SparsePoint] | None = None
    for ordinal, record in enumerate(records):
        last = record.timestamp
        if points and points[0].ordinal == ordinal:
            found = SparsePoint(record.chunk_id, ordinal, record.position, record.timestamp, greatest)
            bad_point = bad_point or ((points[0], found) if points[0] != found else None)
            del points[0]
        # After the comparison: a point has the greatest timestamp of the chunks before it.
        greatest = max(greatest, record.timestamp)
    expected = {
        "first offset": trailer.first_offset,
        "next offset": trailer.next_offset,
        "first timestamp": trailer.first_timestamp,
        "last timestamp": last,
        "greatest timestamp": greatest,
        "size of the data": trailer.data_bytes,
        "number of chunks": trailer.chunks,
        "number of records": trailer.next_offset - trailer.first_offset,
    }
    told = {
        "first offset": entry.first_offset,
        "next offset": entry.next_offset,
        "first timestamp": entry.first_timestamp,
        "last timestamp": entry.last_timestamp,
        "greatest timestamp": entry.greatest_timestamp,
        "size of the data": entry.data_bytes,
        "number of chunks": entry.chunks,
        "number of records": entry.records,
    }
    wrong = [differs(f"the entry's {what}", expected=expected[what], found=told[what]) for what in expected
             if expected[what] != told[what]]  # fmt: skip
    if wrong:
        yield Trouble.of(Damage.ENTRY, entry, "; ".join(wrong))
    if bad_point is not None:
        detail = differs("a point of the sparse index", expected=bad_point[1], found=bad_point[0])
        yield Trouble.of(Damage.SPARSE_INDEX, entry, detail)
    elif points:
        yield Trouble.of(Damage.SPARSE_INDEX, entry, f"a point of the sparse index is past the last chunk: {points[0]}")
