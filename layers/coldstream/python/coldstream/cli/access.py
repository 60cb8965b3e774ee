"""`coldstream access`: which IAM principals may read which streams, on a stack that checks it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Output
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable, write, write_json, write_table

if TYPE_CHECKING:
    from coldstream.manifest.access import Grant
    from coldstream.store.table import DynamoTable

Principal = Annotated[
    str,
    typer.Argument(
        help="ARN of a role or user, or a pattern with `*`: arn:aws:iam::123456789012:role/analytics.",
        metavar="PRINCIPAL",
        show_default=False,
    ),
]
Streams = Annotated[
    str,
    typer.Argument(
        help="VHOST/STREAM, percent-encoded; `*` stands for any characters: '%2F/orders*', '*/*'.",
        metavar="STREAMS",
        show_default=False,
    ),
]


def grants(*, output: Output = Format.TEXT) -> None:
    """List the grants: who may read what. Example: `coldstream access list`."""
    from coldstream.units import format_timestamp

    found = _table().grants()
    if output is Format.JSON:
        for grant in found:
            write_json({"principal": grant.principal, "streams": grant.streams, "at": grant.at})
        return
    rows = [(grant.principal, grant.streams, "" if grant.at is None else format_timestamp(grant.at)) for grant in found]
    write_table(("principal", "streams", "since"), rows)
    if not rows:
        typer.echo("nothing is granted yet; `coldstream access grant PRINCIPAL STREAMS` grants", err=True)


def grant(principal: Principal, streams: Streams) -> None:
    """Let a principal read streams.

    It takes effect within ten seconds. Only a stack whose parameter IamPermissions is true checks grants; on any other,
    whoever may call the API may read everything. The path of a role's ARN is dropped, because sessions do not carry it.
    Example: `coldstream access grant arn:aws:iam::123456789012:role/reader '%2F/orders*'`.
    """
    from coldstream.units import now_ms

    new = _grant(principal, streams, at=now_ms())
    _table().put_grant(new)
    write(f"{printable(new.principal)} may read {printable(new.streams)}")


def revoke(principal: Principal, streams: Streams) -> None:
    """Take back a grant, named by the same words.

    It takes effect within ten seconds. Presigned URLs that were given out before remain valid until they expire.
    Example: `coldstream access revoke arn:aws:iam::123456789012:role/reader '%2F/orders*'`.
    """
    old = _grant(principal, streams)
    if not _table().delete_grant(old):
        typer.echo(f"{printable(old.principal)} has no grant of {printable(old.streams)}", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND)
    write(f"{printable(old.principal)} may no longer read {printable(old.streams)} by that grant")


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
