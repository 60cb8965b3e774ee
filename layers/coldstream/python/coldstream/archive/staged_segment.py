"""`StagedSegment`: one staged copy of a segment, read by a GET for each 64 MiB, of which a few are in flight.

One connection to S3 brings some 90 MiB a second, less than a function can archive. So while a range is used, the next
ones arrive, and wait on disk: in memory they would not fit. A copy of one range never touches the disk here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import BinaryIO, Self, cast

from coldstream.errors import UnavailableError
from coldstream.flow.window import Window
from coldstream.store.ports import ObjectStore, RangeStream
from coldstream.units import MIB, ByteRange

RANGE_BYTES = 64 * MIB
"""A GET costs the same for any range. Small ones would cost more than the PUTs of what is read."""

RANGES_AHEAD = 3
"""Ranges that arrive, or wait on disk, while one is used; the disk has to hold one more."""

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
        first, self._first = self._first or self._open(0), None  # given away once: it is at its end then
        later = iter(range(RANGE_BYTES, self.size_bytes, RANGE_BYTES))
        is_over = Event()
        files: list[BinaryIO] = []

        def spool(start: int) -> BinaryIO:
            with closing(self._open(start)) as stream, _disk_errors():
                file = cast(
                    "BinaryIO",
                    tempfile.TemporaryFile(dir=self._spool_dir, buffering=0),  # noqa: SIM115  closed with all others
                )
                files.append(file)
                for block in iter(partial(stream.read, BLOCK_BYTES), b""):
                    if is_over.is_set():
                        break  # nobody will read it
                    file.write(block)
                file.seek(0)
            return file

        try:
            with ThreadPoolExecutor(RANGES_AHEAD, thread_name_prefix="staged") as pool, closing(first):
                ahead: Window[BinaryIO] = Window(pool, max_calls=RANGES_AHEAD)
                try:
                    _fill(ahead, spool, later)
                    yield from iter(partial(first.read, BLOCK_BYTES), b"")
                    while len(ahead):
                        file = ahead.take()
                        _fill(ahead, spool, later)
                        with _disk_errors(), file:
                            yield from iter(partial(file.read, BLOCK_BYTES), b"")
                finally:
                    # Before the pool is left, which waits for its threads.
                    is_over.set()
                    ahead.cancel()
        finally:
            for file in files:
                file.close()

    def _open(self, start: int) -> RangeStream:
        byte_range = ByteRange(start, min(start + RANGE_BYTES, self.size_bytes))
        # Without the ETag, a copy staged in the meantime would be spliced onto the beginning of this one.
        return self._objects.open_range(self._key, byte_range, if_match=self.etag)


def _fill(ahead: Window[BinaryIO], spool: Callable[[int], BinaryIO], starts: Iterator[int]) -> None:
    while ahead.has_room() and (start := next(starts, None)) is not None:
        ahead.submit(partial(spool, start))


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise UnavailableError(f"cannot spool a part of a segment to disk: {err}") from err
