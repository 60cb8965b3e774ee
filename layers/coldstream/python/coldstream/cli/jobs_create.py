"""`coldstream jobs create`: a job from options, from JSON, or from answers to questions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli import jobs_archive
from coldstream.cli.confirmation import confirm
from coldstream.cli.jobs import follow_to_the_end
from coldstream.cli.jobs_choices import FormatName, KindChoice, RunnerName
from coldstream.cli.jobs_fields import GivenTarget, fields_of, in_file, read_json
from coldstream.cli.jobs_output import write_preview
from coldstream.cli.options import By, Output, Yes, stream_names
from coldstream.terminal.output import Format, printable, write, write_json

if TYPE_CHECKING:
    from coldstream.cli.jobs_archive import JobArchive
    from coldstream.jobs.specs import JobSpec

_TARGET = "Where a load sends"
_WHAT = "What it is to do"


def create(
    kind: Annotated[
        KindChoice | None,
        typer.Argument(help="What the job does. Default: it asks.", metavar="KIND", show_default=False),
    ] = None,
    *,
    from_json: Annotated[
        str | None,
        typer.Option(help="Read all fields from this file, or standard input for -.", metavar="FILE|-"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call it.", metavar="TEXT")] = None,
    vhost: Annotated[str | None, typer.Option(help="Virtual host of the streams. Default: /", metavar="VHOST")] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            help="A stream, or a pattern with * and ?. May be repeated.",
            metavar="NAME",
            autocompletion=stream_names,
            rich_help_panel=_WHAT,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="The first message: first, an offset, or a time.", metavar="SPEC", rich_help_panel=_WHAT
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", help="Where to end, itself not included.", metavar="SPEC", rich_help_panel=_WHAT),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Messages a second at most, of each stream; of a store, bytes.", metavar="N", rich_help_panel=_WHAT
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is archived later.", rich_help_panel=_WHAT)
    ] = False,
    destination: Annotated[
        str | None, typer.Option(help="Of an export: a directory, or s3://BUCKET/PREFIX.", rich_help_panel=_WHAT)
    ] = None,
    file_format: Annotated[
        FormatName | None, typer.Option("--format", help="Of an export.", show_default=False, rich_help_panel=_WHAT)
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Of an erasure: why, for the journal.", metavar="TEXT", rich_help_panel=_WHAT)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Run again: 'every 6h', or five fields of cron.", metavar="WHEN", rich_help_panel=_WHAT),
    ] = None,
    runner: Annotated[
        RunnerName | None,
        typer.Option(help="Who runs it. Default: chosen by size.", show_default=False, rich_help_panel=_WHAT),
    ] = None,
    to_stream: Annotated[
        str | None, typer.Option(help="A stream of a broker.", metavar="NAME", rich_help_panel=_TARGET)
    ] = None,
    to_super_stream: Annotated[
        str | None, typer.Option(help="A super stream of a broker.", metavar="NAME", rich_help_panel=_TARGET)
    ] = None,
    to_exchange: Annotated[
        str | None, typer.Option(help="An exchange of a broker.", metavar="NAME", rich_help_panel=_TARGET)
    ] = None,
    to_table: Annotated[
        str | None, typer.Option(help="A table of files.", metavar="PATH", rich_help_panel=_TARGET)
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(help="The broker, by the name that workers know it by.", metavar="NAME", rich_help_panel=_TARGET),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="The same key creates the same job only once, however often this is run.", metavar="KEY"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would read and cost, and create nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended; then 0 is success, 1 failure, 7 cancelled.")
    ] = False,
    by: By,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Create a job.

    Without KIND, it asks on a terminal, shows what the job would do, and asks whether to create it. Every field that
    has no option here is in the JSON of --from-json; `jobs show JOB --output json` has it under `spec`. What removes
    something for good asks before, unless --yes answers.
    Examples: `coldstream jobs create load --stream 'orders*' --from -1h --to-stream orders-again --dry-run`,
    `coldstream jobs create --from-json job.json --wait`.
    """
    options = {
        "name": name,
        "vhost": vhost,
        "start": start,
        "end": end,
        "rate": rate,
        "follow": follow or None,
        "destination": destination,
        "format": file_format,
        "reason": reason,
        "schedule": schedule,
        "runner": runner,
    }
    target = GivenTarget(to_stream, to_super_stream, to_exchange, to_table, broker)
    is_given = bool(streams) or target != GivenTarget() or any(value is not None for value in options.values())
    is_asked = False
    if from_json is not None:
        if kind is not None or is_given:
            raise typer.BadParameter("has all fields: give no others", param_hint="--from-json")
        spec = _spec_of_file(from_json)
    elif kind is not None:
        spec = _checked(fields_of(kind, options, streams or (), target))
    elif is_given or not sys.stdin.isatty():
        kinds = ", ".join(KindChoice)
        raise typer.BadParameter(f"is missing: say one of {kinds}, or --from-json", param_hint="KIND")
    else:
        from coldstream.cli.jobs_ask import ask_fields

        spec, is_asked = _checked(ask_fields()), True
    archive = jobs_archive.open_jobs()
    if is_asked or dry_run:
        _show_preview(archive, spec, output if dry_run else Format.TEXT)
    if dry_run:
        return
    if is_asked:
        confirm("Create this job?", yes=yes)
    else:
        _confirm_removal(spec, yes=yes)
    _create(archive, spec, by=by, key=idempotency_key, wait=wait, output=output)


def _create(archive: JobArchive, spec: JobSpec, *, by: str, key: str | None, wait: bool, output: Format) -> None:
    from coldstream.dispatch.runner import check_creatable
    from coldstream.jobs.public import public_job

    check_creatable(spec)
    created = archive.jobs.create_once(spec, by=by, idempotency_key=key)
    job = created.job
    if output is Format.JSON and not wait:
        write_json(public_job(job))
    elif output is Format.TEXT:
        told = f"created job {job.id}" if created.is_new else f"job {job.id} was created with this key before"
        write(printable(told))
        if not wait:
            typer.echo("a worker, or the archive's functions, will run it; `coldstream jobs show` tells", err=True)
    if wait:
        sys.stdout.flush()
        follow_to_the_end(job, output)


def _checked(fields: dict[str, Any]) -> JobSpec:
    """Read the fields of a job as it would be stored. Raises InvalidInputError."""
    from coldstream.jobs.sealing import sealed
    from coldstream.jobs.specs import parse_spec

    spec = parse_spec(fields)
    sealed(spec)
    return spec


def _spec_of_file(source: str) -> JobSpec:
    from coldstream.errors import InvalidInputError

    fields = read_json(source)
    try:
        return _checked(fields)
    except InvalidInputError as err:
        raise in_file(err, source) from err


def _show_preview(archive: JobArchive, spec: JobSpec, output: Format) -> None:
    from coldstream.jobs.preview import preview
    from coldstream.units import now_ms

    found = preview(archive.table, spec, now_ms())
    if output is Format.JSON:
        write_json(found.to_dict())
    else:
        write_preview(found)
        sys.stdout.flush()


def _confirm_removal(spec: JobSpec, *, yes: bool) -> None:
    """Ask before a job is created that removes something for good."""
    from coldstream.jobs.job_cautions import cautions_of
    from coldstream.jobs.preview_warning import WarningCode

    removal = next((one.text for one in cautions_of(spec, ()) if one.code is WarningCode.DELETES), None)
    if removal is not None:
        confirm(f"{removal[:1].upper()}{removal[1:]}. Create this job?", yes=yes)
