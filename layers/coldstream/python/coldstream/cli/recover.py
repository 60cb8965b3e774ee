"""`coldstream recover`: archive what only the recovery log has, after a node and its disk are lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import DryRun, Output
from coldstream.cli.progress import progress
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, size_text, write_json, write_table

if TYPE_CHECKING:
    from coldstream.ingest.recovery import RecoveredStream, RecoveryReport


def recover(
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_CLUSTER",
            help="The cluster whose log it is, as its agents were told. Default: that of agents without a cluster.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    timeout: Annotated[
        float, typer.Option(help="Give up if nothing is archived for so long.", metavar="SECONDS")
    ] = 600,
    output: Output = Format.TEXT,
) -> None:
    """Archive what only the recovery log has, once a node is lost.

    Agents with --quiet-span keep copies in the bucket of what waits for its slice. If a node and its disk are lost,
    this command takes what all nodes have logged, and stages and announces what the manifest does not cover, like any
    segment. Then it deletes the log's objects of which the archive has everything. What stays is named, with the
    reason.

    It is safe to kill, to repeat, and to run while agents are at work. The exit code is 5 if something is damaged or
    went to quarantine. Example: `coldstream recover --dry-run`.
    """
    from coldstream.ingest.announcer import Announcer
    from coldstream.ingest.recovery import LogRecovery

    environment = os.environ if cluster is None else {**os.environ, "COLDSTREAM_CLUSTER": cluster}
    recovery = LogRecovery(Announcer.from_environment(environment, dry_run=dry_run), timeout)
    with progress("reading", None, "objects") as on_object, progress("recovering", None, "streams") as on_stream:
        report = recovery.run(on_object, on_stream)
    if output is Format.JSON:
        write_json(_to_json(report, dry_run=dry_run))
    else:
        _show(report, dry_run=dry_run)
    if report.is_damaged or any(found.quarantined for found in report.streams):
        raise typer.Exit(ExitCode.CORRUPTION)
    if report.failures:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _show(report: RecoveryReport, *, dry_run: bool) -> None:
    write_table(
        ("vhost", "stream", "would recover" if dry_run else "recovered", "size", "quarantined", "left out because"),
        [
            (
                found.stream.vhost,
                found.stream.name,
                _offsets(found.recovered),
                size_text(found.recovered_bytes),
                _offsets(found.quarantined) or None,
                found.why,
            )
            for found in report.streams
            if found.recovered or found.quarantined or found.why
        ],
    )
    recovered = sum(bool(found.recovered) for found in report.streams)
    found = (
        f"{count_text(report.objects, 'object')} of {size_text(report.object_bytes)} in the recovery log of"
        f" {count_text(len(report.nodes), 'node')}, with {count_text(len(report.streams), 'stream')}"
    )
    verb = "would be" if dry_run else "were"
    done = (
        f"{count_text(recovered, 'stream')} {verb} archived farther; {count_text(report.deleted, 'object')} of"
        f" {size_text(report.deleted_bytes)} {verb} deleted, {len(report.kept)} stay"
    )
    stays = (f"stays: {kept.key}: {kept.why}" for kept in report.kept)
    failed = (f"not deleted: {failure.key}: {failure.reason}" for failure in report.failures)
    for line in (found, done, *stays, *failed):
        typer.echo(printable(line), err=True)


def _offsets(found: list[tuple[int, int]]) -> str:
    return ", ".join(f"{first} to {following - 1}" for first, following in found)


def _to_json(report: RecoveryReport, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "nodes": list(report.nodes),
        "objects": report.objects,
        "object_bytes": report.object_bytes,
        "deleted": report.deleted,
        "deleted_bytes": report.deleted_bytes,
        "kept": [{"key": kept.key, "why": kept.why} for kept in report.kept],
        "failures": [{"key": failure.key, "reason": failure.reason} for failure in report.failures],
        "streams": [_stream_json(found) for found in report.streams],
    }


def _stream_json(found: RecoveredStream) -> dict[str, object]:
    def ranges(offsets: list[tuple[int, int]]) -> list[dict[str, int]]:
        return [{"first_offset": first, "next_offset": following} for first, following in offsets]

    return {
        "vhost": found.stream.vhost,
        "name": found.stream.name,
        "incarnation": found.stream.incarnation,
        "covered": ranges(found.covered),
        "recovered": ranges(found.recovered),
        "recovered_bytes": found.recovered_bytes,
        "quarantined": ranges(found.quarantined),
        "why": found.why,
    }
