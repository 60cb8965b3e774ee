"""`coldstream replay`: what is archived, into a broker again or into tables."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from coldstream.cli.options import Incarnation, Output, Vhost
from coldstream.cli.read import BROKER
from coldstream.cli.resolve import SPEC_HELP
from coldstream.console.output import Format
from coldstream.errors import InvalidQueryError


def replay(
    names: Annotated[list[str], typer.Argument(help="Streams to replay.", metavar="NAME...", show_default=False)],
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", help=f"Where to begin: {SPEC_HELP} To a broker the same each time, so not -1h.", metavar="SPEC"
        ),
    ] = "first",
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Where to end, itself not included: an offset, or a time, which is the first chunk's at or after it."
            " Else where the archive ends when the command starts.",
            metavar="SPEC",
        ),
    ] = None,
    to_stream: Annotated[str | None, typer.Option(help="Into a stream of a broker.", metavar="NAME")] = None,
    to_super_stream: Annotated[
        str | None, typer.Option(help="Into a super stream, to the partition of each routing key.", metavar="NAME")
    ] = None,
    to_exchange: Annotated[
        str | None,
        typer.Option(
            help='Into an exchange by AMQP 0.9.1, "" for the default one. After a failure what was not confirmed is'
            " sent again: the header x-coldstream-offset tells.",
            metavar="NAME",
        ),
    ] = None,
    to_parquet: Annotated[
        str | None, typer.Option(help="Into Parquet, in a directory or below s3://BUCKET/PREFIX.", metavar="PATH")
    ] = None,
    to_jsonl: Annotated[str | None, typer.Option(help="Into lines of JSON, in files there.", metavar="PATH")] = None,
    broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_BROKER",
            help="To a stream: the broker's stream protocol; rabbitmq-stream+tls:// with TLS. Best given in the"
            " environment.",
            metavar="URI",
        ),
    ] = BROKER,
    amqp_broker: Annotated[
        str,
        typer.Option(
            envvar="COLDSTREAM_AMQP_BROKER",
            help="To an exchange: the broker and the vhost, as amqp://user:password@host:5672/vhost.",
            metavar="URI",
        ),
    ] = "amqp://guest:guest@localhost:5672",
    to_vhost: Annotated[
        str | None,
        typer.Option(help="To a stream: its vhost; else that of the streams that are replayed.", metavar="VHOST"),
    ] = None,
    routing_key: Annotated[
        str | None,
        typer.Option(
            help="Where a message has its routing key: properties.NAME, application_properties.NAME or"
            " message_annotations.NAME. Else properties.message_id for a super stream, and for an exchange the key"
            " that the message once came by.",
            metavar="FIELD",
        ),
    ] = None,
    default_key: Annotated[
        str | None, typer.Option(help="To an exchange: the routing key of messages without one.", metavar="KEY")
    ] = None,
    progress_file: Annotated[
        str | None,
        typer.Option("--progress", help="To an exchange: a file that keeps how far it is.", metavar="FILE"),
    ] = None,
    allow_unroutable: Annotated[
        bool,
        typer.Option(
            "--allow-unroutable",
            help="To an exchange: let the broker drop messages that no queue is bound for, and count them.",
        ),
    ] = False,
    publisher: Annotated[
        str | None,
        typer.Option(
            help="To a stream: publish under this reference. What was published under it is not sent again.",
            metavar="NAME",
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="To a broker: messages a second at most.")] = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Lines of JSON: compressed.")] = False,
    partition_by: Annotated[
        str,
        typer.Option(
            help="Of a table: by some of stream, date and hour, or none. Date and hour are the chunk's, in UTC.",
            metavar="COLUMNS",
        ),
    ] = "stream,date",
    transform: Annotated[
        str | None,
        typer.Option(
            help="A function that takes a message, or a row as a dict, and returns it, another, or None for none.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    on_gap: Annotated[
        Literal["raise", "skip"], typer.Option(help="End at a gap in the archive, or go on behind it.")
    ] = "raise",
    output: Output = Format.TEXT,
) -> None:
    """Replay messages from the archive, each once.

    Run again, also after it was interrupted or killed, it adds what is not at the target yet. A transformation has to
    return the same for the same message each time. What is at a table is told by its directory _coldstream; what is in
    streams of a broker by the broker, for the same source, --from, routing key and transformation.
    """
    from coldstream.cli.replayer import Replayer, into_broker, into_table
    from coldstream.replay.tables.layout import FileFormat

    targets = {
        "--to-stream": to_stream,
        "--to-super-stream": to_super_stream,
        "--to-exchange": to_exchange,
        "--to-parquet": to_parquet,
        "--to-jsonl": to_jsonl,
    }
    given = [name for name, value in targets.items() if value is not None]
    if len(given) != 1:
        raise InvalidQueryError(", ".join(targets), f"one of them is needed, not {len(given)}")
    if gzip and to_jsonl is None:
        raise InvalidQueryError("--gzip", "is for --to-jsonl")
    replayer = Replayer(names, vhost, incarnation, start, end, on_gap == "skip", output)
    path = to_parquet or to_jsonl
    if path is not None:
        if rate is not None:
            raise InvalidQueryError("--rate", "is not for this target")
        form = FileFormat.PARQUET if to_parquet else FileFormat.JSONL_GZIP if gzip else FileFormat.JSONL
        into_table(replayer, path, form, partition_by, transform)
        return
    from coldstream.replay.target import Asked

    if progress_file is not None and len(names) > 1:
        raise InvalidQueryError("--progress", "is of one stream")
    asked = Asked(
        to_vhost or vhost,
        to_stream,
        to_super_stream,
        to_exchange,
        broker=broker,
        amqp_broker=amqp_broker,
        routing_key=routing_key,
        default_key=default_key,
        publisher=publisher,
        progress=progress_file,
        rate=rate,
        allow_unroutable=allow_unroutable,
    )
    into_broker(replayer, asked, transform)
