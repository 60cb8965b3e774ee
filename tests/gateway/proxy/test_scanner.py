"""Frames are cut alike however the network cuts the bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from coldstream.errors import BadFrameError
from coldstream.gateway.frames.answers import MetadataUpdate, StreamStatsAnswer
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import Credit, Heartbeat, StoreOffset
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.scanner import FrameScanner
from tests.support.written_transport import WrittenTransport

VERDICTS = {1: Verdict.PASS, 2: Verdict.DROP, 3: Verdict.KEEP}
SCRATCH_BYTES = 160
PASSED_ON = MetadataUpdate(6, "stream").to_bytes()
TAKEN = StreamStatsAnswer(1, 1, (("first_chunk_id", 5),)).to_bytes()


class Notes:
    """Takes what the test says, and notes all that it is asked."""

    def __init__(self, outlet: Outlet, *, sends: bytes = b"") -> None:
        self.asked: list[tuple[object, ...]] = []
        self.keys = frozenset({int(Key.METADATA_UPDATE), int(ANSWER | Key.STREAM_STATS)})
        self._outlet = outlet
        self._sends = sends

    def take(self, key: int, frame: bytes) -> bool:
        self.asked.append(("take", key, frame))
        self._send()
        return frame == TAKEN

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        self.asked.append(("deliver", subscription_id, version, bytes(head)))
        self._send()
        return VERDICTS[subscription_id]

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        self.asked.append(("kept", subscription_id, version, frame))
        self._send()

    def _send(self) -> None:
        if self._sends:
            self._outlet.send(self._sends[:3], self._sends[3:])


class Scanned:
    """A scanner with all around it."""

    def __init__(self, *, sends: bytes = b"", scratch_bytes: int = SCRATCH_BYTES, **limits: int) -> None:
        self.transport = WrittenTransport()
        self.outlet = Outlet(self.transport)
        self.taker = Notes(self.outlet, sends=sends)
        self._scratch = memoryview(bytearray(scratch_bytes))
        known = {"max_frame_bytes": 1 << 20, "max_taken_bytes": 1 << 10} | limits
        self.scanner = FrameScanner(self._scratch, self.taker, self.outlet, with_chunks=True, **known)

    def read(self, piece: bytes) -> None:
        """Scan a piece, in as many reads as the buffer makes of it, which others use in between."""
        while piece:
            buffer = self.scanner.buffer()
            part, piece = piece[: len(buffer)], piece[len(buffer) :]
            buffer[: len(part)] = part
            self.scanner.scan(len(part))
            self._scratch[:] = b"\xee" * len(self._scratch)


def chunk(number: int, data_bytes: int) -> bytes:
    return bytes([0x50]) + bytes([number]) * 47 + bytes([number ^ 0xFF]) * data_bytes


def delivery(subscription_id: int, number: int, data_bytes: int, version: int = 1) -> bytes:
    body = chunk(number, data_bytes)
    return deliver_head(version, subscription_id, 7, len(body)) + body


FRAMES = (
    Heartbeat().to_bytes(),
    delivery(1, 1, 0),
    delivery(2, 2, 20),
    delivery(3, 3, 30),
    PASSED_ON,
    TAKEN,
    delivery(1, 4, 300, version=2),
    delivery(3, 5, 310, version=2),
    delivery(2, 6, 170, version=2),
    TAKEN,
    Credit(1, 5).to_bytes(),
    delivery(1, 7, 400),
    PASSED_ON,
    delivery(3, 8, 0),
)
STREAM = b"".join(FRAMES)


def passed(frame: bytes) -> bool:
    return frame != TAKEN and (frame[5] != Key.DELIVER or frame[8] == 1)


def asked(frames: Iterable[bytes]) -> Iterator[tuple[object, ...]]:
    for frame in frames:
        if frame in {TAKEN, PASSED_ON}:
            yield "take", int.from_bytes(frame[4:6]), frame
        elif frame[5] == Key.DELIVER:
            head = 9 if frame[7] == 1 else 17
            yield "deliver", frame[8], frame[7], frame[head : head + 48]
            if frame[8] == 3:
                yield "kept", 3, frame[7], frame


EXPECTED = b"".join(frame for frame in FRAMES if passed(frame))
ASKED = list(asked(FRAMES))


def check(pieces: Iterable[bytes]) -> None:
    scanned = Scanned()
    for piece in pieces:
        scanned.read(piece)
    assert scanned.transport.written == EXPECTED
    assert scanned.taker.asked == ASKED
    assert scanned.scanner.frames == len(FRAMES)


@pytest.mark.parametrize("size", [*range(1, 70), 158, 159, 160, 161, len(STREAM)])
def test_pieces_of_any_size_give_the_same_frames(size: int) -> None:
    check(STREAM[at : at + size] for at in range(0, len(STREAM), size))


def test_a_cut_at_any_byte_gives_the_same_frames() -> None:
    for at in range(len(STREAM) + 1):
        check((STREAM[:at], STREAM[at:]))


def test_random_cuts_give_the_same_frames() -> None:
    chance = random.Random(17)
    for _ in range(300):
        cuts = sorted({0, len(STREAM), *(chance.randrange(len(STREAM)) for _ in range(chance.randrange(12)))})
        check(STREAM[start:end] for start, end in pairwise(cuts))


def test_frames_that_lie_together_go_out_at_once() -> None:
    scanned = Scanned(scratch_bytes=4096)
    scanned.read(Heartbeat().to_bytes() * 3 + delivery(1, 1, 10) * 3 + PASSED_ON)
    assert len(scanned.transport.pieces) == 1


@pytest.mark.parametrize("size", [1, 7, 48, 100, len(STREAM)])
def test_what_is_sent_when_asked_goes_out_between_whole_frames(size: int) -> None:
    own = Credit(200, 1).to_bytes()
    scanned = Scanned(sends=own)
    for at in range(0, len(STREAM), size):
        scanned.read(STREAM[at : at + size])
    expected = bytearray()
    for frame in FRAMES:
        expected += own * len(list(asked([frame]))) + (frame if passed(frame) else b"")
    assert scanned.transport.written == expected


async def test_what_is_sent_within_a_frame_goes_out_after_it() -> None:
    frame, own = delivery(1, 1, 500), Heartbeat().to_bytes()
    for at in range(1, len(frame)):
        scanned = Scanned()
        scanned.read(frame[:at])
        begun = bool(scanned.transport.written)
        scanned.outlet.send(own)
        scanned.read(frame[at:] + PASSED_ON)
        expected = frame + own + PASSED_ON if begun else own + frame + PASSED_ON
        assert scanned.transport.written == expected


async def test_what_is_sent_while_a_frame_is_collected_goes_out_before_it() -> None:
    frame, own = delivery(3, 1, 500), Heartbeat().to_bytes()
    scanned = Scanned()
    scanned.read(frame[:200])
    scanned.outlet.send(own)
    await asyncio.sleep(0)
    assert scanned.transport.written == own


@pytest.mark.parametrize("length", [0, 3, (1 << 20) + 1, (1 << 32) - 1])
def test_a_length_that_cannot_be_ends_it_after_the_frames_before(length: int) -> None:
    scanned = Scanned()
    with pytest.raises(BadFrameError, match=f"a frame of {length} bytes"):
        scanned.read(PASSED_ON + length.to_bytes(4) + b"\x00\x02\x00\x01")
    assert scanned.transport.written == PASSED_ON


def test_a_frame_to_be_collected_is_bounded() -> None:
    scanned = Scanned()
    with pytest.raises(BadFrameError, match="1025 bytes, of 1024"):
        scanned.read((1025).to_bytes(4) + int(Key.METADATA_UPDATE).to_bytes(2) + b"\x00\x01")


def test_a_deliver_without_a_chunk_ends_it() -> None:
    with pytest.raises(BadFrameError, match="has no chunk"):
        Scanned().read((51).to_bytes(4) + delivery(1, 1, 0)[4:])


def test_a_deliver_of_an_unknown_version_ends_it() -> None:
    with pytest.raises(BadFrameError, match="of version 3"):
        Scanned().read(delivery(1, 1, 0)[:7] + b"\x03" + delivery(1, 1, 0)[8:])


def test_a_frame_that_passes_may_be_larger_than_any_that_is_collected() -> None:
    frame = StoreOffset("r" * 3000, "s" * 3000, 1).to_bytes()
    scanned = Scanned()
    scanned.read(frame)
    assert scanned.transport.written == frame


def test_little_is_kept_between_two_reads() -> None:
    scanned = Scanned(scratch_bytes=4096)
    for at in range(0, len(STREAM), 13):
        scanned.read(STREAM[at : at + 13])
        assert 4096 - len(scanned.scanner.buffer()) <= 64


def test_after_the_end_only_the_frame_that_has_begun_goes_on() -> None:
    frame = delivery(1, 1, 500)
    scanned = Scanned()
    scanned.read(frame[:200])
    scanned.outlet.finish(PASSED_ON)
    scanned.scanner.is_over = True
    scanned.read(frame[200:] + Heartbeat().to_bytes())
    scanned.read(TAKEN)
    assert scanned.transport.written == frame + PASSED_ON
    assert len(scanned.taker.asked) == 1
