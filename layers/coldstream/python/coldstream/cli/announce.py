"""`coldstream announce`: archive the rolled segments on a broker's disk, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import DryRun, Output
from coldstream.cli.progress import progress
from coldstream.errors import InvalidInputError
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, size_text, write_json, write_table

if TYPE_CHECKING:
    from coldstream.ingest.announcer import AnnouncementReport


def announce(
    directory: Annotated[
        Path,
        typer.Argument(
            exists=True,
            file_okay=False,
            readable=False,  # the command's own error says what to do about it
            metavar="DIR",
            show_default=False,
            help="A stream's directory, or a node's directory of streams.",
        ),
    ],
    *,
    vhost: Annotated[str | None, typer.Option(help="Virtual host, if the directory's name does not tell.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the stream, if the directory's name does not tell.")] = None,
    dry_run: DryRun = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the segments are archived.")] = False,
    timeout: Annotated[
        float, typer.Option(help="With --wait: give up if nothing is archived for so long.", metavar="SECONDS")
    ] = 600,
    output: Output = Format.TEXT,
) -> None:
    """Archive a directory of segments once.

    Every rolled segment of a stream, or of all streams of a node, is staged in the bucket and announced by an event,
    unless the archive has it already. It is safe to repeat. The newest segment of each stream is left alone: the broker
    still writes to it.

    Rolled segments are taken as committed. On a cluster, use the directory of the stream's leader, and not while
    leaders change: a replica's newest rolled segment may end in chunks that the cluster never committed. Example:
    `coldstream announce --wait /var/lib/rabbitmq/mnesia/rabbit@node-1/stream`.
    """
    from coldstream.ingest.announcer import Announcer
    from coldstream.ingest.stage import find_rolled, find_streams
    from coldstream.manifest.stream import stream_from_directory
    from coldstream.store.reserved import StreamAction, check_not_reserved

    directories = find_streams(directory.resolve())
    if len(directories) > 1 and (vhost is not None or name is not None):
        raise InvalidInputError("--vhost, --name", f"name one stream, and {directory} has {len(directories)}")
    found = [(stream_from_directory(path.name, vhost=vhost, name=name), find_rolled(path)) for path in directories]
    announcer = Announcer.from_environment(dry_run=dry_run)
    for stream, _ in found:  # before anything is staged
        check_not_reserved(announcer.table, stream.vhost, stream.name, StreamAction.ANNOUNCE)
    total_bytes = sum(segment.size_bytes for _, segments in found for segment in segments)
    with progress("announcing", total_bytes, "bytes") as advance:
        reports = [announcer.announce(stream, segments, advance) for stream, segments in found]
    if wait and not dry_run:
        with progress("archiving", sum(len(report.announced) for report in reports), "segments") as advance:
            announcer.wait(reports, timeout, advance)
    _show(reports, output, dry_run=dry_run)
    for stream in (stream for stream, segments in found if not segments):
        typer.echo(
            printable(
                f"{stream} has only the segment that the broker writes to, which can be announced when it has rolled;"
                " `coldstream agent --max-lag 30s` archives such a stream without waiting"
            ),
            err=True,
        )
    if any(report.quarantined for report in reports):
        raise typer.Exit(ExitCode.CORRUPTION)


def _show(reports: list[AnnouncementReport], output: Format, *, dry_run: bool) -> None:
    if output is Format.JSON:
        for report in reports:
            write_json(_to_json(report, dry_run=dry_run))
        return
    heads = ("vhost", "stream", "would announce" if dry_run else "announced", "archived already", "gone", "quarantined")
    write_table(
        heads,
        [
            (
                report.stream.vhost,
                report.stream.name,
                len(report.announced),
                report.archived,
                report.gone,
                len(report.quarantined),
            )
            for report in reports
        ],
    )
    announced_bytes = sum(report.announced_bytes for report in reports)
    announced = sum(len(report.announced) for report in reports)
    verb = "would be announced" if dry_run else "announced"
    typer.echo(f"{count_text(announced, 'segment')} of {size_text(announced_bytes)} {verb}", err=True)
    for rolled in (rolled for report in reports for rolled in report.quarantined):
        typer.echo(printable(f"failed verification and is in quarantine: {rolled}"), err=True)


def _to_json(report: AnnouncementReport, *, dry_run: bool) -> dict[str, object]:
    stream = report.stream
    return {
        "vhost": stream.vhost,
        "name": stream.name,
        "incarnation": stream.incarnation,
        "dry_run": dry_run,
        "announced": [{"first_offset": one.first_offset, "next_offset": one.next_offset} for one in report.announced],
        "announced_bytes": report.announced_bytes,
        "archived": report.archived,
        "gone": report.gone,
        "quarantined": [one.first_offset for one in report.quarantined],
    }
