"""`coldstream serve`: direct streams over HTTP, by the Durable Streams protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

_ACCESS = "Access"
_LIMITS = "Limits"
_LIVE = "Live reads"


def serve(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen at. Any but a loopback one requires --token-file.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes any free one.", min=0, max=65535)] = 4437,
    vhost: Annotated[str, typer.Option(help="Virtual host of the streams.", metavar="VHOST")] = "/",
    archived_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Content type of the archived broker streams whose names match a pattern: 'orders*=application/json'."
            " May be repeated; the first that matches counts. Others are of bytes.",
            metavar="PATTERN=TYPE",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="Who may read and write what: a line for each token, with its SHA-256, a name, r, w or rw, and a"
            " pattern of streams. Without it, everybody who reaches the port may do everything.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Certificate for TLS, with its chain.", metavar="FILE", show_default=False, rich_help_panel=_ACCESS
        ),
    ] = None,
    private_key: Annotated[
        Path | None,
        typer.Option(
            help="Private key of the certificate.", metavar="FILE", show_default=False, rich_help_panel=_ACCESS
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose pages may use the streams in a browser; * is any. May be repeated. Default: none.",
            metavar="ORIGIN",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name that requests may be for, beside localhost, if there are no tokens: a page on the web could have"
            " its own name resolve to this machine. May be repeated.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    requests_per_s: Annotated[
        float,
        typer.Option(
            help="Requests a second of one token, or of one address if there are no tokens; 0 for no limit.",
            min=0,
            rich_help_panel=_LIMITS,
        ),
    ] = 1000,
    max_body: Annotated[
        str, typer.Option(help="Size of a request's body at most, 15 MiB or less.", rich_help_panel=_LIMITS)
    ] = "8MiB",
    page: Annotated[
        str, typer.Option(help="Size of what one read returns, and at most a batch more.", rich_help_panel=_LIMITS)
    ] = "1MiB",
    max_open: Annotated[
        int, typer.Option(help="Streams that are open at once, beside those in use.", min=1, rich_help_panel=_LIMITS)
    ] = 10_000,
    max_connections: Annotated[
        int, typer.Option(help="Connections at once, of all clients.", min=1, rich_help_panel=_LIMITS)
    ] = 12_000,
    max_live_reads: Annotated[
        int, typer.Option(help="Live reads at once, of all clients.", min=1, rich_help_panel=_LIVE)
    ] = 10_000,
    long_poll: Annotated[str, typer.Option(help="How long a long poll waits for news.", rich_help_panel=_LIVE)] = "20s",
    events: Annotated[str, typer.Option(help="How long one response of events lasts.", rich_help_panel=_LIVE)] = "60s",
) -> None:
    """Serve streams over HTTP.

    Direct streams are there to read and write, archived broker streams to read, by the Durable Streams protocol. A
    stream is /v1/stream/NAME: PUT creates it, POST appends, GET reads, also live, DELETE deletes. Archive and table are
    those of COLDSTREAM_BUCKET and COLDSTREAM_TABLE. One server at a time appends to a stream: behind a balancer, let it
    choose the server by the path. SIGTERM and Ctrl-C end the server once everything is stored.

    Example: `coldstream serve --port 4437`, and then `curl -X PUT localhost:4437/v1/stream/notes`.
    """
    from coldstream.cli.quantities import duration_ms_of, parse_option
    from coldstream.cli.stores import open_archive
    from coldstream.serve.options import ArchivedType, ServeOptions
    from coldstream.serve.server import run
    from coldstream.streams import DirectArchive
    from coldstream.units import parse_size
    from coldstream.web.access_tokens import AccessTokens
    from coldstream.web.json_log import log_as_json
    from coldstream.web.listening import Listening

    listening = Listening(host, port, certificate, private_key, max_connections)
    options = ServeOptions(
        vhost=vhost,
        page_bytes=parse_option("page", page, parse_size) or 0,
        max_body_bytes=parse_option("max_body", max_body, parse_size) or 0,
        long_poll_s=(duration_ms_of("long_poll", long_poll) or 0) / 1000,
        events_s=(duration_ms_of("events", events) or 0) / 1000,
        requests_per_s=requests_per_s,
        max_live_reads=max_live_reads,
        max_open=max_open,
        cors_origins=tuple(cors_origin or ()),
        host_names=tuple(host_name or ()),
        archived_types=tuple(map(ArchivedType.parse, archived_type or ())),
    )
    tokens = None if token_file is None else AccessTokens.read(token_file)
    listening.check(tokens)

    archive = open_archive()
    log_as_json()
    direct = DirectArchive(archive.table, archive.objects, archive.keys)
    asyncio.run(run(direct, options, listening, tokens, on_ready=_tell))


def _tell(url: str) -> None:
    """Say where the server is, for people and for programs that started it."""
    typer.echo(f"coldstream serve: listening at {url}")
