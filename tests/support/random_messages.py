"""Messages and chunks by seed, some of them damaged: what two implementations are held against each other with."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, TimestampMs
from tests.support.amqp_samples import MESSAGES

FIRST = 1000
NOW = 1_763_700_000_123

_WORDS = ("", "a", "routing_key", "x-routing-key", "grün", "\U0001f642", "x" * 300, "orders.created")
_TIMES = (0, -1, NOW, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000, 1 << 62)
_FLOATS = (0.0, -0.0, 0.1, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 1.7e308, float("inf"), float("nan"))


def sized(code: int, content: bytes) -> bytes:
    """Encode a binary, string or symbol in its shortest form."""
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code + 0x10,)) + len(content).to_bytes(4) + content


def random_scalar(random: Random) -> bytes:
    """Encode a simple value of any type."""
    word = random.choice(_WORDS).encode()
    number = random.choice(
        (0, 1, 127, 128, 255, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, random.getrandbits(64))
    )
    return random.choice(
        (
            lambda: bytes((random.choice((0x40, 0x41, 0x42, 0x43, 0x44)),)),
            lambda: bytes((random.choice((0x50, 0x51, 0x52, 0x53, 0x54, 0x55)), random.randrange(256))),
            lambda: bytes((0x56, random.choice((0, 1, 1, 2)))),
            lambda: bytes((random.choice((0x60, 0x61)),)) + random.randbytes(2),
            lambda: bytes((random.choice((0x70, 0x71)),)) + random.randbytes(4),
            lambda: b"\x72" + struct.pack(">f", random.choice((0.1, 1e10, 3.4e38, 1e-7, float("nan")))),
            lambda: b"\x73" + random.choice((0x41, 0xFC, 0x1F642, 0xD800, 0x110000)).to_bytes(4),
            lambda: b"\x74" + random.randbytes(4),
            lambda: bytes((random.choice((0x80, 0x81)),)) + number.to_bytes(8),
            lambda: (
                b"\x82" + struct.pack(">d", random.choice((*_FLOATS, random.uniform(-1e20, 1e20), random.random())))
            ),
            lambda: b"\x83" + random.choice((*_TIMES, random.randrange(-(1 << 45), 1 << 47))).to_bytes(8, signed=True),
            lambda: b"\x84" + random.randbytes(8),
            lambda: bytes((random.choice((0x94, 0x98)),)) + random.randbytes(16),
            lambda: sized(random.choice((0xA0, 0xA1, 0xA3)), random.choice((word, random.randbytes(5)))),
            lambda: sized(0xA1, word),
        )
    )()


def random_value(random: Random) -> bytes:
    """Encode a value that may hold others."""
    draw = random.random()
    if draw < 0.9:
        return random_scalar(random)
    if draw < 0.93:
        return b"\x00" + random_scalar(random) + random_scalar(random)
    if draw < 0.95:
        return b"\xe0\x04\x02\x50ab"
    return random_sequence(random, random.choice((0xC0, 0xC1)), [random_scalar(random) for _ in range(2)])


def random_sequence(random: Random, code: int, values: list[bytes]) -> bytes:
    """Encode a list (0xc0) or map (0xc1), in either form; now and then with a wrong size or count."""
    content, count = b"".join(values), len(values)
    wrong = 1 if random.random() < 0.01 else 0
    if len(content) < 255 and random.random() < 0.7:
        return bytes((code, len(content) + 1 + wrong, count)) + content
    return bytes((code + 0x10,)) + (len(content) + 4).to_bytes(4) + (count + wrong).to_bytes(4) + content


def random_message(random: Random) -> bytes:
    """Encode a message: one data section, nearly one, some sections in any order, or no AMQP at all."""
    draw = random.random()
    if draw < 0.2:
        return b"\x00\x53\x75" + sized(0xA0, random.randbytes(random.choice((0, 1, 200, 255, 256, 1000))))
    if draw < 0.25:
        return random.choice((b"", b"plain text", random.randbytes(9), b"\x00", b"\x00\x53"))
    if draw < 0.35:
        return random.choice([*MESSAGES.values()])
    sections = []
    for code in random.sample(range(0x70, 0x79), random.randrange(1, 6)):
        if code in {0x70, 0x73, 0x76}:
            # A header has 5 fields and properties have 13 at most.
            values = [random_value(random) for _ in range(random.randrange(6 if code == 0x70 else 15))]
            value = random.choice((random_sequence(random, 0xC0, values),) * 9 + (b"\x45",))
        elif code == 0x75:
            value = sized(0xA0, random.randbytes(random.randrange(300)))
        elif code == 0x77:
            value = random_value(random)
        else:
            keys = [
                sized(random.choice((0xA1, 0xA3)), random.choice(_WORDS).encode() + bytes((97 + number,)))
                if random.random() < 0.95
                else random.choice((random_value(random), sized(0xA1, random.choice(_WORDS).encode())))
                for number in range(random.randrange(5))
            ]
            keys += [sized(0xA3, random.choice(_WORDS).encode())] if random.random() < 0.3 else []
            value = random_sequence(random, 0xC1, [part for key in keys for part in (key, random_value(random))])
        sections.append(b"\x00\x53" + bytes((code,)) + value)
    message = b"".join(sections)
    if random.random() < 0.1:
        message = damaged(random, message)
    return message


def damaged(random: Random, content: bytes) -> bytes:
    """Change a byte, cut the end off or append something."""
    if not content:
        return b"\x00"
    at = random.randrange(len(content))
    changed = content[:at] + random.randbytes(1) + content[at + 1 :]
    return random.choice((changed, changed, content[:at], content + random.randbytes(3)))


def random_entry(random: Random) -> bytes | SubBatch:
    """Make a message, or a sub-batch, which now and then says something wrong."""
    if random.random() < 0.8:
        return random_message(random)
    compression = random.choice([*Compression])
    batch = make_sub_batch([random_message(random) for _ in range(random.randrange(1, 6))], compression)
    if random.random() < 0.9:
        return batch
    return random.choice(
        (
            SubBatch(batch.compression, batch.records + 1, batch.uncompressed_bytes, batch.data, 0),
            SubBatch(batch.compression, batch.records, batch.uncompressed_bytes + 1, batch.data, 0),
            SubBatch(5, batch.records, batch.uncompressed_bytes, batch.data, 0),
            SubBatch(0, 0, 0, memoryview(b""), 0),
            SubBatch(0, 0, 0, memoryview(b"x"), 0),
            SubBatch(4, batch.records, 1 << 31, batch.data, 0),
        )
    )


def random_chunk_bytes(random: Random, *, chunk_id: int = FIRST) -> bytes:
    """Make a whole chunk that is right as a chunk, whatever its sub-batches and messages hold."""
    entries = [random_entry(random) for _ in range(random.randrange(1, 12))]
    if not any(not isinstance(entry, SubBatch) or entry.records for entry in entries):
        entries.append(b"")
    timestamp = TimestampMs(random.choice((NOW, random.choice(_TIMES))))
    return make_chunk(entries, chunk_id=ChunkId(chunk_id), timestamp=timestamp, epoch=Epoch(1))[1]


def random_chunk(random: Random) -> Chunk:
    """Make a chunk; of one in five the data is damaged, as if its CRC had matched."""
    data = random_chunk_bytes(random)
    view = memoryview(data if random.random() < 0.8 else bytearray(data))
    (chunk,) = iter_chunks(view, source="random")
    content = memoryview(damaged(random, bytes(chunk.data)))
    # No header says of less data than its entries have at least.
    if random.random() < 0.2 and len(content) >= 4 * chunk.header.entries:
        return Chunk(replace(chunk.header, data_bytes=len(content)), 0, chunk.bloom, content, chunk.trailer)
    return chunk
