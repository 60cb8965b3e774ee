"""Frames of the stream protocol: from clients, from brokers, through the proxy, and as a gateway alone takes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

from coldstream.errors import BadFrameError, ColdstreamError
from coldstream.format.entry import simple_entry
from coldstream.gateway.alone.greeting import _plain
from coldstream.gateway.alone.published import parse_publish
from coldstream.gateway.frames import answers, requests
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.frame import LENGTH_BYTES, StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.scanner import FrameScanner
from coldstream.live.delivered import chunk_of
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp
from coldstream.units import Offset, TimestampMs
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, same
from tests.fuzz.golden_bytes import golden_chunks, parsed_chunks
from tests.fuzz.targets.log_files import with_crcs
from tests.support.written_transport import WrittenTransport

_BAD_FRAME = (BadFrameError,)
_SCRATCH_BYTES = 160
_BYTEWISE = 256
"""Inputs up to this size are also fed byte by byte, which takes long."""
_MAX_FRAME_BYTES, _MAX_TAKEN_BYTES = 2000, 300


def _kinds(module: Any) -> list[type[StreamFrame]]:
    found = (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, StreamFrame))
    return sorted((one for one in found if one is not StreamFrame), key=lambda kind: kind.__name__)


_REQUESTS, _ANSWERS = _kinds(requests), _kinds(answers)
_BY_KEY = {kind.KEY: kind for kind in (*_ANSWERS, *_REQUESTS) if hasattr(kind, "KEY")}


def _frame(data: bytes) -> None:
    """Read what follows the length, as the kind that its key says."""
    key, _ = key_of(data)
    kind = _BY_KEY.get(key)
    if kind is None:
        return
    frame = kind.from_body(data)
    again = frame.to_bytes()
    same(int.from_bytes(again[:LENGTH_BYTES]), len(again) - LENGTH_BYTES)
    same(kind.from_body(again[LENGTH_BYTES:]), frame)


class _Taker:
    """Takes, keeps and drops frames by what is in them, and notes each."""

    keys = frozenset({int(Key.CREDIT), int(Key.METADATA_UPDATE), int(ANSWER | Key.OPEN)})

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def take(self, key: int, frame: bytes) -> bool:
        self.asked.append((key, frame))
        return len(frame) % 2 == 0

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        self.asked.append((subscription_id, version, bytes(head)))
        return tuple(Verdict)[subscription_id % len(Verdict)]

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        self.asked.append((subscription_id, version, frame))


def _scan(data: bytes, piece: int) -> tuple[list[tuple[object, ...]], bytes, BadFrameError | None]:
    transport, taker = WrittenTransport(), _Taker()
    scratch = memoryview(bytearray(_SCRATCH_BYTES))
    scanner = FrameScanner(
        scratch,
        taker,
        Outlet(transport),
        with_chunks=True,
        max_frame_bytes=_MAX_FRAME_BYTES,
        max_taken_bytes=_MAX_TAKEN_BYTES,
    )
    at = 0
    try:
        while at < len(data):
            buffer = scanner.buffer()
            part = data[at : at + min(piece, len(buffer))]
            buffer[: len(part)] = part
            scanner.scan(len(part))
            scratch[:] = b"\xee" * len(scratch)  # other connections use it, too
            at += len(part)
    except BadFrameError as err:
        return taker.asked, transport.written, err
    return taker.asked, transport.written, None


def _proxy(data: bytes) -> None:
    """However the network cuts what comes, the same frames go on, and the same are taken."""
    asked, written, problem = _scan(data, _SCRATCH_BYTES)
    for piece in (1, 23) if len(data) <= _BYTEWISE else (23,):
        other_asked, other_written, other_problem = _scan(data, piece)
        same((other_asked, type(other_problem)), (asked, type(problem)))
        if problem is None:
            same(other_written, written)
    if problem is not None:
        raise problem


def _publish(data: bytes) -> None:
    _, version = key_of(data)
    _, entries = parse_publish(memoryview(data), version)
    same(sum(len(entry.data) for entry in entries) <= len(data), True)


def _delivered(data: bytes) -> None:
    chunk_of(with_crcs(data, 0)[: len(data)], source=SOURCE)


def _credentials(data: bytes) -> None:
    found = _plain(data)
    if found is not None:
        same(data.endswith(b"\0".join(part.encode() for part in found)), True)


def _alone(data: bytes) -> None:
    """Read what a gateway that is alone reads itself."""
    _credentials(data)
    # Either refuses what the other may take.
    with suppress(ColdstreamError):
        _delivered(data)
    _publish(data)


def _example(kind: type[StreamFrame], number: int) -> StreamFrame:
    """Return a frame with something in each field."""
    values = {
        "str": "orders",
        "str | None": (None, "me")[number % 2],
        "int": number,
        "bytes | None": (None, b"\0guest\0guest")[number % 2],
        "OffsetSpec": (FIRST, AtOffset(Offset(7)), AtTimestamp(TimestampMs(-1)))[number % 3],
        "OffsetSpec | None": (None, FIRST, AtOffset(Offset(7)))[number % 3],
        "dict[str, str]": {"name": "ü", "super-stream": "orders"},
        "tuple[str, ...]": ("orders-0", "orders-1"),
    }
    made = {}
    for field in fields(kind):
        text = str(field.type)
        if text not in values and text.startswith("tuple["):
            made[field.name] = ()
        else:
            made[field.name] = values[text]
    return kind(**made)


def _examples(kinds: list[type[StreamFrame]]) -> Iterator[bytes]:
    for kind in kinds:
        if hasattr(kind, "KEY"):
            for number in range(3):
                yield _example(kind, number).to_bytes()


def _frame_seeds() -> Iterator[bytes]:
    for frame in _examples(_REQUESTS + _ANSWERS):
        yield frame[LENGTH_BYTES:]


def _proxy_seeds() -> Iterator[bytes]:
    deliveries = []
    for number, data in enumerate(golden_chunks()):
        if len(data) < 200:
            deliveries.append(deliver_head(1 + number % 2, number, 0, len(data)) + data)
    yield b"".join(deliveries)
    yield from deliveries
    yield b"".join(_examples([requests.Credit, requests.Open, requests.Heartbeat]))
    yield b"".join(_examples([answers.MetadataUpdate, answers.OpenAnswer]))


def _publish_seeds() -> Iterator[bytes]:
    head = struct.Struct(">HHBi")
    yield head.pack(Key.PUBLISH, 1, 5, 2) + bytes(8) + simple_entry(b"one") + bytes(8) + simple_entry(b"")
    yield (
        head.pack(Key.PUBLISH, 2, 5, 2)
        + (bytes(8) + b"\0\1f" + simple_entry(b"one"))
        + (bytes(8) + b"\xff\xff" + simple_entry(b"two"))
    )
    for chunk in parsed_chunks():
        if chunk.data[0] & 0x80:
            yield head.pack(Key.PUBLISH, 1, 5, 1) + bytes(8) + chunk.data[:1500]
    yield b"\0guest\0guest"
    yield from golden_chunks()


TARGETS = (
    FuzzTarget("frames", _frame, _frame_seeds, _BAD_FRAME),
    FuzzTarget("proxy", _proxy, _proxy_seeds, _BAD_FRAME, max_bytes=2048, runs=1500, lines_a_byte=400),
    FuzzTarget("alone", _alone, _publish_seeds, (*_BAD_FRAME, *CORRUPT)),
)
