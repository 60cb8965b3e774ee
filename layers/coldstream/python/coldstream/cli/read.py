"""`coldstream read`: messages out of the archive."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coldstream.cli.options import Incarnation, Name, Resolver, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.resolve import SPEC_HELP
from coldstream.cli.silence import told_when_silent
from coldstream.console.output import printable
from coldstream.errors import BadMagicError, GapError, InvalidQueryError
from coldstream.units import MIB, now_ms

if TYPE_CHECKING:
    from coldstream.cli.until import Until
    from coldstream.format.amqp.message import Message

_ADVANCE_EVERY = 1000
_FEW = 1000
"""Messages for which little is fetched at a time, so that the first comes soon."""

BROKER = "rabbitmq-stream://guest:guest@localhost:5552"


def read(
    name: Name,
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    start: Annotated[str, typer.Option("--from", help=f"Where to begin: {SPEC_HELP}", metavar="SPEC")] = "first",
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Where to end, itself not included: an offset, or a time, which is the first chunk's at or after it.",
            metavar="SPEC",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="How many messages at most.", min=1)] = None,
    body: Annotated[bool, typer.Option("--body", help="Only the body of each message, and a newline.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Each message as it was published, behind its length in 4 bytes, big-endian."),
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on live at the broker, until Ctrl-C.")] = False,
    broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_BROKER",
            help="With --follow: the broker's stream protocol; rabbitmq-stream+tls:// with TLS. Best given in the"
            " environment.",
            metavar="URI",
        ),
    ] = BROKER,
    consumer_name: Annotated[
        str | None,
        typer.Option(
            help="With --follow: begin behind the offset that is stored at the broker under this name, if one is."
            " None is stored.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    on_gap: Annotated[
        Literal["raise", "skip"], typer.Option(help="End at a gap in the archive, or go on behind it.")
    ] = "raise",
) -> None:
    """Read messages from the archive, and with --follow from the broker after that.

    Each is one line of JSON, up to the tail of the archive. Bytes are written as text where they are UTF-8. A gap in
    the archive ends the reading with exit code 4; with --on-gap skip it is told on standard error and passed over.
    """
    from coldstream.cli.until import Until
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.reader import Reader

    if body and raw:
        raise InvalidQueryError("--body, --raw", "exclude each other")
    form = _body if body else _raw if raw else _line
    now = now_ms()
    until = Until.parse(end, limit, now)
    if follow:
        from coldstream.cli.follow import Following, follow_stream

        if incarnation is not None:
            raise InvalidQueryError("--incarnation", "is not for --follow: the broker has but the newest one")
        where = Following(vhost, name, parse_offset_spec(start, now), resolver, broker, consumer_name, on_gap)
        follow_stream(where, until, form)
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
        told_when_silent(resolver) as silence,
        progress("reading", limit, "messages", beside_data=True) as advance,
    ):
        number = 0
        for number, message in enumerate(_bounded(silence.each(reader.messages()), until), 1):
            sys.stdout.buffer.write(form(message))
            if number % _ADVANCE_EVERY == 0:
                advance(_ADVANCE_EVERY)
        advance(number % _ADVANCE_EVERY)
        for gap in reader.gaps:
            what = f"offsets {gap.first_offset} to {gap.next_offset - 1}"
            typer.echo(
                f"coldstream: passed over {what} ({printable(gap.reason or 'not archived yet, or lost')})", err=True
            )


def _bounded(messages: Iterable[Message], until: Until) -> Iterator[Message]:
    """Yield messages up to the end, without asking for one more than that."""
    try:
        for number, message in enumerate(messages, 1):
            if until.is_past(message):
                return
            yield message
            if number == until.limit:
                return
    except GapError as gap:
        if not until.is_before(gap):
            raise


def _line(message: Message) -> bytes:
    return f"{json.dumps(message.to_dict(), ensure_ascii=False)}\n".encode()


def _raw(message: Message) -> bytes:
    return len(message.raw).to_bytes(4, "big") + message.raw


def _body(message: Message) -> bytes:
    """Return the body and a newline: bytes as they are, other values as JSON, all of a message that is not AMQP.

    Raises CorruptionError where the AMQP is damaged.
    """
    from coldstream.format.amqp.json import to_json

    try:
        body = message.body
    except BadMagicError:
        return message.raw + b"\n"
    if body is None:
        return b"\n"
    if isinstance(body, bytes):
        return body + b"\n"
    return f"{json.dumps(to_json(body), ensure_ascii=False)}\n".encode()
