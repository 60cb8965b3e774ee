"""What is replayed: a range of offsets of one incarnation, read ahead of who sends it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from coldstream.errors import GapError
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import Slice, plan_scan, read_slice
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

AHEAD = 6
"""Slices, of about 8 MiB each, that are read before they are asked for."""

Step = tuple[Slice, list[Chunk]] | Gap


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The offsets `start` up to, not including, `end` of a stream; gaps among them are passed over if told so."""

    stream: StreamId
    start: Offset
    end: Offset
    skip_gaps: bool = False


@contextmanager
def read_ahead(
    table: ManifestReads, objects: ObjectReads, source: ReplayRequest, start: Offset
) -> Iterator[Iterator[Step]]:
    """Yield an iterator of the source's slices from `start` on, each with its chunks, and of the gaps.

    It raises GapError where a gap is not to be passed over, after all that comes before it; what `plan_scan` and
    `read_slice` raise. Cost: that of those; AHEAD + 1 slices of memory.
    """
    pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="replay")

    def steps() -> Iterator[Step]:
        waiting: deque[tuple[Slice, Future[list[Chunk]]] | Gap] = deque()
        for step in plan_scan(table, source.stream, start, source.end, exactly=start > source.start):
            waiting.append(step if isinstance(step, Gap) else (step, pool.submit(read_slice, objects, step)))
            if len(waiting) > AHEAD:
                yield taken(waiting.popleft())
        while waiting:
            yield taken(waiting.popleft())

    def taken(step: tuple[Slice, Future[list[Chunk]]] | Gap) -> Step:
        if not isinstance(step, Gap):
            return step[0], step[1].result()
        if not source.skip_gaps:
            raise GapError(str(source.stream), step.first_offset, step.next_offset, step.reason)
        return step

    try:
        yield steps()
    finally:
        pool.shutdown(cancel_futures=True)
