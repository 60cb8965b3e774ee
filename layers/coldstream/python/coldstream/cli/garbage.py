"""`coldstream garbage`: what of the bucket belongs to nothing, and its deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import DryRun, Output, Yes
from coldstream.cli.progress import progress
from coldstream.cli.quantities import duration_ms_of
from coldstream.cli.stopping import stop_on_signals
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
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
    from coldstream.garbage.report import GarbageReport


def garbage(
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is proven to be garbage.")] = False,
    dry_run: DryRun = False,
    older_than: Annotated[
        str,
        typer.Option(
            help="Leave fragments and write-ahead logs alone that are younger, by S3's clock; at least 1h.",
            metavar="TIME",
        ),
    ] = "24h",
    unknown_streams: Annotated[
        bool,
        typer.Option("--unknown-streams", help="Count fragments of streams that nothing knows as garbage, too."),
    ] = False,
    versions: Annotated[
        bool, typer.Option("--versions", help="Add up what noncurrent versions cost, by another listing.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Stop after so many objects; --resume goes on.", min=1, metavar="NUMBER")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was stopped.")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Find objects that belong to nothing, and delete them.

    Without --delete it only reports. An object is garbage only by proof: nothing names it, and no writer, however slow,
    could still make anything name it. Agents, functions and compactions may run at the same time. Ctrl-C stops it at
    the next safe place. Examples: `coldstream garbage`, `coldstream garbage --delete --older-than 7d`.
    """
    from coldstream.garbage.cursor import BY_COMMAND, GarbageCursor
    from coldstream.garbage.options import GarbageOptions
    from coldstream.garbage.run import GarbageCollector

    older_than_ms = duration_ms_of("--older-than", older_than)
    assert older_than_ms is not None
    options = GarbageOptions(
        delete=delete and not dry_run,
        older_than_ms=older_than_ms,
        unknown_streams=unknown_streams,
        max_objects=limit,
        versions=versions,
    )
    archive = open_archive()
    settings = archive.settings
    if options.delete:
        below = f", below {settings.prefix!r}" if settings.prefix else ""
        confirm(f"delete the garbage in bucket {settings.bucket}{below}?", yes=yes)
    cursor = GarbageCursor(archive.table, BY_COMMAND)
    collector = GarbageCollector(archive.table, archive.objects, archive.keys, archive.objects.clock, cursor)
    stopped = stop_on_signals()
    with progress("looking at objects", None, "objects") as advance:
        report = collector.run(options, resume=resume, should_stop=stopped.is_set, on_objects=advance)
    if output is Format.JSON:
        write_json(report.to_json())
    else:
        _show(report)
    _tell(report)
    if report.deletions.failed:
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if stopped.is_set():
        raise typer.Exit(ExitCode.INTERRUPTED)


def _show(report: GarbageReport) -> None:
    heads = ("kind", "is", "objects", "size", "a month", "oldest")
    write_table(
        heads,
        [
            (
                one.kind,
                one.state,
                one.objects,
                size_text(one.size_bytes),
                usd_text(one.usd_a_month),
                None if one.oldest is None else format_timestamp(one.oldest),
            )
            for one in report.findings
        ],
    )


def _tell(report: GarbageReport) -> None:
    """Say, for people, what the numbers mean: what went, what did not, examples, and what the bucket does with it."""
    from coldstream.garbage.kinds import ObjectState

    found = report.total(ObjectState.GARBAGE)
    if report.delete:
        size = size_text(report.deletions.size_bytes)
        lines = [f"{count_text(report.deletions.objects, 'object')} of {size} deleted"]
    else:
        size = f"{count_text(found.objects, 'object')} of {size_text(found.size_bytes)}"
        lines = [f"{size}, {usd_text(found.usd_a_month)} a month, would be deleted by --delete; {PRICES}"]
    lines += [f"not deleted: {key}: {reason}" for key, reason in report.deletions.failures]
    if report.deletions.failed > len(report.deletions.failures):
        lines.append(f"and {report.deletions.failed - len(report.deletions.failures)} more that were not deleted")
    for one in report.findings:
        if one.state in {ObjectState.GARBAGE, ObjectState.UNKNOWN}:
            lines += [f"{one.state}: {key}" for key in one.examples]
    lines += report.notes
    if report.noncurrent is not None:
        cost = f"{size_text(report.noncurrent.size_bytes)}, {usd_text(report.noncurrent.usd_a_month)} a month"
        lines.append(f"{count_text(report.noncurrent.versions, 'noncurrent version')} of {cost}")
    if not report.is_complete:
        lines.append(f"stopped after {report.reached}; --resume goes on")
    for line in lines:
        typer.echo(printable(line), err=True)
