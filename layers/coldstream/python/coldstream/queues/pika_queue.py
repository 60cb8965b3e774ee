"""A queue of a real broker, consumed by AMQP 0.9.1.

The connection has an exclusive consumer, so that the broker refuses every other, with a prefetch of one message. While
that message is not settled the consumer gets no other, and the rest of a batch is fetched by `basic.get`: so memory is
bounded by the batch, and the broker delivers at most one message after a batch is settled. That message is flagged as
redelivered if this process then dies; of a batch of two or more that had not been settled, at least two are. For a
batch of one, the consumer ends first, and no message is delivered after it: until it begins again, which takes a few
milliseconds, another consumer may come in.

`settle` ends with a passive declaration. The broker's channel asks the queue for its counts after it has told it of the
acknowledgement, and two processes of Erlang keep the order of what one tells the other.

pika's decoder of headers loses what `fields.py` keeps, so the properties are kept as they came.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from typing import Any

from pika import BasicProperties, BlockingConnection, URLParameters, exceptions, frame, spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import SelectConnection

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidSettingError,
    NotFoundError,
    QueueTakenError,
    UnavailableError,
)
from coldstream.queues.delivery import Delivery

CONNECT_TIMEOUT_S = 10.0
POLL_S = 0.02
"""Between two looks at an empty queue, while a batch is being filled."""

_DENIED = (403, 530)  # access refused, also to a queue with a consumer; no such vhost, or no permission to use it
_NOT_FOUND = 404
_LOCKED = 405

_CONTENT = struct.Struct(
    ">"
    "B"  # frame type
    "H"  # channel
    "I"  # size of the payload, bytes
    "H"  # class
    "H"  # weight, unused
    "Q"  # size of the body, bytes
)

logging.getLogger("pika").addHandler(logging.NullHandler())  # pika logs every error that it also raises


class _RawProperties(BasicProperties):  # type: ignore[misc]  # pika has no types
    """Properties that are not decoded."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.raw = raw


class _RawConnection(SelectConnection):  # type: ignore[misc]  # pika has no types
    """A connection that leaves the properties of messages as they came."""

    def _read_frame(self) -> tuple[int, Any]:
        data = self._frame_buffer
        if len(data) >= _CONTENT.size and data[0] == spec.FRAME_HEADER:
            _, channel, size, _, _, body_bytes = _CONTENT.unpack_from(data)
            end = spec.FRAME_HEADER_SIZE + size
            if len(data) < end + spec.FRAME_END_SIZE:
                return 0, None
            if data[end] == spec.FRAME_END:
                raw = bytes(data[_CONTENT.size : end])
                return end + spec.FRAME_END_SIZE, frame.Header(channel, body_bytes, _RawProperties(raw))
        return frame.decode_frame(data)  # type: ignore[no-any-return]  # pika has no types


