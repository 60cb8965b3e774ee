"""`coldstream history`: what changed a stream's manifest, when, and who asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.direct_output import direct_lines
from coldstream.cli.options import Incarnation, Name, Output, Vhost
from coldstream.cli.quantities import TIME_HELP, time_of
from coldstream.cli.stores import open_archive
from coldstream.terminal.output import Format, size_text, write, write_json, write_table
from coldstream.units import MAX_OFFSET, TimestampMs, format_timestamp

if TYPE_CHECKING:
    from coldstream.manifest.entry import JournalEvent
    from coldstream.operate.history import PastState


def history(
    name: Name,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    since: Annotated[
        str | None, typer.Option(help=f"Only events from then on; {TIME_HELP}", metavar="TIME", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help=f"Only events before then; {TIME_HELP}", metavar="TIME", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many events at most, the last ones.", min=1, max=1_000_000)] = 100,
    output: Output = Format.TEXT,
) -> None:
    """Show what changed a stream's manifest, oldest first.

    These are the events of its journal, even if the stream is deleted. Each event is one change, written in the same
    transaction. The journal reaches back to the stream's first fragment in the archive, or to the last `rebuild` of the
    table. Example: `coldstream history orders --since yesterday`.
    """
    from coldstream.operate.history import recent_events
    from coldstream.store.streams import select_also_deleted

    first, last = time_of("--since", since), time_of("--until", until)
    archive = open_archive()
    table = archive.table
    stream = select_also_deleted(table, vhost, name, incarnation)
    events = recent_events(table, stream.incarnation, since=first, until=last, limit=limit)
    if output is Format.JSON:
        for event in events:
            write_json(_to_json(event))
        return
    heads = ("at", "revision", "change", "offsets", "by", "detail")
    write_table(heads, [_row(event) for event in events])
    if not events:
        typer.echo("no event in that time", err=True)
    if len(events) == limit:
        typer.echo(f"only the last {limit}; --limit shows more", err=True)


def show_past(name: str, vhost: str, incarnation: str | None, at: str, output: Format) -> None:
    """Show a stream as it was at a time, from its journal."""
    from coldstream.errors import StreamNotFoundError
    from coldstream.operate.history import state_at
    from coldstream.store.streams import select_also_deleted

    moment = time_of("--at", at)
    assert moment is not None
    archive = open_archive()
    table = archive.table
    stream = select_also_deleted(table, vhost, name, incarnation)
    state = state_at(table, stream.incarnation, moment)
    if state is None:
        raise StreamNotFoundError(f"nothing of {stream} was archived at {format_timestamp(moment)}")
    if output is Format.JSON:
        write_json(_past_to_json(state, moment))
    else:
        _show_past(state, moment)


def _row(event: JournalEvent) -> tuple[object, ...]:
    at = format_timestamp(event.at)
    return at, event.revision, event.kind, _offsets(event), event.by, event.detail or event.key


def _offsets(event: JournalEvent) -> str | None:
    if event.first_offset is None:
        return None
    if event.next_offset is None or event.next_offset > MAX_OFFSET:
        return f"from {event.first_offset}"
    return f"{event.first_offset} to {event.next_offset - 1}"


def _to_json(event: JournalEvent) -> dict[str, object]:
    return {
        "revision": event.revision,
        "kind": event.kind,
        "at": event.at,
        "first_offset": event.first_offset,
        "next_offset": event.next_offset,
        "key": event.key,
        "detail": event.detail,
        "by": event.by,
    }


def _past_to_json(state: PastState, at: TimestampMs) -> dict[str, object]:
    from coldstream.manifest.appender_text import appender_json

    head = state.head
    return {
        "at": at,
        "vhost": head.stream.vhost,
        "name": head.stream.name,
        "incarnation": head.stream.incarnation,
        "revision": head.revision,
        "changed_at": state.event.at,
        "first_offset": head.first_offset,
        "next_offset": head.next_offset,
        "first_timestamp": head.first_timestamp,
        "last_timestamp": head.greatest_timestamp,
        "messages": head.messages,
        "fragments": head.fragments,
        "data_bytes": head.data_bytes,
        "object_bytes": head.object_bytes,
        "floor": head.floor,
        "deleted_at": head.deleted_at,
        "appender": None if head.appender is None else appender_json(head.appender),
        "holds": head.holds,
        "quarantined": head.quarantined,
        "gaps": [
            {"first_offset": gap.first_offset, "next_offset": gap.next_offset, "reason": gap.reason}
            for gap in state.gaps
        ],
    }


def _show_past(state: PastState, at: TimestampMs) -> None:
    from coldstream.terminal.output import gap_text, printable

    head = state.head
    deleted = None if head.deleted_at is None else format_timestamp(head.deleted_at)
    lines: tuple[tuple[str, object], ...] = (
        ("vhost", head.stream.vhost),
        ("stream", head.stream.name),
        ("incarnation", head.stream.incarnation),
        ("at", format_timestamp(at)),
        *direct_lines(head),
        ("changed at", f"{format_timestamp(state.event.at)}, revision {head.revision}: {state.event.kind}"),
        ("first offset", head.first_offset),
        ("tail", head.next_offset),
        ("floor", head.floor),
        ("messages", f"{head.messages:,}"),
        ("fragments", f"{head.fragments:,}"),
        ("data", size_text(head.data_bytes)),
        ("objects", size_text(head.object_bytes)),
        ("deleted at", deleted),
        ("holds", head.holds),
        ("gaps", head.gaps),
        ("quarantined", head.quarantined),
    )
    for label, value in lines:
        write(f"{label:<18}{printable(value)}")
    for gap in state.gaps:
        write(f"{'':18}{gap_text(gap.first_offset, gap.next_offset, gap.reason)}")
