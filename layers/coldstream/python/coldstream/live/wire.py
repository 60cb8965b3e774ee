"""Frames to and from a broker: requests with their answers, heartbeats, and the one way to lose a connection.

    frame; all integers big-endian
     0  length     4    of what follows
     4  key        2    bit 15 marks an answer
     6  version    2    1 or 2
     8  body            of a request and its answer: correlation id u32; of most answers then: response code u16

    PublishConfirm, body          publisher id u8 · count u32 · count times: publishing id u64
    PublishError, body            publisher id u8 · count u32 · count times: publishing id u64, response code u16
    Deliver, body                 see delivered.py

rstream encodes and decodes frames, except those that have to be quick: deliveries, confirms, and published entries. Its
client is not used. That of rstream 1.1.1 ends without a word at a frame that it cannot decode, lets requests wait on
after the connection is lost, only warns if heartbeats stay away, and reads 256 bytes at a time. Chunks are taken out of
Deliver frames here because rstream takes a bad chunk for a bad frame. Upstream: PROTOCOL.adoc of rabbitmq_stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Protocol, TypeVar

from rstream import schema
from rstream.encoding import decode_frame, encode_frame

from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.live.address import place_text
from coldstream.units import MIB

REQUEST_TIMEOUT_S = 10.0
"""For an answer. Brokers answer from memory; one that takes longer is not going to come."""

HEARTBEAT_S = 10
"""Asked of the broker, unless it offers less. After two without any byte from it, the connection is lost."""

MAX_FRAME_BYTES = 512 * MIB
"""The largest frame that is taken. A frame holds one chunk, and few brokers have segments that large."""

_TICKS = 2  # for each heartbeat
_CLOSE_TIMEOUT_S = 2.0
_BUFFER_BYTES = 1 << 18
_DELIVER = bytes((0, schema.Deliver.key.value, 0, schema.Deliver.version))
_CONFIRM = bytes((0, schema.PublishConfirm.key.value, 0, schema.PublishConfirm.version))
_REFUSE = bytes((0, schema.PublishError.key.value, 0, schema.PublishError.version))
_PARTITIONS = bytes((0, schema.SuperStreamPartitions.key.value))

Answer = TypeVar("Answer", bound=schema.Frame)
Arrival = asyncio.Future[schema.Frame | None]
"""A frame that is waited for; None if the connection is lost before it comes."""


class WireText(str):
    """Text whose length is in bytes: rstream 1.1.1 sends `len(text)`, and the protocol counts bytes."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.encode())


class Receiver(Protocol):
    """Takes what the broker sends without a request. Its methods are called by the reader: none may raise or wait."""

    def delivered(self, subscription_id: int, chunk: memoryview) -> None:
        """Take a chunk as it was sent."""
        ...

    def stream_gone(self, stream: str) -> None:
        """Note that the broker has ended every subscription to a stream."""
        ...

    def lost(self, error: UnavailableError) -> None:
        """Note that nothing comes any more; called once."""
        ...


class Sink(Protocol):
    """Takes confirms and refusals of one publisher. Its methods are called by the reader: none may raise or wait."""

    stream: str

    def confirmed(self, entries: int) -> None:
        """Note that so many entries, the oldest first, are safe, or were there before."""
        ...

    def refused(self, code: int, entries: int) -> None:
        """Note that the broker refused so many entries."""
        ...

    def lost(self, error: UnavailableError) -> None:
        """Note that nothing is confirmed any more."""
        ...


