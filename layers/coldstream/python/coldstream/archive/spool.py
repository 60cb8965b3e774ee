"""Spools: a fragment on its way, in an unlinked temporary file, so that its size costs disk space and not memory.

PlainSpool    encoding `identity`: the bytes as they come
FrameSpool    encoding `zstd-seekable`: compressed as they come, into the frames that compaction writes, too
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast
from zlib import crc32

from coldstream.archive.spool_files import SpoolFiles
from coldstream.errors import UnavailableError
from coldstream.manifest.frames import Frames
from coldstream.units import MIB

SPOOL_BUFFER_BYTES = 256 << 10

WRITE_BYTES = MIB
"""A file system takes a write of this size for half of the processor time of many small ones, in larger pages."""

MAX_PIECES = 512
"""Pieces of one write; Linux takes 1024."""

AHEAD_BYTES = 3 * MIB
"""Chunks that wait to be compressed: enough for both compressors, and half of what compaction may take."""


@dataclass(frozen=True, slots=True)
class SpooledObject:
    """A complete object, `body` at its first byte. `frames` are those of a compressed one."""

    body: BinaryIO
    size_bytes: int
    crc32: int
    frames: Frames | None = None


class PlainSpool:
    """A fragment as it is. Every method but `discard` raises UnavailableError if the disk is full.

    Memory: the pieces of one write. They are views, which keep alive the blocks that they came in.
    """

    def __init__(self, directory: Path | None, files: SpoolFiles | None = None) -> None:
        """Begin in one of `files`, or in a file of its own."""
        with _disk_errors():
            self._body = _open(directory, buffer_bytes=0) if files is None else files.lend()
        self._pieces: list[bytes | memoryview] = []
        self._size_bytes = 0  # of the pieces

    def write(self, view: bytes | memoryview) -> None:
        """Take the next bytes. The view has to stay as it is until they are written."""
        self._pieces.append(view)
        self._size_bytes += len(view)
        if self._size_bytes >= WRITE_BYTES or len(self._pieces) == MAX_PIECES:
            self._flush()

    def cut(self) -> None:
        """Take note that a point of the sparse index comes next, which nothing follows from here."""

    def finish(self, footer: bytes, identity_bytes: int, identity_crc32: int, *, points: int) -> SpooledObject:  # noqa: ARG002  as the other
        """End the fragment, which has these points, size and CRC-32 with its footer."""
        self.write(footer)
        self._flush()
        with _disk_errors():
            self._body.truncate()  # what an earlier fragment left in a file that is used again
            self._body.seek(0)
        return SpooledObject(self._body, identity_bytes, identity_crc32)

    def discard(self) -> None:
        """Free the disk."""
        self._pieces.clear()
        self._body.close()

    def _flush(self) -> None:
        with _disk_errors():
            while self._pieces:
                written = os.writev(self._body.fileno(), self._pieces)
                if written == self._size_bytes:
                    self._pieces.clear()
                    break
                self._size_bytes -= written
                while self._pieces and written >= len(self._pieces[0]):
                    written -= len(self._pieces.pop(0))
                if written:  # a disk that fills up takes a part; the rest then raises
                    self._pieces[0] = memoryview(self._pieces[0])[written:]
        self._size_bytes = 0


class FrameSpool:
    """A fragment, compressed: as `PlainSpool`. Memory: the frames that are compressed ahead (`flow.frame_sink`)."""

    def __init__(self, directory: Path | None, level: int) -> None:
        # Imported here because it loads zstandard, which most functions need for nothing else.
        from coldstream.flow.frame_sink import FrameSink  # noqa: PLC0415

        self._body = _open(directory)
        self._size_bytes = self._crc32 = 0
        self._sink = FrameSink(self._spool, level, ahead_bytes=AHEAD_BYTES)

    def write(self, view: bytes | memoryview) -> None:
        """Take the next bytes. The view has to stay as it is until the frame is compressed."""
        self._sink.write(view)

    def cut(self) -> None:
        """End the frame: a point of the sparse index comes next."""
        with _disk_errors():
            self._sink.cut()

    def finish(self, footer: bytes, identity_bytes: int, identity_crc32: int, *, points: int) -> SpooledObject:
        """End the fragment, which has these points, and this size and CRC-32 in the identity encoding.

        Raises UnavailableError also if its frames do not decompress to that.
        """
        from coldstream.format.seekable import frame_positions  # noqa: PLC0415  loads zstandard

        self.cut()  # index and trailer are a frame of their own
        self._sink.write(footer)
        with _disk_errors():
            totals = self._sink.finish()
            self._body.seek(0)
        self._sink.close()
        if (totals.content_bytes, totals.content_crc32) != (identity_bytes, identity_crc32):
            raise UnavailableError("a fragment was given up: its frames do not decompress to what was compressed")
        frames = Frames(frame_positions(totals.sizes)[1 : 2 + points])
        return SpooledObject(self._body, self._size_bytes, self._crc32, frames)

    def discard(self) -> None:
        """Free the disk, and end the threads."""
        self._sink.close()
        with suppress(OSError):
            self._body.close()

    def _spool(self, data: bytes) -> None:
        self._body.write(data)
        self._size_bytes += len(data)
        self._crc32 = crc32(data, self._crc32)


def _open(directory: Path | None, *, buffer_bytes: int = SPOOL_BUFFER_BYTES) -> BinaryIO:
    with _disk_errors():
        return cast("BinaryIO", tempfile.TemporaryFile(dir=directory, buffering=buffer_bytes))


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Raise UnavailableError for a disk that takes no more of `what` is spooled."""
    try:
        yield
    except OSError as err:
        raise UnavailableError(f"cannot spool {what} to disk: {err}") from err


_disk_errors = partial(disk_errors, "a fragment")
