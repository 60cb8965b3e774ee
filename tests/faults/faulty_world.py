"""A small archive on the memory network, made anew for each run, and what is known of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import boto3
import pytest
from moto.core.base_backend import BackendDict
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeDeleteMarker, s3_backends

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import find_rolled, stage
from coldstream.local.deployment import table_parameters
from coldstream.local.template import load_template
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.shards.memory_broker import MemoryShardBroker
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.faults.memory_broker import MemoryStreamBroker
from tests.faults.memory_network import RESOLVER_HOST, URL, MemoryNetwork, connected
from tests.support.segments import write_stream

ROOT = Path(__file__).parents[2]
ORDERS = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
TABLE, REBUILT, BUCKET, PREFIX = "table-of-7f3a", "rebuilt-7f3a", "bucket-of-7f3a", "here/"
"""Names that stand nowhere else: an error that has one names its place."""
JOBS_QUEUE, DEAD_LETTERS, UPLOADS_QUEUE = (
    f"{URL}/123456789012/{name}" for name in ("jobs-of-7f3a", "letters-of-7f3a", "uploads-of-7f3a")
)
KEYS = Keys(PREFIX)
FRAGMENT_BYTES = 65_536
_REGION = "eu-central-1"


@cache
def segments_directory() -> Path:
    """Return a directory with a stream of a few segments, which lives as long as this process."""
    directory = Path(tempfile.mkdtemp(prefix="coldstream-faults-"))
    write_stream(directory / ORDERS.incarnation, chunks=100, max_segment_bytes=30_000)
    return directory / ORDERS.incarnation


@cache
def _table_parameters() -> dict[str, object]:
    return table_parameters(load_template(ROOT / "template.yaml").body["Resources"]["Table"])


@dataclass
class FaultyWorld:
    """The archive of one run.

    `staged` are events whose segments are staged and not uploaded, `uploaded` the others, `acknowledged` what a direct
    stream took, by offset, `letters` the ids of dead letters, `entered` the commands and functions that were run,
    `subject` the id of the job or hold that they are about. `struck` counts the requests that were answered otherwise.
    `scratch` is a directory for what a run writes. `is_told_damaged`: the last rebuild could not read an object.
    """

    network: MemoryNetwork
    table: DynamoTable
    objects: S3Objects
    scratch: Path
    staged: list[SegmentRolled] = field(default_factory=list)
    uploaded: list[SegmentRolled] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    letters: list[str] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)
    subject: str = ""
    struck: int = 0
    is_told_damaged: bool = False
    shard_broker: MemoryShardBroker | None = None
    stream_broker: MemoryStreamBroker | None = None

    def upload(self, count: int) -> None:
        """Stage all segments, and upload the first ones."""
        rolled = find_rolled(segments_directory())
        self.staged = [stage(segment, ORDERS, self.objects, KEYS) for segment in rolled]
        uploader = Uploader(self.table, self.objects, KEYS, FRAGMENT_BYTES)
        for segment in self.staged[:count]:
            uploader.upload(segment)
        self.uploaded = self.staged[:count]
        del self.staged[:count]

    def empty(self, table: str) -> None:
        """Make a table anew."""
        client = boto3.session.Session().client("dynamodb")
        client.delete_table(TableName=table)
        client.create_table(TableName=table, **_table_parameters())

    def digest(self, table: str) -> str:
        """Return a hash of every chunk that a table names, in order, with its offset. Raises what reading raises."""
        found = hashlib.sha256()
        manifest = self.table if table == TABLE else DynamoTable(table)
        for step in plan_scan(manifest, ORDERS, Offset(0)):
            if isinstance(step, ScanSlice):
                for chunk in read_slice(self.objects, step):
                    found.update(b"%d " % chunk.header.chunk_id)
                    found.update(chunk.data)
            else:
                found.update(repr(step).encode())
        return found.hexdigest()

    def state(self) -> str:
        """Return a hash of all items and objects: two runs that leave the same have the same, as no time goes by.

        Queues, secrets and files are no part of it.
        """
        found = hashlib.sha256()
        for table in (TABLE, REBUILT):
            found.update(repr(sorted(map(json.dumps, self.network.items_of(table)))).encode())
        bucket = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET]
        for name, versions in sorted(bucket.keys.lists()):
            for one in versions:
                if isinstance(one, FakeDeleteMarker):
                    found.update(repr((name, "is deleted")).encode())
                    continue
                about = name, one.storage_class, one.metadata, one.lock_mode, one.lock_legal_status
                found.update(repr((about, hashlib.sha256(one.value).digest())).encode())
        found.update(repr(sorted(upload.key_name for upload in bucket.multiparts.values())).encode())
        return found.hexdigest()


class Worlds:
    """Makes worlds, all on one network. In them it is always `time_ns`, but for what a run lets go by."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.time_ns = time.time_ns()

    @contextmanager
    def world(self) -> Iterator[FaultyWorld]:
        """Give an empty archive, and the environment that names it."""
        BackendDict.reset()
        self.network.begin(lambda request, number: None)
        self.network.forget()
        scratch = tempfile.TemporaryDirectory(prefix="coldstream-faults-", ignore_cleanup_errors=True)
        with scratch as directory, environment(), connected(self.network, self.time_ns):
            made = FaultyWorld(self.network, DynamoTable(TABLE), S3Objects(BUCKET), Path(directory))
            session = boto3.session.Session()
            for name in (TABLE, REBUILT):
                session.client("dynamodb").create_table(TableName=name, **_table_parameters())
            where = {"LocationConstraint": _REGION}
            session.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
            yield made

    def close(self) -> None:
        """Forget what is in this process."""
        BackendDict.reset()
        shutil.rmtree(segments_directory().parent, ignore_errors=True)
        segments_directory.cache_clear()


@contextmanager
def environment() -> Iterator[None]:
    """Name an archive by the environment, as a deployment does."""
    variables = {
        "AWS_ENDPOINT_URL": URL,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_REGION": _REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "COLDSTREAM_TABLE": TABLE,
        "COLDSTREAM_BUCKET": BUCKET,
        "COLDSTREAM_PREFIX": PREFIX,
        "COLDSTREAM_RESOLVER_URL": f"http://{RESOLVER_HOST}",
        "COLDSTREAM_JOBS_QUEUE": JOBS_QUEUE,
        "COLDSTREAM_FRAGMENT_BYTES": str(FRAGMENT_BYTES),
        "COLDSTREAM_URL_EXPIRY_S": "900",
        "COLDSTREAM_SWEEP": "delete",
        "COLDSTREAM_RETENTION": "delete",
        "COLDSTREAM_GARBAGE": "delete",
        "POWERTOOLS_SERVICE_NAME": "test",
        "POWERTOOLS_METRICS_NAMESPACE": "coldstream",
        "POWERTOOLS_METRICS_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_DYNAMODB"):
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
