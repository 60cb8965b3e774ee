"""The targets of a load, behind one small port: the streams and exchanges of a broker, and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from coldstream.errors import InvalidInputError, StreamNotFoundError
from coldstream.jobs.run import JobRun
from coldstream.jobs.targets import Target, ToExchange, ToStream, ToSuperStream, ToTable
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason
from coldstream.replay.request import ReplayRequest
from coldstream.replay.routing import RoutingKey
from coldstream.replay.send import send
from coldstream.replay.stream import publisher_name
from coldstream.replay.summary import ReplayProgress
from coldstream.replay.tables.directory import open_directory
from coldstream.replay.tables.layout import FileFormat, Partitioning
from coldstream.replay.tables.report import TableReport
from coldstream.replay.tables.run import claim_table, replay_to_table
from coldstream.replay.tables.table import Table
from coldstream.replay.target import ExchangeTarget, SendOptions, StreamTarget
from coldstream.replay.window import TimeWindow
from coldstream.store.reserved import StreamAction, check_not_reserved
from coldstream.units import MIB, Offset, TimestampMs
from coldstream.worker.load_account import LoadAccount
from coldstream.worker.load_cursor import StreamPosition
from coldstream.worker.tools import WorkerTools

SPAN_BYTES = 64 * MIB
"""Of a table: what is written between two places at which a job can stop."""

_LOOK_EVERY_S = 0.5
_DECLARE = "a load declares no stream, as retention and segment size are yours to decide: declare the target first"


@dataclass(frozen=True, slots=True)
class LoadStep:
    """How far a load of one stream is: all before `done_to` is at the target, and what was sent since the last step."""

    done_to: Offset
    messages: int
    bytes: int
    sent_timestamp: TimestampMs | None = None


@dataclass(frozen=True, slots=True)
class LoadPart:
    """One stream to load: its position, the window with its identity, and where to tell how that goes."""

    position: StreamPosition
    window: TimeWindow | None
    window_identity: str
    account: LoadAccount
    on_step: Callable[[LoadStep], None]
    rate: float | None = None

    @property
    def request(self) -> ReplayRequest:
        """What is to be replayed. Gaps are passed over, and told."""
        position = self.position
        return ReplayRequest(position.stream, position.start, position.end, skip_gaps=True)


class LoadSink(Protocol):
    """A target that streams are loaded into, one after another."""

    @property
    def label(self) -> str:
        """What people call it."""
        ...

    def publisher(self, position: StreamPosition, window: TimeWindow | None) -> str:
        """Return the reference under which a stream is published; "" if the target knows none."""
        ...

    def prepare(self) -> None:
        """Check what can be checked before anything is read."""
        ...

    def load(self, run: JobRun, part: LoadPart) -> bool:
        """Load what is left of a stream; return False if the run is to stop before the end. Raises as `replay` does."""
        ...


def find_sink(tools: WorkerTools, vhost: str, target: Target) -> LoadSink:
    """Return what a target means to this worker. Raises InvalidInputError for a broker that it does not know."""
    match target:
        case ToTable():
            return TableSink(tools, target.path, file_format(target.format, gzip=target.gzip), target.partition_by)
        case ToExchange():
            key = None if target.routing_key is None else RoutingKey.parse(target.routing_key, "routing key")
            exchange = ExchangeTarget(
                tools.brokers.amqp_uri(target.broker),
                target.name,
                default_key=target.default_key or "",
                allow_unroutable=target.allow_unroutable,
            )
            return BrokerSink(tools, exchange if key is None else replace(exchange, routing_key=key))
        case ToSuperStream():
            key = RoutingKey() if target.routing_key is None else RoutingKey.parse(target.routing_key, "routing key")
            return BrokerSink(tools, _stream_target(tools, target, vhost, key))
        case ToStream():
            return BrokerSink(tools, _stream_target(tools, target, vhost, None))


def file_format(name: str, *, gzip: bool) -> FileFormat:
    """Return the format of a table's files. Raises InvalidInputError."""
    if name == "parquet":
        if gzip:
            raise InvalidInputError("gzip", "is for lines of JSON: Parquet is compressed as it is")
        return FileFormat.PARQUET
    return FileFormat.JSONL_GZIP if gzip else FileFormat.JSONL


def _stream_target(
    tools: WorkerTools, target: ToStream | ToSuperStream, vhost: str, key: RoutingKey | None
) -> StreamTarget:
    uri = tools.brokers.stream_uri(target.broker)
    return StreamTarget(uri, target.name, vhost if target.vhost is None else target.vhost, key)


