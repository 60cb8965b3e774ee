"""Direct streams of the tests: an archive in memory whose stores can be held up, and what is in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from coldstream.errors import UnavailableError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appending import appender_in
from coldstream.manifest.entry import Head
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive, DirectStream, StreamClient, StreamOptions, WalOptions
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.seal import seal
from coldstream.units import Offset
from tests.support.interposed import HeldCall, Interposed

IMPATIENT = StreamOptions(wal=WalOptions(attempts=1, max_delay_s=0))
"""A PUT that fails once seals the WAL."""


class InterposedArchive:
    """An archive in memory, and its table, its bucket and a WAL store, in which calls can be held up.

    The WAL store is one disk, or one bucket of S3 Express, that all clients share.
    """

    def __init__(self) -> None:
        self.table = Interposed(MemoryTable())
        self.objects = Interposed(MemoryObjects())
        self.wal = Interposed(MemoryWalStore())
        self.archive = DirectArchive(cast(Any, self.table), cast(Any, self.objects), Keys(""))

    async def open(self, options: StreamOptions = StreamOptions()) -> StreamClient:  # noqa: B008  frozen
        """Open a client, as one process does."""
        return await StreamClient.open(self.archive, options, wal=cast(Any, self.wal))

    def held_flush(self) -> AbstractContextManager[HeldCall]:
        """Hold up the PUTs of fragments."""
        return self.objects.held("put_new", lambda key, *_, **__: not {"control", "wal"} & set(key.split("/")))

    @contextmanager
    def lost_wal(self) -> Iterator[None]:
        """Have a PUT to the WAL stay without an answer, and nobody able to find out what became of it."""
        answers: Iterator[Exception] = iter([UnavailableError("no answer")])
        with (
            self.wal.failing("create", lambda: next(answers, None)),
            self.wal.failing("sequences", lambda: RuntimeError("no, and not later")),
        ):
            yield

    def head(self, stream: DirectStream) -> Head:
        """Return the head of a stream."""
        head: Head | None = self.table.target.head(stream.stream.incarnation)
        assert head is not None
        return head

    def stores(self) -> LifecycleStores:
        """Return what others trim and delete with."""
        archive = self.archive
        return LifecycleStores.open(archive.table, archive.objects, archive.keys, grace_ms=LONGEST_GRACE_MS)

    async def seal_wal_of(self, stream: DirectStream) -> None:
        """End the WAL that a stream is in, as another process does that opens another stream of it."""
        opening = appender_in(self.head(stream)).openings[-1]
        await asyncio.to_thread(seal, self.wal.target, opening.wal)


async def bodies(stream: DirectStream, start: int = 0) -> list[bytes]:
    """Return the bodies of all messages from an offset on."""
    found: list[bytes] = []
    at = Offset(max(start, stream.start))
    while batches := await stream.fetch(at, max_bytes=100):
        found += [message.body for batch in batches for message in batch.messages()]
        at = batches[-1].next_offset
    return found


async def settle() -> None:
    """Let everything run that can without waiting for a thread."""
    for _ in range(20):
        await asyncio.sleep(0)
