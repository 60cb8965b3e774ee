"""Two archived streams of many small fragments each, on the emulated AWS: what jobs compact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.segments import write_stream

ORDERS = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
OTHERS = StreamId("/", "others", Incarnation("__others_1763700000000000001"))
PREFIX = "some/prefix/"


class SmallFragments:
    """Two streams of many small fragments; `chunks` are those of the first."""

    def __init__(self, table: DynamoTable, objects: S3Objects, directory: Path) -> None:
        self.table, self.objects = table, objects
        uploader = Uploader(table, objects, Keys(PREFIX), 20_000)
        for seed, stream in enumerate((ORDERS, OTHERS)):
            write_stream(directory / stream.name, chunks=80, seed=seed)
            for segment in find_rolled(directory / stream.name):
                uploader.upload(stage(segment, stream, objects, Keys(PREFIX)))
        self.chunks = list(self.read())

    def variables(self, table_name: str) -> dict[str, str]:
        """Return what tells a job where they are."""
        return {
            "COLDSTREAM_TABLE": table_name,
            "COLDSTREAM_BUCKET": self.objects.bucket,
            "COLDSTREAM_PREFIX": PREFIX,
        }

    def corrupt(self, s3: Any, number: int) -> FragmentEntry:
        """Change a byte of an object of the first stream's; return its entry."""
        entry = self.log()[number]
        body = bytearray(s3.get_object(Bucket=self.objects.bucket, Key=entry.key)["Body"].read())
        body[100] ^= 1
        s3.put_object(Bucket=self.objects.bucket, Key=entry.key, Body=bytes(body))
        return entry

    def log(self, stream: StreamId = ORDERS) -> tuple[FragmentEntry, ...]:
        return self.table.log_from_offset(stream.incarnation, Offset(0), 1000).entries

    def read(self) -> Iterator[tuple[int, bytes]]:
        for step in plan_scan(self.table, ORDERS, Offset(0)):
            assert isinstance(step, ScanSlice)
            for chunk in read_slice(self.objects, step):
                yield chunk.header.chunk_id, bytes(chunk.data)
