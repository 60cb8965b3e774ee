"""`coldstream agent`: archive what a broker rolls, by itself, for as long as it runs."""

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

from coldstream.console.exits import ExitCode
from coldstream.console.output import Format
from coldstream.errors import InvalidSettingError

if TYPE_CHECKING:
    from coldstream.agent.options import AgentOptions

DATA_DIRECTORIES = "/var/lib/rabbitmq/mnesia"
STATE_DIRECTORY = Path("/var/lib/rabbitmq/coldstream")

_PLUGINS = "-plugins-expand"
"""What stands behind a node's name in another directory of it."""

Patterns = list[str] | None


def agent(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"The broker's directory of streams; else the one under {DATA_DIRECTORIES}.",
            metavar="DIRECTORY",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path,
        typer.Option(
            help="The agent's own directory. For the disk source on the file system of the data.", metavar="DIRECTORY"
        ),
    ] = STATE_DIRECTORY,
    broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_BROKER",
            help="The broker's stream protocol; rabbitmq-stream+tls:// with TLS. Best given in the environment.",
            metavar="URI",
        ),
    ] = "rabbitmq-stream://guest:guest@localhost:5552",
    management: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_MANAGEMENT",
            help="The broker's management API, http://user:password@localhost:15672: for names that a directory's name"
            " does not keep, as those with a dot, and for the time that retention leaves.",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_CLUSTER",
            help="Name of the broker's cluster, the same on all of its nodes, where several share an archive: it then"
            " announces its own streams alone. See docs/agent.md for the AWS policy that goes with it.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str, typer.Option(help="disk: segments on this node's disk; protocol: streams as a consumer gets them.")
    ] = "disk",
    stream: Annotated[
        Patterns,
        typer.Option(help="With --source protocol: a stream, where there is no --management.", metavar="VHOST:NAME"),
    ] = None,
    include: Annotated[Patterns, typer.Option(help="Names to archive; else all.", metavar="PATTERN")] = None,
    exclude: Annotated[Patterns, typer.Option(help="Names not to archive.", metavar="PATTERN")] = None,
    include_vhost: Annotated[Patterns, typer.Option(help="Vhosts to archive; else all.", metavar="PATTERN")] = None,
    exclude_vhost: Annotated[Patterns, typer.Option(help="Vhosts not to archive.", metavar="PATTERN")] = None,
    max_lag: Annotated[
        str | None,
        typer.Option(
            help="Archive also what has not rolled, once it is so old; else a segment is archived when it rolled.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    scan: Annotated[str, typer.Option(help="How often to look, beside being told.", metavar="TIME")] = "10s",
    uploads: Annotated[
        int, typer.Option(help="Segments to stage at a time; each takes up to 48 MiB of memory.", min=1, max=64)
    ] = 4,
    bandwidth: Annotated[
        str | None, typer.Option(help="How much to send in a second, such as 50MB; else no limit.", metavar="SIZE")
    ] = None,
    release_pins_below: Annotated[
        str | None,
        typer.Option(
            help="Let go of segments that are not archived, oldest first, while less than this is free on the disk."
            " What is lost by that is recorded. Else nothing is let go, and the disk may fill.",
            metavar="SIZE",
        ),
    ] = None,
    segment_size: Annotated[str, typer.Option(help="With --source protocol: of a segment.", metavar="SIZE")] = "64MiB",
    max_spool: Annotated[
        str, typer.Option(help="With --source protocol: what may wait on the disk of each stream.", metavar="SIZE")
    ] = "1GiB",
    listen: Annotated[
        str, typer.Option(help="Where /metrics, /healthz, /readyz and /status are; - for nowhere.", metavar="HOST:PORT")
    ] = "127.0.0.1:9478",
    check: Annotated[
        bool, typer.Option("--check", help="Try all that the agent needs, tell what is not well, and end.")
    ] = False,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="With --check: text for people, JSON for programs.")
    ] = Format.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
) -> None:
    """Archive every stream of a broker's node by itself.

    Runs beside a stock broker, as its user, and only reads its files. Each segment is linked as soon as it is seen, so
    that retention cannot delete it first, staged to S3 once it rolled and is known to be committed, announced, and let
    go when the manifest covers it. Agents of several replicas may run at once: the archive has one copy.

    Safe to stop and to kill at any time; it goes on where it was. COLDSTREAM_BUCKET, COLDSTREAM_TABLE and
    COLDSTREAM_EVENT_BUS name the archive. Patterns are a shell's, and such options may be repeated.

    With --check it does not run: it tries the login at the broker and each stream, links, disk, and each right at AWS,
    leaves nothing behind, and ends with 0 when all is well, 2 when something of this machine is not, and 6 when the
    broker or AWS refuses something or does not answer.
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
    # What AWS has not answered is not waited for: as long as no agent runs, nothing is pinned.
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
        # A broker makes it with its first stream.
        if not given.is_dir() and not (given.name == "stream" and given.parent.is_dir()):
            raise InvalidSettingError("--data", f"{given} is not a directory")
        _check_readable(given)
        return given.absolute()
    _check_readable(Path(DATA_DIRECTORIES))
    nodes = [path for path in Path(DATA_DIRECTORIES).glob("*@*") if path.is_dir() and not path.name.endswith(_PLUGINS)]
    # A broker makes the directory of streams with its first one.
    found = sorted(path for node in nodes if (path := node / "stream").is_dir()) or [node / "stream" for node in nodes]
    if len(found) != 1:
        raise InvalidSettingError(
            "--data",
            f"is needed: the broker's directory of streams, as {DATA_DIRECTORIES}/rabbit@host/stream;"
            f" there are {len(found)} such here",
        )
    _check_readable(found[0])
    return found[0]


def _check_readable(directory: Path) -> None:
    """Raise PermissionError for a directory that is there, and not for this user."""
    if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))


def _vhost_and_name(text: str) -> tuple[str, str]:
    vhost, colon, name = text.partition(":")
    if not (vhost and colon and name):
        raise InvalidSettingError("--stream", f"{text!r} is not VHOST:NAME, as /:orders is")
    return vhost, name


def _listen(text: str) -> tuple[str, int]:
    if text == "-":
        return "", 0
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidSettingError("--listen", f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
