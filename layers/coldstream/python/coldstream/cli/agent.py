"""`coldstream agent`: archive the streams of a broker, continuously."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import BROKER, BROKER_HELP
from coldstream.errors import InvalidSettingError
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format

if TYPE_CHECKING:
    from coldstream.agent.options import AgentOptions

DATA_DIRECTORIES = "/var/lib/rabbitmq/mnesia"
STATE_DIRECTORY = Path("/var/lib/rabbitmq/coldstream")

_PLUGINS = "-plugins-expand"
"""The suffix of another directory of a node, which holds its plugins."""

Patterns = list[str] | None

_SELECTION = "Which streams"
_LIMITS = "Limits"
_PROTOCOL = "With --source protocol"


def agent(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"The broker's directory of streams. Default: the one under {DATA_DIRECTORIES}.",
            metavar="DIRECTORY",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path,
        typer.Option(
            help="The agent's own directory. The disk source needs it on the same file system as --data.",
            metavar="DIRECTORY",
        ),
    ] = STATE_DIRECTORY,
    broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_BROKER",
            help=BROKER_HELP,
            metavar="URI",
        ),
    ] = BROKER,
    management: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_MANAGEMENT",
            help="The broker's management API, http://user:password@localhost:15672. The agent asks it for names that"
            " a directory's name does not keep, such as those with a dot, and for the retention of streams.",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_CLUSTER",
            help="Name of the broker's cluster, the same on all of its nodes. Set it if several clusters share an"
            " archive; docs/agent.md has the AWS policy that goes with it.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(help="disk: read segments on this node's disk; protocol: read streams as a consumer does."),
    ] = "disk",
    max_lag: Annotated[
        str | None,
        typer.Option(
            help="Archive chunks of this age even if their segment has not rolled. Default: wait until it has rolled.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    quiet_span: Annotated[
        str | None,
        typer.Option(
            help="With --max-lag: archive streams with less than --quiet-below only after each span of this length,"
            " such as 1h, and keep the max-lag by a recovery log in the bucket, for `coldstream recover`.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    quiet_below: Annotated[
        str, typer.Option(help="How much data is too little for a fragment of its own before that.", metavar="SIZE")
    ] = "1MiB",
    scan: Annotated[
        str,
        typer.Option(help="How often to scan the directory, in case a notification was missed.", metavar="TIME"),
    ] = "10s",
    listen: Annotated[
        str,
        typer.Option(help="Address of /metrics, /healthz, /readyz and /status; - serves none.", metavar="HOST:PORT"),
    ] = "127.0.0.1:9478",
    check: Annotated[
        bool, typer.Option("--check", help="Try everything that the agent needs, report problems, and exit.")
    ] = False,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="With --check: text for people, JSON for programs.")
    ] = Format.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
    include: Annotated[
        Patterns,
        typer.Option(help="Names to archive. Default: all.", metavar="PATTERN", rich_help_panel=_SELECTION),
    ] = None,
    exclude: Annotated[
        Patterns, typer.Option(help="Names not to archive.", metavar="PATTERN", rich_help_panel=_SELECTION)
    ] = None,
    include_vhost: Annotated[
        Patterns,
        typer.Option(help="Virtual hosts to archive. Default: all.", metavar="PATTERN", rich_help_panel=_SELECTION),
    ] = None,
    exclude_vhost: Annotated[
        Patterns, typer.Option(help="Virtual hosts not to archive.", metavar="PATTERN", rich_help_panel=_SELECTION)
    ] = None,
    uploads: Annotated[
        int,
        typer.Option(
            help="Segments to stage at the same time; each takes up to 48 MiB of memory.",
            min=1,
            max=64,
            rich_help_panel=_LIMITS,
        ),
    ] = 4,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Bytes to send in a second, such as 50MB. Default: no limit.", metavar="SIZE", rich_help_panel=_LIMITS
        ),
    ] = None,
    release_pins_below: Annotated[
        str | None,
        typer.Option(
            help="While less than this is free on the disk, give up segments that are not archived, oldest first, and"
            " record them as lost. Default: give up nothing, even if the disk fills.",
            metavar="SIZE",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    stream: Annotated[
        Patterns,
        typer.Option(
            help="A stream to archive, needed without --management.", metavar="VHOST:NAME", rich_help_panel=_PROTOCOL
        ),
    ] = None,
    segment_size: Annotated[
        str,
        typer.Option(help="Size of the segments that the agent makes.", metavar="SIZE", rich_help_panel=_PROTOCOL),
    ] = "64MiB",
    max_spool: Annotated[
        str,
        typer.Option(help="How much of each stream may wait on this disk.", metavar="SIZE", rich_help_panel=_PROTOCOL),
    ] = "1GiB",
) -> None:
    """Archive all streams of a broker, continuously.

    The agent runs beside a stock broker, as its user, and only reads its files. It links each segment as soon as it
    appears, so that retention cannot delete it. Once the segment has rolled and is known to be committed, the agent
    stages it to S3, announces it, and drops the link when the manifest covers it. Agents of several replicas may run at
    the same time: the archive has one copy.

    It is safe to stop and to kill at any time, and continues where it was. COLDSTREAM_BUCKET, COLDSTREAM_TABLE and
    COLDSTREAM_EVENT_BUS name the archive. A PATTERN is a shell's, such as 'orders*'. Options with a PATTERN or a stream
    may be repeated.

    With --check it tries the login at the broker, each stream, links, the disk, and each permission on AWS, and leaves
    nothing behind. The exit code is 0 if all is well, 2 if something is wrong on this machine, and 6 if the broker or
    AWS refuses something or does not answer.
    """
    if context.invoked_subcommand is not None:
        return
    from coldstream.agent.options import AgentOptions, SegmentSource, parse_duration, parse_size
    from coldstream.agent.rules import Rules
    from coldstream.live.address import BrokerAddress

    if source not in set(SegmentSource):
        raise InvalidSettingError("--source", f"{source!r} is neither disk nor protocol")
    host, port = _listen(listen)
    options = AgentOptions(
        state=state.absolute(),
        broker=BrokerAddress.from_uri(broker),
        data=_find_data(data) if source == SegmentSource.DISK else None,
        source=SegmentSource(source),
        management=management,
        streams=tuple(_vhost_and_name(text) for text in stream or ()),
        rules=Rules(tuple(include or ()), tuple(exclude or ()), tuple(include_vhost or ()), tuple(exclude_vhost or ())),
        max_lag_s=None if max_lag is None else parse_duration("--max-lag", max_lag),
        quiet_span_s=None if quiet_span is None else parse_duration("--quiet-span", quiet_span),
        quiet_below_bytes=parse_size("--quiet-below", quiet_below),
        scan_s=parse_duration("--scan", scan),
        uploads=uploads,
        bandwidth_bytes_per_s=None if bandwidth is None else parse_size("--bandwidth", bandwidth),
        release_below_bytes=None
        if release_pins_below is None
        else parse_size("--release-pins-below", release_pins_below),
        segment_bytes=parse_size("--segment-size", segment_size),
        max_spool_bytes=parse_size("--max-spool", max_spool),
        listen_host=host,
        listen_port=port,
        cluster=cluster,
    )
    if check:
        from coldstream.cli.agent_check import check_and_show

        raise typer.Exit(check_and_show(options, output))
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("boto3", "botocore", "pynamodb", "urllib3", "s3transfer", "rstream", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.run(_run(options))
    # Python would wait at exit for the threads whose requests AWS has not answered yet. Segments that roll meanwhile
    # are pinned by nobody, so the process ends at once; whatever was under way is safe to repeat.
    logging.shutdown()
    os._exit(ExitCode.OK)


async def _run(options: AgentOptions) -> None:
    from coldstream.agent.run import run_agent

    task = asyncio.create_task(run_agent(options, os.environ))
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("ended")


def _find_data(given: Path | None) -> Path:
    if given is not None:
        # The broker creates it with its first stream.
        if not given.is_dir() and not (given.name == "stream" and given.parent.is_dir()):
            raise InvalidSettingError("--data", f"{given} is not a directory")
        _check_readable(given)
        return given.absolute()
    _check_readable(Path(DATA_DIRECTORIES))
    nodes = [path for path in Path(DATA_DIRECTORIES).glob("*@*") if path.is_dir() and not path.name.endswith(_PLUGINS)]
    # The broker creates the directory of streams with its first one.
    found = sorted(path for node in nodes if (path := node / "stream").is_dir()) or [node / "stream" for node in nodes]
    if len(found) != 1:
        raise InvalidSettingError(
            "--data",
            f"is needed: the broker's directory of streams, such as {DATA_DIRECTORIES}/rabbit@host/stream;"
            f" this machine has {len(found)}",
        )
    _check_readable(found[0])
    return found[0]


def _check_readable(directory: Path) -> None:
    """Raise PermissionError if a directory exists and this user may not read it."""
    if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))


def _vhost_and_name(text: str) -> tuple[str, str]:
    vhost, colon, name = text.partition(":")
    if not (vhost and colon and name):
        raise InvalidSettingError("--stream", f"{text!r} is not VHOST:NAME, such as /:orders")
    return vhost, name


def _listen(text: str) -> tuple[str, int]:
    if text == "-":
        return "", 0
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidSettingError("--listen", f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
