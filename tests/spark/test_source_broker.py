"""Rows against what a stock client consumes of a real broker: every way of packing, every AMQP section."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from rstream import CompressionType, amqp_decoder

from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.stream import stream_from_directory
from coldstream.store.keys import Keys
from coldstream.units import TimestampMs, format_timestamp
from tests.support.amqp_samples import MESSAGES, encode
from tests.support.broker import Broker
from tests.support.source import Emulated
from tests.support.streams import SubBatch

STREAM = "data-source"
NOT_OF_THE_CLIENT = {"two data sections", "two sequences", "value array", "value described"}
"""What the client decodes in part, or into something of its own."""

pytestmark = pytest.mark.broker


def text(value: Any) -> str | None:
    """Write what the client decoded as the maps of a row have it."""
    match value:
        case None:
            return None
        case UUID():
            return str(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return json.dumps({"base64": b64encode(value).decode()})
    return json.dumps(value, default=bytes.decode)


def texts(found: dict[bytes, Any] | None) -> dict[str, str | None] | None:
    if found is None:
        return None
    times = {b"timestamp": lambda value: format_timestamp(TimestampMs(value))}  # numbers, to the client
    return {key.decode(): times.get(key, text)(value) for key, value in found.items()}


def plain(value: Any) -> Any:
    """Turn the client's text, which it leaves encoded, into what JSON has."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {plain(key): plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
    return value


def value_of(message: Any) -> bytes | None:
    if message.body is not None:
        return message.body
    if message.sequence is not None:
        return json.dumps(plain([item for part in message.sequence for item in part])).encode()
    if message.value is None or isinstance(message.value, bytes):
        return message.value
    return json.dumps(plain(message.value)).encode()


def expected(raw: bytes) -> dict[str, Any]:
    message = amqp_decoder(raw)
    properties = message.properties
    return {
        "value": value_of(message) if raw else b"",
        "application_properties": texts(message.application_properties),
        "message_annotations": texts(message.message_annotations),
        "message_id": None if properties is None else text(properties.message_id),
        "user_id": None if properties is None else properties.user_id,
        "subject": None if properties is None else text(properties.subject),
        "correlation_id": None if properties is None else text(properties.correlation_id),
        "group_sequence": None if properties is None else properties.group_sequence,
        "created_ms": None if properties is None else properties.creation_time,
    }


@pytest.fixture(scope="module")
def consumed(broker: Broker) -> list[tuple[int, bytes]]:
    """What a client consumes, before the filling that has the last segment roll."""
    rng = random.Random(5)
    samples = [raw for name, raw in MESSAGES.items() if name not in NOT_OF_THE_CLIENT]
    bodies = [encode(body=rng.randbytes(size)) for size in (0, 1, 100, 255, 256, 1000)]
    entries: list[bytes | SubBatch] = [*samples, *bodies * 30]
    for kind in CompressionType:
        entries += [SubBatch(samples, kind), SubBatch(bodies * 5, kind), *samples, bodies[2]]
    messages = sum(len(one.messages) if isinstance(one, SubBatch) else 1 for one in entries)
    with broker.connect() as streams:
        streams.create_stream(STREAM, max_segment_bytes=100_000)
        for at in range(0, len(entries), 25):
            streams.publish(STREAM, entries[at : at + 25])
        found = streams.read(STREAM, messages)
        for _ in range(3):
            streams.publish(STREAM, [encode(body=bytes(120_000))])
    assert len(found) == messages
    return found


@pytest.fixture
def archived(archive: Emulated, broker: Broker, consumed: Any, tmp_path: Path) -> Emulated:
    directory = broker.stream_directory(STREAM)
    stream = stream_from_directory(directory.name, vhost="/", name=STREAM)
    uploader = Uploader(archive.table, archive.objects, Keys(), 50_000, spool_dir=tmp_path)
    for segment in find_rolled(directory):
        assert uploader.upload(stage(segment, stream, archive.objects, Keys())).quarantined is None
    return archive


def test_rows_equal_what_a_stock_client_consumed(
    source: Any, archived: Emulated, consumed: list[tuple[int, bytes]]
) -> None:
    options = {**archived.options, "stream": STREAM, "endingOffsets": str(consumed[-1][0] + 1), "minPartitions": "3"}
    frame = source.read.format("coldstream").options(**options).load()
    rows = frame.selectExpr(
        "offset",
        "value",
        "application_properties",
        "message_annotations",
        "properties.message_id",
        "properties.user_id",
        "properties.subject",
        "properties.correlation_id",
        "properties.group_sequence",
        "unix_millis(creation_time) AS created_ms",
    ).collect()
    assert [row.offset for row in rows] == [offset for offset, _ in consumed]
    for row, (offset, raw) in zip(rows, consumed, strict=True):
        found = row.asDict()
        assert found.pop("offset") == offset
        assert found == expected(raw)
