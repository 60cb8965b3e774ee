"""The new object of a fragment: at a key that was never used, in the encoding that the old one has.

The generation is above that of the old object and not below the head's. What is not committed is discarded
(`store.discard`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import BinaryIO

from coldstream.compact.frame_parts import FrameParts
from coldstream.compact.part_upload import PartUpload
from coldstream.erase.fragment import ErasedFragment, erased_entry
from coldstream.errors import ObjectExistsError, StoppedError, UnavailableError
from coldstream.flow.frame_sink import FrameSink
from coldstream.format.checksum import combine_crc32
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.seekable import DEFAULT_LEVEL, frame_positions
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.frames import Frames
from coldstream.manifest.note import EntryNote
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB

MAX_GENERATIONS = 64
"""Keys that are tried. Each taken one is that of a killed writer, or of another that is under way."""

READ_BYTES = MIB


def put_erased(
    objects: ObjectStore,
    keys: Keys,
    incarnation: Incarnation,
    before: FragmentEntry,
    fragment: ErasedFragment,
    *,
    least_generation: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> FragmentEntry:
    """Write the fragment to a key of its own, and return the entry that it will have.

    The store checks the CRC-32 of what it takes. Cost: a HEAD and a PUT; a compressed object is sent by a multipart
    upload, a PUT each 8 MiB. Raises StoppedError, CorruptionError if the bytes did not arrive as they were sent, and
    UnavailableError, also if all keys that were tried have objects.
    """
    first = max(before.generation + 1, least_generation)
    for generation in range(first, first + MAX_GENERATIONS):
        key = keys.fragment(incarnation, before.first_offset, generation)
        if objects.info(key) is not None:
            continue
        entry = erased_entry(before, fragment, key, generation)
        try:
            if before.encoding is Encoding.IDENTITY:
                cut = fragment.cut
                note = EntryNote.of(entry).to_text()
                objects.put_new(key, cut.body, size_bytes=cut.object_bytes, crc32=cut.crc32, note=note)
                return entry
            return _compress(objects, entry, fragment.cut.body, should_stop)
        except ObjectExistsError:
            continue  # another writer was faster, at this key
    raise UnavailableError(f"offset {before.first_offset}: all {MAX_GENERATIONS} keys that were tried have objects")


def _compress(
    objects: ObjectStore, entry: FragmentEntry, body: BinaryIO, should_stop: Callable[[], bool]
) -> FragmentEntry:
    """Send the file as a compressed object, whose frames begin at the points of the sparse index."""
    points = [point.position for point in entry.sparse.points]
    cuts = [0, *points, FRAGMENT_HEADER_BYTES + entry.data_bytes, entry.object_bytes]
    upload = PartUpload(objects, entry.key, lambda _: None, note=EntryNote.of(entry).to_text())
    parts_of_frames = FrameParts(upload)
    with upload, FrameSink(parts_of_frames.add, DEFAULT_LEVEL) as sink:
        body.seek(0, os.SEEK_SET)
        for start, end in pairwise(cuts):
            if should_stop():
                raise StoppedError(f"stopped before {entry.key} was complete")
            for piece in _pieces(body, end - start):
                sink.write(piece)
            if end != cuts[-1]:
                sink.cut()
        frames = sink.finish()
        parts_of_frames.flush()
        if (frames.content_bytes, frames.content_crc32) != (entry.object_bytes, entry.crc32):
            raise UnavailableError(f"{entry.key} was given up: its frames do not decompress to what was compressed")
        parts = upload.settle()
        object_crc32 = 0
        for part in parts:
            assert part.crc32 is not None
            object_crc32 = combine_crc32(object_crc32, part.crc32, part.size_bytes)
        upload.complete(object_crc32)
    return replace(
        entry,
        encoding=Encoding.ZSTD_SEEKABLE,
        object_bytes=sum(part.size_bytes for part in parts),
        crc32=object_crc32,
        frames=Frames(frame_positions(frames.sizes)[1 : 2 + len(points)]),
    )


def _pieces(body: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    while size_bytes:
        piece = body.read(min(size_bytes, READ_BYTES))
        if not piece:
            raise UnavailableError("the file of a fragment is shorter than what was written to it")
        size_bytes -= len(piece)
        yield piece
