"""`coldstream read`: messages from the archive."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from coldstream.cli.options import BROKER, BROKER_HELP, END_HELP, SPEC_HELP, Incarnation, Name, Resolver, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.silence import report_silence
from coldstream.errors import InvalidQueryError
from coldstream.terminal.output import gap_text
from coldstream.units import MIB, now_ms

_ADVANCE_EVERY = 1000
_FEW = 1000
"""Up to so many messages, little is fetched at a time, so that the first one comes soon."""

_FOLLOW = "Options of --follow"


def read(
    name: Name,
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    start: Annotated[str, typer.Option("--from", help=f"Where to begin: {SPEC_HELP}", metavar="SPEC")] = "first",
    end: Annotated[str | None, typer.Option("--to", help=END_HELP, metavar="SPEC")] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many messages.", min=1)] = None,
    body: Annotated[bool, typer.Option("--body", help="Write only each message's body, and a newline.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Write each message as it was published, after its length in 4 bytes, big-endian."),
    ] = False,
    on_gap: Annotated[
        Literal["raise", "skip"], typer.Option(help="At a gap in the archive: end with exit code 4, or continue.")
    ] = "raise",
    order: Annotated[
        Literal["key", "time", "arrival"],
        typer.Option(help="Of a sharded stream: each key in order, all by time, or partitions as they come."),
    ] = "key",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="After the archive, read live from the broker until Ctrl-C.")
    ] = False,
    broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_BROKER",
            help=BROKER_HELP,
            metavar="URI",
            rich_help_panel=_FOLLOW,
        ),
    ] = BROKER,
    consumer_name: Annotated[
        str | None,
        typer.Option(
            help="Begin after the offset that the broker stores under this name, if there is one. Nothing is stored.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_FOLLOW,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Share a sharded stream with the other consumers of this group, from where the group is; commit what"
            " is written in the table of COLDSTREAM_TABLE.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_FOLLOW,
        ),
    ] = None,
) -> None:
    """Read messages, from the archive and then live.

    Each message is one line of JSON. Bytes are written as text if they are UTF-8. Without --follow, reading ends at the
    tail of the archive. With --on-gap skip, each gap is reported on standard error. A sharded stream is read by its
    logical name; at the end standard error says from which position to go on, which --from takes. Examples:
    `coldstream read orders --from first --limit 10`, `coldstream read orders --from -1h --follow`, `coldstream read
    orders --from v2,0:1042,1:977`, `coldstream read orders --follow --group billing`.
    """
    from coldstream.cli.messages import ReadEnd, as_body, as_json, as_published
    from coldstream.manifest.shard_position import ShardPosition
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.client import ResolverClient
    from coldstream.read.reader import Reader

    if body and raw:
        raise InvalidQueryError("--body, --raw", "exclude each other")
    form = as_body if body else as_published if raw else as_json
    now = now_ms()
    until = ReadEnd.parse(end, limit, now)
    begin = ShardPosition.from_text(start) if start.startswith("v") else parse_offset_spec(start, now)
    if group is not None and (not follow or consumer_name is not None):
        raise InvalidQueryError("--group", "needs --follow, and takes the place of --consumer-name")
    if follow:
        from coldstream.cli.follow import FollowRequest, follow_stream

        if incarnation is not None:
            raise InvalidQueryError("--incarnation", "is not for --follow: the broker has only the newest one")
        request = FollowRequest(vhost, name, begin, resolver, broker, consumer_name, on_gap, order, group)
        follow_stream(request, until, form)
        return
    range_bytes, prefetch_bytes = (MIB, 4 * MIB) if limit is not None and limit <= _FEW else (8 * MIB, 64 * MIB)
    with ResolverClient(resolver) as client:
        # The one incarnation of a stream is never that of a logical name.
        with report_silence(resolver):
            found = client.shard_map(vhost, name) if incarnation is None else None
        if found is not None:
            from coldstream.cli.read_sharded import read_sharded
            from coldstream.read.sharded import ShardedReader

            with ShardedReader(
                client,
                found,
                begin,
                order=order,
                on_gap=on_gap,
                range_bytes=range_bytes,
                prefetch_bytes=prefetch_bytes,
                appetite=until.appetite,
            ) as sharded:
                read_sharded(sharded, until, form, resolver)
            return
    if isinstance(begin, ShardPosition):
        raise InvalidQueryError("--from", f"is a position of a sharded stream, and {name!r} is none")
    with (
        Reader(
            resolver,
            vhost,
            name,
            begin,
            incarnation=incarnation,
            range_bytes=range_bytes,
            prefetch_bytes=prefetch_bytes,
            on_gap=on_gap,
            appetite=until.appetite,
        ) as reader,
        report_silence(resolver) as silence,
        progress("reading", limit, "messages", beside_data=True) as advance,
    ):
        number = 0
        for number, message in enumerate(until.bound(silence.each(reader.messages())), 1):
            sys.stdout.buffer.write(form(message))
            if number % _ADVANCE_EVERY == 0:
                advance(_ADVANCE_EVERY)
        advance(number % _ADVANCE_EVERY)
        for gap in reader.gaps:
            text = gap_text(gap.first_offset, gap.next_offset, gap.reason)
            typer.echo(f"coldstream: passed over {text}", err=True)