@dataclass(slots=True)
class BrokerSink:
    """A stream, a super stream or an exchange."""

    tools: WorkerTools
    target: StreamTarget | ExchangeTarget

    @property
    def label(self) -> str:
        """What people call it."""
        kind = "exchange" if isinstance(self.target, ExchangeTarget) else "stream"
        return f"{kind} {self.target.label!r}"

    def publisher(self, position: StreamPosition, window: TimeWindow | None) -> str:
        """Return the reference that follows from the source, its start, the window and the routing key."""
        if isinstance(self.target, ExchangeTarget):
            return ""
        request = ReplayRequest(position.stream, position.start, position.end)
        return publisher_name(request, self.target, SendOptions(window=window))

    def prepare(self) -> None:
        """Refuse the logical name of a sharded stream."""
        if isinstance(self.target, StreamTarget) and self.target.routing_key is None:
            check_not_reserved(self.tools.table, self.target.vhost, self.target.name, StreamAction.REPLAY_TO)

    def load(self, run: JobRun, part: LoadPart) -> bool:
        """Publish what is left, and wait until it is confirmed."""
        tracked = _StepCounter(part)
        target = self.target
        if isinstance(target, StreamTarget):
            target = _published_as(target, part.position.publisher)
        options = SendOptions(
            part.rate,
            window=part.window,
            resume_at=part.position.done_to,
            on_gap=part.account.skip,
            on_left_out=self._leave_out(part.account),
            # A stream drops what it has by its publishing id; an exchange takes whatever it is sent.
            before_send=run.check_lease if isinstance(target, ExchangeTarget) else None,
        )
        try:
            summary = send(
                self.tools.table,
                self.tools.objects,
                part.request,
                target,
                options=options,
                on_progress=tracked.tell,
                should_stop=run.should_stop,
            )
        except StreamNotFoundError as err:
            err.add_note(_DECLARE)
            raise
        if summary.unroutable and isinstance(target, ExchangeTarget) and target.allow_unroutable:
            run.say(f"{summary.unroutable} messages of {part.position.stream} were dropped: no queue is bound for them")
        return summary.is_complete

    def _leave_out(self, account: LoadAccount) -> Callable[[LeftOutMessages], None]:
        target = self.target
        if not isinstance(target, ExchangeTarget) or not target.allow_unroutable:
            return account.leave_out

        def leave_out(messages: LeftOutMessages) -> None:
            if messages.reason is not LeftOutReason.UNROUTABLE:  # the job lets the broker drop those
                account.leave_out(messages)

        return leave_out


def _published_as(target: StreamTarget, publisher: str) -> StreamTarget:
    return replace(target, publisher=publisher)


@dataclass(slots=True)
class _StepCounter:
    """Turns how far a replay is into steps."""

    part: LoadPart
    messages: int = 0
    bytes: int = 0

    def tell(self, now: ReplayProgress) -> None:
        messages, bytes_ = now.messages - self.messages, now.sent_bytes - self.bytes
        self.messages, self.bytes = now.messages, now.sent_bytes
        self.part.on_step(LoadStep(now.done_to, messages, bytes_, now.sent_timestamp))


@dataclass(slots=True)
class TableSink:
    """A table of files, or with the partitions `none` the files of an export."""

    tools: WorkerTools
    path: str
    form: FileFormat
    partition_by: str
    _is_claimed: bool = field(default=False, init=False)

    @property
    def label(self) -> str:
        """What people call it."""
        return f"table {self.path!r}"

    def publisher(self, position: StreamPosition, window: TimeWindow | None) -> str:  # noqa: ARG002  the port's
        """Return nothing: the table's marks tell what it has."""
        return ""

    def prepare(self) -> None:
        """Check path and partitions."""
        open_directory(self.path)
        Partitioning.parse(self.partition_by)

    def load(self, run: JobRun, part: LoadPart) -> bool:
        """Write the rows that the table lacks, span by span."""
        table = Table(
            open_directory(self.path),
            self.form,
            Partitioning.parse(self.partition_by),
            window=part.window,
            window_identity=part.window_identity,
            on_left_out=part.account.leave_out,
        )
        if not self._is_claimed:
            claim_table(table)
            self._is_claimed = True
        report = TableReport(part.request)
        told = [0, 0]

        def done(done_to: Offset) -> None:
            part.on_step(LoadStep(done_to, report.rows - told[0], report.read_bytes - told[1]))
            told[:] = report.rows, report.read_bytes

        replay_to_table(
            self.tools.table,
            self.tools.objects,
            table,
            report,
            span_bytes=SPAN_BYTES,
            on_offsets=_paced(part.rate, run.should_stop),
            on_gap=part.account.skip,
            on_done=done,
            resume_at=part.position.done_to,
            should_stop=run.should_stop,
        )
        if report.is_complete:
            done(part.request.end)
        return report.is_complete


def _paced(rate: float | None, should_stop: Callable[[], bool]) -> Callable[[int], None]:
    """Return what waits after so many messages. Once the run is to stop it waits no more: the span is written first."""
    due = time.monotonic()

    def wait(messages: int) -> None:
        nonlocal due
        if rate is None:
            return
        due = max(due, time.monotonic() - 1) + messages / rate
        while (left_s := due - time.monotonic()) > 0 and not should_stop():
            time.sleep(min(left_s, _LOOK_EVERY_S))

    return wait
