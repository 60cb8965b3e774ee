"""One run of `coldstream replay`: find the requests, replay them one after another, and tell what became of each."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coldstream.cli.progress import progress
from coldstream.errors import ColdstreamError, StreamNotFoundError
from coldstream.terminal.exits import ExitCode, exit_code_of
from coldstream.terminal.output import Format, printable, write_json, write_table

if TYPE_CHECKING:
    from coldstream.replay.arguments import ReplayArguments
    from coldstream.replay.request import ReplayRequest
    from coldstream.replay.summary import ReplayProgress, ReplaySummary
    from coldstream.replay.tables.layout import FileFormat
    from coldstream.replay.tables.report import TableReport
    from coldstream.replay.target import ExchangeTarget, StreamTarget
    from coldstream.store.objects import S3Objects
    from coldstream.store.table import DynamoTable

Advance = Callable[[int], None]

_DECLARE = "replay declares no stream, as retention and segment size are yours to decide: declare the target first"


@dataclass(frozen=True, slots=True)
class ReplaySession:
    """The archive, what is replayed of it, and how to show that it advances."""

    table: DynamoTable
    objects: S3Objects
    requests: Sequence[ReplayRequest]
    advance: Advance


@dataclass(slots=True)
class Replayer:
    """Replays streams as told, and keeps how that goes."""

    names: list[str]
    arguments: ReplayArguments
    output: Format
    failures: list[ColdstreamError] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Replay, and end with an exit code. Raises ColdstreamError for arguments that mean nothing."""
        from coldstream.replay.tables.layout import file_format
        from coldstream.replay.target import find_target

        target = find_target(self.arguments)
        if target is not None:
            self._to_broker(target)
        elif (path := self.arguments.path) is not None:
            self._to_table(path, file_format(self.arguments))

    def _to_table(self, path: str, form: FileFormat) -> None:
        """Replay into Parquet or lines of JSON."""
        from coldstream.replay.tables.directory import open_directory
        from coldstream.replay.tables.layout import Partitioning
        from coldstream.replay.tables.report import TableReport, table_summary
        from coldstream.replay.tables.run import claim_table, replay_to_table
        from coldstream.replay.tables.table import Table

        partitioning = Partitioning.parse(self.arguments.partition_by)
        table = Table(open_directory(path), form, partitioning, _function(self.arguments.transform))
        reports: list[TableReport] = []
        with self._session() as session:
            claim_table(table)
            for request in session.requests:
                report = TableReport(request)
                reports.append(report)
                try:
                    replay_to_table(
                        session.table,
                        session.objects,
                        table,
                        report,
                        on_offsets=session.advance,
                        should_stop=self.stopped.is_set,
                    )
                except ColdstreamError as err:
                    self.failures.append(err)
        self._end(
            table_summary(reports, path, seconds=time.monotonic() - self.began),
            ("vhost", "stream", "from", "to", "messages", "rows", "files", "there already"),
            [
                (
                    report.request.stream.vhost,
                    report.request.stream.name,
                    report.request.start,
                    report.request.end,
                    report.messages,
                    report.rows,
                    report.files,
                    report.present,
                )
                for report in reports
            ],
        )

    def _to_broker(self, target: StreamTarget | ExchangeTarget) -> None:
        """Replay into a stream, a super stream or an exchange."""
        from coldstream.replay.request import check_start
        from coldstream.replay.send import send
        from coldstream.replay.summary import broker_summary
        from coldstream.replay.target import SendOptions
        from coldstream.units import now_ms

        check_start(self.arguments.start, now_ms())
        _function(self.arguments.transform)  # told before anything is read or sent
        options = SendOptions(self.arguments.rate, self.arguments.transform)
        summaries: list[ReplaySummary] = []
        with self._session() as session:
            for request in session.requests:
                try:
                    summary = send(
                        session.table,
                        session.objects,
                        request,
                        target,
                        options=options,
                        on_progress=_advancing(session.advance),
                        should_stop=self.stopped.is_set,
                    )
                except ColdstreamError as err:
                    if isinstance(err, StreamNotFoundError):
                        err.add_note(_DECLARE)
                    self.failures.append(err)
                else:
                    summaries.append(summary)
        if unroutable := sum(summary.unroutable for summary in summaries):
            typer.echo(f"{unroutable} messages were dropped by the broker: no queue is bound for them", err=True)
        seconds = time.monotonic() - self.began
        self._end(
            {"target": target.label, **broker_summary(summaries, is_failed=bool(self.failures), seconds=seconds)},
            ("vhost", "stream", "from", "to", "resumed at", "confirmed to", "messages", "left out", "unroutable"),
            [
                (
                    summary.stream.vhost,
                    summary.stream.name,
                    summary.start,
                    summary.end,
                    summary.resumed_at,
                    summary.confirmed_to,
                    summary.messages,
                    summary.left_out,
                    summary.unroutable,
                )
                for summary in summaries
            ],
        )

    @contextmanager
    def _session(self) -> Iterator[ReplaySession]:
        """Find what is to be replayed, and show progress. The first signal stops the replay, a second one ends it."""
        from coldstream.replay.request import find_request, parse_bounds
        from coldstream.store.objects import S3Objects
        from coldstream.store.reserved import StreamAction, check_not_reserved
        from coldstream.store.settings import Settings
        from coldstream.store.streams import select_streams
        from coldstream.store.table import DynamoTable
        from coldstream.units import now_ms

        arguments = self.arguments
        bounds = parse_bounds(arguments.start, arguments.end, now_ms())
        settings = Settings.from_environment(os.environ)
        table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
        if arguments.to_stream is not None:
            vhost = arguments.to_vhost or arguments.vhost
            check_not_reserved(table, vhost, arguments.to_stream, StreamAction.REPLAY_TO)
        streams = select_streams(table, arguments.vhost, self.names, incarnation=arguments.incarnation)
        found = [find_request(table, objects, stream, *bounds, skip_gaps=arguments.skip_gaps) for stream in streams]

        def stop(number: int, _frame: object) -> None:
            self.stopped.set()
            signal.signal(number, signal.default_int_handler)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with progress("replaying", sum(offsets for _, offsets in found), "messages") as advance:
                yield ReplaySession(table, objects, [request for request, _ in found], advance)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, summary: dict[str, Any], heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
        """Write what became of the replay, and end with its exit code."""
        if self.output is Format.JSON:
            write_json(summary | {"errors": [str(failure) for failure in self.failures]})
        else:
            write_table(heads, rows)
        for gap in (gap for stream in summary["streams"] for gap in stream["gaps"]):
            typer.echo(f"skipped a gap: offsets {gap['first_offset']} to {gap['next_offset'] - 1}", err=True)
        for failure in self.failures:
            advice = "".join(f" ({note})" for note in getattr(failure, "__notes__", ()))
            typer.echo(printable(f"failed: {failure}{advice}"), err=True)
        code = exit_code_of(type(failure) for failure in self.failures)
        raise typer.Exit(ExitCode.INTERRUPTED if self.stopped.is_set() and code is ExitCode.OK else code)


def _advancing(advance: Advance) -> Callable[[ReplayProgress], None]:
    """Turn how far a replay is into how far it has come since the last call."""
    told = 0

    def tell(now: ReplayProgress) -> None:
        nonlocal told
        reached = now.done_to - now.start
        advance(max(0, reached - told))
        told = max(told, reached)

    return tell


def _function(name: str | None) -> Callable[..., Any] | None:
    from coldstream.terminal.user_function import load_function

    if name is None:
        return None
    sys.path.insert(0, str(Path.cwd()))  # where a user's module is, as with `python -m`
    return load_function(name, "transform")
