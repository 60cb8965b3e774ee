"""Replays: what the command line has in common for all targets, and what becomes of each."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coldstream.cli.progress import progress
from coldstream.cli.silence import told_when_silent
from coldstream.console.exits import ExitCode, exit_code_of
from coldstream.console.output import Format, printable, write_json, write_table
from coldstream.errors import ColdstreamError, StreamNotFoundError

if TYPE_CHECKING:
    from coldstream.replay.request import ReplayRequest
    from coldstream.replay.summary import ReplayProgress, ReplaySummary
    from coldstream.replay.tables.layout import FileFormat
    from coldstream.replay.tables.report import TableReport
    from coldstream.replay.target import Asked

Advance = Callable[[int], None]

_DECLARE = "replay declares no stream, as retention and segment size are yours to decide: declare the target first"


@dataclass(slots=True)
class Replayer:
    """What is replayed, from where, and how it ended."""

    names: list[str]
    vhost: str
    incarnation: str | None
    start: str
    end: str | None
    skip_gaps: bool
    output: Format
    failures: list[ColdstreamError] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    table: Any = None
    objects: Any = None

    @contextmanager
    def sources(self, what: str) -> Iterator[tuple[list[ReplayRequest], Advance]]:
        """Find what is replayed, and show progress; the first signal stops it, another one ends it."""
        from coldstream.replay.wanted import find_source, parse_bounds
        from coldstream.store.objects import S3Objects
        from coldstream.store.settings import Settings
        from coldstream.store.streams import choose
        from coldstream.store.table import DynamoTable
        from coldstream.units import now_ms

        bounds = parse_bounds(self.start, self.end, now_ms())
        settings = Settings.from_environment(os.environ)
        self.table, self.objects = DynamoTable(settings.table), S3Objects(settings.bucket)
        with told_when_silent(f"DynamoDB, table {settings.table}"):
            streams = choose(self.table, self.vhost, self.names, incarnation=self.incarnation)
        found = [find_source(self.table, self.objects, stream, *bounds, skip_gaps=self.skip_gaps) for stream in streams]

        def stop(number: int, _frame: object) -> None:
            self.stopped.set()
            signal.signal(number, signal.default_int_handler)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with progress(what, sum(offsets for _, offsets in found), "messages") as advance:
                yield [source for source, _ in found], advance
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def end_with(
        self, table_summary: dict[str, Any], heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]
    ) -> None:
        """Write what became of it, and end with its exit code."""
        if self.output is Format.JSON:
            write_json(table_summary | {"errors": [str(failure) for failure in self.failures]})
        else:
            write_table(heads, rows)
        for gap in (gap for stream in table_summary["streams"] for gap in stream["gaps"]):
            typer.echo(f"passed over: offsets {gap['first_offset']} to {gap['next_offset'] - 1}", err=True)
        for failure in self.failures:
            todo = "".join(f" ({note})" for note in getattr(failure, "__notes__", ()))
            typer.echo(printable(f"failed: {failure}{todo}"), err=True)
        code = exit_code_of(type(failure) for failure in self.failures)
        raise typer.Exit(ExitCode.INTERRUPTED if self.stopped.is_set() and code is ExitCode.OK else code)


def into_table(run: Replayer, path: str, form: FileFormat, partition_by: str, transform: str | None) -> None:
    """Replay into Parquet or lines of JSON."""
    from coldstream.replay.tables.directory import open_directory
    from coldstream.replay.tables.layout import Partitioning
    from coldstream.replay.tables.report import TableReport, table_summary
    from coldstream.replay.tables.run import claim_table, replay_into
    from coldstream.replay.tables.write import Table

    table = Table(open_directory(path), form, Partitioning.parse(partition_by), _function(transform))
    reports: list[TableReport] = []
    with run.sources("replaying") as (sources, advance):
        claim_table(table)
        for source in sources:
            reports.append(TableReport(source))
            try:
                replay_into(
                    run.table, run.objects, table, reports[-1], on_offsets=advance, should_stop=run.stopped.is_set
                )
            except ColdstreamError as err:
                run.failures.append(err)
    run.end_with(
        table_summary(reports, path, seconds=time.monotonic() - run.began),
        ("vhost", "stream", "from", "to", "messages", "rows", "files", "there already"),
        [
            (
                report.source.stream.vhost,
                report.source.stream.name,
                report.source.start,
                report.source.end,
                report.messages,
                report.rows,
                report.files,
                report.present,
            )
            for report in reports
        ],
    )


def into_broker(run: Replayer, asked: Asked, transform: str | None) -> None:
    """Replay into a stream, a super stream or an exchange."""
    from coldstream.replay.broker import BrokerReplayOptions
    from coldstream.replay.target import send
    from coldstream.replay.wanted import check_start
    from coldstream.units import now_ms

    target = asked.target()
    check_start(run.start, now_ms())
    _function(transform)
    options = BrokerReplayOptions(asked.rate, transform)
    summaries: list[ReplaySummary] = []
    with run.sources("replaying") as (sources, advance):
        for source in sources:
            try:
                done = send(
                    run.table,
                    run.objects,
                    source,
                    target,
                    options=options,
                    on_progress=_advancing(advance),
                    should_stop=run.stopped.is_set,
                )
            except ColdstreamError as err:
                if isinstance(err, StreamNotFoundError):
                    err.add_note(_DECLARE)
                run.failures.append(err)
            else:
                summaries.append(done)
    if unroutable := sum(table_summary.unroutable for table_summary in summaries):
        typer.echo(f"{unroutable} messages were dropped by the broker: no queue is bound for them", err=True)
    streams = [table_summary.to_dict() for table_summary in summaries]
    complete = all(table_summary.is_complete for table_summary in summaries) and not run.failures
    run.end_with(
        {
            "target": asked.stream or asked.super_stream or asked.exchange,
            "streams": streams,
            "messages": sum(table_summary.messages for table_summary in summaries),
            "complete": complete,
            "seconds": round(time.monotonic() - run.began, 3),
        },
        ("vhost", "stream", "from", "to", "resumed at", "confirmed to", "messages", "left out", "unroutable"),
        [
            (
                table_summary.stream.vhost,
                table_summary.stream.name,
                table_summary.start,
                table_summary.end,
                table_summary.resumed_at,
                table_summary.confirmed_to,
                table_summary.messages,
                table_summary.left_out,
                table_summary.unroutable,
            )
            for table_summary in summaries
        ],
    )


def _advancing(advance: Advance) -> Callable[[ReplayProgress], None]:
    """Turn how far a replay is into how far it came since it was last told."""
    done = 0

    def tell(now: ReplayProgress) -> None:
        nonlocal done
        reached = now.done_to - now.start
        advance(max(0, reached - done))
        done = max(done, reached)

    return tell


def _function(name: str | None) -> Callable[..., Any] | None:
    from coldstream.replay.transform import load_function

    if name is None:
        return None
    sys.path.insert(0, str(Path.cwd()))  # where a user's module is, as with `python -m`
    return load_function(name)
