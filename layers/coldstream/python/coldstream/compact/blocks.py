"""Blocks: the objects of a group read in order, whichever encoding they have, with the next ones under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from coldstream.errors import BadLengthError, BadSequenceError, StoppedError
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.seekable import SeekTable, decompress_frames, frame_positions
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore, RangeRead
from coldstream.units import MIB, ByteRange

BLOCK_BYTES = 4 * MIB
"""Of chunks in one block, at least; what is compressed is cut where frames are."""

AHEAD_BYTES = 3 * BLOCK_BYTES
"""Of blocks that are read before they are needed, and one more."""

READS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A range of an entry's object, and how much of the identity fragment is in it. The last one has the footer."""

    entry: FragmentEntry
    byte_range: ByteRange
    content_bytes: int
    is_last: bool

    @property
    def weight_bytes(self) -> int:
        """What it takes in memory, about: as it comes, and decompressed."""
        return self.content_bytes if self.entry.frames is None else self.content_bytes + len(self.byte_range)


@dataclass(frozen=True, slots=True)
class Block:
    """The next bytes of the identity fragment. `crc32` is of the bytes of the object that they were made of."""

    plan: BlockPlan
    content: memoryview
    crc32: int
    etag: str


def plan_blocks(entry: FragmentEntry) -> Iterator[BlockPlan]:
    """Cut an object into blocks, in order, without a byte left out."""
    identity_bytes = Group((entry,)).identity_bytes
    if entry.frames is None:
        starts = range(0, identity_bytes, BLOCK_BYTES)
        for start, end in pairwise((*starts, identity_bytes)):
            yield BlockPlan(entry, ByteRange(start, end), end - start, end == identity_bytes)
        return
    data_end = FRAGMENT_HEADER_BYTES + entry.data_bytes
    contents = [*(point.position for point in entry.sparse.points), data_end]
    yield BlockPlan(entry, ByteRange(0, entry.frames.positions[0]), FRAGMENT_HEADER_BYTES, is_last=False)
    first = 0
    for following in range(1, len(contents)):
        content_bytes = contents[following] - contents[first]
        if content_bytes >= BLOCK_BYTES or following == len(contents) - 1:
            yield BlockPlan(entry, entry.frames.byte_range(first, following), content_bytes, is_last=False)
            first = following
    rest = ByteRange(entry.frames.positions[-1], entry.object_bytes)
    yield BlockPlan(entry, rest, identity_bytes - data_end, is_last=True)


def read_blocks(objects: ObjectStore, group: Group, should_stop: Callable[[], bool]) -> Generator[Block, None, None]:
    """Yield the blocks of all objects. Memory: AHEAD_BYTES and two blocks; a frame or chunk larger than those, too.

    Raises ObjectNotFoundError, BadLengthError where an object is not of its size, CorruptionError where it cannot be
    decompressed, StoppedError.
    """

    def read(plan: BlockPlan) -> Block:
        found = objects.get_range(plan.entry.key, plan.byte_range)
        _check_size(plan, found)
        return Block(plan, _content_of(plan, found.data), crc32(found.data), found.etag)

    ahead: deque[tuple[BlockPlan, Future[Block]]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")
    try:
        for entry in group.entries:
            for plan in plan_blocks(entry):
                while ahead and (ahead_bytes + plan.weight_bytes > AHEAD_BYTES or len(ahead) > READS_AT_ONCE):
                    before, future = ahead.popleft()
                    ahead_bytes -= before.weight_bytes
                    if should_stop():
                        raise StoppedError(f"{plan.entry.key} is not read")
                    yield future.result()
                ahead.append((plan, pool.submit(read, plan)))
                ahead_bytes += plan.weight_bytes
        while ahead:
            yield ahead.popleft()[1].result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check_size(plan: BlockPlan, found: RangeRead) -> None:
    key, expected = plan.entry.key, plan.entry.object_bytes
    if found.object_bytes != expected:
        raise BadLengthError(key, 0, "size of the object", expected=expected, found=found.object_bytes)


def _content_of(plan: BlockPlan, data: bytes) -> memoryview:
    frames, view = plan.entry.frames, memoryview(data)
    if frames is None:
        return view
    if plan.is_last:
        view = view[: len(view) - _check_table(plan, frames, view)]
    return decompress_frames(view, plan.content_bytes, source=plan.entry.key, position=plan.byte_range.start)


def _check_table(plan: BlockPlan, frames: Frames, view: memoryview) -> int:
    """Hold the seek table to the manifest; return its size."""
    entry = plan.entry
    table = SeekTable.from_bytes(view, source=entry.key, object_bytes=entry.object_bytes)
    size = len(table.to_bytes())
    found = frame_positions(table.frames)[1 : 1 + len(frames.positions)]
    if found != frames.positions:
        raise BadSequenceError(
            entry.key,
            entry.object_bytes - size,
            "positions of frames in the seek table, as the manifest has them",
            expected=frames.positions[:4],
            found=found[:4],
        )
    return size
