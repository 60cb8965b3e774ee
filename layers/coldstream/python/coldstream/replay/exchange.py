"""Replay a stream into an exchange of a broker, by AMQP 0.9.1: in order, each message at least once.

Brokers do not know there what was published before. So how far it is stands in a file, and what was sent but not
confirmed before a failure is sent again. Every message has the headers `x-coldstream-stream` and
`x-coldstream-offset`, by which consumers can drop repeats.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.errors import BadMagicError, InvalidInputError
from coldstream.flow.pace import Pace
from coldstream.format.amqp.message import Message, in_place_of, messages
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.read.scan import Slice
from coldstream.replay.amqp091 import properties_bytes, to_amqp091
from coldstream.replay.broker import BrokerReplayOptions
from coldstream.replay.confirmed import ExchangePublisher
from coldstream.replay.progress_file import ProgressFile
from coldstream.replay.request import ReplayRequest, read_ahead
from coldstream.replay.retry import retry_while_progressing
from coldstream.replay.routing import RoutingKey
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.transform import Transform, encoded, load_function
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

_AS_IT_CAME = RoutingKey("message_annotations", "x-routing-key")
_TELL_EVERY_S = 0.5
_LOOK_EVERY = 100  # messages
_MAX_KEY_BYTES = 255
_MOST_GROWTH = 8  # of a message's properties, as they become those of AMQP 0.9.1


@dataclass(frozen=True, slots=True)
class ExchangeTarget:
    """An exchange, "" for the default one; `broker` is a URI as amqp://user:password@host:5672/vhost.

    A message goes by the key at `routing_key`, which unless told otherwise is the one that it once came by, and by
    `default_key` where it has none. `progress` is where to keep how far it is; without, each run starts from the start.
    What no queue is bound for ends the replay, unless `allow_unroutable` lets the broker drop it.
    """

    broker: str = field(repr=False)
    exchange: str
    routing_key: RoutingKey = _AS_IT_CAME
    default_key: str = ""
    progress: Path | None = None
    allow_unroutable: bool = False


def replay_to_exchange(
    table: ManifestReads,
    objects: ObjectReads,
    source: ReplayRequest,
    target: ExchangeTarget,
    *,
    options: BrokerReplayOptions = BrokerReplayOptions(),  # noqa: B008  a frozen value
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish a source, and return when all is confirmed, or once `should_stop` is true.

    `on_progress` is called about twice a second. A connection that is lost is opened again, for up to two minutes
    without progress. The summary's `unroutable` counts what no queue was bound for. Raises UnavailableError,
    NotFoundError (archive or exchange), UnroutableError, AccessDeniedError, GapError, CorruptionError,
    InvalidInputError.
    """
    replay = _Replay(table, objects, source, target, options, on_progress, should_stop)
    asyncio.run(replay.run())
    return replay.summary


class _Replay:
    def __init__(  # noqa: PLR0917  called once
        self,
        table: ManifestReads,
        objects: ObjectReads,
        source: ReplayRequest,
        target: ExchangeTarget,
        options: BrokerReplayOptions,
        on_progress: Callable[[ReplayProgress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.summary = ReplaySummary(source.stream, target.exchange, source.start, source.end)
        self._table = table
        self._objects = objects
        self._source = source
        self._target = target
        self._pace = Pace(options.rate)
        self._transform: Transform | None = None if options.transform is None else load_function(options.transform)
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._told_at = 0.0
        self._sent_to = source.start
        self._file = None if target.progress is None else ProgressFile(target.progress, source, target.exchange)

    async def run(self) -> None:
        began = time.monotonic()
        done_to = self._source.start if self._file is None else self._file.read()
        self.summary.resumed_at = self.summary.confirmed_to = min(done_to, self._source.end)
        what = f"{self._source.stream} into exchange {self._target.exchange!r}"
        try:
            await retry_while_progressing(self._once, lambda: self.summary.confirmed_to, what)
        finally:
            self._keep()
        self.summary.seconds = time.monotonic() - began

    async def _once(self) -> None:
        """Publish what is left over one connection."""
        target = self._target
        publisher = ExchangePublisher(target.broker, target.exchange, allow_unroutable=target.allow_unroutable)
        async with publisher:
            self._sent_to = self.summary.confirmed_to
            try:
                await self._publish(publisher, self._sent_to)
            finally:
                self.summary.unroutable += publisher.unroutable
                self.summary.confirmed_to = max(self.summary.confirmed_to, publisher.safe_to(self._sent_to))

    async def _publish(self, publisher: ExchangePublisher, start: Offset) -> None:
        is_whole = start >= self._source.end
        if not is_whole:
            with read_ahead(self._table, self._objects, self._source, start) as steps:
                while not self._should_stop() and not is_whole:
                    match step := await asyncio.to_thread(next, steps, None):
                        case None:
                            is_whole = True
                        case Gap():
                            if step not in self.summary.gaps:
                                self.summary.gaps.append(step)
                        case (part, chunks):
                            await self._send(publisher, part, chunks, start)
        await publisher.flush()
        self.summary.is_complete = is_whole
        self._tell(publisher, self._source.end if is_whole else self._sent_to, now=True)

    async def _send(self, publisher: ExchangePublisher, part: Slice, chunks: list[Chunk], start: Offset) -> None:
        for chunk in chunks:
            for message in messages(chunk, source=part.key, from_offset=max(start, part.start)):
                if message.offset >= part.end:
                    break
                if message.offset % _LOOK_EVERY == 0:
                    if self._should_stop():
                        return
                    self._tell(publisher, self._sent_to)
                await self._send_message(publisher, message)
                self._sent_to = Offset(message.offset + 1)
        self._sent_to = part.end

    async def _send_message(self, publisher: ExchangePublisher, message: Message) -> None:
        raw = encoded(message, self._transform)
        if raw is None:
            self.summary.left_out += 1
            return
        sent = message if self._transform is None else in_place_of(message, raw)
        properties, body = to_amqp091(sent, self._source.stream.name)
        if len(raw) - len(body) > publisher.max_properties_bytes // _MOST_GROWTH:
            size_bytes = properties_bytes(properties)
            if size_bytes > publisher.max_properties_bytes:
                raise InvalidInputError("message", f"at offset {message.offset} has {size_bytes} bytes of properties")
        await self._pace.wait(1, self._should_stop)
        await publisher.send(message.offset, self._key(sent), properties, body)
        self.summary.messages += 1
        self.summary.sent_bytes += len(raw)

    def _key(self, message: Message) -> str:
        try:
            key = self._target.routing_key.find(message)
        except BadMagicError:  # no AMQP
            key = None
        key = self._target.default_key if key is None else key
        if len(key.encode()) > _MAX_KEY_BYTES:
            raise InvalidInputError("routing key", f"of the message at offset {message.offset} is too long: {key!r}")
        return key

    def _tell(self, publisher: ExchangePublisher, sent_to: Offset, *, now: bool = False) -> None:
        """Take note of how far it is; keep and tell it from time to time."""
        summary = self.summary
        summary.confirmed_to = max(summary.confirmed_to, publisher.safe_to(sent_to))
        if now or time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._told_at = time.monotonic()
            self._keep()
            self._on_progress(
                ReplayProgress(
                    self._source.start, self._source.end, summary.confirmed_to, summary.messages, summary.sent_bytes
                )
            )

    def _keep(self) -> None:
        if self._file is not None:
            self._file.write(self.summary.confirmed_to)
