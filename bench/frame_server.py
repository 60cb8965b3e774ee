"""A server whose chunks take no time: it has encoded their frames beforehand (`python -m bench.frame_server`).

A real broker reads each chunk from its log, and one-message chunks more slowly than a gateway handles them. This shows
what a gateway can do. It takes one stream of as many chunks as the first argument says, each of as many messages as
the second says, prints its port, and answers every request but Subscribe's and Metadata's by OK alone.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from itertools import accumulate

from bench.load import FIRST_TIMESTAMP
from bench.stream_client import amqp_message
from coldstream.format.writer import make_chunk
from coldstream.gateway.frames.answers import OpenAnswer, PeerPropertiesAnswer, SaslHandshakeAnswer, plain_answer
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Tune
from coldstream.units import MIB, ChunkId, Epoch, TimestampMs

BODY_BYTES = 200


class FrameServer:
    """Serves each connection in a thread of its own."""

    def __init__(self, chunks: int, messages: int) -> None:
        frames = deliver_frames(chunks, messages)
        self._ends = [0, *accumulate(map(len, frames))]
        self._frames = memoryview(b"".join(frames))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept connections for ever."""
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = 0
        with connection, contextlib.suppress(ConnectionError):
            while head := connection.recv(4, socket.MSG_WAITALL):
                frame = head + connection.recv(int.from_bytes(head), socket.MSG_WAITALL)
                key = int.from_bytes(frame[4:6])
                if key == Key.CREDIT:
                    last = min(len(self._ends) - 1, sent + int.from_bytes(frame[9:11]))
                    connection.sendall(self._frames[self._ends[sent] : self._ends[last]])
                    sent = last
                elif answer := _answer(key, frame):
                    connection.sendall(answer)


def _answer(key: int, frame: bytes) -> bytes | None:
    """Return the answer to a request; None to what is not answered."""
    if key & 0x8000 or key in (Key.TUNE, Key.HEARTBEAT, Key.STORE_OFFSET):
        return None
    correlation_id = int.from_bytes(frame[8:12])
    match key:
        case Key.PEER_PROPERTIES:
            return PeerPropertiesAnswer(
                correlation_id, Code.OK, {"product": "RabbitMQ", "version": "3.10.8"}
            ).to_bytes()
        case Key.SASL_HANDSHAKE:
            return SaslHandshakeAnswer(correlation_id, Code.OK, ("PLAIN",)).to_bytes()
        case Key.SASL_AUTHENTICATE:
            return plain_answer(Key.SASL_AUTHENTICATE, correlation_id, Code.OK) + Tune(MIB, 0).to_bytes()
        case Key.OPEN:
            return OpenAnswer(correlation_id, Code.OK, {"advertised_host": "127.0.0.1"}).to_bytes()
        case _:
            return plain_answer(Key(key), correlation_id, Code.OK)


def deliver_frames(chunks: int, messages: int) -> list[bytes]:
    """Return the Deliver frames of a stream, each with so many messages."""
    entries = [amqp_message(BODY_BYTES)] * messages
    frames = []
    for number in range(chunks):
        _, chunk = make_chunk(
            entries,
            chunk_id=ChunkId(number * messages),
            timestamp=TimestampMs(FIRST_TIMESTAMP + number),
            epoch=Epoch(1),
        )
        frames.append(deliver_head(1, 0, 0, len(chunk)) + chunk)
    return frames


if __name__ == "__main__":
    server = FrameServer(int(sys.argv[1]), int(sys.argv[2]))
    print(server.port, flush=True)
    server.serve()
