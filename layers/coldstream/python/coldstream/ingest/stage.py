"""Find the rolled segments of a stream on a broker's disk, and stage a slice of one.

    <data directory>/<incarnation>/<first offset, 20 digits>.segment and .index

The broker writes to the newest segment: that one has not rolled. A rolled segment ends where the next one begins,
because the broker names a segment by the offset after the last (osiris_log:open_new_segment/1).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from coldstream.archive.borders import QuietSpans
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.multipart import send
from coldstream.ingest.segment_files import segment_files
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore


def find_streams(directory: Path) -> list[Path]:
    """Return the stream directories at or right below a directory, sorted by name.

    `directory` is that of one stream, or a node's directory of all its streams. Raises InvalidInputError when it is
    neither.
    """
    if not directory.is_dir():
        raise InvalidInputError(str(directory), "is not a directory")
    if segment_files(directory):
        return [directory]
    streams = sorted(path for path in directory.iterdir() if path.is_dir() and segment_files(path))
    if not streams:
        raise InvalidInputError(
            str(directory),
            "holds no segment files; give a stream's directory, or a node's, such as …/rabbit@host/stream",
        )
    return streams


def find_rolled(directory: Path) -> list[SegmentSlice]:
    """Return the rolled segments of a stream directory, each a slice of all its chunks, oldest first.

    Leaves out files that hold no chunk, and files that retention deletes meanwhile.
    """
    rolled: list[SegmentSlice] = []
    for (first_offset, path), (next_offset, _) in pairwise(segment_files(directory).items()):
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
    quiet: QuietSpans | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> SegmentRolled:
    """Copy a slice to the staging area, unless a copy is there, and return what to announce.

    `on_bytes` is called with the size of each part before it is sent, and may block. Parts that are there already are
    not sent. Cost: a HEAD; if nothing is there, also one PUT, or the requests of `multipart.send`, and another HEAD.
    Raises FileNotFoundError when retention was faster, TruncatedError when the file ends before the slice does. After a
    retryable error the next call continues where this one ended.
    """
    key = keys.staged(stream.incarnation, slice_.first_offset, slice_.next_offset)
    staged = objects.info(key)
    if staged is None:
        conflict: ConflictError | None = None
        try:
            send(slice_, key, objects, on_bytes)
        except ConflictError as err:
            conflict = err
        # Look again even after a success: the event names the ETag of the copy that is there, which may be another's.
        staged = objects.info(key)
        if staged is None and conflict is not None and conflict.retryable:
            raise conflict
    # An earlier copy is announced again, because its event may have been lost and a second one does no harm. It may be
    # another replica's: the function verifies it, and it is not compared with this file. If no copy is there, the
    # function has dealt with it since.
    return SegmentRolled(
        stream,
        slice_.first_offset,
        slice_.next_offset,
        size_bytes=slice_.size_bytes if staged is None else staged.size_bytes,
        bucket=objects.bucket,
        staged_key=key,
        cut_every_ms=cut_every_ms,
        etag=None if staged is None else staged.etag,
        cluster=keys.cluster,
        quiet=quiet,
    )
