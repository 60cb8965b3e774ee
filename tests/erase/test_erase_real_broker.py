"""A real broker's segments: archived, erased, read back, and announced again by an agent that still has the bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import boto3
import pytest
from rstream import CompressionType

from coldstream.compact.options import CompactOptions
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.entry import Encoding
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import StreamId, stream_from_directory
from coldstream.read.reader import Reader
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs
from tests.erase.samples import amqp
from tests.support.broker import Broker
from tests.support.compacting import compact_stream
from tests.support.streams import StreamConnection, SubBatch

SEGMENT_BYTES = 100_000
MESSAGES = 2000
_NAMES = itertools.count()


def body_of(number: int) -> bytes:
    return b"<secret of %08d>" % number + bytes(100)


def user_of(number: int) -> str:
    return f"user-{number % 7}"


@pytest.fixture(scope="module")
def stack() -> Iterator[EmulatedStack]:
    """A stack whose bucket keeps versions."""
    with (
        EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in running.environment.items():
            patch.setenv(name, value)
        boto3.client("s3").put_bucket_versioning(
            Bucket=running.environment["COLDSTREAM_BUCKET"], VersioningConfiguration={"Status": "Enabled"}
        )
        yield running


class Scene:
    """A stream of a broker, and of an archive."""

    def __init__(self, stack: EmulatedStack, broker: Broker, streams: StreamConnection) -> None:
        self.name = f"erased {next(_NAMES)}"
        self.stack = stack
        self.broker = broker
        streams.create_stream(self.name, max_segment_bytes=SEGMENT_BYTES)
        published = [amqp(body_of(number), user=user_of(number)) for number in range(MESSAGES)]
        for start in range(0, MESSAGES, 40):
            part = published[start : start + 40]
            streams.publish(self.name, [*part[:20], SubBatch(part[20:], CompressionType.No)], publisher="p")
        self.published = published
        bucket, table = stack.environment["COLDSTREAM_BUCKET"], stack.environment["COLDSTREAM_TABLE"]
        self.stores = LifecycleStores.open(DynamoTable(table), S3Objects(bucket), Keys(), grace_ms=0)

    @property
    def stream(self) -> StreamId:
        return stream_from_directory(self.broker.stream_directory(self.name).name, name=self.name, vhost="/")

    @property
    def tail(self) -> Offset:
        head = self.stores.table.head(self.stream.incarnation)
        assert head is not None
        assert head.next_offset is not None
        return head.next_offset

    def archive(self) -> None:
        """Archive what has rolled."""
        announcer = Announcer.from_environment(self.stack.environment)
        announcer.announce(self.stream, find_rolled(self.broker.stream_directory(self.name)), lambda _: None)
        self.stack.wait_idle(60)

    def announce_again(self) -> int:
        """Stage and announce each segment once more, as an agent does that has heard of no archive."""
        announcer = Announcer.from_environment(self.stack.environment)
        rolled = find_rolled(self.broker.stream_directory(self.name))
        for segment in rolled:
            announcer.put(announcer.stage(segment, self.stream), is_contested=True)
        self.stack.wait_idle(60)
        return len(rolled)

    def compress(self) -> None:
        """Compact, a month ago by its own clock: what is replaced is due."""
        options = CompactOptions(
            older_than_ms=-(40 * 24 * 3600 * 1000), target_bytes=1 << 20, encoding=Encoding.ZSTD_SEEKABLE, level=3
        )
        compact_stream(
            self.stores.table,
            self.stores.objects,
            self.stream,
            options,
            keys=self.stores.keys,
            now=TimestampMs(self.stores.now() - 30 * 24 * 3600 * 1000),
        )

    def erase(self, selection: Selection) -> int:
        """Erase, with the versions that staged segments have left, and sweep."""
        eraser = Eraser(self.stores)
        erasure, scope, _ = eraser.begin(self.stream, selection, reason="ticket 17", by="test", with_copies=True)
        report = eraser.run(self.stream, erasure, scope.selection)
        assert report.is_done
        assert sweep(self.stores, self.stream.incarnation).objects >= report.fragments
        return report.messages

    def read(self) -> dict[int, bytes]:
        with Reader(self.stack.resolver_url, "/", self.name, FIRST) as reader:
            return {message.offset: message.raw for message in reader.messages()}

    def bytes_in_bucket(self) -> Iterator[bytes]:
        """Yield every version of every object of the bucket."""
        client = boto3.client("s3")
        bucket = self.stores.objects.bucket
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for version in page.get("Versions", []):
                found = client.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
                yield found["Body"].read()


@pytest.fixture
def scene(stack: EmulatedStack, broker: Broker) -> Iterator[Scene]:
    with broker.connect() as streams:
        yield Scene(stack, broker, streams)


@pytest.mark.parametrize("is_compressed", [False, True], ids=["identity", "zstd-seekable"])
def test_what_was_erased_is_gone_for_good_though_the_agent_announces_it_again(
    scene: Scene,
    *,
    is_compressed: bool,
) -> None:
    scene.archive()
    offsets = sorted(scene.read())
    assert offsets[-1] + 1 == scene.tail
    number_of = {offset: number for number, offset in enumerate(offsets)}
    if is_compressed:
        scene.compress()
        # The objects that compaction replaced wait for their own grace: they are the other copies of the bytes.
        sweep(scene.stores, scene.stream.incarnation)
    assert scene.erase(Selection(key=ValueDigest.of("user-3"))) == sum(
        user_of(number) == "user-3" for number in number_of.values()
    )
    scene.erase(Selection(Offset(100), Offset(300)))
    gone = {offset for offset in offsets if user_of(number_of[offset]) == "user-3" or 100 <= offset < 300}
    expected = {
        offset: ERASED_MESSAGE if offset in gone else scene.published[number] for offset, number in number_of.items()
    }
    assert scene.read() == expected
    assert scene.announce_again() > 2
    assert scene.stack.dead_letters() == 0
    head = scene.stores.table.head(scene.stream.incarnation)
    assert head is not None
    assert (head.quarantined, head.gaps, head.next_offset) == (0, 0, scene.tail)
    assert scene.read() == expected
    # The agent still had the bytes, and the bucket keeps a version of what it staged. To erase again finds that.
    assert scene.erase(Selection(key=ValueDigest.of("user-3"))) == 0
    stored = list(scene.bytes_in_bucket())
    for offset in gone:
        assert not any(body_of(number_of[offset])[:20] in data for data in stored), offset
