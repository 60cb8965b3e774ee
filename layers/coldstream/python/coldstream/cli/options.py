"""Arguments and options that commands share, and how a shell completes them."""

from __future__ import annotations

import os
import threading
from typing import Annotated

import typer

from coldstream.terminal.output import Format

COMPLETE_WITHIN_S = 1.5
"""Nobody who presses Tab waits longer."""

SPEC_HELP = (
    "first, last, next, an offset, or a time: 2026-01-31T09:30:00Z, 2026-01-31, yesterday, -1h, timestamp:MILLISECONDS."
)
END_HELP = "Where to stop, exclusive: an offset, or a time, which is the first chunk at or after it."
BROKER = "rabbitmq-stream://guest:guest@localhost:5552"
BROKER_HELP = (
    "The broker's stream protocol; rabbitmq-stream+tls:// for TLS. The environment variable keeps a password out of the"
    " process list."
)


def stream_names(incomplete: str) -> list[str]:
    """Return the archived streams whose names begin so.

    The list is empty if the resolver is not set, or does not answer in time.
    """
    found: list[str] = []
    # A thread, for a request has no bound on its whole duration: it may retry, and resolve a host name slowly.
    query = threading.Thread(
        target=_find_names, args=(os.environ.get("COLDSTREAM_RESOLVER_URL", ""), found), daemon=True
    )
    query.start()
    query.join(COMPLETE_WITHIN_S)
    return sorted({name for name in found if name.startswith(incomplete)})


def _find_names(resolver: str, found: list[str]) -> None:
    from coldstream.errors import ColdstreamError
    from coldstream.read.client import ResolverClient

    try:
        with ResolverClient(resolver) as client:
            found += [stream.name for stream in client.streams().streams]
    except ColdstreamError:
        return  # a shell has no place for an error; the command itself will report it


Name = Annotated[
    str, typer.Argument(help="Name of the stream.", metavar="NAME", show_default=False, autocompletion=stream_names)
]

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Names of streams. Default: every stream.",
        metavar="NAME",
        show_default=False,
        autocompletion=stream_names,
    ),
]

Vhost = Annotated[str, typer.Option(help="Virtual host of the stream.", metavar="VHOST")]

Incarnation = Annotated[
    str | None,
    typer.Option(
        help="Which incarnation of a stream that was deleted and declared again; `streams` lists them. Default: the"
        " newest.",
        metavar="ID",
    ),
]

Resolver = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_RESOLVER_URL",
        help="The resolver's HTTP API. If it requires a token, set COLDSTREAM_TOKEN, or COLDSTREAM_TOKEN_FILE to the"
        " name of a file that holds it.",
        metavar="URL",
        show_default=False,
    ),
]

Output = Annotated[Format, typer.Option("--output", "-o", help="Text for people, JSON for programs.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


UrlExpiry = Annotated[
    str,
    typer.Option(
        help="How long URLs of the archive's resolvers are valid. What is removed stays an hour longer than that.",
        metavar="TIME",
    ),
]


MAX_WORDS_BYTES = 1000
"""Of a reason or a name that goes into the journal for good, as of a reason in `Segment Lost`."""


def words(text: str) -> str:
    """Check what somebody says for the journal, before anything is written on the strength of it."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as err:
        raise typer.BadParameter(f"{text[:80]!r} is not text that UTF-8 can hold") from err
    if size_bytes > MAX_WORDS_BYTES:
        raise typer.BadParameter(f"has {size_bytes} bytes, of {MAX_WORDS_BYTES} at most")
    return text


def _user() -> str:
    import getpass

    return getpass.getuser()


By = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_BY",
        help="Who does this, for the journal. Default: the user of this machine.",
        metavar="WHO",
        default_factory=_user,
        callback=words,
        show_default=False,
    ),
]
