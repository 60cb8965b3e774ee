"""`coldstream sweep`: objects whose time has come are deleted, and deleted streams purged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import DryRun, Incarnation, Names, Output, UrlExpiry, Vhost, Yes
from coldstream.cli.progress import progress
from coldstream.cli.stores import open_stores
from coldstream.compact.arguments import LONGEST_URL_EXPIRY
from coldstream.terminal.exits import ExitCode, exit_code_of
from coldstream.terminal.output import (
    PRICES,
    Format,
    count_text,
    printable,
    size_text,
    usd_text,
    write_json,
    write_table,
)
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.lifecycle.tend import TendReport
    from coldstream.manifest.stream import StreamId


def sweep(
    names: Names = None,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    dry_run: DryRun = False,
    url_expiry: UrlExpiry = LONGEST_URL_EXPIRY,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Delete the objects that are due; purge deleted streams.

    These are what compaction, retention, truncation, deletion and erasure have replaced or removed. The sweep function
    does the same on its schedule. It may be interrupted anywhere, and repeated. Example: `coldstream sweep --dry-run`.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.garbage.bucket_notes import bucket_notes
    from coldstream.lifecycle.tend import foretell_tending, tend
    from coldstream.store.streams import iter_streams, select_also_deleted

    stores = open_stores(url_expiry)
    if incarnation is not None and len(names or []) != 1:
        raise InvalidSettingError("--incarnation", "selects one incarnation of one stream: name that stream")
    if names:
        streams = tuple(select_also_deleted(stores.table, vhost, name, incarnation) for name in dict.fromkeys(names))
    else:
        streams = tuple(iter_streams(stores.table))
    if dry_run or not yes:
        with progress("looking", len(streams), "streams") as advance:
            forecasts = list(foretell_tending(stores, streams, on_stream=advance))
        if dry_run:
            _show(forecasts, output, is_dry_run=True)
            for note in bucket_notes(stores.bucket):  # on a bucket with versions it saves nothing yet
                typer.echo(note, err=True)
            _tell_next(stores, streams)
            return
        if any(report.has_news for report in forecasts):
            _show(forecasts, Format.TEXT, is_dry_run=True)
            confirm("delete that?", yes=yes)
    with progress("sweeping", None, "objects") as advance:
        reports = list(tend(stores, streams, on_deleted=advance))
    _show(reports, output, is_dry_run=False)
    _tell_next(stores, streams)
    failures = [report for report in reports if report.error is not None]
    for report in failures:
        typer.echo(printable(f"failed: {report.stream}: {report.error}"), err=True)
    if not failures and any(report.failures for report in reports):
        raise typer.Exit(ExitCode.UNAVAILABLE)
    raise typer.Exit(exit_code_of(type(report.error) for report in failures if report.error is not None))


def _tell_next(stores: LifecycleStores, streams: Sequence[StreamId]) -> None:
    """Say when there is more to do: what was removed a moment ago is not due yet, and nobody should wonder why."""
    from coldstream.lifecycle.sweep import next_due_at

    now = stores.now()
    times = [at for stream in streams if (at := next_due_at(stores.table, stream.incarnation, now)) is not None]
    if times:
        typer.echo(f"the next objects are due at {format_timestamp(min(times))}", err=True)


def _show(reports: Sequence[TendReport], output: Format, *, is_dry_run: bool) -> None:
    from coldstream.lifecycle.tend import summary_of

    if output is Format.JSON:
        write_json({"dry_run": is_dry_run, **summary_of(reports)})
        return
    busy = [report for report in reports if report.has_news]
    write_table(
        ("vhost", "stream", "deleted", "size", "saves a month", "held", "refused", "purge"),
        [
            (
                report.stream.vhost,
                report.stream.name,
                report.objects,
                size_text(report.object_bytes),
                usd_text(report.saved_usd_a_month),
                report.swept.held,
                report.swept.refused,
                report.purge_text,
            )
            for report in busy
        ],
    )
    objects = sum(report.objects for report in reports)
    size = size_text(sum(report.object_bytes for report in reports))
    would = "would be" if is_dry_run else "were" if objects != 1 else "was"
    saved = usd_text(sum(report.saved_usd_a_month for report in reports))
    what = f"{count_text(objects, 'object')} of {size} {would} deleted, in {count_text(len(reports), 'stream')}"
    typer.echo(f"{what}, {saved} a month saved, {PRICES}", err=True)
    for report in reports:
        for key in report.swept.kept:
            typer.echo(printable(f"not deleted, because the manifest names it: {key}"), err=True)
        for failure in report.failures:
            typer.echo(printable(f"not deleted: {failure.key}: {failure.reason}"), err=True)
