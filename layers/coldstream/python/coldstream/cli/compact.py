"""`coldstream compact`: merge small fragments, and compress them."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.declared_options import with_declared_options
from coldstream.cli.options import Output
from coldstream.cli.progress import progress
from coldstream.compact.arguments import CompactArguments
from coldstream.terminal.exits import exit_code_of
from coldstream.terminal.output import PRICES, Format, printable, size_text, usd_text, write_json, write_table
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldstream.compact.report import CompactionReport
    from coldstream.compact.savings import CompactionForecast
    from coldstream.manifest.groups import CompactionPolicy
    from coldstream.manifest.stream import StreamId
    from coldstream.store.ports import ManifestReads

CONNECTIONS_A_JOB = 8


@with_declared_options
def compact(
    names: Annotated[
        list[str] | None, typer.Argument(help="Streams to compact.", metavar="NAME", show_default=False)
    ] = None,
    *,
    arguments: CompactArguments,
    jobs: Annotated[int, typer.Option(help="Objects to write at a time.", min=1, max=64)] = 2,
    output: Output = Format.TEXT,
) -> None:
    """Merge small fragments into large ones, or compress them.

    Readers, uploads and other compactions may run at the same time. Merged fragments stay for readers that still have
    their URLs, as --url-expiry says; each run also deletes those that are due. If it is interrupted or killed, the
    archive is intact, and the next run goes on. With identity, S3 copies most bytes by itself. Example: `coldstream
    compact orders --older-than 30d --dry-run`.
    """
    from coldstream.compact.options import CompactOptions
    from coldstream.compact.plan import find_groups
    from coldstream.compact.report import run_summary
    from coldstream.compact.run import Compactor
    from coldstream.compact.savings import dry_run_summary, forecast_of
    from coldstream.compact.task import write_task
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.lifecycle.sweep import sweep
    from coldstream.store.keys import Keys
    from coldstream.store.objects import S3Objects
    from coldstream.store.settings import Settings
    from coldstream.store.streams import select_streams
    from coldstream.store.table import DynamoTable

    options = CompactOptions.of(arguments)
    settings = Settings.from_environment(os.environ)
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket, connections=CONNECTIONS_A_JOB * jobs)
    streams = select_streams(
        table, arguments.vhost, names or [], incarnation=arguments.incarnation, every=arguments.every
    )
    if arguments.dry_run:
        forecasts = [forecast_of(table, objects, stream, options, objects.clock()) for stream in streams]
        if output is Format.JSON:
            write_json(dry_run_summary(forecasts))
        else:
            _show_forecasts(forecasts)
        _tell_young(table, streams, options.policy(objects.clock()), arguments.older_than)
        return
    stopped = threading.Event()
    # SIGTERM raises, as Ctrl-C does, so that `Compactor` can stop its tasks. By default it would kill the process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    policy = options.policy(objects.clock())
    planned_bytes = sum(
        group.identity_bytes for stream in streams for group in find_groups(table, stream.incarnation, policy)
    )
    began = time.monotonic()
    keys = Keys(settings.prefix)
    stores = LifecycleStores.open(table, objects, keys, grace_ms=options.grace_ms)
    with progress("compacting", planned_bytes, "bytes") as advance:
        compactor = Compactor(
            table,
            objects,
            write=lambda task: write_task(objects, keys, task, on_bytes=advance, should_stop=stopped.is_set),
            at_once=jobs,
            stop=stopped.set,
            now=objects.clock,
            sweep=lambda incarnation: sweep(stores, incarnation),
        )
        reports = compactor.run(streams, options)
    if output is Format.JSON:
        write_json(run_summary(reports, seconds=time.monotonic() - began))
    else:
        _show(reports)
    _tell_young(table, streams, policy, arguments.older_than)
    failures = [failure for report in reports for failure in report.failures]
    for failure in failures:
        typer.echo(printable(f"failed: {failure}"), err=True)
    raise typer.Exit(exit_code_of(failure.kind for failure in failures))


def _tell_young(table: ManifestReads, streams: Iterable[StreamId], policy: CompactionPolicy, older_than: str) -> None:
    """Name the streams that are left alone because all their fragments are too young."""
    for stream in streams:
        head = table.head(stream.incarnation)
        if head is None or head.is_deleted or head.first_offset is None:
            continue
        oldest = table.log_from_offset(stream.incarnation, head.first_offset, 1).entries[0]
        if oldest.greatest_timestamp >= policy.older_than:
            newest = format_timestamp(oldest.greatest_timestamp)
            what = f"none of its fragments ({head.fragments}) is older than --older-than {older_than}"
            typer.echo(printable(f"{stream}: {what}; the oldest has chunks up to {newest}"), err=True)


def _show_forecasts(forecasts: list[CompactionForecast]) -> None:
    from coldstream.compact.savings import total_of

    heads = ("vhost", "stream", "fragments", "would be", "size", "would be", "saves a month", "costs once")
    rows = []
    for forecast in forecasts:
        savings = forecast.savings
        rows.append(
            (
                forecast.stream.vhost,
                forecast.stream.name,
                savings.fragments,
                savings.fragments_after,
                size_text(savings.object_bytes),
                ("about " if savings.is_estimate else "") + size_text(savings.object_bytes_after),
                usd_text(savings.saved_usd_a_month),
                usd_text(savings.cost_usd),
            )
        )
    write_table(heads, rows)
    total = total_of(forecasts)
    typer.echo(
        f"{total.fragments - total.fragments_after} objects fewer, {size_text(total.saved_bytes)} and"
        f" {usd_text(total.saved_usd_a_month)} a month saved, for {usd_text(total.cost_usd)} once;"
        f" {PRICES}, S3 Standard",
        err=True,
    )
    if any(forecast.due_objects for forecast in forecasts):
        due_bytes = sum(forecast.due_bytes for forecast in forecasts)
        due = sum(forecast.due_objects for forecast in forecasts)
        typer.echo(f"{due} objects of {size_text(due_bytes)} that compaction has replaced would be deleted", err=True)


def _show(reports: list[CompactionReport]) -> None:
    heads = ("vhost", "stream", "fragments", "are now", "size", "is now", "superseded", "failed", "deleted")
    write_table(
        heads,
        [
            (
                report.stream.vhost,
                report.stream.name,
                report.fragments,
                report.fragments_after,
                size_text(report.object_bytes),
                size_text(report.object_bytes_after),
                report.superseded,
                len(report.failures),
                report.swept.objects,
            )
            for report in reports
        ],
    )
    passed = sum(report.read_bytes + report.sent_bytes for report in reports)
    copied = sum(report.copied_bytes for report in reports)
    typer.echo(f"{size_text(passed)} read and sent here, {size_text(copied)} copied by S3", err=True)
    for key in (key for report in reports for key in report.swept.kept):
        typer.echo(printable(f"not deleted, because the manifest names it: {key}"), err=True)
    for failure in (failure for report in reports for failure in report.swept.failures):
        typer.echo(printable(f"not deleted: {failure.key}: {failure.reason}"), err=True)
