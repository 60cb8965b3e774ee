"""Direct streams on an emulated S3 and AWS's own emulator of DynamoDB, read by the readers of the archive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

import coldstream
from coldstream.errors import StreamClosedError
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_document
from coldstream.read.reader import Reader
from coldstream.store.objects import S3Objects
from coldstream.streams import (
    BlockingStreamClient,
    DirectArchive,
    FlushOptions,
    OpenMode,
    StreamClient,
    StreamOptions,
    WalOptions,
)
from coldstream.streams.handle import DirectStream
from coldstream.units import KIB, Offset
from tests.support.aws import TEMPLATE
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.http_archive import HttpObjects, http_archive
from tests.support.interposed_archive import bodies

STREAMS = 4
BATCHES = 500
"""Of each stream."""

OPTIONS = StreamOptions(wal=WalOptions(max_bytes=64 * KIB), flush=FlushOptions(fragment_bytes=64 * KIB))


@dataclass(frozen=True, slots=True)
class EmulatedArchive:
    """Where an archive is, for this process and for others."""

    bucket: str
    table: str

    @property
    def environment(self) -> dict[str, str]:
        return {"COLDSTREAM_BUCKET": self.bucket, "COLDSTREAM_TABLE": self.table}

    def open(self) -> DirectArchive:
        return DirectArchive.from_environment(self.environment)


@pytest.fixture
def emulated(dynamodb_local: DynamoDBLocal, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> EmulatedArchive:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local.url)
    name = f"direct-{uuid4()}"
    parameters = table_parameters(load_document(TEMPLATE)["Resources"]["Table"])
    boto3.session.Session().client("dynamodb").create_table(TableName=name, **parameters)
    return EmulatedArchive(s3_objects.bucket, name)


def body(stream: str, number: int) -> bytes:
    return f"{stream} {number} ".encode() * 20


async def append_all(stream: DirectStream, first: int = 0) -> None:
    """Append BATCHES batches of a message, most of them under way at once, each at the offset it expects."""
    numbers = range(first, first + BATCHES)
    offsets = await asyncio.gather(*(stream.append([body(stream.name, n)], expect=Offset(n)) for n in numbers))
    assert offsets == list(numbers)


def test_thousands_of_batches_of_several_streams_are_there_after_each_of_two_lives(emulated: EmulatedArchive) -> None:
    names = [f"stream-{number}" for number in range(STREAMS)]

    async def live(turn: int) -> None:
        async with await StreamClient.open(emulated.open(), OPTIONS) as client:
            if turn == 0:
                for name in names:
                    await client.create(name, properties={"turn": "0"})
            streams = await asyncio.gather(*(client.open_stream(name) for name in names))
            assert [one.confirmed for one in streams] == [turn * BATCHES] * STREAMS
            await asyncio.gather(*(append_all(one, turn * BATCHES) for one in streams))
            assert sorted([info.name async for info in client.list()]) == names
            found = await asyncio.gather(*(bodies(one) for one in streams))
            assert found == [[body(name, n) for n in range((turn + 1) * BATCHES)] for name in names]

    for turn in range(2):
        asyncio.run(live(turn))
    keys = list(emulated.open().objects.keys(""))
    assert any(key.endswith(".fragment") for key in keys)
    assert [key for key in keys if "wal" in key.split("/")] == []  # a clean close leaves nothing to recover


CHILD = """
    import sys
    from coldstream.streams import BlockingStreamClient, DirectArchive
    with BlockingStreamClient(DirectArchive.from_environment()) as client:
        client.create("orders")
        stream = client.open_stream("orders")
        number = 0
        while True:
            stream.append([b"%d" % number], publisher="p", publishing_id=number)
            print(number, flush=True)
            number += 1
"""


def test_what_a_killed_process_was_told_is_durable_is_there_once_and_its_publisher_goes_on(
    emulated: EmulatedArchive,
) -> None:
    path = str(Path(coldstream.__path__[0]).parent)
    environment = {**os.environ, **emulated.environment, "PYTHONPATH": path}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = -1
    with child.stdout:
        while acknowledged < 50:
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait()
    with BlockingStreamClient(emulated.open()) as client:
        stream = client.open_stream("orders")
        last = stream.publisher_id("p")
        assert last in {acknowledged, acknowledged + 1}  # one may have been under way
        assert last is not None
        assert stream.append([b"again"], publisher="p", publishing_id=last) is None
        stream.append([b"next"], publisher="p", publishing_id=last + 1)
        stream.seal()
        found = [one.body for batch in stream.follow(Offset(0)) for one in batch.messages()]
        assert found == [*(b"%d" % n for n in range(last + 1)), b"next"]


def test_of_two_processes_the_later_opener_has_the_stream_also_on_a_real_table(emulated: EmulatedArchive) -> None:
    with BlockingStreamClient(emulated.open()) as one, BlockingStreamClient(emulated.open()) as other:
        one.create("orders")
        first = one.open_stream("orders")
        assert first.append([b"a"]) == 0
        second = other.open_stream("orders")
        assert second.append([b"b"], expect=Offset(1)) == 1
        with pytest.raises(Exception, match="was opened again"):
            first.append([b"void"])
        with pytest.raises(StreamClosedError):
            first.append([b"void"])
        second.trim(Offset(1))
        second.seal()
        snapshot = one.open_stream("orders", mode=OpenMode.SNAPSHOT)
        assert [batch.base_offset for batch in snapshot.follow(Offset(1))] == [1]
        assert one.key_values.put_if_absent("k", b"1") == b"1"
        assert other.key_values.put_if_absent("k", b"2") == b"1"
        second.destroy()
        other.create("orders")


def test_the_readers_of_the_archive_read_a_direct_stream_as_any_other() -> None:
    """The resolver function, presigned ranges, and the ordinary reader, which knows nothing of direct streams."""
    archive = DirectArchive.in_memory()
    objects = HttpObjects()
    archive = DirectArchive(archive.table, objects, archive.keys)
    with BlockingStreamClient(archive, OPTIONS) as client:
        client.create("orders", first=Offset(7))
        stream = client.open_stream("orders")
        for number in range(200):
            stream.append([body("orders", number), b"and"], publisher="p", publishing_id=number)
            if number % 50 == 49:
                stream.flush()
        stream.flush()
        times = {batch.base_offset: batch.timestamp for batch in stream.fetch(Offset(7))}
        with http_archive(archive.table, objects) as where, Reader(where.url, "/", "orders") as reader:
            read = [(one.offset, one.body, one.timestamp) for one in reader.messages()]
        own = []
        stream.seal()
        for batch in stream.follow(Offset(7)):
            own += [(one.offset, one.body, batch.timestamp) for one in batch.messages()]
    assert read == own
    assert len(read) == 400
    assert read[0][:2] == (7, body("orders", 0))
    assert times[Offset(7)] == read[0][2]
