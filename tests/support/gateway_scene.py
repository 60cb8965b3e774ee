"""A stream at a real broker, archived by the real functions, and a gateway with its archive in front."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType, iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import ConsumerUpdate, CreditAnswer, MetadataUpdate
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import Credit
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.ports import MakeInterceptor
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import takeover_maker
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import stream_from_directory
from coldstream.store.open_archive import OpenArchive
from tests.support.broker import Broker
from tests.support.gateway import HOST, GatewayThread
from tests.support.raw_stream_client import RawStreamClient
from tests.support.streams import StreamConnection

SEGMENT_BYTES = 100_000
IN_SEGMENT = 180
"""Messages that make a segment roll, more or less."""

_ENTRY = struct.Struct(">I")  # bytes of a message
_NAMES = itertools.count()


class GatewayScene:
    """A stream of numbered messages."""

    def __init__(self, stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> None:
        self.name = f"gateway {next(_NAMES)}"
        self.stack = stack
        self.broker = broker
        self.streams = streams
        self.published = 0
        self.figures = GatewayFigures()

    def declare(self, *, segments: int) -> None:
        self.published = 0
        self.streams.create_stream(
            self.name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=segments * SEGMENT_BYTES
        )

    def publish(self, messages: int, *, filter_value: str | None = None) -> None:
        end = self.published + messages
        while (start := self.published) < end:
            numbers = range(start, min(start + 20, end))
            entries = [b"%d:" % number + bytes(500) for number in numbers]
            self.streams.publish(self.name, entries, filter_value=filter_value)
            self.published = numbers.stop

    def archive(self) -> None:
        """Archive what has rolled."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.stack.environment.items():
                patch.setenv(name, value)
            directory = self.broker.stream_directory(self.name)
            stream = stream_from_directory(directory.name, name=self.name, vhost="/")
            Announcer.from_environment().announce(stream, find_rolled(directory), lambda _: None)
            self.stack.wait_idle(60)

    def publish_past_retention(self, segments: int, *, archived: bool = True) -> None:
        """Publish about so many segments, and archive each before retention takes it."""
        for _ in range(segments):
            self.publish(IN_SEGMENT)
            if archived:
                self.archive()

    @property
    def first_offset(self) -> int:
        """The first offset that the broker has."""
        return min(int(path.stem) for path in self.broker.stream_directory(self.name).glob("*.segment"))

    def delivered_by_broker(self) -> list[bytes]:
        """Return header and data of the user chunks that the broker has, from its files."""
        found: list[bytes] = []
        for path in sorted(self.broker.stream_directory(self.name).glob("*.segment")):
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # retention has just taken it
                continue
            chunks = iter_chunks(content[SEGMENT_HEADER_BYTES:], source=str(path))
            users = (chunk for chunk in chunks if chunk.header.type is ChunkType.USER)
            found += [chunk.header.to_bytes() + bytes(chunk.data) for chunk in users]
        return found

    @contextmanager
    def gateway(self, options: TakeoverOptions | None = None, **proxy: float) -> Iterator[GatewayThread]:
        @asynccontextmanager
        async def around() -> AsyncIterator[MakeInterceptor]:
            opened = OpenArchive.of_environment()
            history = GatewayHistory(opened.table, opened.objects, figures=self.figures)
            try:
                yield takeover_maker(history, options or TakeoverOptions(archive_poll_s=0.2), self.figures)
            finally:
                await history.close()

        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.stack.environment.items():
                patch.setenv(name, value)
            with GatewayThread((HOST, self.broker.stream_port), around=around, **proxy) as running:
                yield running


class ChunkClient(RawStreamClient):
    """A raw client that sorts what comes: chunks by subscription, and the rest. `grants` gives a credit a chunk."""

    def prepare(self, *, grants: bool = True) -> None:
        self.grants = grants
        self.chunks: dict[int, list[bytes]] = {}
        self.gone: list[MetadataUpdate] = []
        self.updates: list[ConsumerUpdate] = []
        self.refused: list[CreditAnswer] = []
        self.answers: list[bytes] = []
        self.versions: set[int] = set()

    async def step(self) -> None:
        """Take one frame."""
        frame = await self.frame()
        assert frame, "the connection has ended"
        key, version = key_of(frame[4:])
        if key == Key.DELIVER:
            self.versions.add(version)
            self.chunks.setdefault(frame[8], []).append(frame[DELIVER_HEAD_BYTES[version] :])
            if self.grants:
                self.send(Credit(frame[8], 1))
        elif key == Key.METADATA_UPDATE:
            self.gone.append(MetadataUpdate.from_body(frame[4:]))
        elif key == Key.CONSUMER_UPDATE:
            self.updates.append(ConsumerUpdate.from_body(frame[4:]))
        elif key == ANSWER | Key.CREDIT:
            self.refused.append(CreditAnswer.from_body(frame[4:]))
        else:
            self.answers.append(frame)

    async def asked(self, request: StreamFrame) -> bytes:
        """Send a request, and return its answer."""
        count = len(self.answers)
        self.send(request)
        while len(self.answers) == count:
            await self.step()
        return self.answers[-1]

    async def until_offset(self, number: int, offset: int) -> None:
        """Take frames until a subscription has got a chunk that ends at an offset or after it."""
        while self.next_offset(number) < offset:
            await self.step()

    async def until_message(self, number: int, message: int) -> None:
        """Take frames until a subscription has got a scene's message of that number, whatever its offset.

        Tracking chunks take offsets, so the end of the offsets that were published comes before their last messages.
        """
        while message not in self.numbers_of(self.chunks.get(number, [])[-1:]):
            await self.step()

    def headers(self, number: int) -> list[ChunkHeader]:
        return [
            ChunkHeader.from_bytes(chunk[:CHUNK_HEADER_BYTES], source="test", position=0)
            for chunk in self.chunks.get(number, [])
        ]

    def next_offset(self, number: int) -> int:
        chunks = self.chunks.get(number)
        if not chunks:
            return -1
        return ChunkHeader.from_bytes(chunks[-1][:CHUNK_HEADER_BYTES], source="test", position=0).next_offset

    def numbers(self, number: int) -> list[int]:
        """Return the numbers that a scene's messages begin with."""
        return self.numbers_of(self.chunks.get(number, []))

    @staticmethod
    def numbers_of(chunks: list[bytes]) -> list[int]:
        """Return the numbers in chunks."""
        found = []
        for chunk in chunks:
            at = CHUNK_HEADER_BYTES
            while at < len(chunk):
                (size_bytes,) = _ENTRY.unpack_from(chunk, at)
                at += _ENTRY.size
                found.append(int(chunk[at : at + size_bytes].partition(b":")[0]))
                at += size_bytes
        return found
