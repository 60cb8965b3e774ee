"""Maintain the archive by Spark: retention, sweep, garbage, scrub, rebuild and erasure of what is large.

    spark-submit --py-files coldstream.zip maintain.py scrub --all --deep

Executors get streams, and of a long stream ranges of it; the work is that of the commands `coldstream retention run`,
`sweep`, `garbage`, `scrub`, `rebuild` and `erase`, with their options. The last line of standard output is the summary,
as JSON; progress goes to standard error. docs/spark.md has the commands for EMR.

Spark may run a task twice, and all of this is safe to repeat. If it is interrupted or killed, the next run goes on, or
begins anew where nothing needs to be remembered.
"""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldstream_spark.location import ArchiveLocation
from coldstream_spark.maintenance import erase, garbage, scrub, streams
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.arguments import (
    ACTIONS,
    EraseArguments,
    GarbageArguments,
    MaintainArguments,
    RebuildArguments,
    RemovalArguments,
    ScrubArguments,
    parser,
)
from coldstream_spark.maintenance.rebuild import RebuildTarget, rebuild_streams
from coldstream_spark.maintenance.summary import MAX_TOLD, merged
from coldstream_spark.maintenance.tasks import TaskFailedError, TaskFailure, TaskRunner, in_groups, task_runner
from coldstream_spark.report import leave_report
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from coldstream.erase.conditions import read_conditions, within
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.errors import ColdstreamError, InvalidSettingError
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.garbage.tally import Tally
from coldstream.garbage.unfinished import abort_unfinished
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import Erasure
from coldstream.manifest.stream import StreamId
from coldstream.rebuild.run import find_named
from coldstream.scrub.run import ScrubOptions
from coldstream.store.grace import LONGEST_GRACE_MS, read_grace_ms
from coldstream.store.settings import Settings
from coldstream.store.streams import iter_streams, select_also_deleted, select_streams
from coldstream.store.table import DynamoTable
from coldstream.terminal.exits import ExitCode, exit_code, exit_code_of
from coldstream.terminal.options import from_namespace
from coldstream.terminal.output import printable, write_json
from coldstream.terminal.ranges import OffsetSelection
from coldstream.units import now_ms, parse_duration, parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TELL_S = 5
MAX_JOBS = 1000
STREAMS_A_TASK = 10
"""With --all: most streams have nothing to do."""

PART = 1000
PART_OF_GARBAGE = 100_000
"""A listing has a thousand objects a request, and most of them are named."""

