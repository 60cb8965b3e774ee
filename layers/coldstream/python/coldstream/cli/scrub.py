"""`coldstream scrub`: the table against the bucket against the bytes, on a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import DryRun, Incarnation, Names, Output, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.quantities import parse_option
from coldstream.cli.stopping import stop_on_signals
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, size_text, write_json, write_table

if TYPE_CHECKING:
    from coldstream.scrub.damage import Finding
    from coldstream.scrub.report import ScrubReport


def scrub(
    names: Names = None,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte: each chunk, each frame, and replay the journal.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what has a repair. Nothing is deleted.")] = False,
    take_again: Annotated[
        bool,
        typer.Option(
            "--take-again",
            help="With --repair: remove an entry whose object is damaged, so that an agent that still has the range"
            " announces it again. Until then it is a known gap. The object stays for 30 days.",
        ),
    ] = False,
    max_removed: Annotated[
        int, typer.Option(help="With --take-again: remove so many entries at most.", min=1, metavar="NUMBER")
    ] = 100,
    max_requests: Annotated[
        int | None, typer.Option(help="Requests at most, 100 or more.", metavar="NUMBER", show_default="no limit")
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(help="Read so much of objects at most, such as 10GiB.", metavar="SIZE", show_default="no limit"),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Seconds at most.", metavar="SECONDS", show_default="no limit")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--restart", help="Go on where the last run of the same streams ended, or begin anew."),
    ] = True,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
) -> None:
    """Compare table, bucket and bytes: what is damaged?

    What to do is said beside each damage. A run ends when everything is checked, or the budget is spent; the next one
    goes on. The exit code is 5 if there is damage that was not mended. Writers may go on meanwhile: what they are doing
    is never taken for damage. With --dry-run, --repair mends nothing, and each damage is listed with its repair.
    Examples: `coldstream scrub orders --deep --max-bytes 10GiB`, `coldstream scrub --repair --dry-run`.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.scrub.budget import Budget
    from coldstream.scrub.catalogue import CATALOGUE
    from coldstream.scrub.run import Scrubber, ScrubOptions
    from coldstream.store.streams import select_streams
    from coldstream.units import parse_size

    if take_again and not repair:
        raise InvalidSettingError("--take-again", "is a kind of repair: it needs --repair")
    budget = Budget(max_requests, parse_option("--max-bytes", max_bytes, parse_size), max_seconds)
    archive = open_archive()
    streams = select_streams(archive.table, vhost, names, incarnation=incarnation) if names else None
    stopped = stop_on_signals()  # the run ends before its next request, and its position is saved
    scrubber = Scrubber(archive.table, archive.objects, archive.keys, archive.objects.clock)
    with progress("checking", None, "fragments") as advance:
        report = scrubber.run(
            streams,
            ScrubOptions(
                deep=deep,
                repair=repair and not dry_run,
                take_again=take_again and not dry_run,
                max_removed=max_removed,
                resume=resume,
            ),
            budget,
            should_stop=stopped.is_set,
            on_fragments=advance,
            on_more=_tell_more,
        )
    if output is Format.JSON:
        write_json(report.to_json())
    else:
        _show(report)
    left = [finding for finding in report.findings if finding not in report.mended]
    if left:
        worst = max(left, key=lambda one: CATALOGUE[one.damage].severity)
        typer.echo(printable(f"damaged: {worst}"), err=True)
    raise typer.Exit(ExitCode.CORRUPTION if report.left else ExitCode.INTERRUPTED if stopped.is_set() else ExitCode.OK)


def _tell_more(finding: Finding, is_mended: bool) -> None:  # noqa: FBT001  a callback
    """Tell a finding that the report has no room for."""
    typer.echo(printable(f"{'mended' if is_mended else 'damaged'}: {finding}"), err=True)


def _show(report: ScrubReport) -> None:
    from coldstream.scrub.catalogue import CATALOGUE

    rows = []
    for finding in report.findings:
        kind = CATALOGUE[finding.damage]
        rows.append(
            (
                kind.severity.name.lower(),
                finding.damage.value,
                finding.stream.vhost,
                finding.stream.name,
                "" if finding.first_offset is None else finding.first_offset,
                printable(finding.detail),
                "mended" if finding in report.mended else kind.command.replace("NAME", finding.stream.name),
            )
        )
    if rows:
        write_table(("severity", "damage", "vhost", "stream", "offset", "what", "what to do"), rows)
    position, spent = report.position, report.spent
    checked = "checked" if report.is_complete else "checked so far"
    typer.echo(
        f"{count_text(position.fragments, 'fragment')} of {count_text(position.streams_done, 'stream')} {checked};"
        f" {count_text(report.found, 'damage')} in this run, {report.found - report.left} mended;"
        f" {count_text(spent.requests, 'request')}, {size_text(spent.data_bytes)} read",
        err=True,
    )
    if position.unread or position.unsettled:
        typer.echo(
            f"{count_text(position.unread, 'object')} could not be read to the end,"
            f" {count_text(position.unsettled, 'item')} too busy to judge",
            err=True,
        )
    for note in report.notes:
        typer.echo(printable(note), err=True)
    if not report.is_complete:
        where = f"stream {report.at}, {position.stage.value} {position.reached}".rstrip()
        typer.echo(printable(f"{position.share:.1%} done; the next run goes on at {where}"), err=True)
