"""Replay into an exchange of a broker, by AMQP 0.9.1: in order, each message at least once.

The broker does not know what was published to an exchange. So a file keeps how far the replay is, and what was sent but
not confirmed before a failure is sent again. Every message has the headers `x-coldstream-stream` and
`x-coldstream-offset`, by which consumers can drop repeats.
"""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import BadMagicError, InvalidInputError
from coldstream.format.amqp.message import Message, in_place_of, messages
from coldstream.format.chunk import Chunk
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.read.scan import ScanSlice
from coldstream.replay.amqp091 import properties_bytes, to_amqp091
from coldstream.replay.broker_replay import BrokerReplay, ReplayContext
from coldstream.replay.exchange_publisher import ExchangePublisher
from coldstream.replay.left_out import LeftOutReason
from coldstream.replay.progress_file import ProgressFile
from coldstream.replay.request import ReplayRequest
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.replay.target import ExchangeTarget, SendOptions
from coldstream.replay.transform import transform_message
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset

_LOOK_EVERY = 100
"""Messages after which the replay looks at the clock, and whether it is to stop."""

_MAX_KEY_BYTES = 255
_MAX_GROWTH = 8
"""How many times larger the properties of a message may become in AMQP 0.9.1."""


def replay_to_exchange(
    table: ManifestReads,
    objects: ObjectReads,
    request: ReplayRequest,
    target: ExchangeTarget,
    *,
    options: SendOptions = SendOptions(),  # noqa: B008  a frozen value
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish what is requested; return once all is confirmed, or `should_stop` is true.

    `on_progress` is called about twice a second. A lost connection is opened again, for up to two minutes without
    progress. The summary's `unroutable` counts messages for which no queue was bound. Raises UnavailableError,
    NotFoundError (archive or exchange), UnroutableError, AccessDeniedError, GapError, CorruptionError,
    InvalidInputError.
    """
    context = ReplayContext(table, objects, request, options, on_progress, should_stop)
    return _ExchangeReplay(context, target).run()


class _ExchangeReplay(BrokerReplay):
    """Publishes to one exchange, message by message."""

    def __init__(self, context: ReplayContext, target: ExchangeTarget) -> None:
        request = context.request
        summary = ReplaySummary(request.stream, target.exchange, request.start, request.end)
        super().__init__(context, summary, f"exchange {target.exchange!r}")
        self._target = target
        self._file = None if target.progress is None else ProgressFile(target.progress, request, target.exchange)
        done_to = context.options.resume_at or request.start
        if self._file is not None:
            done_to = self._file.read()
        self.summary.resumed_at = self.summary.confirmed_to = min(done_to, request.end)
        # Not connected, and replaced before the first use: a bad URI is an error here, before anything is sent.
        self._publisher = self._new_publisher()

    def _new_publisher(self) -> ExchangePublisher:
        target = self._target
        on_unroutable = None if self.context.options.on_left_out is None else self._on_unroutable
        return ExchangePublisher(
            target.broker, target.exchange, allow_unroutable=target.allow_unroutable, on_unroutable=on_unroutable
        )

    def _on_unroutable(self, offset: Offset) -> None:
        self.leave_out(offset, offset + 1, LeftOutReason.UNROUTABLE)

    async def connect_and_publish(self) -> None:
        self._publisher = publisher = self._new_publisher()
        async with publisher:
            # Set before the new publisher is asked: it has nothing open, so all up to `sent_to` counts as confirmed.
            self.sent_to = self.summary.confirmed_to
            try:
                await self.publish(self.sent_to)
            finally:
                # What is confirmed by now is not sent again, whatever has ended this connection.
                self.summary.unroutable += publisher.unroutable
                self.record_confirmed()

    def safe_to(self) -> Offset:
        return self._publisher.safe_to(self.sent_to)

    async def flush(self) -> None:
        await self._publisher.flush()

    def keep(self) -> None:
        if self._file is not None:
            self._file.write(self.summary.confirmed_to)

    async def send_slice(self, part: ScanSlice, chunks: list[Chunk], start: Offset) -> None:
        for chunk in chunks:
            for message in messages(chunk, source=part.key, from_offset=max(start, part.start)):
                if message.offset >= part.end:
                    break
                # With a rate, a hundred messages may take minutes.
                if message.offset % _LOOK_EVERY == 0 or self.pace.piece is not None:
                    if self.should_stop():
                        return
                    self.tell()
                if not await self._send(message):
                    return
                # After the send: `safe_to` takes whatever is before `sent_to` and not open for confirmed.
                self.sent_to = Offset(message.offset + 1)
        self.sent_to = part.end

    async def _send(self, message: Message) -> bool:
        """Send a message, unless it is left out; return False if the replay was stopped before it was sent."""
        if not self.is_in_window(message):
            return True
        # An erased message has no routing key, and nothing to deliver.
        is_erased = message.raw == ERASED_MESSAGE
        if is_erased:
            self.leave_out(message.offset, message.offset + 1, LeftOutReason.ERASED)
        raw = None if is_erased else transform_message(message, self.transform)
        if raw is None:
            self.summary.left_out += 1
            return True
        sent = message if self.transform is None else in_place_of(message, raw)
        properties, body = to_amqp091(sent, self.request.stream.name)
        # Measuring takes an encoding of its own: only properties that could be too large are measured.
        if len(raw) - len(body) > self._publisher.max_properties_bytes // _MAX_GROWTH:
            size_bytes = properties_bytes(properties)
            if size_bytes > self._publisher.max_properties_bytes:
                raise InvalidInputError(
                    "message",
                    f"at offset {message.offset} has {size_bytes} bytes of properties; the broker takes"
                    f" {self._publisher.max_properties_bytes}",
                )
        await self.pace.wait(1, self.should_stop)
        if self.pace.piece is not None and self.should_stop():
            return False
        if self.context.options.before_send is not None:
            self.context.options.before_send()
        await self._publisher.send(message.offset, self._routing_key(sent), properties, body)
        self.summary.messages += 1
        self.summary.sent_bytes += len(raw)
        return True

    def _routing_key(self, message: Message) -> str:
        try:
            key = self._target.routing_key.find(message)
        except BadMagicError:  # the message is not AMQP
            key = None
        key = self._target.default_key if key is None else key
        if len(key.encode()) > _MAX_KEY_BYTES:
            raise InvalidInputError(
                "routing key",
                f"of the message at offset {message.offset} has more than {_MAX_KEY_BYTES} bytes: {key!r}",
            )
        return key
