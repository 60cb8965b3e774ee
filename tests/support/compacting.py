"""Runs of compaction over stores that may die, fail, or have others act, at any call; and what must then be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

from coldstream.compact.options import CompactOptions
from coldstream.compact.report import CompactionReport
from coldstream.compact.run import Compactor
from coldstream.compact.task import write_task
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive, StoredChunk, holes
from tests.support.compaction import identity_of

LONG_AFTER = TimestampMs(NOW + 30 * 24 * 3600 * 1000)


class Killed(BaseException):
    """The process ended here; nothing more of it happens."""


class Inline(Executor):
    """Does at once, in this thread, what it is given."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as err:  # noqa: BLE001  as an executor does
            future.set_exception(err)
        return future


class Calls:
    """Counts the calls to stores; `on_call` is told of each, before it (`is_done` False) and after it.

    What it raises comes out of the call. `Calls.table` and `Calls.objects` are what is to be called.
    """

    def __init__(self, table: MemoryTable, objects: MemoryObjects, on_call: Callable[[int, str, bool], None]) -> None:
        self.number = 0
        self._on_call = on_call
        self.table = cast("ManifestTable", _Proxy(table, self))
        self.objects = cast("ObjectStore", _Proxy(objects, self))

    def made(self, name: str, call: Callable[[], Any]) -> Any:
        self.number += 1
        number = self.number
        self._on_call(number, name, False)
        answer = call()
        self._on_call(number, name, True)
        return answer


class _Proxy:
    def __init__(self, inner: object, calls: Calls) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method
        return lambda *args, **kwargs: self._calls.made(name, lambda: method(*args, **kwargs))


def options_of(encoding: Encoding = Encoding.IDENTITY, *, target_bytes: int = 1 << 20) -> CompactOptions:
    return CompactOptions(older_than_ms=0, target_bytes=target_bytes, encoding=encoding, level=1)


def run(
    archive: ChunkArchive,
    options: CompactOptions,
    *,
    table: ManifestTable | None = None,
    objects: ObjectStore | None = None,
    now: TimestampMs = NOW,
) -> CompactionReport:
    """Compact an archive in memory, through other stores where given."""
    return compact_stream(table or archive.table, objects or archive.objects, archive.stream, options, now=now)


def compact_stream(
    table: ManifestTable,
    objects: ObjectStore,
    stream: StreamId,
    options: CompactOptions,
    *,
    keys: Keys = Keys(),  # noqa: B008  frozen
    now: TimestampMs = NOW,
) -> CompactionReport:
    """Compact a stream, one group at a time."""
    compactor = Compactor(
        table,
        objects,
        write=lambda task: write_task(objects, keys, task),
        at_once=1,
        now=lambda: now,
        sweep=lambda incarnation: sweep(stores_at(table, objects, now, keys), incarnation),
    )
    (report,) = compactor.run([stream], options)
    return report


def stores_at(
    table: ManifestTable,
    objects: ObjectStore,
    now: TimestampMs,
    keys: Keys = Keys(),  # noqa: B008  frozen
) -> LifecycleStores:
    """Open an archive at a time that stands still, for its store too; the caller's keeps its clock."""
    if isinstance(objects, MemoryObjects):
        objects = copy(objects)
        objects.clock = lambda: now
    return replace(LifecycleStores.open(table, objects, keys, grace_ms=LONGEST_GRACE_MS), now=lambda: now)


def log_of(table: MemoryTable, incarnation: Incarnation) -> tuple[FragmentEntry, ...]:
    return table.log_from_offset(incarnation, Offset(0), 1 << 20).entries


def scanned(archive: ChunkArchive) -> Iterator[tuple[int, bytes]]:
    """Read everything as a reader does: each chunk's id and data."""
    for step in plan_scan(archive.table, archive.stream, Offset(0)):
        if isinstance(step, ScanSlice):
            for chunk in read_slice(archive.objects, step):
                assert step.start <= chunk.header.chunk_id
                assert chunk.header.next_offset <= step.end
                yield chunk.header.chunk_id, bytes(chunk.data)


def assert_readable(archive: ChunkArchive, committed: list[StoredChunk]) -> None:
    """A reader has every committed chunk, once, in order, with its bytes."""
    found = list(scanned(archive))
    assert [chunk_id for chunk_id, _ in found] == [chunk.header.chunk_id for chunk in committed]
    for (_, data), chunk in zip(found, committed, strict=True):
        assert chunk.data.endswith(data)
        assert len(data) == chunk.header.data_bytes


def assert_right(archive: ChunkArchive, committed: list[StoredChunk]) -> None:
    """The archive is whole, and no compaction is under way."""
    assert_readable(archive, committed)
    incarnation = archive.stream.incarnation
    head = archive.table.head(incarnation)
    assert head is not None
    assert head.compacting is None
    log = log_of(archive.table, incarnation)
    assert len({entry.key for entry in log}) == len(log)
    for before, entry in pairwise(log):
        assert before.next_offset <= entry.first_offset
        assert entry.prior_offset == before.next_offset
        assert entry.prior_timestamp == before.running_timestamp
    for entry in log:
        identity_of(archive.objects, entry)  # checks size and CRC
    assert (head.first_offset, head.next_offset) == (log[0].first_offset, log[-1].next_offset)
    assert head.fragments == len(log)
    assert head.chunks == sum(entry.chunks for entry in log) == len(committed)
    assert head.records == sum(entry.records for entry in log)
    assert head.messages == sum(entry.messages for entry in log)
    assert head.data_bytes == sum(entry.data_bytes for entry in log)
    assert head.object_bytes == sum(entry.object_bytes for entry in log)
    assert head.gaps == len(holes(committed))
    tombstoned = {one.key for one in archive.table.tombstones(incarnation, TimestampMs(MAX_TIMESTAMP_MS), 1 << 20)}
    assert tombstoned.isdisjoint(entry.key for entry in log)
    assert tombstoned <= archive.objects.objects.keys()
