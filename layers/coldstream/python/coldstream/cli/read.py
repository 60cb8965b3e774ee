"""`coldstream read`: messages from the archive."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from coldstream.cli.options import BROKER, BROKER_HELP, END_HELP, SPEC_HELP, Incarnation, Name, Resolver, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.silence import report_silence
from coldstream.console.output import gap_text
from coldstream.errors import InvalidQueryError
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
) -> None:
    """Read messages, from the archive and then live.

    Each message is one line of JSON. Bytes are written as text if they are UTF-8. Without --follow, reading ends at the
    tail of the archive. With --on-gap skip, each gap is reported on standard error. Examples: `coldstream read orders
    --from first --limit 10`, `coldstream read orders --from -1h --follow`.
    """
    from coldstream.cli.messages import ReadEnd, as_body, as_json, as_published
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.reader import Reader

    if body and raw:
        raise InvalidQueryError("--body, --raw", "exclude each other")
    form = as_body if body else as_published if raw else as_json
    now = now_ms()
    until = ReadEnd.parse(end, limit, now)
    if follow:
        from coldstream.cli.follow import FollowRequest, follow_stream

        if incarnation is not None:
            raise InvalidQueryError("--incarnation", "is not for --follow: the broker has only the newest one")
        request = FollowRequest(vhost, name, parse_offset_spec(start, now), resolver, broker, consumer_name, on_gap)
        follow_stream(request, until, form)
        return
    range_bytes, prefetch_bytes = (MIB, 4 * MIB) if limit is not None and limit <= _FEW else (8 * MIB, 64 * MIB)
    with (
        Reader(
            resolver,
            vhost,
            name,
            parse_offset_spec(start, now),
            incarnation=incarnation,
            range_bytes=range_bytes,
            prefetch_bytes=prefetch_bytes,
            on_gap=on_gap,
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