class PikaQueue:
    """Implements `QueueConnection` by a connection of its own. For one thread.

    Making one connects and begins to consume. Raises InvalidSettingError for a bad URI, and as `QueueConnection` does.
    """

    def __init__(self, uri: str, vhost: str, queue: str) -> None:
        try:
            parameters = URLParameters(uri)
        except Exception:  # noqa: BLE001  any of pika's errors may quote the password
            raise InvalidSettingError(
                "AMQP broker", "must be a URI such as amqp://user:password@host:5672/vhost"
            ) from None
        parameters.virtual_host = vhost
        parameters.client_properties = {"connection_name": f"coldstream-archive {queue}", "product": "coldstream"}
        parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = CONNECT_TIMEOUT_S
        self._vhost = vhost
        self._queue = queue
        self._where = f"queue {queue!r} in vhost {vhost!r} at {parameters.host}:{parameters.port}"
        self._pushed: deque[Delivery] = deque()
        self._held: set[int] = set()  # tags of what was taken, and not settled
        self._plug: int | None = None  # the tag of what the consumer was delivered, and is not settled
        self._consumer: str | None = None
        self._connection: BlockingConnection | None = None
        try:
            self._connection = BlockingConnection(parameters, _impl_class=_RawConnection)
            self._channel: BlockingChannel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=1)
            self._channel.add_on_cancel_callback(self._on_cancel)
            self._is_gone = False
            self._declare()
            self._consume()
        except (exceptions.AMQPError, OSError) as err:
            self.close()
            raise self._meaning(err) from err
        except BaseException:
            self.close()
            raise

    def take(self, wait_s: float) -> Delivery | None:
        """Return the next message."""
        try:
            return self._take(wait_s)
        except exceptions.AMQPError as err:
            raise self._meaning(err) from err

    def settle(self, deliveries: tuple[Delivery, ...]) -> None:
        """Acknowledge, and wait until the queue has forgotten."""
        if not deliveries:
            return
        try:
            if len(deliveries) == 1 and self._consumer is not None:
                self._channel.basic_cancel(self._consumer)
                self._consumer = None
            tags = {delivery.tag for delivery in deliveries}
            if tags == self._held:
                self._channel.basic_ack(max(tags), multiple=True)
            else:
                for tag in sorted(tags):
                    self._channel.basic_ack(tag)
            self._declare()
        except exceptions.AMQPError as err:
            raise self._meaning(err) from err
        self._held -= tags
        if self._plug in tags:
            self._plug = None

    def is_empty(self) -> bool:
        """Ask for the number of ready messages. Cost: a round trip."""
        assert self._connection is not None
        try:
            ready = self._declare()
            # A message that the consumer got just before is not ready, and not in `_pushed` until pika hands it out.
            self._connection.process_data_events(time_limit=0)
        except exceptions.AMQPError as err:
            raise self._meaning(err) from err
        return ready == 0 and not self._pushed

    def pause(self, seconds: float) -> None:
        """Wait, and answer heartbeats."""
        assert self._connection is not None
        try:
            self._connection.sleep(max(0.0, seconds))
            self._check()
        except exceptions.AMQPError as err:
            raise self._meaning(err) from err

    def close(self) -> None:
        """Close the connection; what is not settled goes back to the queue."""
        if self._connection is not None and self._connection.is_open:
            try:
                self._connection.close()
            except exceptions.AMQPError:
                return  # it is closed, then

    def _take(self, wait_s: float) -> Delivery | None:
        assert self._connection is not None
        deadline = time.monotonic() + wait_s
        if self._consumer is None:
            self._consume()
        while True:
            self._check()
            if self._pushed:
                delivery = self._pushed.popleft()
                self._held.add(delivery.tag)
                self._plug = delivery.tag
                return delivery
            left_s = max(0.0, deadline - time.monotonic())
            if self._plug is not None:
                # The consumer has its message, so none overtakes those that are fetched.
                method, properties, body = self._channel.basic_get(self._queue)
                if method is not None:
                    self._held.add(method.delivery_tag)
                    return _delivery(method, properties, body)
                if left_s == 0:
                    return None
                self._connection.process_data_events(time_limit=min(POLL_S, left_s))
                continue
            # Never fetched here: the consumer is owed the next message, and would get the one after it.
            self._connection.process_data_events(time_limit=left_s)
            if not self._pushed and time.monotonic() >= deadline:
                self._check()
                return None

    def _consume(self) -> None:
        self._consumer = self._channel.basic_consume(self._queue, self._on_message, exclusive=True)

    def _declare(self) -> int:
        return int(self._channel.queue_declare(self._queue, passive=True).method.message_count)

    def _on_message(self, _: BlockingChannel, method: Any, properties: _RawProperties, body: bytes) -> None:
        self._pushed.append(_delivery(method, properties, body))

    def _on_cancel(self, _: object) -> None:
        self._is_gone = True

    def _check(self) -> None:
        if self._is_gone:
            raise NotFoundError(f"{self._where}: it was deleted, or its node is down")

    def _meaning(self, error: Exception) -> ColdstreamError:
        code = getattr(error, "reply_code", None)
        text = getattr(error, "reply_text", None) or str(error) or type(error).__name__
        problem = f"{self._where}: {text}"
        if code == _LOCKED or (code == _DENIED[0] and "exclusive" in text):
            return QueueTakenError(self._vhost, self._queue, "another consumer is on it")
        if code == _NOT_FOUND:
            return NotFoundError(problem)
        refused = exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError
        if code in _DENIED or isinstance(error, refused):
            return AccessDeniedError(problem)
        return UnavailableError(problem)


def _delivery(method: Any, properties: _RawProperties, body: bytes) -> Delivery:
    return Delivery(
        method.delivery_tag,
        bool(method.redelivered),
        _bytes(method.exchange),
        _bytes(method.routing_key),
        properties.raw,
        body,
    )


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
