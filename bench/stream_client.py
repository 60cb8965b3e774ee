"""A lean client of the stream protocol: it looks at frames' lengths alone, and so takes little time itself.

Its functions are called by `harness.in_child`; each logs in, works with frames that it has encoded beforehand, and
returns what it counted. Connecting does not count.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

from bench.harness import CannotMeasureError, Stopwatch
from coldstream.gateway.frames import requests
from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.manifest.spec import FIRST, NEXT, OffsetSpec
from coldstream.units import MIB

BUFFER_BYTES = MIB
FRAME_BYTES = MIB
TIMEOUT_S = 60
_LENGTH = struct.Struct(">I")
_CONFIRM_HEAD_BYTES = 9
_CONFIRM_ID_BYTES = 8


class LeanConnection:
    """A connection that has logged in as guest. It heeds no heartbeats, and asks the broker for none.

    With `tls` it has a context, which checks nothing.
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
        self._correlation_id = 0
        self._log_in()

    def close(self) -> None:
        """Close without a word."""
        self.socket.close()

    def call(self, make: Callable[..., StreamFrame], *fields: Any) -> None:
        """Make a request of a correlation id and fields, and wait for its answer.

        Raises CannotMeasureError if that is not OK.
        """
        self._correlation_id += 1
        frame = make(self._correlation_id, *fields)
        self.socket.sendall(frame.to_bytes())
        body = self._next_frame(ANSWER | frame.KEY)
        answer = CodeAnswer.from_body(body)
        if answer.code != Code.OK:
            raise CannotMeasureError(f"{frame} was answered by code {answer.code}")

    def subscribe(self, stream: str, spec: OffsetSpec, credit: int) -> None:
        """Subscribe, as number 0, without credit: what is delivered begins with the first `credit`."""
        self.call(requests.Subscribe, 0, stream, spec, 0, {})
        self.credit(credit)

    def credit(self, chunks: int) -> None:
        """Give credit."""
        self.socket.sendall(requests.Credit(0, chunks).to_bytes())

    def _log_in(self) -> None:
        self.call(requests.PeerProperties, {"product": "coldstream bench"})
        self.call(requests.SaslHandshake)
        self.call(requests.SaslAuthenticate, "PLAIN", b"\0guest\0guest")
        self._next_frame(Key.TUNE)
        self.socket.sendall(requests.Tune(FRAME_BYTES, 0).to_bytes())
        self.call(requests.Open, "/")

    def _next_frame(self, key: int) -> bytes:
        """Return the next frame of a key, without its length; frames of other keys are passed over."""
        while True:
            body = self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0])
            if key_of(body)[0] == key:
                return body

    def _exactly(self, size_bytes: int) -> bytes:
        found = b""
        while len(found) < size_bytes:
            part = self.socket.recv(size_bytes - len(found))
            if not part:
                raise CannotMeasureError("the connection was closed")
            found += part
        return found


class FrameCounter:
    """Receives from a socket into one buffer, and steps from length to length."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._carried = 0
        self._next = 0
        self.frames = 0
        self.bytes = 0
        self.crc: int | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether all of each frame that has begun is there."""
        return self._next == 0 and self._carried == 0

    def receive(self) -> int:
        """Wait for bytes, and return how many frames begin in them."""
        received = self._source.recv_into(self._view[self._carried :])
        if not received:
            raise CannotMeasureError("the connection was closed")
        if self.crc is not None:
            self.crc = zlib.crc32(self._view[self._carried : self._carried + received], self.crc)
        self.bytes += received
        end = self._carried + received
        at, found, buffer, unpack = self._next, 0, self._buffer, _LENGTH.unpack_from
        while at + 4 <= end:
            at += 4 + unpack(buffer, at)[0]
            found += 1
        self._carried = max(0, end - at)
        if self._carried:
            buffer[: self._carried] = buffer[at:end]
        self._next = max(0, at - end)
        self.frames += found
        return found


