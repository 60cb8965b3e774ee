"""An archive in memory as a console shows it: streams of real messages, some with gaps, losses, quarantine and holds.

archive = shown_archive(now)
archive.add(stream, messages=[...])
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rstream._pyamqp.message import Properties

from coldstream.archive.missing import record_missing
from coldstream.archive.upload import Uploader
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.writer import SegmentWriter, make_sub_batch
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.entry import Hold, Loss, Quarantine
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.stream import Incarnation, StreamId, new_stream
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Epoch, Offset, TimestampMs
from tests.store.samples import commit, entry
from tests.support.amqp_samples import encode

SEGMENT_BYTES = 40_000
FRAGMENT_BYTES = 20_000
_DAY_MS = 86_400_000
_LARGE = (
    ("audit", "/", 18_400_000, 41.0, 400, 0.21, None),
    ("carts", "/", 96_000_000, 88.5, 190, 0.34, None),
    ("fraud-scores", "/", 7_200_000, 5.1, 60, 1.0, 7),
    ("page-views", "web", 812_000_000, 402.0, 365, 0.27, None),
    ("sessions", "web", 51_000_000, 23.9, 90, 0.31, None),
    ("sensor-readings", "plant", 2_310_000_000, 960.0, 720, 0.18, 3),
    ("valve-commands", "plant", 1_100_000, 0.4, 720, 1.0, None),
)
"""Streams of which only the entries are there: name, vhost, messages, GiB, days, compression, and a hole after one."""

_REGIONS = ("eu-west-1", "eu-central-1", "us-east-1", "ap-south-1")
_STATES = ("created", "paid", "packed", "shipped", "returned")


@dataclass
class ShownArchive:
    """Streams in memory doubles. `streams` are those that were added, by name."""

    now: TimestampMs
    table: MemoryTable = field(default_factory=MemoryTable)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    streams: dict[str, StreamId] = field(default_factory=dict)

    def add(
        self,
        name: str,
        messages: Sequence[bytes],
        *,
        vhost: str = "/",
        a_chunk: int = 20,
        first: int | None = None,
        last: int | None = None,
        without: Sequence[int] = (),
        why: str = "",
    ) -> StreamId:
        """Archive messages that came evenly from `first` to `last`, but for the segments with a number in `without`."""
        declared_ns = 1_763_700_000_000_000_000 + len(self.streams)
        is_long = len(f"{vhost}_{name}".encode()) > 200  # the broker's directory has no room for both
        stream = StreamId(vhost, name, Incarnation(f"__long_{declared_ns}"))
        stream = stream if is_long else new_stream(vhost, name, declared_ns)
        begin = self.now - _DAY_MS if first is None else first
        end = self.now - 60_000 if last is None else last
        chunks = [messages[at : at + a_chunk] for at in range(0, len(messages), a_chunk)]
        with tempfile.TemporaryDirectory() as directory:
            where = Path(directory) / stream.incarnation
            where.mkdir()
            with SegmentWriter(where, max_segment_bytes=SEGMENT_BYTES) as writer:
                for number, chunk in enumerate(chunks):
                    at = TimestampMs(begin + (end - begin) * number // max(1, len(chunks) - 1))
                    writer.write(_entries(chunk, number), timestamp=at, epoch=Epoch(1))
                # What rolled is archived: the segments of all chunks, once there is one more.
                writer.write([b"x" * (SEGMENT_BYTES + 1)], timestamp=TimestampMs(end), epoch=Epoch(1))
                writer.write([b"not archived"], timestamp=TimestampMs(end), epoch=Epoch(1))
            self._archive(stream, where, set(without), why)
        self.streams[name] = stream
        return stream

    def _archive(self, stream: StreamId, where: Path, without: set[int], why: str) -> None:
        keys = Keys("archive/")
        uploader = Uploader(self.table, self.objects, keys, FRAGMENT_BYTES, now=lambda: self.now)
        segments = list(find_rolled(where))[:-1] or list(find_rolled(where))
        for number, segment in enumerate(segments):
            rolled = stage(segment, stream, self.objects, keys)
            if number not in without:
                uploader.upload(rolled)
            elif why:
                lost = Loss(rolled.first_offset, rolled.next_offset, why, self.now)
                record_missing(self.table, stream, lost)

    def claim(
        self,
        name: str,
        messages: int,
        data_bytes: int,
        *,
        vhost: str = "/",
        first: int,
        last: int,
        shrunk_to: float = 1.0,
        hole_after: int | None = None,
        fragments: int = 12,
    ) -> StreamId:
        """Add a stream of a size that no test would store: its entries are there, and its objects are not."""
        stream = new_stream(vhost, name, 1_763_700_000_000_000_000 + len(self.streams))
        each = messages // fragments
        for number in range(fragments):
            at = number * each + (each if hole_after is not None and number > hole_after else 0)
            time = first + (last - first) * number // (fragments - 1)
            one = replace(
                entry(at, at + each, time=time),
                chunks=each // 100 or 1,
                data_bytes=data_bytes // fragments,
                object_bytes=round(data_bytes * shrunk_to) // fragments,
            )
            commit(self.table, one, stream)
        self.streams[name] = stream
        return stream

    def quarantine(self, stream: StreamId, first: int, following: int, reason: str) -> None:
        """Put a segment into quarantine."""
        one = Quarantine(Offset(first), Offset(following), reason, self.now, f"quarantine/{first}", '"etag"')
        record_missing(self.table, stream, one)

    def hold(self, stream: StreamId, first: int, following: int | None, reason: str) -> None:
        """Put a legal hold."""
        head = self.table.head(stream.incarnation)
        assert head is not None
        end = None if following is None else Offset(following)
        self.table.apply(plan_hold(head, Hold("case-17", Offset(first), end, reason, "legal", self.now)))


def order(rng: random.Random, number: int, at: TimestampMs) -> bytes:
    """Make a message of a shop: JSON, with properties."""
    body = {
        "order": 700_000 + number,
        "state": rng.choice(_STATES),
        "customer": {"id": rng.randrange(10_000), "country": rng.choice(["DE", "FR", "PL", "SE"])},
        "items": [
            {
                "sku": f"C-{rng.randrange(9999):04}",
                "count": rng.randrange(1, 5),
                "price": rng.randrange(199, 9999) / 100,
            }
            for _ in range(rng.randrange(1, 4))
        ],
    }
    return encode(
        message_annotations={"x-exchange": "shop", "x-routing-key": f"orders.{body['state']}"},
        properties=Properties(
            message_id=f"order-{number}", content_type="application/json", creation_time=at, group_id="shop"
        ),
        application_properties={"region": rng.choice(_REGIONS), "attempt": rng.randrange(3), "replayed": False},
        body=json.dumps(body).encode(),
    )


def orders(count: int, now: TimestampMs, seed: int = 7) -> list[bytes]:
    """Make messages of a shop."""
    rng = random.Random(seed)
    return [order(rng, number, TimestampMs(now - count + number)) for number in range(count)]


def noise(count: int, size: int, seed: int = 3) -> list[bytes]:
    """Make messages that are no text."""
    rng = random.Random(seed)
    return [encode(body=rng.randbytes(size)) for _ in range(count)]


def shown_archive(now: TimestampMs) -> ShownArchive:
    """Make an archive of a few streams, one of them with a gap, quarantine and a hold."""
    archive = ShownArchive(now)
    shop = archive.add(
        "orders",
        orders(2400, now),
        without=(4, 5),
        why="the broker's retention was faster than the agent",
        first=now - 9 * _DAY_MS,
    )
    archive.quarantine(shop, 1400, 1520, "CRC of chunk 1433 is 5d2a01f3, and should be 88c30b17")
    archive.hold(shop, 300, 640, "Case 17: delivery dispute")
    archive.add("payments", orders(900, now, 8), first=now - 3 * _DAY_MS)
    archive.add("clicks", noise(1500, 120), vhost="web", first=now - 2 * _DAY_MS, last=now - 3_000)
    for name, vhost, messages, gib, days, shrunk_to, hole in _LARGE:
        first, last = now - days * _DAY_MS, now - len(name) * 7_000
        size = round(gib * (1 << 30))
        archive.claim(name, messages, size, vhost=vhost, first=first, last=last, shrunk_to=shrunk_to, hole_after=hole)
    return archive


def _entries(messages: Sequence[bytes], number: int) -> list[bytes | SubBatch]:
    """Pack some of the messages of every third chunk, as publishers do."""
    if number % 3 != 2 or len(messages) < 4:
        return list(messages)
    half = len(messages) // 2
    return [*messages[:half], make_sub_batch(messages[half:], Compression.GZIP)]
