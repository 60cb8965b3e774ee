"""A compaction run: plan the groups of streams, have them written, commit each, and sweep at the end.

Writing is done by threads here, or by other processes for which the threads wait. Planning and committing is done by
the caller's thread alone, so the commits of one run never race each other and need no lock. Other runs are other
writers like any: `commit` deals with them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass

from coldstream.compact.commit import CommitOutcome, commit
from coldstream.compact.options import CompactOptions
from coldstream.compact.plan import find_groups
from coldstream.compact.report import CompactionReport
from coldstream.compact.task import CompactionTask, GroupFailure
from coldstream.compact.write import MergedFragment
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.lifecycle.sweep import SweepReport
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.discard import discard
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms

GIVE_UP_AFTER = 3
"""Groups in a row for which a service did not answer, each after its retries."""

WriteResult = MergedFragment | GroupFailure


@dataclass(frozen=True, slots=True)
class Compactor:
    """Compacts streams of one archive.

    `write` makes the object of a task; it is called in `at_once` threads. It returns what is wrong with that group, and
    raises what is wrong with all of them. `stop` tells all that `write` has begun to end; it is called if a run ends
    early. `on_settled` is called with each task that is done with, whether it failed or not. `sweep` deletes what is
    due of a stream (`lifecycle.sweep`); by default nothing is.
    """

    table: ManifestTable
    objects: ObjectStore
    write: Callable[[CompactionTask], WriteResult]
    at_once: int
    stop: Callable[[], None] = lambda: None
    on_settled: Callable[[CompactionTask], None] = lambda _: None
    sweep: Callable[[Incarnation], SweepReport] = lambda _: SweepReport()
    now: Callable[[], TimestampMs] = now_ms

    def run(self, streams: Sequence[StreamId], options: CompactOptions) -> list[CompactionReport]:
        """Compact streams, sweep them, and return a report of each.

        If a group fails, the others go on. If a service does not answer for GIVE_UP_AFTER groups in a row, nothing more
        is begun. If the run is interrupted, `stop` is called, and objects that were written and not committed are
        discarded.
        """
        reports = {stream: CompactionReport(stream) for stream in streams}
        unanswered = 0
        with closing(self._write_all(self._plan(reports, options))) as results:
            for task, result in results:
                failure = self._settle(task, result, reports[task.stream], options.grace_ms)
                self.on_settled(task)
                is_unanswered = failure is not None and issubclass(failure.kind, UnavailableError)
                unanswered = unanswered + 1 if is_unanswered else 0
                if unanswered == GIVE_UP_AFTER:
                    return list(reports.values())
        for stream, report in reports.items():
            try:
                report.swept = self.sweep(stream.incarnation)
            except ColdstreamError as err:
                report.failures.append(GroupFailure.of(err))
        return list(reports.values())

    def _plan(self, reports: dict[StreamId, CompactionReport], options: CompactOptions) -> Iterator[CompactionTask]:
        """Yield the tasks of all streams, planned as they are asked for; what fails in a stream ends only that one."""
        policy = options.policy(self.now())
        for stream, report in reports.items():
            try:
                # An unfinished commit holds two entries for the same offsets: nothing is planned on those.
                finish(self.table, stream.incarnation, self.now, options.grace_ms)
                for group in find_groups(self.table, stream.incarnation, policy):
                    # Asked for each group: a task that is planned late must not get a key that was fenced off since.
                    head = self.table.head(stream.incarnation)
                    generation = 0 if head is None else head.generation
                    yield CompactionTask(stream, group, options.encoding, options.level, generation)
            except ColdstreamError as err:
                report.failures.append(GroupFailure.of(err))

    def _write_all(self, tasks: Iterable[CompactionTask]) -> Generator[tuple[CompactionTask, WriteResult]]:
        """Yield tasks with their results, in the order in which they end; plan one more than are written at once.

        That order, and not the order of the tasks, is why this is no `Window`: one large group would hold up the
        commits of all others.
        """
        under_way: dict[Future[WriteResult], CompactionTask] = {}
        is_complete = False
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="compact") as pool:
            try:
                for task in tasks:
                    under_way[pool.submit(self.write, task)] = task
                    if len(under_way) > self.at_once:
                        yield from _take_completed(under_way)
                while under_way:
                    yield from _take_completed(under_way)
                is_complete = True
            finally:
                # Not "if under_way": an interrupt may come after `submit` began a task and before it is in the dict.
                # Without `stop` the pool would then wait for that task to its end.
                if not is_complete:
                    self._abandon(under_way)

    def _abandon(self, under_way: Mapping[Future[WriteResult], CompactionTask]) -> None:
        """Stop what is under way, and discard what was written: nobody commits it any more."""
        self.stop()
        # All are cancelled before the first is waited for: the pool would begin the others meanwhile.
        for future in under_way:
            future.cancel()
        for future, task in under_way.items():
            if future.cancelled() or future.exception() is not None:
                continue
            result = future.result()
            if isinstance(result, MergedFragment):
                with suppress(ColdstreamError):
                    discard(self.table, task.stream.incarnation, (result.entry,), self.now)

    def _settle(
        self, task: CompactionTask, result: WriteResult, report: CompactionReport, grace_ms: int
    ) -> GroupFailure | None:
        """Commit what was written; return the failure if there is one."""
        if isinstance(result, GroupFailure):
            report.failures.append(result)
            return result
        try:
            incarnation, group = task.stream.incarnation, task.group
            outcome = commit(self.table, incarnation, group, result.entry, now=self.now, grace_ms=grace_ms)
        except ColdstreamError as err:
            failure = GroupFailure.of(err, task.group)
            report.failures.append(failure)
            return failure
        report.add(task, result, is_committed=outcome is CommitOutcome.COMMITTED)
        return None


def _take_completed(
    under_way: dict[Future[WriteResult], CompactionTask],
) -> Iterator[tuple[CompactionTask, WriteResult]]:
    """Wait until at least one call has ended, and take all that have."""
    completed, _ = wait(under_way, return_when=FIRST_COMPLETED)
    for future in completed:
        # Taken out one by one: if the run ends at this `yield`, `_abandon` still finds the others and deletes their
        # objects.
        result = future.result()
        yield under_way.pop(future), result
