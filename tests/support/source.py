"""An archive in the emulated AWS, for Spark to read."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.amqp_samples import encode
from tests.support.archive import ChunkArchive, Spec


class PlainArchive(ChunkArchive):
    """Its messages are data sections that say their offset; those in `others` are as given there."""

    def __init__(self, stream: StreamId, table: DynamoTable, objects: S3Objects, *, sparse_bytes: int = 250) -> None:
        super().__init__(stream, objects=objects, sparse_bytes=sparse_bytes)  # type: ignore[arg-type]  # a port as well
        self.table = table  # type: ignore[assignment]  # so too
        self.others: dict[int, bytes] = {}

    def message(self, offset: int) -> bytes:
        return self.others.get(offset) or encode(body=body(offset))


def body(offset: int) -> bytes:
    """Return what the message at an offset carries; of two sizes."""
    return b"message %d%s" % (offset, b"." * (offset % 2))


class Emulated:
    """A table and a bucket, and streams in them."""

    def __init__(self, table: str, bucket: str) -> None:
        self.options = {"table": table, "bucket": bucket}
        self.table = DynamoTable(table)
        self.objects = S3Objects(bucket)

    def stream(self, name: str, *, vhost: str = "/", life: int = 1, **options: Any) -> PlainArchive:
        """Begin a stream; `life` orders its incarnations."""
        incarnation = Incarnation(f"{crc32(f'{vhost} {name}'.encode())}_176370000000000000{life}")
        return PlainArchive(StreamId(vhost, name, incarnation), self.table, self.objects, **options)


def chunks(number: int, records: int = 5, *, start_ms: int = 1_000, step_ms: int = 1_000) -> list[Spec]:
    """Make chunks of so many records, one after another in time."""
    return [Spec(records, start_ms + step_ms * one) for one in range(number)]
