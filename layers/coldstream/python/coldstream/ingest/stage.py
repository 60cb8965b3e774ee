"""Find the rolled segments of a stream on a broker's disk, and stage a slice of one.

    <data directory>/<incarnation>/<first offset, 20 digits>.segment and .index

The newest segment is the one that the broker writes to: it has not rolled. A rolled segment ends where the next begins,
for the broker names a segment by the offset after the last (osiris_log:open_new_segment/1).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.format.segment import SEGMENT_HEADER_BYTES, segment_paths
from coldstream.ingest.multipart import send
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import Offset


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


def find_rolled(directory: Path) -> list[SegmentSlice]:
    """Return the rolled segments of a stream directory, each a slice of all its chunks, oldest first.

    Files that retention deletes meanwhile are left out, as are those that hold no chunk.
    """
    rolled: list[SegmentSlice] = []
    for (first_offset, path), (next_offset, _) in pairwise(_segment_files(directory)):
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            continue
        if size_bytes > SEGMENT_HEADER_BYTES:
            rolled.append(SegmentSlice(path, first_offset, next_offset, SEGMENT_HEADER_BYTES, size_bytes))
    return rolled


def stage(
    slice_: SegmentSlice,
    stream: StreamId,
    objects: ObjectStore,
    keys: Keys,
    *,
    cut_every_ms: int | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> SegmentRolled:
    """Copy a slice to the staging area, unless one is there, and return what to announce.

    `on_bytes` is called with the size of each part before it is sent, and may block; what is there already is not sent.
    Cost: a HEAD, and where nothing is there one PUT, or what `multipart.send` says, and another HEAD. Raises
    FileNotFoundError when retention was faster, TruncatedError when the file ends before the slice does; after a
    retryable error the next call goes on where this one ended.
    """
    key = keys.staged(stream.incarnation, slice_.first_offset, slice_.next_offset)
    there = objects.info(key)
    if there is None:
        lost: ConflictError | None = None
        try:
            send(slice_, key, objects, on_bytes)
        except ConflictError as err:
            lost = err
        there = objects.info(key)
        if there is None and lost is not None and lost.retryable:
            raise lost
    # Staged before; its event may have been lost, and announcing again is harmless. It may be another replica's copy:
    # what is there is to be verified, not compared with this file. Nothing is there when it was dealt with meanwhile.
    return SegmentRolled(
        stream,
        slice_.first_offset,
        slice_.next_offset,
        size_bytes=slice_.size_bytes if there is None else there.size_bytes,
        bucket=objects.bucket,
        staged_key=key,
        cut_every_ms=cut_every_ms,
        etag=None if there is None else there.etag,
        cluster=keys.cluster,
    )


def _segment_files(directory: Path) -> list[tuple[Offset, Path]]:
    return list(segment_paths(directory.iterdir()).items())
