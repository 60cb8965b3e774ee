"""Compact the archive by Spark: small fragments into large ones, and compressed ones.

    spark-submit --py-files coldstream.zip compact.py --stream orders --encoding zstd-seekable --dry-run

The driver plans and commits, executors write the objects. It prints one line of JSON, the summary, at the end; progress
goes to standard error. The same on one machine is `coldstream compact`. docs/spark.md has the commands for EMR.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from coldstream.compact.options import DEFAULT_OLDER_THAN, DEFAULT_TARGET_SIZE, CompactOptions
from coldstream.compact.remote_writer import RemoteWriter
from coldstream.compact.report import run_summary
from coldstream.compact.run import Compactor
from coldstream.compact.savings import dry_run_summary, forecast_of
from coldstream.compact.task import CompactionTask, GroupFailure
from coldstream.compact.write import MergedFragment
from coldstream.console.exits import HELP, ExitCode, exit_code, exit_code_of
from coldstream.console.output import printable, write_json
from coldstream.errors import ColdstreamError, InvalidSettingError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.entry import Encoding
from coldstream.store.objects import S3Objects
from coldstream.store.settings import Settings
from coldstream.store.streams import choose
from coldstream.store.table import DynamoTable
from coldstream.units import MIB, now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TELL_S = 5
MAX_JOBS = 1000


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    options = argparse.ArgumentParser(prog="compact.py", description=__doc__.partition("\n")[0], epilog=HELP)
    options.add_argument("--stream", action="append", default=[], metavar="NAME", help="to compact; may be repeated")
    options.add_argument("--vhost", default="/", help="of the streams")
    options.add_argument("--incarnation", metavar="ID", help="one life of the one stream; else the newest")
    options.add_argument("--all", action="store_true", help="every stream of every vhost, past lives too")
    options.add_argument("--older-than", default=DEFAULT_OLDER_THAN, metavar="TIME", help="leave younger chunks")
    options.add_argument("--target-size", default=DEFAULT_TARGET_SIZE, metavar="SIZE", help="merge up to so much")
    options.add_argument("--encoding", default=str(Encoding.IDENTITY), help="identity, or zstd-seekable")
    options.add_argument("--level", type=int, default=DEFAULT_LEVEL, help="of compression, 1 to 19")
    options.add_argument("--jobs", type=int, default=64, help="objects to write at a time, each by a task of Spark's")
    options.add_argument("--dry-run", action="store_true", help="say what it would save and cost, and change nothing")
    for name in ("table", "bucket", "prefix"):
        variable = f"COLDSTREAM_{name.upper()}"
        options.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=f"else {variable}")
    return options


def main(arguments: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Compact as told, in the given session or one of its own; return the exit code."""
    given = parser().parse_args(arguments)
    if region := os.environ.get("AWS_REGION"):
        os.environ.setdefault("AWS_DEFAULT_REGION", region)  # all that botocore looks at, and that travels to tasks
    try:
        options = CompactOptions.parse(
            older_than=given.older_than, target_size=given.target_size, encoding=given.encoding, level=given.level
        )
        if not 1 <= given.jobs <= MAX_JOBS:
            raise InvalidSettingError("--jobs", f"is to be from 1 to {MAX_JOBS}")
        places = {f"COLDSTREAM_{name.upper()}": getattr(given, name) for name in ("table", "bucket", "prefix")}
        settings = Settings.from_environment(places)
        session = spark or _session()
        try:
            return _compact(given, options, settings, session)
        finally:
            if spark is None:
                session.stop()
    except ColdstreamError as err:
        _tell(f"{err}")
        return exit_code(err)
    except KeyboardInterrupt:
        _tell("interrupted; the next run goes on")
        return ExitCode.INTERRUPTED


def _compact(given: argparse.Namespace, options: CompactOptions, settings: Settings, spark: SparkSession) -> int:
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
    streams = choose(table, given.vhost, given.stream, incarnation=given.incarnation, every=given.all)
    if given.dry_run:
        forecasts = [forecast_of(table, objects, stream, options, now_ms()) for stream in streams]
        write_json(dry_run_summary(forecasts))
        return 0
    context, place, tag = (
        spark.sparkContext,
        RemoteWriter.from_environment(settings.bucket, settings.prefix),
        f"compact-{uuid4().hex}",
    )

    def write(task: CompactionTask) -> MergedFragment | GroupFailure:
        context.addJobTag(tag)  # of this thread's jobs
        results: list[MergedFragment | GroupFailure] = context.parallelize([task], 1).map(place.write).collect()
        return results[0]

    progress = _Progress()
    compactor = Compactor(
        table,
        objects,
        write,
        at_once=given.jobs,
        stop=lambda: context.cancelJobsWithTag(tag),
        on_settled=progress.settled,
    )
    reports = compactor.run(streams, options)
    failures = [failure for report in reports for failure in report.failures]
    for failure in failures:
        _tell(f"failed: {failure}")
    write_json(run_summary(reports, seconds=progress.seconds))
    return exit_code_of(failure.kind for failure in failures)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  takes a second; wrong options are told before

    return SparkSession.builder.appName("coldstream compact").getOrCreate()


class _Progress:
    """A line every few seconds."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._groups = self._bytes = 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def settled(self, task: CompactionTask) -> None:
        """Count a group that is done with."""
        self._groups += 1
        self._bytes += task.group.data_bytes
        if time.monotonic() - self._told >= TELL_S:
            self._told = time.monotonic()
            rate = self._bytes / MIB / self.seconds
            done = f"{self._groups} groups, {self._bytes / MIB:,.0f} MiB"
            _tell(f"{done}, {rate:,.0f} MiB/s, up to {task.stream}")


def _tell(what: str) -> None:
    sys.stderr.write(printable(f"compact: {what}") + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
