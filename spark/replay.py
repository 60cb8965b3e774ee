"""Replay the archive by Spark: into streams of a broker again, or into tables.

    spark-submit --py-files coldstream.zip replay.py --stream orders --from 2026-01-31T00:00:00Z --to-parquet s3a://lake/orders

To a broker, each stream is one task, so that its order is kept. Spark may run a task twice, one after the other or at
the same time: the broker itself knows what it has, so nothing is sent twice to a stream. An exchange may get a message
again. Tables are written by a streaming query that ends where the archive ends. Its checkpoint knows what the table
has, so the next run adds what is new.

The last line of standard output is the summary, as JSON; progress goes to standard error. `coldstream replay` does the
same on one machine. docs/spark.md has the commands for EMR.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from coldstream_spark.location import ArchiveLocation
from coldstream_spark.report import ABOUT, leave_report
from coldstream_spark.summary import TELL_S
from coldstream_spark.tables import TableJob
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from coldstream.errors import ColdstreamError
from coldstream.replay.arguments import ReplayArguments
from coldstream.replay.request import ReplayRequest, check_start, find_request, parse_bounds
from coldstream.replay.send import send
from coldstream.replay.stream import replayed_to
from coldstream.replay.summary import ReplaySummary, broker_summary
from coldstream.replay.tables.layout import Partitioning, file_format
from coldstream.replay.target import ExchangeTarget, SendOptions, StreamTarget, find_target
from coldstream.store.streams import select_streams
from coldstream.terminal.exits import HELP, ExitCode, exit_code, exit_code_of
from coldstream.terminal.options import add_options, from_namespace
from coldstream.terminal.output import printable, write_json
from coldstream.terminal.user_function import load_function
from coldstream.units import now_ms

_LOCATION = ("table", "bucket", "endpoint")
_NOT_HERE = ("progress",)
"""Of the options that a replay may have: an executor has no file that the next run finds."""


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    options = argparse.ArgumentParser(prog="replay.py", description=__doc__.partition("\n")[0], epilog=HELP)
    options.add_argument(
        "--stream", action="append", required=True, metavar="NAME", help="Replay this one. Repeatable."
    )
    add_options(options, ReplayArguments, leave_out=_NOT_HERE)
    options.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="To a table: where Spark's checkpoint is. Else PATH/_coldstream/checkpoint.",
    )
    for name in ("table", "bucket"):
        variable = f"COLDSTREAM_{name.upper()}"
        about = f"The archive's {name}. Else {variable} in the environment."
        options.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=about)
    options.add_argument("--report", metavar="NAME", help=ABOUT)
    options.add_argument("--endpoint", help="Endpoint of S3 and DynamoDB. Else AWS_ENDPOINT_URL in the environment.")
    return options


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Replay in the given session, or in one of its own; return the exit code."""
    given = parser().parse_args(argv)
    try:
        arguments = from_namespace(ReplayArguments, given)
        target = find_target(arguments)
        check_start(arguments.start, now_ms())
        partitioning = Partitioning.parse(arguments.partition_by)
        transform = _function(arguments.transform)
        location = ArchiveLocation.of(
            {name: getattr(given, name) for name in _LOCATION if getattr(given, name)}, os.environ
        )
        requests = _requests(given.stream, arguments, location)
        session = spark or SparkSession.builder.appName("coldstream replay").getOrCreate()
        try:
            if transform is not None:
                _ship(session, transform)
            if target is not None:
                options = SendOptions(arguments.rate, arguments.transform)
                return _into_broker(session, requests, ReplayTask(location, target, options), given.report)
            assert arguments.path is not None
            bounds = arguments.start, arguments.end
            form = file_format(arguments)
            job = TableJob(requests, bounds, arguments.path, form, partitioning, given.checkpoint, transform)
            return _into_table(session, job, location, given.report)
        finally:
            if spark is None:
                session.stop()
    except ColdstreamError as err:
        _tell(f"{err}")
        _leave_error(given, f"{err}")
        return exit_code(err)
    except StreamingQueryException as err:
        _tell(f"failed: {err.getMessage() or err}")
        _leave_error(given, f"{err.getMessage() or err}")
        return ExitCode.UNEXPECTED
    except Py4JJavaError as err:
        _tell(f"failed: {err.java_exception.getMessage()}")
        return ExitCode.UNEXPECTED
    except KeyboardInterrupt:
        _tell("interrupted; the next run goes on from here")
        return ExitCode.INTERRUPTED


def _function(name: str | None) -> Callable[..., Any] | None:
    """Import a user's function."""
    if name is None:
        return None
    sys.path.insert(0, str(Path.cwd()))
    return load_function(name, "transform")


def _ship(spark: SparkSession, function: Callable[..., Any]) -> None:
    """Send a function's module to the executors. If it is in a package, the user sends that, by --py-files."""
    module = function.__module__
    path = getattr(sys.modules[module], "__file__", None)
    if path is not None and "." not in module:
        spark.sparkContext.addPyFile(path)


