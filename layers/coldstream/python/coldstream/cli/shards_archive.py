"""`coldstream shards archive`: take classic queues into the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Output, Vhost
from coldstream.cli.progress import progress
from coldstream.cli.stopping import signals_of_a_command, stop_on_signals
from coldstream.errors import ColdstreamError, InvalidInputError, InvalidSettingError, MissingExtraError
from coldstream.terminal.exits import advice, exit_code_of
from coldstream.terminal.output import Format, count_text, printable, write_json, write_table

if TYPE_CHECKING:
    from coldstream.queues.run import QueueProgress

_AGE = "5s"
_BYTES = "8MiB"


def archive(
    name: Annotated[
        str | None, typer.Argument(help="Name of the sharded stream.", metavar="NAME", show_default=False)
    ] = None,
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="A queue, instead of those of a sharded stream; may be repeated.", metavar="QUEUE"
        ),
    ] = None,
    vhost: Vhost = "/",
    once: Annotated[bool, typer.Option("--once", help="End when the queues are empty.")] = False,
    amqp_broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_AMQP_BROKER",
            help="The broker by AMQP 0.9.1. The environment variable keeps a password out of the process list.",
            metavar="URI",
        ),
    ] = "amqp://guest:guest@localhost:5672",
    batch_messages: Annotated[int, typer.Option(min=1, help="Most messages of a batch.", metavar="NUMBER")] = 10_000,
    batch_size: Annotated[str, typer.Option(help="Close a batch at this size.", metavar="SIZE")] = _BYTES,
    batch_age: Annotated[
        str, typer.Option(help="Close a batch so long after its first message.", metavar="TIME")
    ] = _AGE,
    output: Output = Format.TEXT,
) -> None:
    """Move the messages of classic queues into the archive.

    Each queue becomes a stream of its name. A message leaves its queue only after the archive has it, with its routing
    key, headers and properties, and is archived once, whenever this is interrupted. Nothing else may consume the queues
    meanwhile. Ctrl-C ends it after the batch that is under way. Example: `coldstream shards archive orders --once`.
    """
    try:
        from coldstream.queues.pika_queue import PikaQueue
    except ModuleNotFoundError as err:
        if err.name != "pika":
            raise
        raise MissingExtraError("pika", "replay") from err
    from coldstream.ingest.announcer import Announcer
    from coldstream.queues.archiver import BatchLimits
    from coldstream.queues.run import archive_queues, queues_of
    from coldstream.units import parse_duration, parse_size

    if (name is None) == (not queue):
        raise InvalidInputError("NAME, --queue", "one of them is needed")
    try:
        limits = BatchLimits(batch_messages, parse_size(batch_size), parse_duration(batch_age))
    except ValueError as err:
        raise InvalidSettingError("--batch-size, --batch-age", str(err)) from err
    announcer = Announcer.from_environment()
    with signals_of_a_command(), progress("archiving", None, "messages") as advance:
        done = archive_queues(
            announcer,
            lambda vhost, name: PikaQueue(amqp_broker, vhost, name),
            vhost,
            tuple(dict.fromkeys(queue)) if queue else lambda: queues_of(announcer.table, vhost, name or ""),
            limits=limits,
            once=once,
            stopped=stop_on_signals(),
            on_batch=lambda report: advance(report.messages),
            on_error=_tell,
        )
    _show(done, output)
    errors = [one.error for one in done if one.error is not None]
    if errors:
        raise typer.Exit(exit_code_of(type(error) for error in errors))


def _tell(error: ColdstreamError) -> None:
    """Tell at once that a queue is not archived any more: the others may go on for weeks."""
    hint = advice(error)
    typer.echo(printable(f"error: {error}" + ("" if hint is None else f"; {hint}")), err=True)


def _show(done: list[QueueProgress], output: Format) -> None:
    if output is Format.JSON:
        for one in done:
            write_json(
                {
                    "vhost": one.vhost,
                    "queue": one.queue,
                    "messages": one.messages,
                    "recovered": one.recovered,
                    "batches": one.batches,
                    "size_bytes": one.size_bytes,
                    "next_offset": one.next_offset,
                    "error": None if one.error is None else str(one.error),
                }
            )
        return
    write_table(
        ("vhost", "queue", "messages", "batches", "bytes", "next offset"),
        [(one.vhost, one.queue, one.messages, one.batches, one.size_bytes, one.next_offset) for one in done],
    )
    typer.echo(f"{count_text(sum(one.messages for one in done), 'message')} archived", err=True)
