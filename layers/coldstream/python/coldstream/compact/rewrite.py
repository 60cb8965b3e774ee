"""Rewrite fragments, of any encoding, as one compressed fragment: `zstd-seekable`.

    read ahead, decompress · verify, cut into frames · compress, decompress again for the CRC-32 · send in parts

Each step has a few threads of its own and waits for the next one, so memory is bounded. The chain of checksums has no
hole: what the new frames decompress to has the CRC-32 of the chunks that were read, and those were read from objects
with the CRC-32s of the manifest. Only then is the object completed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from zlib import crc32

from coldstream.compact.footer import Footer, join_footers
from coldstream.compact.frame_parts import FrameParts
from coldstream.compact.merged_object import MergedObject
from coldstream.compact.part_upload import PartUpload
from coldstream.compact.verifier import read_verified
from coldstream.errors import UnavailableError
from coldstream.flow.frame_sink import FrameSink
from coldstream.format.checksum import combine_crc32
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd
from coldstream.format.seekable import frame_positions
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore


def rewrite(
    objects: ObjectStore,
    key: str,
    group: Group,
    *,
    note: str,
    level: int,
    on_bytes: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> MergedObject:
    """Write the merged fragment to `key`, compressed, with the `note` that is to be its metadata.

    Cost: a GET each 4 MiB of chunks, a PUT each 8 MiB of frames. Raises as `merge` does.
    """
    points = [point.position for point in group.sparse().points]
    cuts = iter(points)
    cut = next(cuts)
    upload = PartUpload(objects, key, lambda _: None, note=note)
    parts_of_frames = FrameParts(upload)
    with (
        closing(read_verified(objects, group, should_stop)) as events,
        upload,
        FrameSink(parts_of_frames.add, level, on_bytes) as sink,
    ):
        sink.write(SEGMENT_HEADER)
        read_crc32 = crc32(SEGMENT_HEADER)
        footers: list[Footer] = []
        for event in events:
            match event:
                case ChunkBytes(view):
                    sink.write(view)
                case ChunkBegin(_, position) if position == cut:
                    # Before the chunk's own bytes come: a range may begin at any point, so a frame has to begin there.
                    sink.cut()
                    cut = next(cuts, 0)
                case ChunkEnd(header, _, chunk_crc32):
                    read_crc32 = combine_crc32(read_crc32, chunk_crc32, header.total_bytes)
                case Footer():
                    footers.append(event)
        sink.cut()  # index and trailer are a frame of their own
        footer = join_footers(footers, group)
        sink.write(footer)
        frames = sink.finish()
        parts_of_frames.flush()
        if (frames.content_bytes, frames.content_crc32) != (group.identity_bytes, crc32(footer, read_crc32)):
            raise UnavailableError(f"{key} was given up: its frames do not decompress to what was compressed")
        parts = upload.settle()
        object_crc32 = 0
        for part in parts:
            assert part.crc32 is not None
            object_crc32 = combine_crc32(object_crc32, part.crc32, part.size_bytes)
        upload.complete(object_crc32)
    object_bytes = sum(part.size_bytes for part in parts)
    return MergedObject(
        object_bytes=object_bytes,
        crc32=object_crc32,
        read_bytes=group.object_bytes,
        sent_bytes=object_bytes,
        frames=Frames(frame_positions(frames.sizes)[1 : 2 + len(points)]),
    )
