"""Messages decoded per second, from chunks to what a consumer reads, against rstream."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rstream import AMQPMessage, Properties, amqp_decoder
from rstream.encoding import decode_frame
from rstream.schema import Deliver

from bench.harness import Aim, CannotMeasureError, Cell, Section, Stopwatch, median_run, say
from coldstream.format.amqp.message import Message, messages_in_python, native_messages
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.native import NATIVE
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

BODY_BYTES = 200
CHUNKS = 400
MESSAGES_A_CHUNK = 100
ROUNDS = 5
SUB_BATCH = 10
AIMS = (10, 5, 5, 3, 10)
"""Of rstream's rate, a number for each case."""

HOW = f"""\
{CHUNKS * MESSAGES_A_CHUNK:,} messages of {BODY_BYTES} bytes in chunks of {MESSAGES_A_CHUNK} are decoded in memory,
until the parts that the row names have been read of each message. Decoding begins at parsed chunks: coldstream's
`messages` against rstream's `Deliver.get_messages` and `amqp_decoder`. "From bytes" includes parsing the chunks:
`iter_chunks`, which checks the CRC, against `decode_frame`, which does not. "In Python" is the same without the native
module (docs/native.md). {ROUNDS} rounds, in turns; messages a second."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row: the messages in chunks, what is read of them, and whether parsing the chunks counts."""

    name: str
    chunks: list[bytes]
    read: Callable[[Iterable[Any]], int]
    from_bytes: bool = False


def measure() -> Section:
    """Measure three shapes of message. Raises CannotMeasureError without the native module."""
    if NATIVE is None:
        raise CannotMeasureError("the native module is not installed: make setup, with Rust")
    plain = list(_plain_messages())
    rich = list(rich_messages())
    cases = [
        Case("data only; body", _chunks(plain), _body),
        Case("data only, sub-batches of 10, gzip; body", _chunks(plain, Compression.GZIP), _body),
        Case("with properties; body", _chunks(rich), _body),
        Case("with properties; body and all sections", _chunks(rich), _all),
        Case("data only; body; from bytes", _chunks(plain), _body, from_bytes=True),
    ]
    rows: list[tuple[Cell, ...]] = []
    ratios = []
    for case in cases:
        say(case.name)
        rates = _race(case)
        ratio = rates.native / rates.theirs
        rows.append((case.name, rates.native, rates.python, rates.theirs, ratio, rates.python / rates.theirs))
        ratios.append(ratio)
    aims = [
        Aim(f"{case.name}: {least}x rstream's rate or more", f"{ratio:.1f}x", ratio >= least)
        for case, ratio, least in zip(cases, ratios, AIMS, strict=True)
    ]
    return Section(
        title="Decoding messages",
        how=HOW,
        columns=("messages; what is read", "coldstream", "in Python", "rstream", "ratio", "ratio in Python"),
        rows=tuple(rows),
        aims=tuple(aims),
    )


def _body(read: Iterable[Any]) -> int:
    """Read the body of each message, ours or rstream's."""
    return sum(len(message.body) for message in read)


def _all(read: Iterable[Any]) -> int:
    """Read body, properties and application properties of each message."""
    return sum(
        len(message.body) + len(message.application_properties) + len(message.properties.content_type)
        for message in read
    )


def _ours(case: Case, read_messages: Callable[[Chunk, str, Offset], Iterator[Message]]) -> Callable[[], int]:
    def parse() -> Iterator[Chunk]:
        return (chunk for data in case.chunks for chunk in iter_chunks(memoryview(data), source="bench"))

    parsed = list(parse())

    def run() -> int:
        chunks = parse() if case.from_bytes else parsed
        return sum(case.read(read_messages(chunk, "bench", Offset(0))) for chunk in chunks)

    return run


def _theirs(case: Case) -> Callable[[], int]:
    def parse() -> Iterator[Deliver]:
        return (_deliver(data) for data in case.chunks)

    parsed = list(parse())

    def run() -> int:
        frames = parse() if case.from_bytes else parsed
        return sum(case.read(map(amqp_decoder, frame.get_messages())) for frame in frames)

    return run


def _deliver(chunk: bytes) -> Deliver:
    frame = decode_frame(_DELIVER + chunk)
    assert isinstance(frame, Deliver)
    return frame


_DELIVER = b"\x00\x08\x00\x01\x00"  # key, version, subscription id; then the chunk as it is in the segment


class Rates(NamedTuple):
    """Messages a second."""

    native: float
    python: float
    theirs: float


def _race(case: Case) -> Rates:
    assert NATIVE is not None
    contenders = (_ours(case, native_messages(NATIVE)), _ours(case, messages_in_python), _theirs(case))
    count = CHUNKS * MESSAGES_A_CHUNK
    rates: list[list[float]] = [[] for _ in contenders]
    for _ in range(ROUNDS):
        totals = set()
        for contender, measured in zip(contenders, rates, strict=True):
            with Stopwatch() as stopwatch:
                totals.add(contender())
            measured.append(count / stopwatch.seconds)
        assert len(totals) == 1, f"read {totals}"
    return Rates(*(median_run(each, lambda rate: rate) for each in rates))


def _plain_messages() -> Iterator[bytes]:
    data = random.Random(1).randbytes(BODY_BYTES + CHUNKS * MESSAGES_A_CHUNK)
    for number in range(CHUNKS * MESSAGES_A_CHUNK):
        yield b"\x00\x53\x75\xa0" + bytes((BODY_BYTES,)) + data[number : number + BODY_BYTES]


def rich_messages() -> Iterator[bytes]:
    """Yield messages as applications send them: four standard properties, four of their own."""
    for number in range(CHUNKS * MESSAGES_A_CHUNK):
        yield bytes(
            AMQPMessage(
                body=b"x" * BODY_BYTES,
                properties=Properties(
                    message_id=str(uuid.UUID(int=number)),
                    subject="orders.created",
                    content_type="application/json",
                    creation_time=1_700_000_000_000 + number,
                ),
                application_properties={"tenant": f"t{number % 100}", "attempt": number % 3, "region": "eu", "v": 2},
            )
        )


def _chunks(raw: list[bytes], compression: Compression | None = None) -> list[bytes]:
    out = []
    for at in range(0, len(raw), MESSAGES_A_CHUNK):
        part = raw[at : at + MESSAGES_A_CHUNK]
        entries = (
            part
            if compression is None
            else [make_sub_batch(part[sub : sub + SUB_BATCH], compression) for sub in range(0, len(part), SUB_BATCH)]
        )
        _, chunk = make_chunk(
            entries,
            chunk_id=ChunkId(at),
            timestamp=TimestampMs(1_700_000_000_000 + at),
            epoch=Epoch(1),
        )
        out.append(chunk)
    return out
