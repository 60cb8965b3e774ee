"""The gateway's archive on an emulated S3, and on AWS's own emulator of DynamoDB."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import boto3
import pytest

from coldstream.errors import ObjectNotFoundError
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.history.port import StreamBounds
from coldstream.gateway.history.stored_offsets import StoredOffset, read_offset, write_offset
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.manifest.spec import AtTimestamp
from coldstream.read.presigned import PresignedReads
from coldstream.store.objects import S3Objects
from coldstream.store.open_archive import OpenArchive
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.aws import TEMPLATE
from tests.support.dynamodb_local import DynamoDBLocal


@pytest.fixture
def opened(dynamodb_local: DynamoDBLocal, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> OpenArchive:
    """The archive of an environment: an empty bucket, an empty table."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    name = f"gateway-{uuid4()}"
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    boto3.session.Session().client("dynamodb").create_table(TableName=name, **parameters)
    return OpenArchive.of_environment({"COLDSTREAM_BUCKET": s3_objects.bucket, "COLDSTREAM_TABLE": name})


def filled(opened: OpenArchive) -> ChunkArchive:
    """Put a stream of 300 chunks into an archive."""
    archive = ChunkArchive(message_bytes=100)
    archive.table, archive.objects = opened.table, opened.objects  # type: ignore[assignment]
    for first in range(0, 1500, 500):
        archive.add(first, steady(5, *range(1000 * first, 1000 * first + 100)))
    return archive


def test_it_is_read_byte_for_byte_and_its_offsets_are_kept(opened: OpenArchive) -> None:
    archive = filled(opened)

    async def main() -> None:
        history = GatewayHistory(opened.table, opened.objects)
        assert await history.bounds("/", "orders") == StreamBounds(STREAM.incarnation, Offset(0), Offset(1500))
        assert await history.attach("/", "orders", AtTimestamp(TimestampMs(500_001))) == 505
        assert await history.streams("/") == ("orders",)
        async with history.read("/", "orders", STREAM.incarnation, Offset(0)) as reading:
            found = [chunk.header.to_bytes() + bytes(chunk.data) async for chunk in reading]
        assert found == [chunk.data for chunk in archive.chunks]
        history.note_offset("/", "orders", "app", Offset(77))
        await history.close()
        again = GatewayHistory(opened.table, opened.objects)
        assert await again.stored_offset("/", "orders", "app") == 77
        await again.close()

    asyncio.run(main())


def test_of_many_gateways_that_write_at_once_the_last_offset_stays(opened: OpenArchive) -> None:
    rng = random.Random(3)
    notes = [
        StoredOffset(STREAM.incarnation, "app", Offset(rng.randrange(1000)), TimestampMs(at), rng.choice([0, 0, 1, 5]))
        for at in range(40)
    ]

    def write(table: DynamoTable, mine: list[StoredOffset]) -> None:
        for note in mine:
            write_offset(table, note)

    tables = [DynamoTable(opened.settings.table) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, table, notes[number::4]) for number, table in enumerate(tables)]:
            done.result(60)
    found = read_offset(opened.table, STREAM.incarnation, "app")
    assert found is not None
    assert found.order == notes[-1].order


def test_a_presigned_read_answers_as_the_sdk_does(opened: OpenArchive) -> None:
    opened.objects.put("some/ä key", b"0123456789")
    reads = PresignedReads(opened.objects, connections=2)
    for byte_range in (ByteRange(0, 10), ByteRange(3, 4), ByteRange(8, 20)):
        by_sdk = opened.objects.get_range("some/ä key", byte_range)
        assert reads.get_range("some/ä key", byte_range) == by_sdk
    assert reads.get_range("some/ä key", ByteRange(10, 11)).data == b""
    with pytest.raises(ObjectNotFoundError):
        reads.get_range("unknown", ByteRange(0, 1))
