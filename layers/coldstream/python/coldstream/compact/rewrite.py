"""Rewrite fragments, of whichever encoding, as one that is compressed: `zstd-seekable`.

    read ahead, decompress · verify, cut into frames · compress, decompress again for the CRC-32 · send in parts

Each step has a few threads of its own, and waits for the next one: memory is bounded. Before the object is completed,
the CRC-32 of what its frames decompress to is that of the fragments read, whose bytes are those of the CRC-32s that the
manifest has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Self
from zlib import crc32

from coldstream.compact.footer import Footer, join_footers
from coldstream.compact.made import Made
from coldstream.compact.parts import PartUpload
from coldstream.compact.source import read_verified
from coldstream.errors import UnavailableError
from coldstream.format.checksum import combine_crc32
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame, decompress_frames, frame_positions
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB

PART_BYTES = 8 * MIB
"""Of a part, at least: a frame is not cut."""

COMPRESSORS = 2
FRAMES_AHEAD_BYTES = 8 * MIB
"""Of frames that wait to be compressed, or for those before them; and one frame more."""


def rewrite(
    objects: ObjectStore,
    key: str,
    group: Group,
    *,
    level: int,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> Made:
    """Write the merged fragment to `key`, compressed. Cost: a GET each 4 MiB of chunks, a PUT each 8 MiB that are left.

    Raises as `merge` does.
    """
    points = [point.position for point in group.sparse().points]
    cuts = iter(points)
    cut = next(cuts)
    with (
        closing(read_verified(objects, group, should_stop)) as events,
        PartUpload(objects, key, lambda _: None) as upload,
        _FrameSink(upload, level, on_bytes) as sink,
    ):
        sink.write(SEGMENT_HEADER)
        read_crc32 = crc32(SEGMENT_HEADER)
        footers: list[Footer] = []
        for event in events:
            match event:
                case ChunkBytes(view):
                    sink.write(view)
                case ChunkBegin(_, position) if position == cut:
                    sink.cut()
                    cut = next(cuts, 0)
                case ChunkEnd(header, _, chunk_crc32):
                    read_crc32 = combine_crc32(read_crc32, chunk_crc32, header.total_bytes)
                case Footer():
                    footers.append(event)
        sink.cut()
        footer = join_footers(footers, group)
        sink.write(footer)
        made = sink.finish()
        if (made.content_bytes, made.content_crc32) != (group.identity_bytes, crc32(footer, read_crc32)):
            raise UnavailableError(f"{key}: what was compressed does not decompress to what was read")
        parts = upload.settle()
        whole_crc32 = 0
        for part in parts:
            assert part.crc32 is not None
            whole_crc32 = combine_crc32(whole_crc32, part.crc32, part.size_bytes)
        upload.complete(whole_crc32)
    object_bytes = sum(part.size_bytes for part in parts)
    return Made(
        object_bytes=object_bytes,
        crc32=whole_crc32,
        read_bytes=group.object_bytes,
        sent_bytes=object_bytes,
        frames=Frames(frame_positions(made.sizes)[1 : 2 + len(points)]),
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame; the CRC-32 is of what it decompresses to."""

    data: bytes
    content_bytes: int
    content_crc32: int

    @classmethod
    def of(cls, content: bytes, level: int) -> Self:
        data = compress_frame(content, level)
        back = decompress_frames(data, len(content), source="a frame just made", position=0)
        return cls(data, len(content), crc32(back))


@dataclass(frozen=True, slots=True)
class _Frames:
    """What became of all frames."""

    sizes: tuple[FrameSize, ...]
    content_bytes: int
    content_crc32: int


class _FrameSink:
    """Compresses what is written from one cut to the next into a frame each, and sends the frames in parts."""

    def __init__(self, upload: PartUpload, level: int, on_bytes: Callable[[int], None]) -> None:
        self._upload = upload
        self._level = level
        self._on_bytes = on_bytes
        self._content: list[bytes | memoryview] = []
        self._ahead: deque[tuple[int, Future[_Frame]]] = deque()
        self._ahead_bytes = 0
        self._part = bytearray()
        self._sizes: list[FrameSize] = []
        self._content_bytes = self._content_crc32 = 0

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(COMPRESSORS, thread_name_prefix="compress")
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(self, view: bytes | memoryview) -> None:
        self._content.append(view)

    def cut(self) -> None:
        """End the frame."""
        content = b"".join(self._content)
        self._content.clear()
        self._ahead.append((len(content), self._pool.submit(_Frame.of, content, self._level)))
        self._ahead_bytes += len(content)
        while self._ahead_bytes > FRAMES_AHEAD_BYTES and len(self._ahead) > 1:
            self._settle()

    def finish(self) -> _Frames:
        """End the last frame, and send what is left, with the seek table."""
        self.cut()
        while self._ahead:
            self._settle()
        self._part += SeekTable(tuple(self._sizes)).to_bytes()
        self._send()
        return _Frames(tuple(self._sizes), self._content_bytes, self._content_crc32)

    def _settle(self) -> None:
        size, future = self._ahead.popleft()
        self._ahead_bytes -= size
        frame = future.result()
        self._sizes.append(FrameSize(len(frame.data), size))
        self._content_bytes += size
        self._content_crc32 = combine_crc32(self._content_crc32, frame.content_crc32, size)
        self._part += frame.data
        if len(self._part) >= PART_BYTES:
            self._send()
        self._on_bytes(size)

    def _send(self) -> None:
        data = bytes(self._part)
        self._part.clear()
        self._upload.add(lambda number: self._upload.put(number, data))
