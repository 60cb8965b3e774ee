"""Segments of messages such as applications send: small, similar JSON documents."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

from rstream import AMQPMessage, Properties

from bench.load import FIRST_TIMESTAMP, MS_A_CHUNK
from coldstream.format.writer import SegmentWriter
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled
from coldstream.units import TimestampMs

MESSAGES_A_CHUNK = 200
POOL = 20_000


def make_orders(
    directory: Path, *, size_bytes: int, chunk_messages: int = MESSAGES_A_CHUNK, with_properties: bool = False
) -> SegmentSlice:
    """Write a segment of at least `size_bytes`: random choices of 20,000 orders of 250 to 500 bytes.

    With properties, each has four of AMQP's, and four of its own.
    """
    directory.mkdir(exist_ok=True)
    dice = random.Random(1)
    pool = [_with_properties(dice, _body(dice)) if with_properties else _data(_body(dice)) for _ in range(POOL)]
    with SegmentWriter(directory, max_segment_bytes=size_bytes) as writer:
        timestamp = FIRST_TIMESTAMP
        while not (rolled := find_rolled(directory)):
            for _ in range(64):
                writer.write(dice.choices(pool, k=chunk_messages), timestamp=TimestampMs(timestamp))
                timestamp += MS_A_CHUNK
    return rolled[0]


def _body(dice: random.Random) -> bytes:
    order = {
        "id": f"{dice.getrandbits(128):032x}",
        "customer": f"{dice.getrandbits(64):016x}",
        "status": dice.choice(("placed", "paid", "shipped", "delivered", "returned")),
        "placed_at": f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:15:00Z",
        "currency": dice.choice(("EUR", "USD", "GBP")),
        "lines": [
            {"article": dice.randint(1, 99_999), "quantity": dice.randint(1, 9), "cents": dice.randint(99, 99_999)}
            for _ in range(dice.randint(1, 6))
        ],
    }
    return json.dumps(order).encode()


def _data(body: bytes) -> bytes:
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


def _with_properties(dice: random.Random, body: bytes) -> bytes:
    properties = Properties(
        message_id=str(uuid.UUID(int=dice.getrandbits(128))),
        subject="orders.created",
        content_type="application/json",
        creation_time=FIRST_TIMESTAMP + dice.getrandbits(24),
    )
    own = {"tenant": f"t{dice.randrange(100)}", "attempt": dice.randrange(3), "region": "eu", "v": 2}
    return bytes(AMQPMessage(body=body, properties=properties, application_properties=own))
