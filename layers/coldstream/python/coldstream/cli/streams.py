"""`coldstream streams` and `coldstream describe`: what the archive holds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.direct_output import direct_lines, direct_text
from coldstream.cli.history import show_past
from coldstream.cli.options import Incarnation, Name, Output, Resolver, Vhost
from coldstream.cli.silence import report_silence
from coldstream.flow.window import map_ahead
from coldstream.terminal.output import (
    UNEXPLAINED,
    Format,
    duration_text,
    printable,
    size_text,
    write,
    write_json,
    write_json_text,
    write_table,
)
from coldstream.units import TimestampMs, format_timestamp, now_ms

if TYPE_CHECKING:
    from coldstream.manifest.entry import Head
    from coldstream.manifest.stream import StreamId
    from coldstream.read.client import ResolverClient
    from coldstream.resolve.answer import Description

_CONNECTIONS = 8
"""How many streams are asked for at the same time."""

_NOTHING = (
    "nothing is archived yet: `coldstream agent` beside a broker archives segments as they roll, and with --max-lag"
    " quiet streams, too; `coldstream agent status` shows what is left to do; `coldstream announce DIR` archives a"
    " directory of segments once"
)


def streams(
    *,
    resolver: Resolver,
    output: Output = Format.TEXT,
    deleted: Annotated[bool, typer.Option("--deleted", help="List the streams that are deleted, instead.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List the streams that are deleted, too.")] = False,
) -> None:
    """List the archived streams, with sizes and times.

    A stream that was deleted at the broker and declared again is listed once for each incarnation. `age` is the time
    since the newest archived chunk was written. A direct stream has no broker: `direct` is who appends to it, and what
    it has not flushed yet is not in the list. How far the archive lags behind the broker is shown by `agent status`.

    Streams that `coldstream delete` deleted are not listed, unless you ask for them. Until the time shown, `coldstream
    undelete` brings them back. Example: `coldstream streams --deleted`.
    """
    from coldstream.read.client import ResolverClient

    with (
        report_silence(resolver),
        ThreadPoolExecutor(_CONNECTIONS) as pool,
        # Entered last and so closed first: after Ctrl-C the pool would wait for requests that go on.
        ResolverClient(resolver, connections=_CONNECTIONS) as client,
    ):
        is_any = deleted or every
        found = sorted(
            _iter_streams(client, deleted=is_any), key=lambda stream: (stream.vhost, stream.name, stream.incarnation)
        )
        heads = list(
            map_ahead(pool, lambda stream: _head(client, stream, deleted=is_any), found, max_calls=_CONNECTIONS)
        )
    listed = [head for head in heads if head is not None and (every or head.is_deleted == deleted)]
    if output is Format.JSON:
        for head in listed:
            write_json(_to_json(head))
        return
    now = now_ms()
    is_any_direct = any(head.appender is not None for head in listed)
    write_table(
        (
            "vhost",
            "stream",
            "messages",
            "size",
            "tail",
            "first chunk at",
            "newest chunk at",
            "age",
            "gaps",
            "incarnation",
            *(("direct",) if is_any_direct else ()),
            *(("deleted at", "kept until") if is_any else ()),
        ),
        [
            (
                *_row(head, now),
                *((direct_text(head),) if is_any_direct else ()),
                *((_time(head.deleted_at), _time(head.purge_at)) if is_any else ()),
            )
            for head in listed
        ],
    )
    if not listed and not is_any:
        typer.echo(_NOTHING, err=True)


def _iter_streams(client: ResolverClient, *, deleted: bool) -> Iterator[StreamId]:
    cursor = None
    while True:
        page = client.streams(cursor, deleted=deleted)
        yield from page.streams
        cursor = page.cursor
        if cursor is None:
            return


def _head(client: ResolverClient, stream: StreamId, *, deleted: bool) -> Head | None:
    from coldstream.errors import StreamNotFoundError

    try:
        return client.describe(stream.vhost, stream.name, stream.incarnation, deleted=deleted).head
    except StreamNotFoundError:  # deleted since it was listed
        return None


def _row(head: Head, now: TimestampMs) -> tuple[object, ...]:
    newest = head.greatest_timestamp
    return (
        head.stream.vhost,
        head.stream.name,
        head.messages,
        size_text(head.data_bytes),
        head.next_offset,
        _time(head.first_timestamp),
        _time(newest),
        None if newest is None else duration_text(max(0, now - newest) / 1000),
        head.gaps,
        head.stream.incarnation,
    )


def _to_json(head: Head) -> dict[str, Any]:
    from coldstream.manifest.appender_text import appender_json

    return {
        "vhost": head.stream.vhost,
        "name": head.stream.name,
        "incarnation": head.stream.incarnation,
        "first_offset": head.first_offset,
        "next_offset": head.next_offset,
        "first_timestamp": head.first_timestamp,
        "last_timestamp": head.greatest_timestamp,
        "messages": head.messages,
        "fragments": head.fragments,
        "data_bytes": head.data_bytes,
        "object_bytes": head.object_bytes,
        "gap_count": head.gaps,
        "quarantined": head.quarantined,
        "floor": head.floor,
        "deleted_at": head.deleted_at,
        "purge_at": head.purge_at,
        "appender": None if head.appender is None else appender_json(head.appender),
    }


def describe(
    name: Name,
    *,
    resolver: Resolver = "",
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="As it was at a time, such as 2026-01-31T09:30:00Z, yesterday or -1h. This reads the journal in the"
            " table of COLDSTREAM_TABLE, and not the resolver.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show what is archived of one stream, now or at a time.

    The answer has offsets and times, sizes, gaps, and the tail, from which the broker continues, or the log of a
    direct stream. Of a sharded stream it has the versions and partitions. Examples: `coldstream describe orders`,
    `coldstream describe orders --at yesterday`.
    """
    if at is not None:
        show_past(name, vhost, incarnation, at, output)
        return
    if not resolver:
        raise typer.BadParameter(
            "is missing, or the environment variable COLDSTREAM_RESOLVER_URL", param_hint="--resolver"
        )
    from coldstream.cli.sharded_output import show_logical_name
    from coldstream.errors import StreamNotFoundError
    from coldstream.read.client import ResolverClient
    from coldstream.resolve.api import DescriptionBody

    with report_silence(resolver), ResolverClient(resolver) as client:
        try:
            description = client.describe(vhost, name, incarnation)
        except StreamNotFoundError:
            found = None if incarnation is not None else client.shard_map(vhost, name)
            if found is None:
                raise
            show_logical_name(found, output)
            return
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
        *direct_lines(head),
        ("first offset", head.first_offset),
        *((("removed below", head.floor),) if head.floor else ()),
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
        reason = before.reason or "the reason is not known; the broker may have deleted them before an agent ran"
        write(f"{'before the first':<18}{before.first_offset} to {before.next_offset - 1}: {printable(reason)}")
    if (after := description.after) is not None:
        reason = after.reason or "lost"
        write(f"{'after the tail':<18}{after.first_offset} to {after.next_offset - 1}: {printable(reason)}")
    for gap in description.gaps:
        reason = gap.reason or UNEXPLAINED
        write(f"{'':18}{gap.first_offset} to {gap.next_offset - 1}: {printable(reason)}")
    if head.gaps > len(description.gaps):
        write(f"{'':18}and {head.gaps - len(description.gaps)} more")


def _time(timestamp: TimestampMs | None) -> str | None:
    return None if timestamp is None else format_timestamp(timestamp)
