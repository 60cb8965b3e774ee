"""`BlockPlans`: which blocks hold what of the archive, so that readers of one place share one plan of a scan.

A block is one step of a fragment's sparse index, about a MiB: its borders depend on the object alone, never on where
somebody began to read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice

from coldstream.errors import GapError
from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan
from coldstream.store.ports import ManifestReads
from coldstream.streams.cache.block import retrieve
from coldstream.units import Offset

MAX_STREAMS = 256
"""Streams whose plans are kept, those that were read last."""

MAX_PLANS = 4
"""Plans that are kept of one stream: one for each place that is being read."""

MAX_PASSED_STEPS = 32
"""Blocks that a plan keeps after a reader has passed them, for those that come after it."""

PULL_STEPS = 16
"""How many blocks are taken from a scan at a time, by one call of a thread."""


@dataclass(slots=True, eq=False)
class _StreamPlan:
    """Steps of one scan, one after the other from `begin` on, and where the rest of them comes from."""

    begin: Offset
    scan: Iterator[ScanSlice | Gap]
    steps: list[ScanSlice] = field(default_factory=list)
    gap: Gap | None = None
    is_done: bool = False
    # One at a time, for all who wait: an iterator runs in one thread only.
    pull: asyncio.Task[None] | None = None

    @property
    def end(self) -> Offset:
        return self.steps[-1].end if self.steps else self.begin

    def leads_to(self, offset: Offset) -> bool:
        """Tell whether the plan has the block at `offset`, or can come to it next."""
        return self.begin <= offset < self.end or (offset == self.end and not self.is_done)

    def from_offset(self, offset: Offset) -> list[ScanSlice]:
        return self.steps[bisect_right(self.steps, offset, key=_end) :]

    def forget_before(self, offset: Offset) -> None:
        passed = len(self.steps) - len(self.from_offset(offset))
        if passed > 2 * MAX_PASSED_STEPS:
            del self.steps[: passed - MAX_PASSED_STEPS]
            self.begin = self.steps[0].start


class BlockPlans:
    """Plans of what was read last. They may be older than a compaction: `forget` is for whoever met that."""

    def __init__(self, table: ManifestReads, executor: Executor) -> None:
        self._table = table
        self._executor = executor
        self._plans: OrderedDict[Incarnation, list[_StreamPlan]] = OrderedDict()
        self.begun = 0
        """Plans that were begun: each costs a GetItem, and a Query for every 200 fragments that a reader comes to."""

    async def steps(self, stream: StreamId, start: Offset, data_bytes: int) -> list[ScanSlice]:
        """Return consecutive blocks from the one that holds `start` on, at least so many bytes if there are.

        None at all means that the archive ends at `start` or before. Cost: nothing for what is planned already, else
        that of `plan_scan`. Raises GapError if `start` is in a gap, StreamNotFoundError.
        """
        plan = self._plan_at(stream, start)
        found = plan.from_offset(start)
        while not plan.is_done and sum(step.data_bytes for step in found) < data_bytes:
            if plan.pull is None:
                plan.pull = asyncio.create_task(self._pull(stream.incarnation, plan))
                plan.pull.add_done_callback(retrieve)
            await asyncio.shield(plan.pull)  # whoever is cancelled leaves it to the others
            found = plan.from_offset(start)
        if not found:
            # It ends here, and the archive may grow: whoever asks again plans again.
            self._drop(stream.incarnation, plan)
            if plan.gap is not None:
                raise GapError(str(stream), plan.gap.first_offset, plan.gap.next_offset, plan.gap.reason)
        plan.forget_before(start)
        return found

    def forget(self, incarnation: Incarnation) -> None:
        """Plan a stream anew: an object of its plan is gone."""
        self._plans.pop(incarnation, None)

    def _plan_at(self, stream: StreamId, start: Offset) -> _StreamPlan:
        plans = self._plans.setdefault(stream.incarnation, [])
        self._plans.move_to_end(stream.incarnation)
        for plan in plans:
            if plan.leads_to(start):
                return plan
        # `slice_bytes` of 1 gives a slice for each step of the sparse index.
        plan = _StreamPlan(start, plan_scan(self._table, stream, start, exactly=True, slice_bytes=1))
        plans.append(plan)
        self.begun += 1
        del plans[:-MAX_PLANS]
        if len(self._plans) > MAX_STREAMS:
            self._plans.popitem(last=False)
        return plan

    async def _pull(self, incarnation: Incarnation, plan: _StreamPlan) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._executor, list[ScanSlice | Gap], islice(plan.scan, PULL_STEPS))
        except BaseException:
            # An iterator that raised has ended: the next reader needs another.
            plan.is_done = True
            self._drop(incarnation, plan)
            raise
        finally:
            plan.pull = None
        for step in found:
            if isinstance(step, Gap):
                plan.gap, plan.is_done = step, True
                return
            plan.steps.append(step)
        plan.is_done = len(found) < PULL_STEPS

    def _drop(self, incarnation: Incarnation, plan: _StreamPlan) -> None:
        plans = self._plans.get(incarnation, [])
        if plan in plans:
            plans.remove(plan)
            if not plans:
                del self._plans[incarnation]


def _end(step: ScanSlice) -> Offset:
    return step.end
