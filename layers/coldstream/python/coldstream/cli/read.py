"""`coldstream read`: messages out of the archive."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Incarnation, Name, Resolver, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.resolve import SPEC_HELP
from coldstream.errors import BadMagicError, GapError, InvalidQueryError
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIB

if TYPE_CHECKING:
    from coldstream.format.message import Message

_ADVANCE_EVERY = 1000
_FEW = 1000
"""Messages for which little is fetched at a time, so that the first comes soon."""


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
) -> None:
    """Read messages from the archive.

    Each is one line of JSON, up to the tail of the archive. Bytes are written as text where they are UTF-8. A gap in
    the archive ends the reading with exit code 4.
    """
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.serve.reader import Reader

    if body and raw:
        raise InvalidQueryError("--body, --raw", "exclude each other")
    form = _body if body else _raw if raw else _line
    range_bytes, prefetch_bytes = (MIB, 4 * MIB) if limit is not None and limit <= _FEW else (8 * MIB, 64 * MIB)
    with (
        Reader(
            resolver,
            vhost,
            name,
            parse_offset_spec(start),
            incarnation=incarnation,
            range_bytes=range_bytes,
            prefetch_bytes=prefetch_bytes,
        ) as reader,
        progress("reading", limit, "messages", beside_data=True) as advance,
    ):
        number = 0
        for number, message in enumerate(_bounded(reader.messages(), end, limit), 1):
            sys.stdout.buffer.write(form(message))
            if number % _ADVANCE_EVERY == 0:
                advance(_ADVANCE_EVERY)
        advance(number % _ADVANCE_EVERY)


def _bounded(messages: Iterable[Message], end: str | None, limit: int | None) -> Iterator[Message]:
    """Yield messages up to `end`, and `limit` of them at most, without asking for one more than that."""
    from coldstream.manifest.spec import AtOffset, AtTimestamp, parse_offset_spec

    end_offset, end_timestamp = MAX_OFFSET + 1, MAX_TIMESTAMP_MS + 1
    match None if end is None else parse_offset_spec(end):
        case None:
            pass
        case AtOffset(offset):
            end_offset = offset
        case AtTimestamp(timestamp):
            end_timestamp = timestamp
        case spec:
            raise InvalidQueryError("--to", f"{spec} is neither an offset nor a time")
    try:
        for number, message in enumerate(messages, 1):
            if message.offset >= end_offset or message.timestamp >= end_timestamp:
                return
            yield message
            if number == limit:
                return
    except GapError as gap:
        if gap.first_offset < end_offset:
            raise


def _line(message: Message) -> bytes:
    return f"{json.dumps(message.to_dict(), ensure_ascii=False)}\n".encode()


def _raw(message: Message) -> bytes:
    return len(message.raw).to_bytes(4, "big") + message.raw


def _body(message: Message) -> bytes:
    """Return the body and a newline: bytes as they are, other values as JSON, all of a message that is not AMQP.

    Raises CorruptionError where the AMQP is damaged.
    """
    from coldstream.format.amqp_json import to_json

    try:
        body = message.body
    except BadMagicError:
        return message.raw + b"\n"
    if body is None:
        return b"\n"
    if isinstance(body, bytes):
        return body + b"\n"
    return f"{json.dumps(to_json(body), ensure_ascii=False)}\n".encode()
