"""Compact the archive by Spark: merge small fragments into large ones, or compress them.

    spark-submit --py-files coldstream.zip compact.py --stream orders --encoding zstd-seekable --dry-run

The driver plans and commits, and executors write the objects. The last line of standard output is the summary, as JSON;
progress goes to standard error. `coldstream compact` does the same on one machine. docs/spark.md has the commands for
EMR.

Spark may run a task twice. Each attempt writes an object at a key of its own, and the driver commits the one whose
result it gets. The object of a lost attempt stays in the bucket, named by nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from coldstream_spark.report import ABOUT, leave_report

from coldstream.compact.arguments import CompactArguments
from coldstream.compact.options import CompactOptions
from coldstream.compact.remote_writer import RemoteWriter
from coldstream.compact.report import run_summary
from coldstream.compact.run import Compactor
from coldstream.compact.savings import dry_run_summary, forecast_of
from coldstream.compact.task import CompactionTask, GroupFailure
from coldstream.compact.write import MergedFragment
from coldstream.errors import ColdstreamError, InvalidSettingError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import Settings
from coldstream.store.streams import select_streams
from coldstream.store.table import DynamoTable
from coldstream.terminal.exits import HELP, ExitCode, exit_code, exit_code_of
from coldstream.terminal.options import add_options, from_namespace
from coldstream.terminal.output import printable, write_json
from coldstream.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TELL_S = 5
MAX_JOBS = 1000


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    options = argparse.ArgumentParser(prog="compact.py", description=__doc__.partition("\n")[0], epilog=HELP)
    options.add_argument("--stream", action="append", default=[], metavar="NAME", help="Compact this one. Repeatable.")
    add_options(options, CompactArguments)
    options.add_argument(
        "--jobs", type=int, default=64, help="Objects to write at a time, each by one task of Spark. Default: 64."
    )
    options.add_argument("--report", metavar="NAME", help=ABOUT)
    for name in ("table", "bucket", "prefix"):
        variable = f"COLDSTREAM_{name.upper()}"
        options.add_argument(
            f"--{name}",
            default=os.environ.get(variable, ""),
            help=f"The archive's {name}. Else {variable} in the environment.",
        )
    return options


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Compact in the given session, or in one of its own; return the exit code."""
    given = parser().parse_args(argv)
    if region := os.environ.get("AWS_REGION"):
        os.environ.setdefault("AWS_DEFAULT_REGION", region)  # botocore reads only that, and it travels to the tasks
    try:
        arguments = from_namespace(CompactArguments, given)
        options = CompactOptions.of(arguments)
        if not 1 <= given.jobs <= MAX_JOBS:
            raise InvalidSettingError("--jobs", f"must be from 1 to {MAX_JOBS}")
        variables = {f"COLDSTREAM_{name.upper()}": getattr(given, name) for name in ("table", "bucket", "prefix")}
        settings = Settings.from_environment(variables)
        session = spark or _session()
        try:
            return _CompactionJob(session, settings, options, given.jobs, given.report).run(given.stream, arguments)
        finally:
            if spark is None:
                session.stop()
    except ColdstreamError as err:
        _tell(f"{err}")
        _leave(given.table, given.report, {"errors": [str(err)]})
        return exit_code(err)
    except KeyboardInterrupt:
        _tell("interrupted; the next run goes on from here")
        return ExitCode.INTERRUPTED


@dataclass(frozen=True, slots=True)
class _CompactionJob:
    """One run of the job in a session."""

    spark: SparkSession
    settings: Settings
    options: CompactOptions
    at_once: int
    report: str | None = None

    def run(self, names: Sequence[str], arguments: CompactArguments) -> int:
        """Compact the streams, print the summary, and return the exit code."""
        table, objects = DynamoTable(self.settings.table), S3Objects(self.settings.bucket)
        streams = select_streams(
            table, arguments.vhost, names, incarnation=arguments.incarnation, every=arguments.every
        )
        if arguments.dry_run:
            forecasts = [forecast_of(table, objects, stream, self.options, objects.clock()) for stream in streams]
            write_json(dry_run_summary(forecasts))
            return ExitCode.OK
        context, tag, progress = self.spark.sparkContext, f"compact-{uuid4().hex}", _GroupProgress()
        stores = LifecycleStores.open(table, objects, Keys(self.settings.prefix), grace_ms=self.options.grace_ms)
        compactor = Compactor(
            table,
            objects,
            self._remote_write(tag),
            at_once=self.at_once,
            stop=lambda: context.cancelJobsWithTag(tag),
            on_settled=progress.count,
            now=objects.clock,
            sweep=lambda incarnation: sweep(stores, incarnation),
        )
        reports = compactor.run(streams, self.options)
        failures = [failure for report in reports for failure in report.failures]
        for failure in failures:
            _tell(f"failed: {failure}")
        summary = run_summary(reports, seconds=progress.seconds)
        write_json(summary)
        told = {
            "failures": [
                {"where": str(report.stream), "message": str(one)} for report in reports for one in report.failures
            ]
        }
        _leave(self.settings.table, self.report, summary | told)
        return exit_code_of(failure.kind for failure in failures)

    def _remote_write(self, tag: str) -> Callable[[CompactionTask], MergedFragment | GroupFailure]:
        """Return what has an executor write the object of a task; its Spark job has the tag."""
        context = self.spark.sparkContext
        writer = RemoteWriter.from_environment(self.settings.bucket, self.settings.prefix)

        def write(task: CompactionTask) -> MergedFragment | GroupFailure:
            context.addJobTag(tag)  # it is of the thread, and each of the run's threads comes here
            results: list[MergedFragment | GroupFailure] = context.parallelize([task], 1).map(writer.write).collect()
            return results[0]

        return write


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  takes a second, and wrong options need not wait for it

    return SparkSession.builder.appName("coldstream compact").getOrCreate()


class _GroupProgress:
    """Counts groups, and writes a line about them every few seconds."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._groups = self._bytes = 0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def count(self, task: CompactionTask) -> None:
        """Count a group that was committed, or has failed."""
        self._groups += 1
        self._bytes += task.group.data_bytes
        if time.monotonic() - self._told >= TELL_S:
            self._told = time.monotonic()
            rate = self._bytes / MIB / self.seconds
            done = f"{self._groups} groups, {self._bytes / MIB:,.0f} MiB"
            _tell(f"{done}, {rate:,.0f} MiB/s, up to {task.stream}")


def _leave(table: str, name: str | None, summary: dict[str, object]) -> None:
    problem = leave_report(DynamoTable(table), name, summary) if name is not None and table else None
    if problem is not None:
        _tell(problem)


def _tell(what: str) -> None:
    sys.stderr.write(printable(f"compact: {what}") + "\n")


if __name__ == "__main__":
    # By default SIGTERM ends the process at once, before the Spark jobs are cancelled.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
