"""`StagedSegment`: one staged copy of a segment, read by a GET for each 64 MiB, of which four may be in flight.

One connection to S3 brings some 90 MiB a second, less than a function can archive. So ranges come in groups: while the
first is used as it arrives, the others arrive, too, and wait on disk, because they would not fit into memory. Where one
connection is as fast as who uses it, and of a copy of one range, nothing touches the disk here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from errno import ENOSPC
from functools import partial
from itertools import islice
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

RANGES_AT_ONCE = 4
"""A group: the first range is never on disk."""

SPOOLED_RANGES = 2 * (RANGES_AT_ONCE - 1)
"""Ranges that the disk has to hold: those that are used, and those of the next group, which arrive."""

JUDGED_BLOCKS = 8
"""Blocks of a range that show how long is waited for it."""

MOST_WAITING = 0.5
"""Share of the time that may be waited for one range: with more, others are asked for at once."""

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
            with ThreadPoolExecutor(RANGES_AT_ONCE - 1, thread_name_prefix="staged") as pool:
                try:
                    yield from _in_groups(starts, stream, lambda start: pool.submit(spool, start))
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


def _in_groups(
    starts: Iterator[int], stream: Callable[[int], RangeStream], spool: Callable[[int], Future[BinaryIO]]
) -> Iterator[bytes]:
    """Yield the blocks of all ranges: of each group the first one as it arrives, the others from the disk.

    Until a range has turned out to arrive more slowly than it is used, there are no others: they would gain nothing,
    and cost a way through the disk.
    """

    def ask() -> list[Future[BinaryIO]]:
        return [spool(start) for start in islice(starts, RANGES_AT_ONCE - 1)]

    start, is_slow = next(starts, None), False
    arriving = None if start is None else stream(start)
    spooled: list[Future[BinaryIO]] = []
    while arriving is not None:
        with closing(arriving):
            began, waited_s = time.monotonic(), 0.0
            for number, (block, took_s) in enumerate(_timed(_blocks_of(arriving)), 1):
                waited_s += took_s
                if number == JUDGED_BLOCKS and not is_slow and waited_s > MOST_WAITING * (time.monotonic() - began):
                    is_slow, spooled = True, ask()
                yield block
        before = spooled
        # Asked for before the files are used, so that they arrive meanwhile.
        start = next(starts, None)
        arriving = None if start is None else stream(start)
        spooled = ask() if is_slow else []
        for future in before:
            with _disk_errors(), future.result() as file:
                yield from _blocks_of(file)


def _timed(blocks: Iterator[bytes]) -> Iterator[tuple[bytes, float]]:
    """Yield blocks, each with the seconds that it took to get it."""
    while True:
        began = time.monotonic()
        block = next(blocks, None)
        if block is None:
            return
        yield block, time.monotonic() - began


def _blocks_of(source: RangeStream | BinaryIO) -> Iterator[bytes]:
    return iter(partial(source.read, BLOCK_BYTES), b"")


_disk_errors = partial(disk_errors, "a part of a segment")
