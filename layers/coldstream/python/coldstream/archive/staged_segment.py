"""`StagedSegment`: one staged copy of a segment, read by a GET for each 64 MiB, of which two are in flight.

One connection to S3 brings some 90 MiB a second, less than a function can archive. So ranges come in pairs: while the
first is used as it arrives, the second arrives, too, and waits on disk, because it would not fit into memory. A copy of
one range never touches the disk here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from errno import ENOSPC
from functools import partial
from os import strerror
from pathlib import Path
from threading import Event
from typing import BinaryIO, Self

from coldstream.archive.spool import disk_errors
from coldstream.archive.spool_files import SpoolFiles
from coldstream.store.ports import ObjectStore, RangeStream
from coldstream.units import MIB, ByteRange

RANGE_BYTES = 64 * MIB
"""A GET costs the same for any range. Small ones would cost more than the PUTs of what is read."""

SPOOLED_RANGES = 2
"""Ranges that the disk has to hold: one that is used, and one that arrives."""

BLOCK_BYTES = MIB
"""Memory: one block for each range that arrives, and the one in use."""


class StagedSegment:
    """One copy of a segment and no other: every read requires its ETag. A context manager."""

    def __init__(self, objects: ObjectStore, key: str, etag: str | None, spool_dir: Path | None = None) -> None:
        """Begin to read the copy. Without `etag`, the copy is the one that is there now.

        Cost: one GET. Raises ObjectNotFoundError, and ReplacedError if another copy is there, as every read does.
        """
        self._objects = objects
        self._key = key
        self._spool_dir = spool_dir
        first = objects.open_range(key, ByteRange(0, RANGE_BYTES), if_match=etag)
        self.etag = first.etag
        self.size_bytes = first.object_bytes
        self._first: RangeStream | None = first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._first is not None:
            self._first.close()

    def blocks(self) -> Generator[bytes, None, None]:
        """Yield the bytes in order, in blocks of up to 1 MiB. Close the generator: its threads read ahead.

        Raises UnavailableError also if the disk is full.
        """
        first, self._first = self._first, None  # given away once: it is at its end then
        starts = iter(range(0, self.size_bytes, RANGE_BYTES))
        is_over = Event()
        opened: list[RangeStream | BinaryIO] = []
        files = SpoolFiles(self._spool_dir)

        def stream(start: int) -> RangeStream:
            found = first if start == 0 and first is not None else self._open(start)
            opened.append(found)
            return found

        def spool(start: int) -> BinaryIO:
            with closing(self._open(start)) as arriving, _disk_errors():
                file = files.lend()
                opened.append(file)
                for block in _blocks_of(arriving):
                    if is_over.is_set():
                        break  # nobody will read it
                    if file.write(block) != len(block):
                        raise OSError(ENOSPC, strerror(ENOSPC))  # of the last, nobody would miss the rest
                file.truncate()  # what an earlier range left there
                file.seek(0)
            return file

        try:
            with ThreadPoolExecutor(1, thread_name_prefix="staged") as pool:
                try:
                    yield from _in_pairs(starts, stream, lambda start: pool.submit(spool, start))
                finally:
                    is_over.set()  # before the pool is left, which waits for its thread
        finally:
            for one in (*opened, *([first] if first is not None else [])):
                one.close()
            files.close()

    def _open(self, start: int) -> RangeStream:
        byte_range = ByteRange(start, min(start + RANGE_BYTES, self.size_bytes))
        # Without the ETag, a copy staged in the meantime would be spliced onto the beginning of this one.
        return self._objects.open_range(self._key, byte_range, if_match=self.etag)


def _in_pairs(
    starts: Iterator[int], stream: Callable[[int], RangeStream], spool: Callable[[int], Future[BinaryIO]]
) -> Iterator[bytes]:
    """Yield the blocks of all ranges: of each pair the first one as it arrives, the second from the disk."""
    start, later = next(starts, None), next(starts, None)
    arriving = None if start is None else stream(start)
    spooled = None if later is None else spool(later)
    while arriving is not None:
        with closing(arriving):
            yield from _blocks_of(arriving)
        start, later = next(starts, None), next(starts, None)
        if spooled is None:
            return
        file = spooled.result()
        # Asked for before the file is used, so that they arrive meanwhile.
        arriving = None if start is None else stream(start)
        spooled = None if later is None else spool(later)
        with _disk_errors(), file:
            yield from _blocks_of(file)


def _blocks_of(source: RangeStream | BinaryIO) -> Iterator[bytes]:
    return iter(partial(source.read, BLOCK_BYTES), b"")


_disk_errors = partial(disk_errors, "a part of a segment")
