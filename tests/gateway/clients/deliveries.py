"""Deliver frames as they are on the wire: a subscriber of sockets and rstream's encoder alone, which decodes nothing.

with Deliveries(port, stream) as deliveries:
    chunks = deliveries.take(1_000_000)
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rstream import OffsetType, schema
from rstream.encoding import encode_frame

from tests.support.epmd import HOST

CREDITS = 10
TIMEOUT_S = 90.0
_DELIVER = 8
_METADATA_UPDATE = 16
_TUNE = 20
_HEARTBEAT = 23
_CREDIT_ANSWER = 0x8009
_HEADER = struct.Struct(">BBHIqQQIIII")
_VERSIONS = struct.Struct(">HHIiHHH")


@dataclass(frozen=True, slots=True)
class Delivered:
    """One frame: where its chunk lies, and the hash of all bytes from the chunk's header on."""

    chunk_id: int
    records: int
    size_bytes: int
    sha256: str

    @property
    def next_offset(self) -> int:
        """The offset after its last message."""
        return self.chunk_id + self.records

    @property
    def offsets(self) -> range:
        """The offsets of its messages."""
        return range(self.chunk_id, self.next_offset)


class Deliveries:
    """A subscription from an offset on. `deliver_version` is the newest that it says it knows: 1 says nothing."""

    def __init__(
        self,
        port: int,
        stream: str,
        *,
        offset: int = 0,
        deliver_version: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.committed_ids: list[int] = []
        """With version 2: what each frame said of how far the log is committed."""
        self._port = port
        self._stream = stream
        self._offset = offset
        self._version = deliver_version
        self._properties = dict(properties or {})
        self._waiting = b""

    def __enter__(self) -> Self:
        self._socket = socket.create_connection((HOST, self._port), timeout=TIMEOUT_S)
        # Else a credit waits for the answer to the one before, which the other side puts off for 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._open()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def take(self, messages: int) -> list[Delivered]:
        """Return the next frames, until they have so many messages. Raises AssertionError on anything else."""
        taken: list[Delivered] = []
        deadline = time.monotonic() + TIMEOUT_S
        while messages > 0:
            assert time.monotonic() < deadline, f"{messages} messages are missing after {taken[-1:]}"
            frame = self._next()
            key, version = struct.unpack_from(">HH", frame)
            if key == _HEARTBEAT:
                continue
            assert key == _DELIVER, f"a frame with the key {key:#06x} after {taken[-1:]}"
            assert version == self._version, version
            at = 5
            if version == 2:
                self.committed_ids.append(int.from_bytes(frame[5:13]))
                at = 13
            taken.append(_delivered(frame, at))
            messages -= taken[-1].records
            self._socket.sendall(encode_frame(schema.Credit(0, 1)))
        return taken

    def _open(self) -> None:
        guest = b"\0guest\0guest"
        self._ask(schema.PeerProperties(1, [schema.Property("connection_name", "deliveries")]))
        self._ask(schema.SaslHandshake(2))
        self._ask(schema.SaslAuthenticate(3, "PLAIN", guest))
        tune = self._next()
        assert int.from_bytes(tune[:2]) == _TUNE
        self._socket.sendall(len(tune).to_bytes(4) + tune)
        self._ask(schema.Open(4, "/"))
        if self._version > 1:
            asked = _VERSIONS.pack(27, 1, 5, 1, _DELIVER, 1, self._version)
            self._socket.sendall(len(asked).to_bytes(4) + asked)
            self._answer()
        properties = [schema.Property(name, value) for name, value in self._properties.items()]
        spec = schema.OffsetSpec(OffsetType.FIRST)
        if self._offset:
            spec = schema.OffsetSpecOffset(OffsetType.OFFSET, self._offset)
        self._ask(schema.Subscribe(6, 0, self._stream, spec, CREDITS, properties))

    def _ask(self, frame: schema.Frame) -> None:
        self._socket.sendall(encode_frame(frame))
        self._answer()

    def _answer(self) -> None:
        frame = self._next()
        assert int.from_bytes(frame[:2]) & 0x8000, f"{frame[:20].hex()} is no answer"
        assert int.from_bytes(frame[8:10]) == 1, f"the answer {frame[:2].hex()} says {frame[8:10].hex()}"

    def _next(self) -> bytes:
        size = int.from_bytes(self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        pieces = [self._waiting[:size]]
        self._waiting = self._waiting[size:]
        missing = size - len(pieces[0])
        while missing > 0:
            piece = self._socket.recv(1 << 20)
            assert piece, "the connection has ended"
            pieces.append(piece[:missing])
            self._waiting = piece[missing:]
            missing -= len(piece)
        return b"".join(pieces)


def _delivered(frame: bytes, at: int) -> Delivered:
    _, _, _, records, _, _, chunk_id, _, _, _, _ = _HEADER.unpack_from(frame, at)
    return Delivered(chunk_id, records, len(frame) - at, hashlib.sha256(memoryview(frame)[at:]).hexdigest())
