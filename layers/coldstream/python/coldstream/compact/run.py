"""A run: plan the groups of streams, have them written, by threads here or by others, commit each, and sweep.

One thread plans and commits. So the commits of a stream come one after the other, and nothing has to be locked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass

from coldstream.compact.commit import Outcome, commit, finish
from coldstream.compact.options import CompactOptions
from coldstream.compact.plan import groups_of
from coldstream.compact.report import StreamReport
from coldstream.compact.sweep import sweep
from coldstream.compact.task import Failure, Task
from coldstream.compact.write import Written
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms

GIVE_UP_AFTER = 3
"""Groups in a row for which a service did not answer, each after its retries."""


@dataclass(frozen=True, slots=True)
class Compactor:
    """Compacts streams of one archive.

    `write` makes the object of a task, in one of `at_once` threads; it returns what is wrong with that group, and
    raises what is wrong with all. `stop` tells what it has begun to end, when a run ends before that. `on_settled` is
    called with each task that is done with, one way or the other.
    """

    table: ManifestTable
    objects: ObjectStore
    write: Callable[[Task], Written | Failure]
    at_once: int
    stop: Callable[[], None] = lambda: None
    on_settled: Callable[[Task], None] = lambda _: None
    now: Callable[[], TimestampMs] = now_ms

    def run(self, streams: Sequence[StreamId], options: CompactOptions) -> list[StreamReport]:
        """Compact streams, and sweep them; return what became of each.

        Where a group fails the others go on, except when a service does not answer for several in a row: then nothing
        more is begun. Interrupted, what is under way is stopped, and what was written and not committed is deleted.
        """
        reports = {stream: StreamReport(stream) for stream in streams}
        unavailable = 0
        with closing(self._written(self._tasks(reports, options))) as results:
            for task, result in results:
                failure = self._settle(task, result, reports[task.stream])
                self.on_settled(task)
                is_unavailable = failure is not None and issubclass(failure.kind, UnavailableError)
                unavailable = unavailable + 1 if is_unavailable else 0
                if unavailable == GIVE_UP_AFTER:
                    return list(reports.values())
        for stream, report in reports.items():
            try:
                report.swept = sweep(self.table, self.objects, stream.incarnation, self.now())
            except ColdstreamError as err:
                report.failures.append(Failure.of(err))
        return list(reports.values())

    def _tasks(self, reports: dict[StreamId, StreamReport], options: CompactOptions) -> Iterator[Task]:
        policy = options.policy(self.now())
        for stream, report in reports.items():
            try:
                finish(self.table, stream.incarnation, self.now)
                for group in groups_of(self.table, stream.incarnation, policy):
                    yield Task(stream, group, options.encoding, options.level)
            except ColdstreamError as err:
                report.failures.append(Failure.of(err))

    def _written(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Written | Failure]]:
        """Yield tasks as they are written; one more than are at once is planned ahead."""
        under_way: dict[Future[Written | Failure], Task] = {}
        is_whole = False
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="compact") as pool:
            try:
                for task in tasks:
                    under_way[pool.submit(self.write, task)] = task
                    if len(under_way) > self.at_once:
                        yield from _done(under_way)
                while under_way:
                    yield from _done(under_way)
                is_whole = True
            finally:
                # An interrupt may come when a task has begun, and is not among those under way yet.
                if not is_whole:
                    self._abandon(under_way)

    def _abandon(self, under_way: Iterable[Future[Written | Failure]]) -> None:
        self.stop()
        for future in under_way:
            future.cancel()
        for future in under_way:
            if future.cancelled() or future.exception() is not None:
                continue
            result = future.result()
            if isinstance(result, Written):
                with suppress(ColdstreamError):
                    self.objects.delete(result.entry.key)

    def _settle(self, task: Task, result: Written | Failure, report: StreamReport) -> Failure | None:
        """Commit what was written; return the failure there is, if any."""
        if isinstance(result, Failure):
            report.failures.append(result)
            return result
        try:
            outcome = commit(self.table, self.objects, task.stream.incarnation, task.group, result.entry, now=self.now)
        except ColdstreamError as err:
            failure = Failure.of(err, task.group)
            report.failures.append(failure)
            return failure
        report.add(task, result, is_committed=outcome is Outcome.COMMITTED)
        return None


def _done(under_way: dict[Future[Written | Failure], Task]) -> Iterator[tuple[Task, Written | Failure]]:
    """Wait for some to be done, and take those out."""
    done, _ = wait(under_way, return_when=FIRST_COMPLETED)
    for future in done:
        result = future.result()
        yield under_way.pop(future), result
