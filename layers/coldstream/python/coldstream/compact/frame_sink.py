"""Compression of a stream of bytes into the frames of a `zstd-seekable` object, sent in parts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Self
from zlib import crc32

from awscrt.checksums import combine_crc32

from coldstream.compact.part_upload import PartUpload
from coldstream.flow.window import Window
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame, decompress_frames
from coldstream.units import MIB

PART_BYTES = 8 * MIB
"""A part has at least so many bytes: a frame is never divided."""

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
    """Makes one frame of everything that is written between two cuts, and sends the frames in parts.

    A context manager. `on_bytes` is called, in the caller's thread, with the size of each frame's content.
    """

    def __init__(self, upload: PartUpload, level: int, on_bytes: Callable[[int], None]) -> None:
        self._upload = upload
        self._level = level
        self._on_bytes = on_bytes
        self._content: list[bytes | memoryview] = []
        self._part = bytearray()
        self._sizes: list[FrameSize] = []
        self._content_bytes = self._content_crc32 = 0

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(COMPRESSORS, thread_name_prefix="compress")
        self._ahead: Window[_Frame] = Window(self._pool, max_calls=FRAMES_AHEAD, max_weight=FRAMES_AHEAD_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

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
        self._part += SeekTable(tuple(self._sizes)).to_bytes()
        self._send()
        return FrameTotals(tuple(self._sizes), self._content_bytes, self._content_crc32)

    def _take(self) -> None:
        """Take the oldest frame: frames lie in the object in the order of their content."""
        frame = self._ahead.take()
        self._sizes.append(FrameSize(len(frame.data), frame.content_bytes))
        self._content_bytes += frame.content_bytes
        self._content_crc32 = combine_crc32(self._content_crc32, frame.content_crc32, frame.content_bytes)
        self._part += frame.data
        if len(self._part) >= PART_BYTES:
            self._send()
        self._on_bytes(frame.content_bytes)

    def _send(self) -> None:
        # A copy: the buffer takes the next frames while a thread is still sending these.
        data = bytes(self._part)
        self._part.clear()
        self._upload.add(lambda number: self._upload.put(number, data))
