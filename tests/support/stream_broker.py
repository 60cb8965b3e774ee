"""A broker on loopback that speaks the stream protocol and says what a test tells it to say."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self
from zlib import crc32

from rstream import schema
from rstream.encoding import decode_frame, encode_frame

from coldstream.format.chunk import ChunkHeader
from coldstream.format.writer import make_chunk
from coldstream.live.address import BrokerAddress
from coldstream.units import ChunkId, Epoch, TimestampMs

HOST = "127.0.0.1"
OK = 1

Says = Callable[[schema.Frame], list[bytes]]


class FakeBroker:
    """Accepts every connection, and answers each frame as `says` has it for its type. Other frames get no answer."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.taken: list[schema.Frame] = []
        self.says: dict[type[schema.Frame], Says] = {
            schema.PeerProperties: lambda asked: [answer(schema.PeerPropertiesResponse(asked.correlation_id, OK, []))],
            schema.SaslHandshake: lambda asked: [
                answer(schema.SaslHandshakeResponse(asked.correlation_id, OK, ["PLAIN"]))
            ],
            schema.SaslAuthenticate: lambda asked: [
                answer(schema.SaslAuthenticateResponse(asked.correlation_id, OK)),
                encode_frame(schema.Tune(frame_max=1 << 20, heartbeat=60)),
            ],
            schema.Open: lambda asked: [answer(schema.OpenResponse(asked.correlation_id, OK, []))],
            schema.Subscribe: lambda asked: [answer(schema.SubscribeResponse(asked.correlation_id, OK))],
            schema.Unsubscribe: lambda asked: [answer(schema.UnsubscribeResponse(asked.correlation_id, OK))],
            schema.QueryOffset: lambda asked: [answer(schema.QueryOffsetResponse(asked.correlation_id, OK, 7))],
            schema.Close: lambda asked: [answer(schema.CloseResponse(asked.correlation_id, OK))],
        }
        self._ssl_context = ssl_context
        self._news = asyncio.Condition()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> BrokerAddress:
        return BrokerAddress(((HOST, self.port),))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=self._ssl_context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()
        await asyncio.sleep(0.01)  # until both sides have noticed

    def cut(self) -> None:
        """End every connection without a word."""
        for writer in self._writers:
            writer.transport.abort()

    def say(self, *frames: bytes) -> None:
        """Send frames that nobody asked for to every connection."""
        for writer in self._writers:
            writer.writelines(frames)

    def count(self, kind: type[schema.Frame]) -> int:
        """Return how many frames of a type came in."""
        return sum(isinstance(frame, kind) for frame in self.taken)

    async def until(self, kind: type[schema.Frame], times: int = 1) -> None:
        """Wait until so many frames of a type came in."""
        async with asyncio.timeout(5), self._news:
            await self._news.wait_for(lambda: self.count(kind) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                frame = decode_frame(await reader.readexactly(int.from_bytes(await reader.readexactly(4))))
                async with self._news:
                    self.taken.append(frame)
                    self._news.notify_all()
                writer.writelines(self.says.get(type(frame), lambda _: [])(frame))
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError):
            writer.transport.abort()


def answer(frame: schema.Frame) -> bytes:
    """Encode an answer. rstream only sends requests, and leaves out the bit that marks an answer."""
    encoded = bytearray(encode_frame(frame))
    encoded[4] |= 0x80
    return bytes(encoded)


def delivery(subscription_id: int, chunk: bytes) -> bytes:
    """Encode a Deliver frame of a chunk's header and data."""
    body = b"\x00\x08\x00\x01" + bytes([subscription_id]) + chunk
    return len(body).to_bytes(4) + body


def chunk(chunk_id: int, *messages: bytes) -> bytes:
    """Make a user chunk."""
    _, encoded = make_chunk(messages or [b"m"], chunk_id=ChunkId(chunk_id), timestamp=TimestampMs(1000), epoch=Epoch(1))
    return encoded


def header_of(encoded: bytes) -> ChunkHeader:
    """Read a chunk's header."""
    header = ChunkHeader.from_bytes(encoded[:48], source="test", position=0)
    assert crc32(encoded[48:]) == header.crc
    return header