def read(
    *, port: int, stream: str, chunks: int, credit: int, with_crc: bool = False, with_tls: bool = False
) -> dict[str, float]:
    """Read a stream from `first` until so many chunks are there; the time is that from the first credit on."""
    connection = LeanConnection(port, tls=unchecked_tls() if with_tls else None)
    connection.call(requests.Subscribe, 0, stream, FIRST, 0, {})
    counter = FrameCounter(connection.socket)
    counter.crc = 0 if with_crc else None
    with Stopwatch() as stopwatch:
        connection.credit(credit)
        while counter.frames < chunks or not counter.is_between_frames:
            if taken := counter.receive():
                connection.credit(taken)
    connection.close()
    return _figures(stopwatch, chunks=counter.frames, bytes=counter.bytes, crc=counter.crc or 0)


def publish(
    *, port: int, stream: str, messages: int, messages_a_frame: int, message_bytes: int, unconfirmed: int
) -> dict[str, float]:
    """Publish messages, with so many of them unconfirmed at most. The time ends with the last confirm."""
    connection = LeanConnection(port)
    connection.call(requests.DeclarePublisher, 0, "", stream)
    frame = publish_frame(messages_a_frame, message_bytes)
    counter = FrameCounter(connection.socket)
    sent = confirmed = 0
    with Stopwatch() as stopwatch:
        while confirmed < messages:
            while sent < messages and sent - confirmed <= unconfirmed - messages_a_frame:
                connection.socket.sendall(frame)
                sent += messages_a_frame
            counter.receive()
            while not counter.is_between_frames:
                counter.receive()
            # Nothing but confirms comes: a length, key, version, publisher, a count, and the ids.
            confirmed = (counter.bytes - counter.frames * (4 + _CONFIRM_HEAD_BYTES)) // _CONFIRM_ID_BYTES
    connection.close()
    return _figures(stopwatch, messages=confirmed, bytes=sent // messages_a_frame * len(frame))


def answer_times(*, port: int, stream: str, messages: int, interval_s: float, message_bytes: int) -> dict[str, Any]:
    """Publish a message each interval, and return seconds until its confirm, and until it is delivered to a consumer.

    Publisher and consumer have a connection each, both of this port.
    """
    publisher, consumer = LeanConnection(port), LeanConnection(port)
    publisher.call(requests.DeclarePublisher, 0, "", stream)
    consumer.subscribe(stream, NEXT, messages)
    frame = publish_frame(1, message_bytes)
    seconds: dict[str, list[float]] = {"confirm": [], "delivery": []}
    with selectors.DefaultSelector() as selector:
        selector.register(publisher.socket, selectors.EVENT_READ, ("confirm", FrameCounter(publisher.socket)))
        selector.register(consumer.socket, selectors.EVENT_READ, ("delivery", FrameCounter(consumer.socket)))
        for number in range(1, messages + 1):
            time.sleep(interval_s)
            began = time.perf_counter()
            publisher.socket.sendall(frame)
            while min(map(len, seconds.values())) < number:
                for key, _ in selector.select(TIMEOUT_S):
                    what, counter = key.data
                    counter.receive()
                    if counter.frames == number and counter.is_between_frames:
                        seconds[what].append(time.perf_counter() - began)
    publisher.close()
    consumer.close()
    return seconds


def unchecked_tls() -> ssl.SSLContext:
    """Return what a client has TLS by that believes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def amqp_message(body_bytes: int) -> bytes:
    """Return a message of one data section."""
    return b"\x00\x53\x75\xb0" + body_bytes.to_bytes(4) + b"x" * body_bytes


def publish_frame(messages: int, message_bytes: int) -> bytes:
    """Return a Publish frame of AMQP messages with one data section each; without a reference, ids may come again."""
    body = amqp_message(message_bytes)
    entries = b"".join(number.to_bytes(8) + len(body).to_bytes(4) + body for number in range(messages))
    head = Key.PUBLISH.to_bytes(2) + b"\x00\x01\x00" + messages.to_bytes(4)
    return (len(head) + len(entries)).to_bytes(4) + head + entries


def _figures(stopwatch: Stopwatch, **counted: int) -> dict[str, float]:
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, **counted}
