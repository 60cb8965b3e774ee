"""Direct streams, appended to by the client that people use, in an archive of any stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coldstream.format.amqp.message import messages
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.direct_names import find_name
from coldstream.streams import BlockingDirectStream, BlockingStreamClient, DirectArchive, StreamOptions, WalOptions
from coldstream.units import Offset

OPTIONS = StreamOptions(wal=WalOptions(interval_s=0))
PUBLISHER = "billing"

DATA_BYTES = 5
"""What a short body has before it in a message: the descriptor of a data section, and its length."""


def bodies(first: int, count: int) -> list[bytes]:
    """Make the messages from a number on: of several lengths, each unlike the others."""
    return [b"<message %06d>%s" % (number, b"." * (number % 7)) for number in range(first, first + count)]


@contextmanager
def opened(
    archive: DirectArchive, name: str = "orders", options: StreamOptions = OPTIONS
) -> Iterator[BlockingDirectStream]:
    """Open a stream, in a client of its own; create it if there is none."""
    with BlockingStreamClient(archive, options) as client:
        if find_name(archive.table, "/", name) is None:
            client.create(name)
        yield client.open_stream(name)


def append(
    archive: DirectArchive, flushes: int, *, name: str = "orders", is_published: bool = False, batches: int = 4
) -> list[bytes]:
    """Append `flushes` times so many batches of three messages, and flush each time; return all that was appended.

    What is published has a trailer in each chunk, and each flush ends with a snapshot chunk.
    """
    appended: list[bytes] = []
    with opened(archive, name) as stream:
        first = (stream.publisher_id(PUBLISHER) or 0) if is_published else int(stream.tail)
        for _ in range(flushes):
            for _ in range(batches):
                appended += (batch := bodies(first, 3))
                first += 3
                stream.append(batch, **({"publisher": PUBLISHER, "publishing_id": first} if is_published else {}))
            stream.flush()
    return appended


def direct_head(archive: DirectArchive, name: str = "orders") -> Head:
    """Read the head of a direct stream."""
    known = find_name(archive.table, "/", name)
    assert known is not None
    head = archive.table.head(known.stream.incarnation)
    assert head is not None
    return head


def lifecycle_stores(archive: DirectArchive, grace_ms: int = 0) -> LifecycleStores:
    """Open what ends the life of streams in this archive."""
    return LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=grace_ms)


def scanned(archive: DirectArchive, stream: StreamId, first: int | None = None) -> list[bytes]:
    """Read the bodies of all messages, as a job does that reads manifest and bucket."""
    head = archive.table.head(stream.incarnation)
    if head is None or head.first_offset is None:
        return []
    steps = plan_scan(archive.table, stream, head.first_offset if first is None else Offset(first))
    slices = (step for step in steps if isinstance(step, ScanSlice))
    chunks = ((step.key, chunk) for step in slices for chunk in read_slice(archive.objects, step))
    return [bytes(message.body or b"") for key, chunk in chunks for message in messages(chunk, source=key)]
