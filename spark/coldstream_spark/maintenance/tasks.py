"""Tasks on executors: each a Spark job of its own, some at a time, with results in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from coldstream.errors import ColdstreamError
from coldstream.flow.window import map_ahead

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why something was given up; `where` says what. Errors themselves do not travel: not all of them pickle."""

    kind: type[ColdstreamError]
    message: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind.__name__}: {self.message}"

    @classmethod
    def of(cls, err: ColdstreamError, where: object) -> TaskFailure:
        """Describe an error."""
        return cls(type(err), str(err), str(where))


class TaskFailedError(Exception):
    """Ends work that cannot go on without the result of a task. It never leaves the job."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Runs tasks; memory in the driver: the results of as many tasks as run at a time."""

    context: SparkContext
    pool: ThreadPoolExecutor
    at_once: int
    tag: str

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield what `work` returns for each task, in order. It runs on executors, perhaps more than once for a task.

        Tasks are asked for as there is room. Spark tries a task again whose executor was lost, or which raised.
        """

        def call(task: Task) -> Result:
            self.context.addJobTag(self.tag)  # it is of the thread, and each of the pool's threads comes here
            results: list[Result] = self.context.parallelize([task], 1).map(work).collect()
            return results[0]

        return map_ahead(self.pool, call, tasks, max_calls=self.at_once)


@contextmanager
def task_runner(context: SparkContext, at_once: int) -> Generator[TaskRunner]:
    """Make a runner; what it runs ends with the block, however the block ends."""
    tag = f"maintain-{uuid4().hex}"
    with ThreadPoolExecutor(at_once, thread_name_prefix="maintain") as pool:
        try:
            yield TaskRunner(context, pool, at_once, tag)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            context.cancelJobsWithTag(tag)


def in_groups(items: Iterable[Task], size: int) -> Iterator[tuple[Task, ...]]:
    """Yield items, `size` at a time."""
    left = iter(items)
    while group := tuple(islice(left, size)):
        yield group
