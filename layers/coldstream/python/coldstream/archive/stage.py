"""Find the rolled segments of a stream on a broker's disk, and stage one of them.

    <data directory>/<incarnation>/<first offset, 20 digits>.segment and .index

The newest segment is the one that the broker writes to: it has not rolled. A rolled segment ends where the next begins,
for the broker names a segment by the offset after the last (osiris_log:open_new_segment/1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import InvalidInputError, ObjectExistsError
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB, Offset

_SEGMENT_FILE = re.compile(r"(?P<first_offset>[0-9]{20})\.segment")


@dataclass(frozen=True, slots=True)
class RolledSegment:
    """A segment file that the broker has closed, of offsets `first_offset` up to `next_offset`."""

    path: Path
    first_offset: Offset
    next_offset: Offset
    size_bytes: int


def find_streams(directory: Path) -> list[Path]:
    """Return the stream directories at or right below a directory, sorted by name.

    `directory` is that of one stream, or a node's directory of all its streams. Raises InvalidInputError when it is
    neither.
    """
    if not directory.is_dir():
        raise InvalidInputError(str(directory), "is not a directory")
    if _segment_files(directory):
        return [directory]
    streams = sorted(path for path in directory.iterdir() if path.is_dir() and _segment_files(path))
    if not streams:
        raise InvalidInputError(
            str(directory),
            "holds no segment files; give a stream's directory, or a node's, such as …/rabbit@host/stream",
        )
    return streams


def find_rolled(directory: Path) -> list[RolledSegment]:
    """Return the rolled segments of a stream directory, oldest first.

    Files that retention deletes meanwhile are left out, as are those that hold no chunk.
    """
    rolled: list[RolledSegment] = []
    for (first_offset, path), (next_offset, _) in pairwise(_segment_files(directory)):
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            continue
        if size_bytes > SEGMENT_HEADER_BYTES:
            rolled.append(RolledSegment(path, first_offset, next_offset, size_bytes))
    return rolled


def stage(
    segment: RolledSegment,
    stream: StreamId,
    objects: ObjectStore,
    keys: Keys,
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> SegmentRolled:
    """Copy a segment to the staging area, unless one is there, and return what to announce.

    Cost: one PUT, and where one is there, a HEAD.

    The file is read twice, once for its checksum; `on_bytes` is told of each piece of that first pass. Raises
    FileNotFoundError when retention was faster.
    """
    key = keys.staged(stream.incarnation, segment.first_offset, segment.next_offset)
    with segment.path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        checksum = _crc32_of(file, on_bytes)
        file.seek(0)
        try:
            objects.put_new(key, file, size_bytes=size_bytes, crc32=checksum)
        except ObjectExistsError:
            # Staged before; its event may have been lost, and announcing again is harmless. It may be another
            # replica's copy: what is there is to be verified, not compared with this file.
            if (there := objects.info(key)) is not None:
                size_bytes = there.size_bytes
    return SegmentRolled(stream, segment.first_offset, segment.next_offset, size_bytes, objects.bucket, key)


def _segment_files(directory: Path) -> list[tuple[Offset, Path]]:
    matches = ((_SEGMENT_FILE.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((Offset(int(match["first_offset"])), path) for match, path in matches if match)


def _crc32_of(file: BinaryIO, on_bytes: Callable[[int], None]) -> int:
    checksum = 0
    while block := file.read(MIB):
        checksum = crc32(block, checksum)
        on_bytes(len(block))
    return checksum