PART_OF_BYTES = 100
"""A fragment is read to its end, and may have 512 MiB."""


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Maintain in the given session, or in one of its own; return the exit code."""
    given = parser(str(__doc__).partition("\n")[0]).parse_args(argv)
    if region := os.environ.get("AWS_REGION"):
        os.environ.setdefault("AWS_DEFAULT_REGION", region)  # botocore reads only that, and it travels to the tasks
    try:
        arguments = from_namespace(ACTIONS[given.action][0], given)
        _check(given, arguments)
        variables = {f"COLDSTREAM_{name.upper()}": getattr(given, name) for name in ("table", "bucket", "prefix")}
        settings = Settings.from_environment({**os.environ, **variables})
        session = spark or _session()
        try:
            with task_runner(session.sparkContext, arguments.jobs) as runner:
                return _MaintenanceJob(runner, settings, given, arguments).run()
        finally:
            if spark is None:
                session.stop()
    except ColdstreamError as err:
        _tell(f"{err}")
        _leave(given, {"errors": [str(err)]})
        return exit_code(err)
    except TaskFailedError as err:
        _tell(f"{err}")
        _leave(given, {"errors": [str(err)]})
        return exit_code_of([err.failure.kind])
    except Py4JJavaError as err:
        _tell(f"failed: {err.java_exception.getMessage()}")
        return ExitCode.UNEXPECTED
    except KeyboardInterrupt:
        _tell("interrupted; it is safe to run again")
        return ExitCode.INTERRUPTED


def _check(given: argparse.Namespace, arguments: MaintainArguments) -> None:
    if not 1 <= arguments.jobs <= MAX_JOBS:
        raise InvalidSettingError("--jobs", f"must be from 1 to {MAX_JOBS}")
    if arguments.part is not None and arguments.part < 1:
        raise InvalidSettingError("--part", "must be 1 or more")
    if arguments.every == bool(given.stream):
        raise InvalidSettingError("streams", "either name streams, or ask for all")
    if arguments.incarnation is not None and len(given.stream) != 1:
        raise InvalidSettingError("--incarnation", "selects one incarnation of one stream: name that stream")
    if isinstance(arguments, ScrubArguments) and arguments.take_again and not arguments.repair:
        raise InvalidSettingError("--take-again", "is a kind of repair: it needs --repair")
    if isinstance(arguments, EraseArguments) and len(given.stream) != 1:
        raise InvalidSettingError("--stream", "an erasure is about one stream")


@dataclass(frozen=True, slots=True)
class _MaintenanceJob:
    """One run of the job in a session."""

    runner: TaskRunner
    settings: Settings
    given: argparse.Namespace
    arguments: MaintainArguments

    def run(self) -> int:
        """Do what the arguments say, print the summary, and return the exit code."""
        match self.arguments:
            case GarbageArguments():
                return self._garbage(self.arguments)
            case ScrubArguments():
                return self._scrub(self.arguments)
            case RebuildArguments():
                return self._rebuild(self.arguments)
            case EraseArguments():
                return self._erase(self.arguments)
            case RemovalArguments():
                return self._streams(self.arguments)
        raise AssertionError("each action has its arguments")

    def _archive(self, table: str | None = None) -> RemoteArchive:
        settings = self.settings
        location = ArchiveLocation.of({"table": table or settings.table, "bucket": settings.bucket}, os.environ)
        arguments, grace_ms = self.arguments, LONGEST_GRACE_MS
        if isinstance(arguments, RemovalArguments):
            grace_ms = read_grace_ms(arguments.url_expiry)
        return RemoteArchive(location, settings.prefix, grace_ms)

    def _part(self, default: int) -> int:
        return self.arguments.part or default

    def _chosen(self, stores: LifecycleStores) -> Iterable[StreamId]:
        """Return the streams; all of them are read as they are needed."""
        if self.arguments.every:
            return iter_streams(stores.table)
        names, vhost, incarnation = self.given.stream, self.arguments.vhost, self.arguments.incarnation
        if self.given.action == "sweep":  # it purges what is deleted
            return tuple(select_also_deleted(stores.table, vhost, name, incarnation) for name in dict.fromkeys(names))
        return select_streams(stores.table, vhost, names, incarnation=incarnation)

    def _streams(self, arguments: RemovalArguments) -> int:
        """Retention and sweep."""
        archive, progress = self._archive(), _Progress("streams")
        work = partial(
            streams.retain if self.given.action == "retention" else streams.sweep, archive, dry_run=arguments.dry_run
        )
        # One that was named is perhaps long, and should not wait for another.
        groups = in_groups(self._chosen(archive.open()), STREAMS_A_TASK if arguments.every else 1)
        summary: dict[str, Any] = {}
        failures: list[TaskFailure] = []
        for result in self.runner.map(work, groups):
            summary = merged(summary, result.summary)
            failures += result.failures
            progress.count(result.streams)
        return _end(self.given, {"action": self.given.action, **summary}, failures)

    def _garbage(self, arguments: GarbageArguments) -> int:
        try:
            older_than_ms = round(parse_duration(arguments.older_than) * 1000)
        except ValueError as err:
            raise InvalidSettingError("--older-than", str(err)) from err
        options = GarbageOptions(
            delete=arguments.delete and not arguments.dry_run,
            older_than_ms=older_than_ms,
            unknown_streams=arguments.unknown_streams,
        )
        archive, most = self._archive(), self._part(PART_OF_GARBAGE)
        stores, progress = archive.open(), _Progress("objects")
        chosen = self._chosen(stores)
        ranges: Iterable[garbage.KeyRange] = (
            garbage.ranges_of_all(stores, chosen, most)
            if arguments.every
            else (one for stream in chosen for one in garbage.ranges_of(stores, stream, most))
        )
        tally, failures = Tally(), list[TaskFailure]()
        for result in self.runner.map(partial(garbage.collect, archive, options), ranges):
            if isinstance(result, TaskFailure):
                failures.append(result)
                continue
            tally.add_all(result)
            progress.count(result.objects)
        if arguments.every:
            abort_unfinished(stores.objects, stores.keys, options, tally, stores.now())
        collector = GarbageCollector(stores.table, stores.objects, stores.keys, stores.now)
        report = collector.report(options, tally, is_complete=not failures)
        code = _end(self.given, {"action": "garbage", **report.to_json()}, failures)
        return ExitCode.UNAVAILABLE if report.deletions.failed and not code else code

    def _scrub(self, arguments: ScrubArguments) -> int:
        options = ScrubOptions(deep=arguments.deep, repair=arguments.repair, take_again=arguments.take_again)
        archive, progress = self._archive(), _Progress("fragments")
        totals = scrub.ScrubTotals(on_fragments=progress.count)
        most, chosen = self._part(PART_OF_BYTES if arguments.deep else PART), self._chosen(archive.open())
        failures = list(scrub.scrub_streams(archive, options, most, self.runner, chosen, totals))
        code = _end(self.given, {"action": "scrub", "deep": options.deep, **totals.to_json()}, failures)
        return ExitCode.CORRUPTION if totals.found > totals.mended else code

    def _rebuild(self, arguments: RebuildArguments) -> int:
        if not arguments.to_table:
            raise InvalidSettingError("--to-table", "is missing: name the table to write")
        if arguments.to_table == self.settings.table and not arguments.dry_run:
            raise InvalidSettingError("--to-table", "is the archive's own table: rebuild into another")
        try:
            at = None if arguments.at is None else parse_time(arguments.at, now_ms())
        except ValueError as err:
            raise InvalidSettingError("--at", str(err)) from err
        # What it replaces stays longest: a table is rebuilt without knowing what its resolvers' URLs were.
        archive, progress = self._archive(arguments.to_table), _Progress("fragments")
        target, most = RebuildTarget(archive, at, arguments.dry_run), self._part(PART)
        stores = archive.open()
        if arguments.every:
            target.rebuilder().of_no_stream()
        found = find_named(stores.objects, stores.keys, arguments.vhost, self.given.stream)
        summary: dict[str, Any] = {"action": "rebuild", "dry_run": arguments.dry_run, "streams": []}
        failures: list[TaskFailure] = []
        for result in rebuild_streams(target, most, self.runner, found):
            if isinstance(result, TaskFailure):
                failures.append(result)
                continue
            numbers = {"fragments": result.fragments, "written": result.written, "unreadable_count": result.unread}
            summary = merged(summary, {"stream_count": 1, **numbers, "streams": [result.to_json()]})
            progress.count(result.fragments)
        code = _end(self.given, summary, failures)
        return ExitCode.CORRUPTION if summary.get("unreadable_count") else code

    def _begun(self, stores: LifecycleStores, stream: StreamId) -> Erasure | None:
        """Return the erasure of the id that was given, None if it is not there yet."""
        wanted = self.given.erasure_id
        found = stores.table.erasures(stream.incarnation) if wanted is not None else ()
        return next((one for one in found if one.id == wanted), None)

    def _erase(self, arguments: EraseArguments) -> int:
        span = None if arguments.offsets is None else OffsetSelection.from_text(arguments.offsets)
        conditions = read_conditions(arguments.filter_value, arguments.key, self.given.properties, arguments.where)
        if arguments.selection is not None:
            if conditions is not None:
                raise InvalidSettingError("--selection", "has all conditions: leave out the others")
            conditions = Selection.from_text(arguments.selection, source="--selection")
        if not arguments.resume and span is None and conditions is None:
            raise InvalidSettingError("erase", "say --offsets, --filter-value, --key, --property or --where")
        if arguments.resume and (span or conditions):
            raise InvalidSettingError("--resume", "goes on with what was selected: leave out what selects")
        try:
            grace_ms = None if arguments.grace is None else round(parse_duration(arguments.grace) * 1000)
        except ValueError as err:
            raise InvalidSettingError("--grace", str(err)) from err
        sys.path.insert(0, str(Path.cwd()))
        archive, progress = self._archive(), _Progress("bytes")
        stores = archive.open()
        (stream,) = self._chosen(stores)
        spool_dir = None if self.settings.spool_dir is None else Path(self.settings.spool_dir)
        eraser = Eraser(
            stores,
            grace_ms=grace_ms,
            spool_dir=spool_dir,
            on_bytes=progress.count,
            rewrite=erase.RewriteAhead(archive, self.runner, spool_dir),
        )
        if arguments.resume:
            reports = [
                eraser.run(stream, one, erase.loaded(Selection.from_text(one.where, source=f"erasure {one.id}")))
                for one in unfinished_erasures(stores, stream.incarnation)
            ]
            _write(self.given, {"action": "erase", "erasures": [report.to_json() for report in reports]})
            return ExitCode.OK
        begun = self._begun(stores, stream)
        if begun is not None:
            selection = erase.loaded(Selection.from_text(begun.where, source=f"erasure {begun.id}"))
            _write(self.given, {"action": "erase", **eraser.run(stream, begun, selection).to_json()})
            return ExitCode.OK
        if span is None:
            assert conditions is not None
            selection = conditions
        else:
            selection = within(stores.table, stream, conditions, span.first_offset, span.next_offset)
        selection = erase.loaded(selection)
        if arguments.dry_run:
            found = erase.forecast(archive, self.runner, stream, selection, self._part(PART_OF_BYTES))
            _write(self.given, {"action": "erase", **found.to_json()})
            return ExitCode.OK
        by = arguments.by or getpass.getuser()
        erasure, scope, copies = eraser.begin(
            stream,
            selection,
            reason=arguments.reason,
            by=by,
            with_copies=arguments.with_quarantine,
            erasure_id=arguments.erasure_id,
        )
        report = replace(eraser.run(stream, erasure, scope.selection), copies=copies, gaps=scope.gaps)
        _write(self.given, {"action": "erase", **report.to_json()})
        return ExitCode.OK


def _end(given: argparse.Namespace, summary: dict[str, Any], failures: Sequence[TaskFailure]) -> int:
    """Print what failed, and the summary; return the exit code."""
    for failure in failures:
        _tell(f"failed: {failure}")
    told = [{"where": one.where, "error": one.kind.__name__, "message": one.message} for one in failures[:MAX_TOLD]]
    _write(given, {**summary, "failed": len(failures), "failures": told})
    return exit_code_of(failure.kind for failure in failures)


def _write(given: argparse.Namespace, summary: dict[str, Any]) -> None:
    """Print the summary, and leave it for whoever asked for that."""
    write_json(summary)
    _leave(given, summary)


def _leave(given: argparse.Namespace, summary: dict[str, Any]) -> None:
    problem = leave_report(DynamoTable(given.table), given.report, summary) if given.report and given.table else None
    if problem is not None:
        _tell(problem)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  takes a second, and wrong options need not wait for it

    return SparkSession.builder.appName("coldstream maintain").getOrCreate()


class _Progress:
    """Counts, and writes a line every few seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._told = time.monotonic()
        self._count = 0

    def count(self, more: int) -> None:
        """Count some more."""
        self._count += more
        now = time.monotonic()
        if now - self._told >= TELL_S:
            self._told = now
            _tell(f"{self._count:,} {self._what}, {self._count / (now - self._began):,.0f} a second")


def _tell(what: str) -> None:
    sys.stderr.write(printable(f"maintain: {what}") + "\n")


if __name__ == "__main__":
    # By default SIGTERM ends the process at once, before the Spark jobs are cancelled.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
