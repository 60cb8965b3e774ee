"""`coldstream announce`: hand the rolled segments on a broker's disk to the archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Output
from coldstream.cli.progress import progress
from coldstream.console.exits import ExitCode
from coldstream.console.output import Format, printable, size_text, write_json, write_table
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.ingest.announcer import AnnouncementReport


def announce(
    directory: Annotated[
        Path,
        typer.Argument(
            exists=True,
            file_okay=False,
            readable=False,  # who may not read it is told what to do
            metavar="DIR",
            show_default=False,
            help="A stream's directory, or a node's with many of them.",
        ),
    ],
    *,
    vhost: Annotated[str | None, typer.Option(help="Virtual host, where the directory's name does not tell.")] = None,
    name: Annotated[str | None, typer.Option(help="Stream name, where the directory's name does not tell.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be announced, and change nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the archive has them.")] = False,
    timeout: Annotated[
        float, typer.Option(help="With --wait: give up when nothing was archived for so long.", metavar="SECONDS")
    ] = 600,
    output: Output = Format.TEXT,
) -> None:
    """Archive what a broker has on its disk.

    That is every rolled segment of a stream, or of all streams of a node. Each one that the archive does not have is
    staged in the bucket, and its event put on the bus. The newest segment of a stream is the one that the broker writes
    to; it is left alone. Safe to repeat: what the archive has is passed over.

    Rolled segments are taken as committed. On a cluster, use the directory of the stream's leader, and not while
    leaders change: a replica's newest rolled segment may end in chunks that the cluster never committed.
    """
    from coldstream.ingest.announcer import Announcer
    from coldstream.ingest.stage import find_rolled, find_streams
    from coldstream.manifest.stream import stream_from_directory

    directories = find_streams(directory.resolve())
    if len(directories) > 1 and (vhost is not None or name is not None):
        raise InvalidInputError("--vhost, --name", f"name one stream, and {directory} has {len(directories)}")
    found = [(stream_from_directory(path.name, vhost=vhost, name=name), find_rolled(path)) for path in directories]
    announcer = Announcer.from_environment(dry_run=dry_run)
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
                f"{stream} has no segment but the one that the broker writes to, which is announced once it has rolled;"
                " `coldstream agent --max-lag 30s` archives such a stream, too"
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
    typer.echo(f"{announced} segments of {size_text(announced_bytes)} {verb}", err=True)
    for rolled in (rolled for report in reports for rolled in report.quarantined):
        typer.echo(printable(f"failed verification, see quarantine: {rolled}"), err=True)


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
