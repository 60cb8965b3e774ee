"""The lean client of the gateway's measurements counts what there is, however the network cuts it."""

from __future__ import annotations

import socket
import zlib

import pytest

from bench.frame_server import deliver_frames
from bench.gateway_process import byte_relay, frame_server
from bench.stream_client import FrameCounter, publish_frame, read

FRAMES = [b"\0\0\0\4\0\x17\0\1", b"\0\0\0\x0a\0\x08\0\1" + b"chunk!", b"\0\0\0\4\0\x17\0\1"]


@pytest.mark.parametrize("part_bytes", range(1, 31))
def test_frames_are_counted_however_they_are_cut(part_bytes: int) -> None:
    sent = b"".join(FRAMES)
    theirs, ours = socket.socketpair()
    with theirs, ours:
        counter = FrameCounter(ours)
        counter.crc = 0
        for at in range(0, len(sent), part_bytes):
            theirs.sendall(sent[at : at + part_bytes])
            counter.receive()
    assert (counter.frames, counter.bytes, counter.is_between_frames) == (len(FRAMES), len(sent), True)
    assert counter.crc == zlib.crc32(sent)


def test_a_frame_whose_end_is_missing_is_told() -> None:
    theirs, ours = socket.socketpair()
    with theirs, ours:
        counter = FrameCounter(ours)
        theirs.sendall(FRAMES[1][:-1])
        counter.receive()
    assert (counter.frames, counter.is_between_frames) == (1, False)


def test_a_publish_frame_has_its_messages_and_its_length() -> None:
    frame = publish_frame(3, 200)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert int.from_bytes(frame[9:13]) == 3
    assert len(frame) == 13 + 3 * (8 + 4 + 8 + 200)


@pytest.mark.server
@pytest.mark.parametrize("is_relayed", [False, True])
def test_every_byte_of_the_frame_server_is_read_once(*, is_relayed: bool) -> None:
    chunks = 500
    with frame_server(chunks, 3) as server, byte_relay(server.port) as relay:
        port = relay.port if is_relayed else server.port
        found = read(port=port, stream="any", chunks=chunks, credit=7, with_crc=True)
    expected = b"".join(deliver_frames(chunks, 3))
    assert (found["chunks"], found["bytes"], found["crc"]) == (chunks, len(expected), zlib.crc32(expected))
