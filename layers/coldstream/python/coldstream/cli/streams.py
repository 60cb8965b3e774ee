"""`coldstream streams` and `coldstream describe`: what the archive has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from coldstream.cli.options import Incarnation, Name, Output, Resolver, Vhost
from coldstream.cli.output import Format, printable, size_text, write, write_json, write_json_text, write_table
from coldstream.units import TimestampMs, format_timestamp

if TYPE_CHECKING:
    from coldstream.manifest.stream import StreamId
    from coldstream.serve.answer import Description


def streams(*, resolver: Resolver, output: Output = Format.TEXT) -> None:
    """List the archived streams.

    A stream that was deleted and declared again is listed once for each life.
    """
    from coldstream.serve.client import ResolverClient

    found: list[StreamId] = []
    with ResolverClient(resolver) as client:
        cursor = None
        while True:
            page = client.streams(cursor)
            found += page.streams
            cursor = page.cursor
            if cursor is None:
                break
    found.sort(key=lambda stream: (stream.vhost, stream.name, stream.incarnation))
    if output is Format.JSON:
        for stream in found:
            write_json({"vhost": stream.vhost, "name": stream.name, "incarnation": stream.incarnation})
        return
    rows = [(stream.vhost, stream.name, stream.incarnation) for stream in found]
    write_table(("vhost", "stream", "incarnation"), rows)
    if not rows:
        typer.echo("nothing is archived yet; `coldstream announce DIR` archives what a broker has", err=True)


def describe(
    name: Name,
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what is archived of a stream.

    That is offsets and times, sizes, gaps, and where the broker goes on.
    """
    from coldstream.serve.api import DescriptionBody
    from coldstream.serve.client import ResolverClient

    with ResolverClient(resolver) as client:
        description = client.describe(vhost, name, incarnation)
    if output is Format.JSON:
        write_json_text(DescriptionBody.of(description).model_dump_json())
    else:
        _show(description)


def _show(description: Description) -> None:
    head = description.head
    lines: list[tuple[str, object]] = [
        ("vhost", head.stream.vhost),
        ("stream", head.stream.name),
        ("incarnation", head.stream.incarnation),
        ("first offset", head.first_offset),
        ("complete from", description.complete_from),
        ("tail", head.next_offset),
        ("first chunk at", _time(head.first_timestamp)),
        ("newest chunk at", _time(head.greatest_timestamp)),
        ("messages", f"{head.messages:,}"),
        ("offsets", f"{head.records:,}"),
        ("chunks", f"{head.chunks:,}"),
        ("fragments", f"{head.fragments:,}"),
        ("data", size_text(head.data_bytes)),
        ("objects", size_text(head.object_bytes)),
        ("gaps", head.gaps),
        ("quarantined", head.quarantined),
    ]
    for label, value in lines:
        write(f"{label:<18}{printable(value)}")
    if (before := description.before) is not None:
        reason = before.reason or "nobody has said why; the broker may have deleted them before an agent came"
        write(f"{'before the first':<18}{before.first_offset} to {before.next_offset - 1}: {printable(reason)}")
    if (after := description.after) is not None:
        reason = after.reason or "lost"
        write(f"{'behind the tail':<18}{after.first_offset} to {after.next_offset - 1}: {printable(reason)}")
    for gap in description.gaps:
        reason = gap.reason or "not archived yet, or lost"
        write(f"{'':18}{gap.first_offset} to {gap.next_offset - 1}: {printable(reason)}")
    if head.gaps > len(description.gaps):
        write(f"{'':18}and {head.gaps - len(description.gaps)} more")


def _time(timestamp: TimestampMs | None) -> str | None:
    return None if timestamp is None else format_timestamp(timestamp)
