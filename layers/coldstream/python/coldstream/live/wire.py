"""Frames to and from a broker: requests with their answers, heartbeats, and the one way in which a connection is lost.

    frame          length u32 · key u16 · version u16 · body; all integers big-endian; bit 15 of the key marks an answer

Frames are encoded and decoded by rstream, but for those that have to be quick: deliveries, confirms and what is
published. Its client is not used: rstream 1.1.1's ends without a word at a frame it cannot decode, lets requests wait
on after the connection is lost, only warns when heartbeats stay away, and reads 256 bytes at a time. Chunks are taken
out of Deliver frames here, for rstream takes a bad chunk for a bad frame.
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
"""For an answer. Brokers answer out of memory; what takes longer is not going to come."""

HEARTBEAT_S = 10
"""Asked of the broker, unless it offers less. Two without a sign of life, and the connection is lost."""

MAX_FRAME_BYTES = 512 * MIB
"""Of what is taken. A frame holds a chunk, and few brokers have segments as large."""

_TICKS = 2  # for each heartbeat
_CLOSE_TIMEOUT_S = 2.0
_BUFFER_BYTES = 1 << 18
_DELIVER = bytes((0, schema.Deliver.key.value, 0, schema.Deliver.version))
_CONFIRM = bytes((0, schema.PublishConfirm.key.value, 0, schema.PublishConfirm.version))
_REFUSE = bytes((0, schema.PublishError.key.value, 0, schema.PublishError.version))
_PARTITIONS = bytes((0, schema.SuperStreamPartitions.key.value))

Answer = TypeVar("Answer", bound=schema.Frame)
Arrival = asyncio.Future[schema.Frame | None]
"""None: the connection is lost."""


class WireText(str):
    """Text that gives its length in bytes: rstream 1.1.1 sends characters, where the protocol counts bytes."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.encode())


class Receiver(Protocol):
    """Takes what the broker sends without being asked. Nothing here may raise or wait."""

    def delivered(self, subscription_id: int, chunk: memoryview) -> None:
        """Take a chunk as it was sent."""
        ...

    def stream_gone(self, stream: str) -> None:
        """Take it that the broker has ended every subscription to a stream."""
        ...

    def lost(self, error: UnavailableError) -> None:
        """Take it that nothing comes any more; called once."""
        ...


class Sink(Protocol):
    """Takes what the broker says of what one publisher has sent. Nothing here may raise or wait."""

    stream: str

    def confirmed(self, entries: int) -> None:
        """Take it that so many entries, the oldest first, are safe or were there already."""
        ...

    def refused(self, code: int, entries: int) -> None:
        """Take it that so many entries were not taken."""
        ...

    def lost(self, error: UnavailableError) -> None:
        """Take it that nothing is confirmed any more."""
        ...


class Wire:
    """An open connection to one host. Every wait is bounded; once lost, it raises UnavailableError at once."""

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
        """Connect, and begin to read. Takes what the system takes: bound it. Raises OSError and UnicodeError."""
        reader, writer = await asyncio.open_connection(host, port, ssl=ssl_context, limit=_BUFFER_BYTES)
        wire = cls(place_text(host, port), reader, writer)
        wire.start(wire._read())
        return wire

    @property
    def is_lost(self) -> bool:
        """Tell whether everything raises from now on."""
        return self._failure is not None

    def attach(self, receiver: Receiver) -> None:
        """Give what the broker sends unasked to `receiver` from now on."""
        self._receiver = receiver

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work that ends with the connection."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def start_heartbeats(self, every_s: float) -> None:
        """Send heartbeats, and take two that stay away for a lost connection."""
        self.start(self._beat(every_s / _TICKS))

    async def request(self, make: Callable[[int], schema.Frame], answer: type[Answer]) -> Answer:
        """Send a frame made with a correlation id, and return its answer, whatever its response code says.

        Raises UnavailableError.
        """
        correlation_id = next(self._correlation_ids)
        with self.expect(answer, correlation_id) as arrival:
            await self.send(make(correlation_id))
            return await self.arrived(arrival, answer)

    @contextlib.contextmanager
    def expect(self, answer: type[Answer], correlation_id: int | None = None) -> Iterator[Arrival]:
        """Catch the next frame of a type with that correlation id. Raises UnavailableError."""
        self._check()
        key = answer, correlation_id
        arrival = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            yield arrival
        finally:
            del self._waiting[key]

    async def arrived(self, arrival: Arrival, answer: type[Answer]) -> Answer:
        """Wait for what is expected. Raises UnavailableError."""
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
        """Send a frame, and wait while the socket is full. Raises UnavailableError."""
        await self.send_encoded(encode_frame(frame))

    async def send_encoded(self, *pieces: bytes) -> None:
        """Send a frame that is encoded already, its length before it. Raises UnavailableError."""
        self._check()
        self._writer.writelines(pieces)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._writer.drain()
        except (OSError, TimeoutError) as err:
            self.fail("the connection takes nothing any more", err)
            self._check()

    def fail(self, problem: str, cause: BaseException | None = None) -> None:
        """Give the connection up: whoever waits for something raises UnavailableError."""
        if self._failure is not None:
            return
        detail = f" ({type(cause).__name__}: {cause})" if cause else ""
        self._failure = f"{self.place}: {problem}{detail}"
        self._cause = cause
        self._writer.transport.abort()
        for arrival in self._waiting.values():
            if not arrival.done():
                arrival.set_result(None)
        if self._receiver is not None:
            self._receiver.lost(UnavailableError(self._failure))
        for sink in self.sinks.values():
            sink.lost(UnavailableError(self._failure))

    async def close(self) -> None:
        """Say goodbye, unless the connection is lost, and end everything that runs for it. Takes 4 s at most."""
        try:
            with contextlib.suppress(ColdstreamError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self.request(lambda number: schema.Close(number, code=1, reason="OK"), schema.CloseResponse)
        finally:
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
        # Ticks are counted, not seconds: a loop that stood still for a minute has not listened for a minute.
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
        except Exception as err:  # noqa: BLE001  whatever a decoder of bytes from elsewhere may raise
            self.fail("the broker sent what is not of the stream protocol", err)

    async def _frame(self, length_bytes: int) -> bytes:
        if length_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {length_bytes} bytes")
        pieces: list[bytes] = []
        while length_bytes:
            piece = await self._reader.read(length_bytes)
            if not piece:
                raise asyncio.IncompleteReadError(piece, length_bytes)
            self._silent_ticks = 0  # also half-way: a large chunk may take longer than heartbeats
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
            encoded = b"\x80" + encoded[1:]  # RabbitMQ 3.10 does not mark this answer as one
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
            if arrival is not None and not arrival.done():
                arrival.set_result(frame)

    def _take_confirms(self, encoded: bytes) -> None:
        # publisher id u8 · entries u32 · for each its publishing id u64, and where it is refused a response code u16
        sink = self.sinks.get(encoded[4])
        if sink is None:
            return
        entries = int.from_bytes(encoded[5:9])
        if encoded.startswith(_CONFIRM):
            sink.confirmed(entries)
        else:
            sink.refused(int.from_bytes(encoded[17:19]), entries)
