"""`coldstream gateway`: stock clients of RabbitMQ Streams read the whole history."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from coldstream.cli.gateway_settings import (
    ADMIN,
    DEFAULT_BROKER,
    LISTEN,
    admin_address,
    alone_side,
    broker_side,
    process_count,
    server_tls,
)

_BROKER = "The broker"
_CLIENTS = "Clients"
_ALONE = "Without a broker"
_LIMITS = "Limits"
_OPERATION = "Operation"

LogLevel = Literal["debug", "info", "warning", "error"]
_File = Path | None


def gateway(
    context: typer.Context,
    *,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            help="The broker's stream listener. May be repeated, once for each node of its cluster: connections go to"
            f" them in turn, and past those that do not answer. Default: {DEFAULT_BROKER}.",
            metavar="HOST:PORT",
            show_default=False,
            rich_help_panel=_BROKER,
        ),
    ] = None,
    broker_tls: Annotated[
        bool, typer.Option("--broker-tls", help="Connect to the broker by TLS.", rich_help_panel=_BROKER)
    ] = False,
    broker_ca: Annotated[
        _File,
        typer.Option(
            help="Authorities that vouch for the broker's certificate. Default: the system's.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_BROKER,
        ),
    ] = None,
    broker_name: Annotated[
        str | None,
        typer.Option(
            help="The name in the broker's certificate. Default: its host.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_BROKER,
        ),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            help="Address to listen at; 0.0.0.0 and [::] are all. Beside a broker, another port than its own.",
            metavar="ADDRESS:PORT",
            rich_help_panel=_CLIENTS,
        ),
    ] = LISTEN,
    certificate: Annotated[
        _File,
        typer.Option(
            help="Certificate for TLS, with its chain. SIGHUP has certificate and key read again.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    private_key: Annotated[
        _File,
        typer.Option(
            help="Private key of the certificate.", metavar="FILE", show_default=False, rich_help_panel=_CLIENTS
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            help="The one address that clients are told for every node: a load balancer's, or this gateway's. Default:"
            " what they connected to.",
            metavar="HOST:PORT",
            show_default=False,
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="The gateway's address that clients are told in place of a node's: with a gateway beside each node of"
            " a cluster. May be repeated.",
            metavar="BROKER:PORT=GATEWAY:PORT",
            show_default=False,
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    on_gap: Annotated[
        list[str] | None,
        typer.Option(
            help="What becomes of a subscription that meets a gap in the archive: error ends it, skip goes on after"
            " the gap. PATTERN=skip is for the streams whose names match. May be repeated; the first that matches"
            " counts. Default: error.",
            metavar="[PATTERN=]error|skip",
            show_default=False,
            rich_help_panel=_CLIENTS,
        ),
    ] = None,
    archive_only: Annotated[
        bool,
        typer.Option(
            "--archive-only", help="Answer alone, from the archive: there is no broker.", rich_help_panel=_ALONE
        ),
    ] = False,
    users: Annotated[
        _File,
        typer.Option(
            help="Who may connect: a line for each user, as `coldstream gateway hash-password` prints it.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_ALONE,
        ),
    ] = None,
    auth_command: Annotated[
        str | None,
        typer.Option(
            help="A program that tells who may connect: it reads a name and a password, a line each, and exits with 0"
            " for yes, 1 for no.",
            metavar="COMMAND",
            show_default=False,
            rich_help_panel=_ALONE,
        ),
    ] = None,
    permissions: Annotated[
        _File,
        typer.Option(
            help="Who may do what: lines of USER VHOSTS STREAMS r|w|rw, with patterns. Default: every user may read"
            " everything, and with --create write, too.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_ALONE,
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Clients may create streams and publish to them, without a broker, as far as --permissions says.",
            rich_help_panel=_ALONE,
        ),
    ] = False,
    super_stream: Annotated[
        list[str] | None,
        typer.Option(
            help="Names of super streams: the archived streams NAME-0, NAME-1 and so on are the partitions of NAME. May"
            " be repeated. Sharded streams that the archive has a map of need none.",
            metavar="PATTERN",
            show_default=False,
            rich_help_panel=_ALONE,
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            help="What all subscriptions that read the archive may hold in memory; each process has its share.",
            metavar="SIZE",
            rich_help_panel=_LIMITS,
        ),
    ] = "256MiB",
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes that serve. Default: one a core, as far as --memory has 16MiB for each; with --create one,"
            " as all who publish to a stream belong in one process.",
            min=1,
            max=256,
            show_default=False,
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_connections: Annotated[
        int, typer.Option(help="Connections at once; each process takes its share.", min=1, rich_help_panel=_LIMITS)
    ] = 10_000,
    drain: Annotated[
        str,
        typer.Option(
            help="How long connections may stay after SIGTERM: clients are told to go, a few at a time.",
            metavar="TIME",
            rich_help_panel=_OPERATION,
        ),
    ] = "30s",
    admin: Annotated[
        str,
        typer.Option(
            help="Address of /metrics, /healthz, /livez and /status; a port alone is on the loopback, port 0 is any"
            " free one, - serves none. Whoever reaches it may read it.",
            metavar="ADDRESS:PORT",
            rich_help_panel=_OPERATION,
        ),
    ] = ADMIN,
    log_level: Annotated[
        LogLevel, typer.Option(help="What the log has at least; it is JSON, on stderr.", rich_help_panel=_OPERATION)
    ] = "info",
) -> None:
    """Let stock stream clients read the whole history.

    Clients in Java, Go, .NET, Rust, Python and others connect here instead of to the broker. What the broker has, it
    serves; what it has deleted comes from the archive, and `first` is the first message ever. Users, permissions,
    publishing and errors stay the broker's. Table and bucket are those of COLDSTREAM_TABLE and COLDSTREAM_BUCKET.
    SIGTERM and Ctrl-C drain; a second signal ends at once.

    Example: `coldstream gateway --broker broker-1:5552 --listen 0.0.0.0:5552 --advertise streams.example.com:5552`.
    """
    if context.invoked_subcommand is not None:
        return
    from coldstream.cli.gateway_run import run_gateway
    from coldstream.cli.quantities import duration_ms_of, parse_option
    from coldstream.gateway.gap_rules import GapRules
    from coldstream.gateway.process.addresses import HostPort, NodeAddress
    from coldstream.gateway.process.options import GatewayOptions
    from coldstream.units import parse_size

    memory_bytes = parse_option("--memory", memory, parse_size) or 0
    options = GatewayOptions(
        listen=HostPort.parse("--listen", listen),
        broker=broker_side(broker, broker_ca, broker_name, is_tls=broker_tls, is_alone=archive_only),
        alone=alone_side(users, auth_command, permissions, super_stream, is_creating=create, is_alone=archive_only),
        tls=server_tls(certificate, private_key),
        advertise=None if advertise is None else HostPort.parse("--advertise", advertise),
        nodes=tuple(map(NodeAddress.parse, node or ())),
        memory_bytes=memory_bytes,
        processes=processes or process_count(memory_bytes, max_connections, is_creating=create),
        gaps=GapRules.parse(on_gap or ()),
        max_connections=max_connections,
        drain_s=(duration_ms_of("--drain", drain) or 0) / 1000,
        admin=admin_address(admin),
        log_level=logging.getLevelNamesMapping()[log_level.upper()],
    )
    run_gateway(options)
