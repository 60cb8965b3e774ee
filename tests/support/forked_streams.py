"""Two histories of one stream: the same chunks up to a fork, and others of the same offsets and sizes behind it."""

from __future__ import annotations

import random
from pathlib import Path

from coldstream.agent.recording.recorded_chunk import record_chunk, tracking_fillers
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter
from coldstream.units import Epoch, Offset, TimestampMs
from tests.support.segments import START

NEVER = 1 << 30


def write_history(
    directory: Path,
    *,
    chunks: int = 120,
    forks_at: int = NEVER,
    epoch_behind: int = 1,
    ms_behind: int = 0,
    max_segment_bytes: int = 40_000,
) -> Path:
    """Write one: from chunk `forks_at` on its messages are others, of the same sizes; or its epoch or its times.

    The epoch is 1 before the fork; where times or the epoch differ, messages do not.
    """
    directory.mkdir(parents=True)
    only_headers = epoch_behind != 1 or ms_behind != 0
    with SegmentWriter(directory, max_segment_bytes=max_segment_bytes) as writer:
        for number in range(chunks):
            is_behind = number >= forks_at
            sizes = random.Random(f"sizes {number}")
            content = random.Random(f"{number} {is_behind and not only_headers}")
            messages = [content.randbytes(sizes.randrange(50, 600)) for _ in range(sizes.randrange(1, 9))]
            tracking = []
            if number % 7 == 3:
                tracking = [TrackingRecord(TrackingType.OFFSET, b"consumer", Offset(number))]
            writer.write(
                [] if number % 14 == 10 else messages,
                timestamp=TimestampMs(START + number * 1000 + (ms_behind if is_behind else 0)),
                epoch=Epoch(epoch_behind if is_behind else 1),
                tracking=tracking,
            )
    return directory


def rebuild(segment: bytes) -> bytes:
    """Make of a segment what an agent makes that is sent its user chunks; it has to end in one."""
    out = bytearray(SEGMENT_HEADER)
    expected = None
    for chunk in iter_chunks(segment[SEGMENT_HEADER_BYTES:], source="segment"):
        header = chunk.header
        expected = header.chunk_id if expected is None else expected
        if header.type is not ChunkType.USER:
            continue
        for tracking in tracking_fillers(header, Offset(expected)):
            out += tracking
        out += record_chunk(chunk)
        expected = header.next_offset
    return bytes(out)
