"""Streams of a broker that never fails, as far as a replay asks for them."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from coldstream.format.entry import SIMPLE_HEADER, SUB_BATCH_HEADER, SubBatch
from coldstream.gateway.alone.published import parse_publish
from coldstream.units import MIB

_KEY, _VERSION = 2, 1
_SUB_BATCH = 0x80
_HEAD = struct.Struct(">HHBi")  # key, version, publisher, number of entries


@dataclass
class MemoryStreamBroker:
    """What was published, and per stream and reference the greatest publishing id: what is not above it is dropped."""

    entries: list[tuple[str, bytes]] = field(default_factory=list)
    sequences: dict[tuple[str, str], int] = field(default_factory=dict)

    def messages(self, stream: str) -> list[bytes]:
        """Return the messages of a stream, in order."""
        found = []
        for data in (data for name, data in self.entries if name == stream):
            if data[0] & _SUB_BATCH:
                kind, records, unpacked_bytes, _ = SUB_BATCH_HEADER.unpack_from(data)
                packed = memoryview(data)[SUB_BATCH_HEADER.size :]
                batch = SubBatch(kind >> 4 & 7, records, unpacked_bytes, packed, 0)
                found += map(bytes, batch.messages(source=stream))
            else:
                found.append(data[SIMPLE_HEADER.size :])
        return found


@dataclass
class MemoryPublisher:
    """Stands for `Publisher`; what it is sent is confirmed at once."""

    broker: MemoryStreamBroker
    stream: str
    reference: str
    max_frame_bytes: int = MIB

    @property
    def sequence(self) -> int:
        return self.broker.sequences.get((self.stream, self.reference), 0)

    def safe_to(self, last_id: int) -> int:
        return last_id

    async def flush(self) -> None:
        pass

    async def send(self, pieces: Sequence[bytes | memoryview], size_bytes: int, entries: int, last_id: int) -> None:
        body = memoryview(b"".join([_HEAD.pack(_KEY, _VERSION, 0, entries), *pieces]))
        assert len(body) - _HEAD.size == size_bytes
        _, published = parse_publish(body, _VERSION)
        for entry in published:
            if entry.publishing_id > self.sequence:
                self.broker.entries.append((self.stream, bytes(entry.data)))
                self.broker.sequences[self.stream, self.reference] = entry.publishing_id
        assert self.sequence >= last_id


@dataclass
class MemoryConnection:
    """Stands for `LiveConnection`."""

    broker: MemoryStreamBroker

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @asynccontextmanager
    async def publish(self, stream: str, reference: str) -> AsyncIterator[MemoryPublisher]:
        yield MemoryPublisher(self.broker, stream, reference)

    async def query_sequence(self, stream: str, reference: str) -> int:
        return self.broker.sequences.get((stream, reference), 0)
