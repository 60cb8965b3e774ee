"""The appenders of a direct stream: each opens it, recovers what others left, appends, flushes and closes.

Recovery, flush, seal, trim and close are the shipped code, around the simplest appender there is: one batch an object
of its write-ahead log, one object at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coldstream.errors import (
    ExpiredEpochError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
    UnavailableError,
    WalEndedError,
)
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import WalChunk, wal_object
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.opening import end_opening, take_epoch
from coldstream.streams.recovery import recover
from coldstream.streams.trimming import trim_stream
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import _create_own, _reserve
from coldstream.streams.wals import Wals
from coldstream.units import Epoch, Offset, TimestampMs
from tests.explore.base import DAY_MS, HOUR_MS, NOW
from tests.explore.site import Site

STREAM = StreamId("/", "one", Incarnation("__one_1763700000000000000"))
KEYS = Keys("a/")
SMALL = 200
"""Bytes of a fragment: a batch or two."""

ENDS = (ExpiredEpochError, WalEndedError, StreamNotFoundError, StreamDeletedError, StreamClosedError)
"""With these a process learns that another has taken what it had."""


@dataclass
class Appender:
    """One process. Raises what is in ENDS once another has taken what it had."""

    site: Site
    name: str
    archive: DirectArchive = field(init=False)
    place: WalPlace = field(init=False)
    epoch: Epoch = Epoch(0)  # noqa: RUF009  a NewType is its value
    at: Offset = Offset(0)  # noqa: RUF009
    sequence: int = 1
    pinned: list[CachedChunk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.archive = DirectArchive(self.site.table, self.site.objects, KEYS, self.site.clock)
        self.store = S3WalStore(self.site.objects, KEYS)
        self.wals = Wals({WalKind.S3: self.store})
        self.place = _reserve(self.store, self.name, WalOptions(attempts=2))
        self.wals.begin(self.place)

    def open(self) -> None:
        """Open the stream, and recover it."""
        head = take_epoch(self.archive, STREAM, self.place)
        state = recover(self.archive, self.wals, head, SMALL)
        self.epoch, self.at = state.epoch, state.tail

    def append(self) -> None:
        """Append a batch, and say that it is acknowledged, or that it never will be."""
        body = f"{self.name}.{self.epoch}.{self.sequence}"  # an opening has an epoch of its own
        data = Batch.of([f"<{body}>".encode()]).chunk(self.at, self.site.clock(), self.epoch, b"")
        following = Offset(self.at + 1)
        nonce = self.site.name().encode().ljust(16, b".")
        chunk = WalChunk(STREAM.incarnation, self.epoch, self.at, following, data)
        if not self._create(wal_object(nonce, [chunk]), nonce):
            self.site.tell("refused", body)
            raise WalEndedError(str(self.place), self.sequence)
        self.site.tell("acknowledged", f"{self.at} {body}")
        self.pinned.append(CachedChunk(self.at, following, TimestampMs(NOW), self.epoch, data))
        self.at, self.sequence = following, self.sequence + 1

    def flush(self) -> None:
        """Archive all of it."""
        if self.pinned:
            flush_chunks(self.archive, STREAM, list(self.pinned), SMALL)
            self.pinned.clear()

    def close(self) -> None:
        """Flush, end the opening, and delete the log."""
        self.flush()
        end_opening(self.archive, STREAM, self.epoch, is_sealed=False)
        self.store.delete(self.place, range(self.sequence))

    def trim(self) -> None:
        """Have the stream begin at its end."""
        stores = LifecycleStores.open(self.site.table, self.site.objects, KEYS, grace_ms=LONGEST_GRACE_MS)
        trim_stream(self.archive, replace(stores, now=self.site.clock), STREAM, self.epoch, self.at)
        self.site.tell("trimmed", str(self.at))

    def _create(self, body: bytes, nonce: bytes) -> bool:
        """Create the next object as the writer does: once more if no answer came, then by a seal of its own."""
        for _ in range(2):
            try:
                return _create_own(self.store, self.place, self.sequence, body, nonce)
            except UnavailableError:
                continue
        return self.sequence < seal(self.store, self.place)


def appender(name: str, *, batches: int, closes: bool) -> Callable[[Site], None]:
    """Return the life of a process."""

    def work(site: Site) -> None:
        one = Appender(site, name)
        one.open()
        for _ in range(batches):
            one.append()
        one.flush()
        if closes:
            one.close()

    return work


def trimmer(site: Site) -> None:
    """Open the stream, and have it begin at its end."""
    one = Appender(site, "t")
    one.open()
    one.trim()


def collect(site: Site) -> None:
    """Collect garbage, by a clock by which everything is old: ages protect nobody."""
    GarbageCollector(site.table, site.objects, KEYS, lambda: TimestampMs(site.clock() + 100 * DAY_MS)).run(
        GarbageOptions(delete=True)
    )


@dataclass
class Doubles:
    """The site of who looks at the end."""

    table: MemoryTable
    objects: MemoryObjects

    def clock(self) -> TimestampMs:
        return TimestampMs(NOW + HOUR_MS)

    def name(self) -> str:
        return "before"

    def tell(self, what: str, fact: str) -> None:
        """Nobody listens."""
