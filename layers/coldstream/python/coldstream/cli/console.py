"""`coldstream console`: pages in a browser that show the archive and steer its jobs."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldstream.browse.agents import AskAgent
    from coldstream.console.archive_access import ArchiveAccess, BrokerProbe
    from coldstream.live.address import BrokerAddress
    from coldstream.operate.doctor import StackPlace

_ACCESS = "Access"
_AROUND = "What health asks"


def console(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen at. Any but a loopback one requires --token-file.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes any free one.", min=0, max=65535)] = 4480,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            help="A broker to ask for its own range of a stream, by the name that jobs have for it. May be repeated;"
            " also COLDSTREAM_BROKER, which is `default`, and COLDSTREAM_BROKER_<NAME>.",
            metavar="NAME=URI",
            show_default=False,
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing: no jobs, whatever a token may.")] = (
        False
    ),
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="Who may see and change what: a line for each token, with its SHA-256, a name, r, w or rw, and a"
            " pattern of streams. Without it, everybody who reaches the port may do everything.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    session: Annotated[str, typer.Option(help="How long a login lasts.", rich_help_panel=_ACCESS)] = "12h",
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
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name that requests may be for, beside localhost, if there are no tokens. May be repeated.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            envvar="COLDSTREAM_AGENT_URL",
            help="Address that an agent listens on, for the lag of streams; may be repeated.",
            metavar="URL",
            show_default=False,
            rich_help_panel=_AROUND,
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_STACK",
            help="Name of the stack, for its alarms and metrics.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_AROUND,
        ),
    ] = None,
    event_bus: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_EVENT_BUS",
            help="The event bus: the output EventBus.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_AROUND,
        ),
    ] = None,
    upload_queue: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_UPLOAD_QUEUE_ARN",
            help="The queue of events: the output UploadQueueArn.",
            metavar="ARN",
            show_default=False,
            rich_help_panel=_AROUND,
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_DEAD_LETTER_QUEUE",
            help="The dead-letter queue: the output DeadLetterQueue or DeadLetterQueueArn.",
            metavar="QUEUE",
            show_default=False,
            rich_help_panel=_AROUND,
        ),
    ] = None,
) -> None:
    """Show the archive in a browser, and steer its jobs.

    Streams with their timelines and messages, searches with what they cost, jobs created, paused and resumed, and what
    needs to be done. Archive and table are those of COLDSTREAM_BUCKET and COLDSTREAM_TABLE. SIGTERM and Ctrl-C end it.

    Example: `coldstream console`, and then open http://127.0.0.1:4480.
    """
    import os

    import coldstream
    from coldstream.cli.agent_client import check_agent_url, fetch_agent_status
    from coldstream.cli.named_brokers import named_brokers
    from coldstream.cli.quantities import duration_ms_of
    from coldstream.console.console_options import ConsoleOptions
    from coldstream.console.server import run
    from coldstream.operate.doctor import StackPlace
    from coldstream.web.access_tokens import AccessTokens
    from coldstream.web.json_log import log_as_json
    from coldstream.web.listening import Listening

    options = ConsoleOptions(
        host_names=tuple(host_name or ()),
        is_read_only=read_only,
        version=coldstream.__version__,
        session_s=(duration_ms_of("session", session) or 0) // 1000,
    )
    tokens = None if token_file is None else AccessTokens.read(token_file)
    listening = Listening(host, port, certificate, private_key)
    listening.check(tokens)
    for url in agent or ():
        check_agent_url(url, option="--agent")
    agents = {url: partial(fetch_agent_status, url, option="--agent") for url in agent or ()}
    probes = {name: _probe(address) for name, address in named_brokers(broker or (), os.environ).items()}
    place = StackPlace("", "", event_bus or None, upload_queue or None, dead_letters or None, stack or None)
    archive = _open(place, agents, probes)
    log_as_json()
    asyncio.run(run(archive, options, listening, tokens, on_ready=_tell))


def _open(place: StackPlace, agents: Mapping[str, AskAgent], probes: Mapping[str, BrokerProbe]) -> ArchiveAccess:
    from dataclasses import replace

    from coldstream.browse.agents import known_lags
    from coldstream.browse.catalogue import StreamCatalogue
    from coldstream.browse.health import HealthSources, read_health
    from coldstream.browse.names import StreamNames
    from coldstream.cli.stores import open_archive
    from coldstream.console.archive_access import ArchiveAccess
    from coldstream.console.kept_health import KeptHealth
    from coldstream.jobs.store import JobStore
    from coldstream.operate.aws_stack import AwsStack
    from coldstream.operate.doctor import Doctor

    archive = open_archive()
    table, objects = archive.table, archive.objects
    place = replace(place, bucket=archive.settings.bucket, table=archive.settings.table)
    sources = HealthSources(Doctor(place, table, objects, archive.keys, AwsStack(), objects.clock), agents)
    lags = partial(known_lags, tuple(agents.values())) if agents else None
    return ArchiveAccess(
        table=table,
        objects=objects,
        names=StreamNames(table),
        catalogue=StreamCatalogue(table, now=objects.clock, lags=lags),
        jobs=JobStore(table),
        health=KeptHealth(partial(read_health, sources)),
        probes=probes,
    )


def _probe(address: BrokerAddress) -> BrokerProbe:
    """Return what asks a broker for its own range of a stream."""
    from coldstream.browse.broker_probe import probe_broker

    return lambda stream: probe_broker(address, stream.vhost, stream.name)


def _tell(url: str) -> None:
    """Say where the console is, for people and for programs that started it."""
    typer.echo(f"coldstream console: listening at {url}")