class Wire:
    """An open connection to one host. Every wait is bounded. After it is lost, every call raises UnavailableError."""

    def __init__(self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.place = place
        self._reader = reader
        self._writer = writer
        self.frame_max_bytes = MIB
        self.sinks: dict[int, Sink] = {}
        self._receiver: Receiver | None = None
        self._correlation_ids = itertools.count(1)
        self._waiting: dict[tuple[type[schema.Frame], int | None], Arrival] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent_ticks = 0
        self._failure: str | None = None
        self._cause: BaseException | None = None

    @classmethod
    async def open(cls, host: str, port: int, ssl_context: ssl.SSLContext | None) -> Wire:
        """Connect, and begin to read. Bound it: the system may take minutes. Raises OSError, UnicodeError."""
        reader, writer = await asyncio.open_connection(host, port, ssl=ssl_context, limit=_BUFFER_BYTES)
        wire = cls(place_text(host, port), reader, writer)
        wire.start(wire._read())
        return wire

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection is lost, so that every call raises."""
        return self._failure is not None

    def attach(self, receiver: Receiver) -> None:
        """From now on, give `receiver` what the broker sends without a request."""
        self._receiver = receiver

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a task that ends with the connection at the latest."""
        task = asyncio.create_task(work)
        # The event loop has only weak references to tasks: without this, one may be collected while it runs.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def start_heartbeats(self, every_s: float) -> None:
        """Send heartbeats, and give the connection up if two of the broker's stay away."""
        self.start(self._beat(every_s / _TICKS))

    async def request(self, make: Callable[[int], schema.Frame], answer: type[Answer]) -> Answer:
        """Send a frame made with a correlation id, and return its answer, whatever the response code is.

        Raises UnavailableError.
        """
        correlation_id = next(self._correlation_ids)
        # Expected before it is sent: the answer may come while `send` waits for the socket.
        with self.expect(answer, correlation_id) as arrival:
            await self.send(make(correlation_id))
            return await self.arrived(arrival, answer)

    @contextlib.contextmanager
    def expect(self, answer: type[Answer], correlation_id: int | None = None) -> Iterator[Arrival]:
        """Catch the next frame of a type that has that correlation id. Raises UnavailableError."""
        self._check()
        key = answer, correlation_id
        arrival = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            yield arrival
        finally:
            del self._waiting[key]

    async def arrived(self, arrival: Arrival, answer: type[Answer]) -> Answer:
        """Wait for an expected frame. Raises UnavailableError."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                frame = await arrival
        except TimeoutError as err:
            raise UnavailableError(f"{self.place}: no {answer.__name__} within {REQUEST_TIMEOUT_S:g} s") from err
        if frame is None:
            self._check()
        assert isinstance(frame, answer)
        return frame

    async def send(self, frame: schema.Frame) -> None:
        """Send a frame. Waits while the socket is full. Raises UnavailableError."""
        await self.send_encoded(encode_frame(frame))

    async def send_encoded(self, *pieces: bytes | memoryview) -> None:
        """Send an encoded frame that begins with its length, in pieces. Raises UnavailableError."""
        self._check()
        self._writer.writelines(pieces)  # no await before the whole frame is queued, or two frames would mix
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._writer.drain()
        except (OSError, TimeoutError) as err:
            self.fail("the broker does not take what is sent to it", err)
            self._check()

    def fail(self, problem: str, cause: BaseException | None = None) -> None:
        """Give the connection up, so that everybody who waits for something raises UnavailableError.

        The first problem is kept: those that follow are its consequences.
        """
        if self._failure is not None:
            return
        detail = f" ({type(cause).__name__}: {cause})" if cause else ""
        self._failure = f"{self.place}: {problem}{detail}"
        self._cause = cause
        # Aborted, not closed: to close waits for what is still to be sent, and the other side may be gone.
        self._writer.transport.abort()
        for arrival in self._waiting.values():
            if not arrival.done():
                arrival.set_result(None)
        if self._receiver is not None:
            self._receiver.lost(UnavailableError(self._failure))
        for sink in self.sinks.values():
            sink.lost(UnavailableError(self._failure))

    async def close(self) -> None:
        """Say goodbye unless the connection is lost, and end every task that runs for it. Takes 4 s at most."""
        try:
            with contextlib.suppress(ColdstreamError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self.request(lambda number: schema.Close(number, code=1, reason="OK"), schema.CloseResponse)
        finally:
            # Also if the goodbye is cancelled: neither the socket nor a task may outlive this call.
            self.fail("the connection is closed")
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._writer.wait_closed()

    def _check(self) -> None:
        if self._failure is not None:
            raise UnavailableError(self._failure) from self._cause

    async def _beat(self, tick_s: float) -> None:
        # Ticks are counted, not seconds. If the event loop stood still for a minute, nothing was read in it, and the
        # broker is not to blame.
        while self._failure is None:
            await asyncio.sleep(tick_s)
            self._silent_ticks += 1
            if self._silent_ticks > 2 * _TICKS:
                self.fail("no sign of life from the broker")
                return
            with contextlib.suppress(UnavailableError):
                await self.send(schema.Heartbeat())

    async def _read(self) -> None:
        try:
            while True:
                length_bytes = int.from_bytes(await self._reader.readexactly(4))
                self._take(await self._frame(length_bytes))
        except asyncio.IncompleteReadError:
            self.fail("the broker ended the connection")
        except OSError as err:
            self.fail("the connection broke", err)
        except Exception as err:  # noqa: BLE001  rstream's decoder may raise anything
            self.fail("the broker sent a frame that is not of the stream protocol", err)

    async def _frame(self, length_bytes: int) -> bytes:
        if length_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {length_bytes} bytes")
        pieces: list[bytes] = []
        while length_bytes:
            piece = await self._reader.read(length_bytes)
            if not piece:
                raise asyncio.IncompleteReadError(piece, length_bytes)
            self._silent_ticks = 0  # for each piece: a large chunk may take longer than two heartbeats
            pieces.append(piece)
            length_bytes -= len(piece)
        return b"".join(pieces)

    def _take(self, encoded: bytes) -> None:
        if encoded.startswith(_DELIVER):
            if self._receiver is not None:
                self._receiver.delivered(encoded[4], memoryview(encoded)[5:])
        elif encoded.startswith((_CONFIRM, _REFUSE)):
            self._take_confirms(encoded)
        else:
            self._take_frame(encoded)

    def _take_frame(self, encoded: bytes) -> None:
        if encoded.startswith(_PARTITIONS):
            encoded = b"\x80" + encoded[1:]  # RabbitMQ 3.10 leaves bit 15 of this answer unset
        frame = decode_frame(encoded)
        if isinstance(frame, schema.Close):
            self.fail(f"the broker closed the connection: {frame.reason}")
        elif isinstance(frame, schema.MetadataUpdate):
            stream = frame.metadata_info.stream
            if self._receiver is not None:
                self._receiver.stream_gone(stream)
            for sink in self.sinks.values():
                if sink.stream == stream:
                    sink.lost(UnavailableError(f"{self.place}: stream {stream!r} has changed its members, or is gone"))
        else:
            arrival = self._waiting.get((type(frame), frame.corr_id))
            # An answer whose request has timed out or was cancelled finds nobody, and is dropped.
            if arrival is not None and not arrival.done():
                arrival.set_result(frame)

    def _take_confirms(self, encoded: bytes) -> None:
        # After key and version, of both frames: publisher id at byte 4, count at 5, first publishing id at 9.
        sink = self.sinks.get(encoded[4])
        if sink is None:
            return
        entries = int.from_bytes(encoded[5:9])
        if encoded.startswith(_CONFIRM):
            sink.confirmed(entries)
        else:
            # The first entry's code stands for all: whatever the others have, the publisher is at its end.
            sink.refused(int.from_bytes(encoded[17:19]), entries)