def _requests(names: Sequence[str], arguments: ReplayArguments, location: ArchiveLocation) -> tuple[ReplayRequest, ...]:
    bounds = parse_bounds(arguments.start, arguments.end, now_ms())
    table, objects = location.open_table(), location.open_bucket()
    streams = select_streams(table, arguments.vhost, names, incarnation=arguments.incarnation)
    return tuple(find_request(table, objects, stream, *bounds, skip_gaps=arguments.skip_gaps)[0] for stream in streams)


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """What an executor does with each request: a value that travels to it."""

    location: ArchiveLocation
    target: StreamTarget | ExchangeTarget
    options: SendOptions

    def __call__(self, request: ReplayRequest) -> ReplaySummary | RequestFailure:
        """Publish a request. Another attempt of the same task may still be at it: a stream takes nothing twice."""
        table, objects = self.location.open_table(), self.location.open_bucket()
        try:
            return send(table, objects, request, self.target, options=self.options)
        except ColdstreamError as err:
            # Returned, not raised: Spark would run the task again, and fail the other streams with it.
            return RequestFailure(f"{request.stream}: {err}", type(err))


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """Why a request was not replayed to its end."""

    message: str
    kind: type[ColdstreamError]


def _into_broker(
    spark: SparkSession, requests: Sequence[ReplayRequest], task: ReplayTask, report: str | None = None
) -> int:
    began = time.monotonic()
    with _job(spark.sparkContext, lambda: _progress_text(requests, task)):
        results = spark.sparkContext.parallelize(requests, len(requests)).map(task).collect()
    failures = [result for result in results if isinstance(result, RequestFailure)]
    summaries = [result for result in results if isinstance(result, ReplaySummary)]
    for failure in failures:
        _tell(f"failed: {failure.message}")
    summary = broker_summary(summaries, is_failed=bool(failures), seconds=time.monotonic() - began)
    _write(task.location, report, summary | {"errors": [failure.message for failure in failures]})
    return exit_code_of(failure.kind for failure in failures)


def _into_table(spark: SparkSession, job: TableJob, location: ArchiveLocation, report: str | None = None) -> int:
    began = time.monotonic()
    summary = job.run(spark, location, _tell)
    for problem in summary.problems:
        _tell(f"not complete: {problem}")
    told = summary.to_dict() | {"seconds": round(time.monotonic() - began, 3), "errors": summary.problems}
    _write(location, report, told)
    return ExitCode.UNEXPECTED if summary.problems else ExitCode.OK


def _write(location: ArchiveLocation, report: str | None, summary: dict[str, Any]) -> None:
    """Print the summary, and leave it for whoever asked for that."""
    write_json(summary)
    if report is not None and (problem := leave_report(location.open_table(), report, summary)) is not None:
        _tell(problem)


def _leave_error(given: argparse.Namespace, text: str) -> None:
    if given.report is None or not given.table:
        return
    location = ArchiveLocation.of(
        {name: getattr(given, name) for name in _LOCATION if getattr(given, name)}, os.environ
    )
    if (problem := leave_report(location.open_table(), given.report, {"errors": [text]})) is not None:
        _tell(problem)


def _progress_text(requests: Sequence[ReplayRequest], task: ReplayTask) -> str:
    """Return how far the streams are, as the broker knows it; "" for an exchange, of which it does not."""
    if not isinstance(task.target, StreamTarget):
        return ""
    try:
        reached = replayed_to(requests, task.target, task.options)
    except ColdstreamError as err:
        return f"; the broker does not answer how far it is: {err}"
    done = sum(offset - request.start for offset, request in zip(reached, requests, strict=True))
    return f"; {done:,} of {sum(request.end - request.start for request in requests):,} offsets"


@contextmanager
def _job(context: SparkContext, progress_text: Callable[[], str]) -> Iterator[None]:
    """Tell how far the block's Spark jobs are while it runs, and cancel them if it raises."""
    tag, over = f"replay-{uuid4().hex}", threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(TELL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            for stage in filter(None, stages):
                _tell(f"{stage.numCompletedTasks} of {stage.numTasks} streams done{progress_text()}")

    context.addJobTag(tag)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    except BaseException:
        # Also an interrupt: Spark would let the tasks run on, and they would go on publishing.
        context.cancelJobsWithTag(tag)
        raise
    finally:
        over.set()
        # The thread asks the session how far it is, and the caller may stop the session next.
        watching.join()
        context.removeJobTag(tag)


def _tell(what: str) -> None:
    sys.stderr.write(printable(f"replay: {what}") + "\n")


if __name__ == "__main__":
    # By default SIGTERM ends the process at once, and the tasks would go on publishing.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
