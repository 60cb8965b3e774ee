"""`coldstream rebuild`: the manifest's table made anew from the bucket alone."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import DryRun, Names, Output, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.quantities import TIME_HELP, time_of
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, size_text, write, write_json, write_table
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from coldstream.manifest.stream import Incarnation as IncarnationName
    from coldstream.rebuild.compare import Difference
    from coldstream.rebuild.facts import StreamReport
    from coldstream.store.table import DynamoTable

CONNECTIONS_A_STREAM = 20


def rebuild(
    names: Names = None,
    *,
    to_table: Annotated[
        str, typer.Option(help="The table to write, which has nothing of these streams.", metavar="TABLE")
    ],
    vhost: Vhost = "/",
    at: Annotated[
        str | None,
        typer.Option(help=f"Rebuild what the bucket was at {TIME_HELP}", metavar="TIME", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Only compare the table, once it is rebuilt, with that of COLDSTREAM_TABLE."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Streams to rebuild at a time.", min=1, max=64, metavar="NUMBER")] = 2,
    output: Output = Format.TEXT,
) -> None:
    """Make the manifest's table anew, from the bucket alone.

    Entries come from their objects; names, floors, deletions, holds, erasures and losses from control objects. Nothing
    is written to the bucket. If it is interrupted or killed, the next run continues. Uploads should wait meanwhile.
    The exit code is 5 if objects could not be read, or tables differ. Examples: `coldstream rebuild --to-table
    archive-2 --dry-run`, `coldstream rebuild --to-table archive-2 --compare`.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.rebuild.run import Rebuilder, find_named
    from coldstream.store.grace import LONGEST_GRACE_MS
    from coldstream.store.table import DynamoTable

    moment = time_of("--at", at)
    archive = open_archive(CONNECTIONS_A_STREAM * jobs)
    settings = archive.settings
    if to_table == settings.table and not dry_run:
        raise InvalidSettingError("--to-table", "is the archive's own table: rebuild into another")
    table = DynamoTable(to_table)
    stopped = threading.Event()
    # SIGTERM raises, as Ctrl-C does: what is written by then stays, and the next run continues.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress("rebuilding", None, "objects") as advance:
        rebuilder = Rebuilder(
            table,
            archive.objects,
            archive.keys,
            archive.objects.clock,
            LONGEST_GRACE_MS,  # a table is rebuilt without knowing what its resolvers' URLs were
            at=moment,
            is_dry=dry_run,
            should_stop=stopped.is_set,
            on_object=lambda _: advance(1),
        )
        chosen = list(find_named(archive.objects, rebuilder.keys, vhost, names or []))
        if compare:
            _compare(archive.table, table, chosen, output)
            return
        if dry_run:
            table.streams(None, 1)  # raises if there is no such table: the rebuild would, too
        if not names:
            rebuilder.of_no_stream()
        try:
            reports = list(rebuilder.streams(chosen, at_once=jobs))
        except KeyboardInterrupt:
            stopped.set()  # the threads end after the change that they are writing
            raise
    if output is Format.JSON:
        for report in reports:
            write_json({"dry_run": dry_run, **report.to_json()})
    else:
        _show(reports)
    if any(report.unread for report in reports):
        raise typer.Exit(ExitCode.CORRUPTION)


def _compare(one: DynamoTable, other: DynamoTable, chosen: list[IncarnationName], output: Format) -> None:
    """Show each row in which two tables differ; end the command, with a code that says whether there are any."""
    from coldstream.rebuild.compare import differences

    found = 0
    for incarnation in chosen:
        for difference in differences(one, other, incarnation):
            found += 1
            if output is Format.JSON:
                write_json(_difference_to_json(incarnation, difference))
            else:
                write(printable(f"{incarnation}  {difference.item}: {_difference_text(difference)}"))
    if output is Format.TEXT:
        typer.echo(f"{count_text(len(chosen), 'stream')} compared, {count_text(found, 'difference')}", err=True)
    if found:
        raise typer.Exit(ExitCode.CORRUPTION)


def _difference_text(difference: Difference) -> str:
    if difference.one is None:
        return "only in the rebuilt table"
    if difference.other is None:
        return "not in the rebuilt table"
    values = (
        f"{name} is {getattr(difference.one, name)}, rebuilt {getattr(difference.other, name)}"
        for name in difference.fields
    )
    return "; ".join(values)


def _difference_to_json(incarnation: str, difference: Difference) -> dict[str, object]:
    is_in = {"table": difference.one is not None, "rebuilt": difference.other is not None}
    return {"incarnation": incarnation, "item": difference.item, **is_in, "fields": list(difference.fields)}


def _show(reports: list[StreamReport]) -> None:
    heads = ("vhost", "stream", "fragments", "written", "data", "gaps", "superseded", "doubtful", "unreadable", "is")
    rows = [
        (
            report.stream.vhost,
            report.stream.name,
            report.fragments,
            report.written,
            size_text(report.data_bytes),
            report.gaps,
            report.superseded,
            report.doubts,
            report.unread,
            "done" if report.is_done else "stopped",
        )
        for report in reports
    ]
    write_table(heads, rows)
    for report in reports:
        if not report.is_named:
            typer.echo(printable(f"{report.stream}: named by its directory; no object says its names"), err=True)
        for note in report.notes:
            typer.echo(printable(f"{report.stream}: {note}"), err=True)
        for one in report.doubtful:
            typer.echo(printable(f"doubtful: {one.key}: {one.reason}"), err=True)
        for one in report.unreadable:
            typer.echo(printable(f"not read: {one.key}: {one.reason.removeprefix(one.key).lstrip()}"), err=True)
        for key in report.stand_ins:
            at = "" if report.at is None else f" than {format_timestamp(report.at)}"
            typer.echo(printable(f"stands in for what is gone, later{at}: {key}"), err=True)
