"""`coldstream access`: which principals of IAM may read which streams, where the resolver holds them to that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Output
from coldstream.console.exits import ExitCode
from coldstream.console.output import Format, printable, write, write_json, write_table

if TYPE_CHECKING:
    from coldstream.manifest.access import Grant
    from coldstream.store.table import DynamoTable

Principal = Annotated[
    str,
    typer.Argument(
        help="ARN of a role or a user, or a pattern with `*`: arn:aws:iam::123456789012:role/analytics.",
        metavar="PRINCIPAL",
        show_default=False,
    ),
]
Streams = Annotated[
    str,
    typer.Argument(
        help="VHOST/STREAM, percent-encoded, `*` for any characters: '%2F/orders*', '*/*'.",
        metavar="STREAMS",
        show_default=False,
    ),
]


def grants(*, output: Output = Format.TEXT) -> None:
    """List who may read what."""
    from coldstream.units import format_timestamp

    found = _table().grants()
    if output is Format.JSON:
        for grant in found:
            write_json({"principal": grant.principal, "streams": grant.streams, "at": grant.at})
        return
    rows = [(grant.principal, grant.streams, "" if grant.at is None else format_timestamp(grant.at)) for grant in found]
    write_table(("principal", "streams", "since"), rows)
    if not rows:
        typer.echo("nothing is granted; `coldstream access grant PRINCIPAL STREAMS` does", err=True)


def grant(principal: Principal, streams: Streams) -> None:
    """Let a principal read streams, from ten seconds on.

    That matters to a stack whose parameter IamPermissions is true; else whoever may call its API reads everything. The
    path of a role's ARN is left out, for a session does not tell it.
    """
    from coldstream.units import now_ms

    made = _grant(principal, streams, at=now_ms())
    _table().put_grant(made)
    write(f"{printable(made.principal)} may read {printable(made.streams)}")


def revoke(principal: Principal, streams: Streams) -> None:
    """Take back what `grant` gave by exactly these words, from ten seconds on.

    URLs that were given out by then hold until they expire.
    """
    taken = _grant(principal, streams)
    if not _table().delete_grant(taken):
        typer.echo(f"{printable(taken.principal)} has no grant of {printable(taken.streams)}", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND)
    write(f"{printable(taken.principal)} may no longer read {printable(taken.streams)} by that grant")


def _grant(principal: str, streams: str, **at: int) -> Grant:
    from coldstream.manifest.access import Grant, without_path
    from coldstream.units import TimestampMs

    return Grant(without_path(principal), streams, **{name: TimestampMs(value) for name, value in at.items()})


def _table() -> DynamoTable:
    from coldstream.errors import InvalidSettingError
    from coldstream.store.table import DynamoTable

    name = os.environ.get("COLDSTREAM_TABLE")
    if not name:
        raise InvalidSettingError("COLDSTREAM_TABLE", "is not set: it names the manifest's table")
    return DynamoTable(name)
