"""`coldstream retention run`: what the policies let go is removed, and what they want colder is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import DryRun, Incarnation, Names, Output, UrlExpiry, Vhost, Yes
from coldstream.cli.progress import progress
from coldstream.cli.stores import open_stores
from coldstream.compact.arguments import LONGEST_URL_EXPIRY
from coldstream.terminal.exits import exit_code_of
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldstream.lifecycle.retention import RetentionReport
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.manifest.stream import StreamId


def run(
    names: Names = None,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    dry_run: DryRun = False,
    url_expiry: UrlExpiry = LONGEST_URL_EXPIRY,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Remove what the policies let go, the oldest fragments first.

    Whole fragments go, and only from the beginning of a stream. Readers lose them at once; their objects are deleted by
    the sweep, when the last URL for them has expired. A stream that no policy names is kept for ever. See it first:
    `coldstream retention run --dry-run`.
    """
    from coldstream.lifecycle.retention import run_retention
    from coldstream.store.streams import iter_streams, select_streams

    stores = open_stores(url_expiry)
    if names:
        streams = select_streams(stores.table, vhost, names, incarnation=incarnation)
    else:
        streams = tuple(iter_streams(stores.table))
    if dry_run or not yes:
        forecasts = _run(stores, streams, dry_run=True)
        if dry_run:
            _show(forecasts, output)
            _end(forecasts)
        if any(report.removal.fragments or report.moves.objects for report in forecasts):
            _show(forecasts, Format.TEXT)
            confirm("remove and move that?", yes=yes)
    with progress("retention", len(streams), "streams") as advance:
        reports = list(run_retention(stores, streams, dry_run=False, on_stream=advance))
    _show(reports, output)
    _end(reports)


def _run(stores: LifecycleStores, streams: Sequence[StreamId], *, dry_run: bool) -> list[RetentionReport]:
    from coldstream.lifecycle.retention import run_retention

    with progress("looking", len(streams), "streams") as advance:
        return list(run_retention(stores, streams, dry_run=dry_run, on_stream=advance))


def _show(reports: Sequence[RetentionReport], output: Format) -> None:
    from coldstream.lifecycle.retention import summary_of

    if output is Format.JSON:
        write_json(summary_of(reports))
        return
    heads = ("vhost", "stream", "policy", "objects", "size", "saves a month", "first offset", "moved", "held by")
    write_table(
        heads,
        [
            (
                report.stream.vhost,
                report.stream.name,
                report.policy or "none: kept",
                report.removal.fragments,
                size_text(report.removal.object_bytes),
                usd_text(report.saved_usd_a_month),
                report.removal.first_offset,
                report.moves.objects,
                None if report.removal.held is None else report.removal.held.id,
            )
            for report in reports
        ],
    )
    objects = sum(report.removal.fragments for report in reports)
    object_bytes = sum(report.removal.object_bytes for report in reports)
    saved = sum(report.saved_usd_a_month for report in reports)
    would = "would be" if any(report.is_dry_run for report in reports) else "are"
    typer.echo(
        f"{count_text(objects, 'object')} of {size_text(object_bytes)} {would} removed, {usd_text(saved)} a month"
        f" saved, {PRICES}",
        err=True,
    )
    if moved := sum(report.moves.objects for report in reports):
        cost = usd_text(sum(report.moves.cost_usd for report in reports))
        typer.echo(f"{count_text(moved, 'object')} {would} moved, which costs {cost} once", err=True)


def _end(reports: Sequence[RetentionReport]) -> None:
    failures = [(report.stream, report.error) for report in reports if report.error is not None]
    for stream, error in failures:
        typer.echo(printable(f"failed: {stream}: {error}"), err=True)
    raise typer.Exit(exit_code_of(type(error) for _, error in failures))
