"""`coldstream worker`: run the archive's jobs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coldstream.worker.options import WorkerOptions
    from coldstream.worker.worker import Worker

STATE_DIRECTORY = Path("/var/tmp/coldstream-worker")  # noqa: S108  each job's directory is locked and may be lost


def worker(
    *,
    concurrency: Annotated[int, typer.Option(help="Jobs at a time.", min=1, max=64)] = 2,
    broker: Annotated[
        list[str] | None,
        typer.Option(
            help="A broker that jobs may name: its stream protocol, rabbitmq-stream://…, AMQP 0.9.1, amqp://…, or its"
            " management API, http://…, which patterns of streams to store need. May be repeated. The environment"
            " keeps passwords out of sight: COLDSTREAM_BROKER, COLDSTREAM_AMQP_BROKER and COLDSTREAM_MANAGEMENT are"
            " the broker `default`, and COLDSTREAM_BROKER_NAME and so on the broker `name`.",
            metavar="NAME=URI",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[
        str, typer.Option(help="After how long without a word a worker's jobs are taken over.", metavar="TIME")
    ] = "15s",
    poll: Annotated[str, typer.Option(help="How often to look for jobs, about.", metavar="TIME")] = "2s",
    kinds: Annotated[
        list[str] | None,
        typer.Option(help="Run only jobs of these kinds. Default: all.", metavar="KIND", show_default=False),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when nothing is due, or with an error if the jobs cannot be listed.")
    ] = False,
    state: Annotated[
        Path,
        typer.Option(help="Directory for what store jobs have read and not archived yet.", metavar="DIRECTORY"),
    ] = STATE_DIRECTORY,
    metrics: Annotated[
        str,
        typer.Option(
            help="Address of /metrics, /healthz and /readyz; a port alone is on the loopback, port 0 is any free one, -"
            " serves none. Whoever reaches it may read it.",
            metavar="ADDRESS:PORT",
        ),
    ] = "127.0.0.1:0",
) -> None:
    """Run the archive's jobs: load, export, store and others.

    Many workers may run at once, on any machines. Each takes jobs that are due, and those whose worker has gone: they
    go on where that one was. Table and bucket are those of COLDSTREAM_TABLE and COLDSTREAM_BUCKET. SIGTERM and Ctrl-C
    let go of all jobs at their next safe place, for another worker to go on at once; a second signal ends at once, and
    then the jobs wait until their leases are over. The log is JSON, a line each, on stderr.

    Example: `coldstream worker --broker default=rabbitmq-stream://user:password@localhost:5552`.
    """
    from contextlib import ExitStack

    from coldstream.cli.quantities import duration_ms_of
    from coldstream.cli.stores import open_archive
    from coldstream.dispatch.dispatcher import Dispatcher
    from coldstream.jobs.store import JobStore
    from coldstream.web.json_log import log_as_json
    from coldstream.worker.brokers import BrokerBook
    from coldstream.worker.kinds import kinds_of
    from coldstream.worker.options import WorkerOptions, parse_kinds
    from coldstream.worker.status_server import WorkerStatusServer
    from coldstream.worker.tools import WorkerTools
    from coldstream.worker.worker import Worker

    options = WorkerOptions(
        concurrency=concurrency,
        lease_s=(duration_ms_of("--lease", lease) or 0) / 1000,
        poll_s=(duration_ms_of("--poll", poll) or 0) / 1000,
        kinds=parse_kinds(kinds or []),
        once=once,
        state=state.absolute(),
    )
    brokers = BrokerBook.read(broker or [], os.environ)
    listening = _listen(metrics)
    archive = open_archive(_connections(options))
    log_as_json()
    tools = WorkerTools.open(archive, brokers, options.state)
    working = Worker(JobStore(archive.table), kinds_of(tools), options, dispatcher=Dispatcher.of_environment(archive))
    with ExitStack() as stack:
        if listening is not None:
            server = WorkerStatusServer(working.metrics, host=listening[0], port=listening[1])
            stack.enter_context(server)
            shown = f"[{listening[0]}]" if ":" in listening[0] else listening[0]
            typer.echo(f"coldstream worker: metrics at http://{shown}:{server.port}/metrics")
        _end_by_signals(working)
        working.run()


def _connections(options: WorkerOptions) -> int:
    """Return how many connections to S3 the jobs use: each reads some slices ahead."""
    return 16 + 10 * options.concurrency


def _end_by_signals(working: Worker) -> None:
    """Have the first signal end the worker orderly, and a second one at once."""

    def end(number: int, _frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: os._exit(128 + number))
        working.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _listen(text: str) -> tuple[str, int] | None:
    from coldstream.errors import InvalidSettingError

    if text == "-":
        return None
    host, _, port = f"127.0.0.1:{text}".rpartition(":") if text.isdigit() else text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidSettingError("--metrics", f"{text[:80]!r} is not ADDRESS:PORT, such as 127.0.0.1:9479")
    return host.strip("[]"), int(port)
