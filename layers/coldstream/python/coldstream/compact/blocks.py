"""The objects of a group, of any encoding, read in order as blocks, while the next blocks are on their way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from zlib import crc32

from coldstream.errors import BadLengthError, BadSequenceError, StoppedError
from coldstream.flow.window import Window
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.seekable import SeekTable, decompress_frames, frame_positions
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore, RangeRead
from coldstream.units import MIB, ByteRange

BLOCK_BYTES = 4 * MIB
"""A block has at least so many bytes of chunks; a compressed object is cut only between frames."""

AHEAD_BYTES = 3 * BLOCK_BYTES
"""Memory of the blocks that are read before they are needed. One larger block is admitted alone."""

READS_AT_ONCE = 4
BLOCKS_AHEAD = READS_AT_ONCE + 1
"""One more than are read, so that no thread waits while the caller works on a block."""


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A range of an entry's object, and how many bytes of the identity fragment it holds. The last has the footer."""

    entry: FragmentEntry
    byte_range: ByteRange
    content_bytes: int
    is_last: bool

    @property
    def weight_bytes(self) -> int:
        """About what the block takes in memory: the content, and for a compressed one also what was received."""
        return self.content_bytes if self.entry.frames is None else self.content_bytes + len(self.byte_range)


@dataclass(frozen=True, slots=True)
class Block:
    """The next bytes of the identity fragment. `crc32` is that of the object's bytes from which they were decoded."""

    plan: BlockPlan
    content: memoryview
    crc32: int
    etag: str


def plan_blocks(entry: FragmentEntry) -> Iterator[BlockPlan]:
    """Cut an object into blocks, in order; together they hold every byte of it."""
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
    """Yield the blocks of all objects. Memory: AHEAD_BYTES, the block in the caller's hands, and one larger block.

    Raises ObjectNotFoundError, StoppedError, BadLengthError if an object does not have the size that the manifest says,
    and CorruptionError if it cannot be decompressed.
    """

    def read(plan: BlockPlan) -> Block:
        found = objects.get_range(plan.entry.key, plan.byte_range)
        _check_size(plan, found)
        return Block(plan, _content_of(plan, found.data), crc32(found.data), found.etag)

    pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")
    ahead: Window[Block] = Window(pool, max_calls=BLOCKS_AHEAD, max_weight=AHEAD_BYTES)
    try:
        for plan in chain.from_iterable(map(plan_blocks, group.entries)):
            while not ahead.has_room(plan.weight_bytes):
                # Asked before each block, not before each read: what is stopped ends within a block.
                if should_stop():
                    raise StoppedError(f"stopped before {plan.entry.key} was read")
                yield ahead.take()
            ahead.submit(partial(read, plan), plan.weight_bytes)
        while len(ahead):
            yield ahead.take()
    finally:
        # A caller that gives up closes this generator: reads that have not begun are not begun.
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
    """Compare the seek table with the manifest; return its size."""
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
