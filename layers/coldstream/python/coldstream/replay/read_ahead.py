"""The slices of a replay, read ahead of whoever sends them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from coldstream.errors import GapError
from coldstream.flow.window import map_ahead
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.replay.request import ReplayRequest
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

SLICES_AHEAD = 10
"""Slices, of about 8 MiB each, that are read before they are asked for."""

Step = tuple[ScanSlice, list[Chunk]] | Gap


@contextmanager
def read_ahead(
    table: ManifestReads, objects: ObjectReads, request: ReplayRequest, start: Offset
) -> Iterator[Iterator[Step]]:
    """Yield an iterator of the request's slices from `start` on, each with its chunks, and of the gaps.

    It raises GapError at a gap that is not to be skipped, after all that comes before the gap, and what `plan_scan` and
    `read_slice` raise. Memory: SLICES_AHEAD + 1 slices.
    """

    def read(step: ScanSlice | Gap) -> Step:
        return step if isinstance(step, Gap) else (step, read_slice(objects, step))

    def steps() -> Iterator[Step]:
        plan = plan_scan(table, request.stream, start, request.end, exactly=start > request.start)
        for step in map_ahead(pool, read, plan, max_calls=SLICES_AHEAD + 1):
            if isinstance(step, Gap) and not request.skip_gaps:
                raise GapError(str(request.stream), step.first_offset, step.next_offset, step.reason)
            yield step

    pool = ThreadPoolExecutor(SLICES_AHEAD, thread_name_prefix="replay")
    try:
        yield steps()
    finally:
        # Not `with pool`, which would first read every slice that is queued, though nobody takes it.
        pool.shutdown(cancel_futures=True)
