"""`coldstream quarantine`: segments that could not be archived, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import By, DryRun, Incarnation, Name, Output, Vhost, Yes, words
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, size_text, write, write_json, write_table
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from coldstream.manifest.stream import StreamId
    from coldstream.operate.quarantine_end import QuarantineActions
    from coldstream.operate.quarantined_segments import QuarantineDetails, QuarantinedSegment
    from coldstream.store.open_archive import OpenArchive
    from coldstream.store.ports import DeleteReport
    from coldstream.store.table import DynamoTable

_LOOK_EVERY_S = 0.5

FirstOffset = Annotated[
    int, typer.Argument(help="First offset of the segment, as `list` shows it.", metavar="OFFSET", show_default=False)
]


def list_quarantine(
    name: Annotated[
        str | None, typer.Argument(help="Name of a stream. Default: all.", metavar="NAME", show_default=False)
    ] = None,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """List the segments in quarantine, of one stream or of all. Example: `coldstream quarantine list`."""
    from coldstream.operate.quarantined_segments import quarantined_segments

    archive = open_archive()
    found = list(quarantined_segments(archive.table, _streams(archive.table, vhost, name, incarnation)))
    if output is Format.JSON:
        for one in found:
            write_json(_to_json(one))
        return
    heads = ("vhost", "stream", "first offset", "next offset", "since", "copies", "archived", "reason")
    write_table(
        heads,
        [
            (
                one.stream.vhost,
                one.stream.name,
                one.record.first_offset,
                one.record.next_offset,
                format_timestamp(one.record.at),
                one.record.copies,
                "yes" if one.is_archived else "no",
                one.record.reason,
            )
            for one in found
        ],
    )
    if not found:
        typer.echo(printable(f"nothing is in quarantine in bucket {archive.settings.bucket}"), err=True)


def show(
    name: Name,
    first_offset: FirstOffset,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """Show one segment, and why it is in quarantine.

    Its copies are listed, and the first chunk that differs from the archive. Example: `coldstream quarantine show
    orders 120000`.
    """
    from coldstream.operate.quarantined_segments import details_of

    archive = open_archive()
    segment = _segment(archive.table, vhost, name, incarnation, first_offset)
    details = details_of(archive.table, archive.objects, archive.keys, segment)
    if output is Format.JSON:
        write_json(_details_to_json(details))
    else:
        for label, value in _lines(details):
            write(f"{label:<15}{printable(value)}")


def retry(
    name: Name,
    first_offset: FirstOffset,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    timeout: Annotated[
        float, typer.Option(help="How long to wait for the outcome; 0 does not wait.", min=0, metavar="SECONDS")
    ] = 60,
    by: By,
    output: Output = Format.TEXT,
) -> None:
    """Have a segment judged again, as everything is now.

    It is staged and announced as agents do it. If it is archived, its record and its copies go. Example: `coldstream
    quarantine retry orders 120000`.
    """
    from coldstream.ingest.announcer import Announcer
    from coldstream.operate.quarantine_retry import RetryOutcome, announce_again, wait_for

    archive = open_archive()
    segment = _segment(archive.table, vhost, name, incarnation, first_offset)
    announcer = Announcer.from_environment()
    retried = announce_again(announcer, segment)
    looks = 1 + int(timeout / _LOOK_EVERY_S)
    outcome = wait_for(announcer, retried, attempts=looks, sleep=lambda: time.sleep(_LOOK_EVERY_S))
    if outcome is RetryOutcome.ARCHIVED:
        _actions(archive, by).release(segment, delete=True)
    if output is Format.JSON:
        write_json({**_to_json(segment), "outcome": outcome})
    else:
        write(f"offsets {segment.record.first_offset} to {segment.record.next_offset - 1}: {outcome}")
    if outcome is RetryOutcome.QUARANTINED:
        raise typer.Exit(ExitCode.CORRUPTION)


def release(
    name: Name,
    first_offset: FirstOffset,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete its copies at once, too.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By,
    output: Output = Format.TEXT,
) -> None:
    """Accept the archive's history of a segment's offsets.

    The record goes. The copies stay until `coldstream garbage --delete`, unless --delete says otherwise. Example:
    `coldstream quarantine release orders 120000 --dry-run`.
    """
    archive = open_archive()
    segment = _segment(archive.table, vhost, name, incarnation, first_offset)
    what = f"release offsets {first_offset} to {segment.record.next_offset - 1} of {segment.stream}"
    if not dry_run:
        confirm(f"{what}{', and delete the copies' if delete else ''}?", yes=yes)
        report = _actions(archive, by).release(segment, delete=delete)
        _tell_end(segment, "released", report, output)
    else:
        _tell_dry_run(archive, segment, what, copies_too=delete, output=output)


def discard(
    name: Name,
    first_offset: FirstOffset,
    *,
    reason: Annotated[
        str,
        typer.Option(help="Why, for the journal and the gap.", metavar="TEXT", show_default=False, callback=words),
    ],
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By,
    output: Output = Format.TEXT,
) -> None:
    """Give a segment up, and delete its copies.

    Offsets that the archive lacks become a loss, and their gap says why. Example: `coldstream quarantine discard orders
    120000 --reason 'the disk of node 2 is gone'`.
    """
    archive = open_archive()
    segment = _segment(archive.table, vhost, name, incarnation, first_offset)
    what = f"discard offsets {first_offset} to {segment.record.next_offset - 1} of {segment.stream}"
    if not dry_run:
        lost = "" if segment.is_archived else "; the archive lacks some of them, for good"
        confirm(f"{what}{lost}?", yes=yes)
        _tell_end(segment, "discarded", _actions(archive, by).discard(segment, why=reason), output)
    else:
        _tell_dry_run(archive, segment, what, copies_too=True, output=output)


def _actions(archive: OpenArchive, by: str) -> QuarantineActions:
    from coldstream.operate.quarantine_end import QuarantineActions
    from coldstream.store.control import ControlObjects

    objects, keys = archive.objects, archive.keys
    return QuarantineActions(archive.table, objects, keys, ControlObjects(objects, keys), objects.clock, by)


def _streams(table: DynamoTable, vhost: str, name: str | None, incarnation: str | None) -> Iterator[StreamId]:
    from coldstream.store.streams import iter_streams, select_streams

    if name is None:
        return iter_streams(table)
    return iter(select_streams(table, vhost, [name], incarnation=incarnation))


def _segment(
    table: DynamoTable, vhost: str, name: str, incarnation: str | None, first_offset: int
) -> QuarantinedSegment:
    from coldstream.operate.quarantined_segments import find_quarantined
    from coldstream.units import Offset

    (stream,) = _streams(table, vhost, name, incarnation)
    return find_quarantined(table, stream, Offset(first_offset))


def _to_json(one: QuarantinedSegment) -> dict[str, Any]:
    return {
        "vhost": one.stream.vhost,
        "name": one.stream.name,
        "incarnation": one.stream.incarnation,
        "first_offset": one.record.first_offset,
        "next_offset": one.record.next_offset,
        "at": one.record.at,
        "copies": one.record.copies,
        "is_archived": one.is_archived,
        "reason": one.record.reason,
        "key": one.record.key,
    }


def _details_to_json(details: QuarantineDetails) -> dict[str, Any]:
    return {
        **_to_json(details.segment),
        "kept": [
            {"key": one.key, "size_bytes": one.size_bytes, "last_modified": one.last_modified, "reason": one.reason}
            for one in details.copies
        ],
        "archived": [{"first_offset": first, "next_offset": end, "key": key} for first, end, key in details.archived],
        "damage": details.damage,
        "contradiction": details.contradiction,
    }


def _lines(details: QuarantineDetails) -> Iterator[tuple[str, object]]:
    segment = details.segment
    yield "stream", segment.stream
    yield "offsets", f"{segment.record.first_offset} to {segment.record.next_offset - 1}"
    yield "since", format_timestamp(segment.record.at)
    yield "reason", segment.record.reason
    yield "copies", f"{segment.record.copies} failed, {len(details.copies)} kept"
    for copy in details.copies:
        yield "", f"{copy.key}, {size_text(copy.size_bytes)}, {format_timestamp(copy.last_modified)}"
        yield "", f"    {copy.reason or 'no note says why'}"
    yield "archived", "all of its offsets" if segment.is_archived else "not all of its offsets"
    for first_offset, next_offset, key in details.archived:
        yield "", f"{first_offset} to {next_offset - 1} in {key}"
    yield "damage", details.damage or "none: it keeps the format"
    yield "contradiction", details.contradiction or "none: what the archive has of it is the same"


def _tell_end(segment: QuarantinedSegment, what: str, report: DeleteReport, output: Format) -> None:
    copies = [key for key in report.deleted if not key.endswith(".json")]
    if output is Format.JSON:
        failed = [{"key": one.key, "reason": one.reason} for one in report.failed]
        write_json({**_to_json(segment), "done": what, "deleted": list(report.deleted), "failed": failed})
    else:
        record = segment.record
        copies_text = count_text(len(copies), "object")
        write(f"offsets {record.first_offset} to {record.next_offset - 1}: {what}, {copies_text} deleted")
    for one in report.failed:
        typer.echo(printable(f"not deleted: {one.key}: {one.reason}"), err=True)
    if report.failed:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _tell_dry_run(
    archive: OpenArchive, segment: QuarantinedSegment, what: str, *, copies_too: bool, output: Format
) -> None:
    from coldstream.operate.quarantined_segments import copies_of

    copies = copies_of(archive.objects, archive.keys, segment) if copies_too else ()
    size_bytes = sum(one.size_bytes for one in copies)
    if output is Format.JSON:
        write_json({**_to_json(segment), "dry_run": True, "objects": len(copies), "object_bytes": size_bytes})
    else:
        copies_text = count_text(len(copies), "object")
        write(f"would {printable(what)}: {copies_text} of {size_text(size_bytes)} would be deleted")
