"""The options of a replay as text, for the command line and for Spark's job alike.

This module imports nothing heavy: the command line reads it to start, whichever command is run. What a user gave is
checked here as far as options exclude each other; `target.find_target` and `tables.layout` check the values.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidQueryError
from coldstream.terminal.options import StreamArguments, option

_TO_A_BROKER = "to a broker"
_TO_A_TABLE = "to a table"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArguments(StreamArguments):
    """What a user may say of a replay. Raises InvalidQueryError for options that do not go together."""

    start: str = option(
        "first",
        flag="--from",
        metavar="SPEC",
        help="Where to begin: first, last, next, an offset, or a time: 2026-01-31T09:30:00Z, 2026-01-31, yesterday,"
        " -1h, timestamp:MILLISECONDS. To a broker, each run needs the same one, so not -1h.",
    )
    end: str | None = option(
        None,
        flag="--to",
        metavar="SPEC",
        help="Where to end, itself not included: an offset, or a time, which means the first chunk at or after it. Else"
        " where the archive ends when the run begins.",
    )
    on_gap: str = option("raise", choices=("raise", "skip"), help="End at a gap in the archive, or go on after it.")
    transform: str | None = option(
        None,
        metavar="MODULE:FUNCTION",
        help="A function that is given a message, or a row as a dict, and returns it, another one, or None for none.",
    )
    to_stream: str | None = option(None, metavar="NAME", help="Replay into a stream of a broker.")
    to_super_stream: str | None = option(
        None, metavar="NAME", help="Replay into a super stream; the routing key of a message chooses its partition."
    )
    to_exchange: str | None = option(
        None,
        metavar="NAME",
        help='Replay into an exchange by AMQP 0.9.1; "" is the default exchange. After a failure, messages that were'
        " not confirmed are sent again; consumers know them by the header x-coldstream-offset.",
    )
    to_parquet: str | None = option(
        None, metavar="PATH", help="Replay into Parquet files, in a directory or below s3://BUCKET/PREFIX."
    )
    to_jsonl: str | None = option(None, metavar="PATH", help="Replay into lines of JSON, in files there.")
    broker: str = option(
        "rabbitmq-stream://guest:guest@localhost:5552",
        metavar="URI",
        variable="COLDSTREAM_BROKER",
        group=_TO_A_BROKER,
        help="To a stream: the broker's stream protocol; rabbitmq-stream+tls:// with TLS. The environment keeps the"
        " password out of sight.",
    )
    amqp_broker: str = option(
        "amqp://guest:guest@localhost:5672",
        metavar="URI",
        variable="COLDSTREAM_AMQP_BROKER",
        group=_TO_A_BROKER,
        help="To an exchange: the broker and the vhost, as amqp://user:password@host:5672/vhost.",
    )
    to_vhost: str | None = option(
        None, metavar="VHOST", group=_TO_A_BROKER, help="To a stream: its vhost; else that of the replayed streams."
    )
    routing_key: str | None = option(
        None,
        metavar="FIELD",
        group=_TO_A_BROKER,
        help="Where a message has its routing key: properties.NAME, application_properties.NAME or"
        " message_annotations.NAME. Else properties.message_id for a super stream, and for an exchange the key with"
        " which the message was published.",
    )
    default_key: str | None = option(
        None, metavar="KEY", group=_TO_A_BROKER, help="To an exchange: the routing key of messages that have none."
    )
    allow_unroutable: bool = option(
        False,
        group=_TO_A_BROKER,
        help="To an exchange: let the broker drop messages for which no queue is bound, and count them.",
    )
    publisher: str | None = option(
        None,
        metavar="NAME",
        group=_TO_A_BROKER,
        help="To a stream: publish under this reference. What was published under it is not sent again.",
    )
    rate: float | None = option(
        None, group=_TO_A_BROKER, help="To a broker: at most so many messages a second, of each stream."
    )
    progress: str | None = option(
        None, metavar="FILE", group=_TO_A_BROKER, help="To an exchange: keep in this file how far the replay is."
    )
    gzip: bool = option(False, group=_TO_A_TABLE, help="Compress lines of JSON.")
    partition_by: str = option(
        "stream,date",
        metavar="COLUMNS",
        group=_TO_A_TABLE,
        help="Partition a table by some of stream, date and hour, or by none. Date and hour are the chunk's, in UTC.",
    )

    def __post_init__(self) -> None:
        targets = {
            "--to-stream": self.to_stream,
            "--to-super-stream": self.to_super_stream,
            "--to-exchange": self.to_exchange,
            "--to-parquet": self.to_parquet,
            "--to-jsonl": self.to_jsonl,
        }
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            raise InvalidQueryError(", ".join(targets), f"one of them is needed, not {len(given)}")
        to_broker = self.path is None
        belong = (
            ("--gzip", self.gzip, self.to_jsonl is not None),
            ("--rate", self.rate is not None, to_broker),
            ("--publisher", self.publisher is not None, to_broker and self.to_exchange is None),
            ("--routing-key", self.routing_key is not None, to_broker and self.to_stream is None),
            ("--default-key", self.default_key is not None, self.to_exchange is not None),
            ("--progress", self.progress is not None, self.to_exchange is not None),
            ("--allow-unroutable", self.allow_unroutable, self.to_exchange is not None),
        )
        for name, is_given, is_for_target in belong:
            if is_given and not is_for_target:
                raise InvalidQueryError(name, "is not for this target")
        if self.rate is not None and self.rate <= 0:
            raise InvalidQueryError("--rate", f"must be more than 0, not {self.rate}")

    @property
    def path(self) -> str | None:
        """Where the table is; None to a broker."""
        return self.to_parquet or self.to_jsonl

    @property
    def skip_gaps(self) -> bool:
        """Whether to go on after a gap."""
        return self.on_gap == "skip"
