"""`FrameSink`: a stream of bytes, compressed into the frames of a `zstd-seekable` object.

Whoever writes such objects uses it: compaction and erasure, which send the frames in parts, and the upload, which
spools them. So the format has one writer.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Self
from zlib import crc32

from coldstream.flow.window import Window
from coldstream.format.checksum import combine_crc32
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame, decompress_frames
from coldstream.units import MIB

COMPRESSORS = 2
FRAMES_AHEAD = 64
FRAMES_AHEAD_BYTES = 8 * MIB
"""Content of frames that wait to be compressed, or for an earlier frame; and one frame more."""


@dataclass(frozen=True, slots=True)
class FrameTotals:
    """All frames of an object: their sizes, and the size and the CRC-32 of what they decompress to."""

    sizes: tuple[FrameSize, ...]
    content_bytes: int
    content_crc32: int


@dataclass(frozen=True, slots=True)
class _Frame:
    """A compressed frame; the CRC-32 is that of what it decompresses to."""

    data: bytes
    content_bytes: int
    content_crc32: int

    @classmethod
    def of(cls, content: bytes, level: int) -> Self:
        data = compress_frame(content, level)
        # The CRC-32 of the content would prove nothing about the frame: it is decompressed again.
        decompressed = decompress_frames(data, len(content), source="a frame just compressed", position=0)
        return cls(data, len(content), crc32(decompressed))


class FrameSink:
    """Makes one frame of everything that is written between two cuts, and gives the frames on, in order.

    A context manager. `send` gets the bytes of each frame, and at the end those of the seek table; `on_bytes` is called
    with the size of each frame's content. Both are called in the caller's thread.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        level: int,
        on_bytes: Callable[[int], None] = lambda _: None,
        *,
        ahead_bytes: int = FRAMES_AHEAD_BYTES,
    ) -> None:
        self._send = send
        self._level = level
        self._on_bytes = on_bytes
        self._content: list[bytes | memoryview] = []
        self._sizes: list[FrameSize] = []
        self._content_bytes = self._content_crc32 = 0
        self._pool = ThreadPoolExecutor(COMPRESSORS, thread_name_prefix="compress")
        self._ahead: Window[_Frame] = Window(self._pool, max_calls=FRAMES_AHEAD, max_weight=ahead_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, view: bytes | memoryview) -> None:
        """Add to the frame. The view has to stay as it is until `cut`."""
        self._content.append(view)

    def cut(self) -> None:
        """End the frame."""
        content = b"".join(self._content)
        self._content.clear()
        # Asked without the new frame's weight: two large frames may be compressed at the same time.
        while not self._ahead.has_room():
            self._take()
        self._ahead.submit(partial(_Frame.of, content, self._level), len(content))

    def finish(self) -> FrameTotals:
        """End the last frame, and send what is left, with the seek table."""
        self.cut()
        while len(self._ahead):
            self._take()
        self._send(SeekTable(tuple(self._sizes)).to_bytes())
        return FrameTotals(tuple(self._sizes), self._content_bytes, self._content_crc32)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _take(self) -> None:
        """Take the oldest frame: frames lie in the object in the order of their content."""
        frame = self._ahead.take()
        self._sizes.append(FrameSize(len(frame.data), frame.content_bytes))
        self._content_bytes += frame.content_bytes
        self._content_crc32 = combine_crc32(self._content_crc32, frame.content_crc32, frame.content_bytes)
        self._send(frame.data)
        self._on_bytes(frame.content_bytes)
