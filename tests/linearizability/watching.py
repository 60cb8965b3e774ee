"""What happens inside of the shipped code in a play, counted: seals, recoveries, reopenings, snapshots of openings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from coldstream.manifest.appender import WalPlace
from coldstream.manifest.change import Change
from coldstream.store import wal_window
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import append_queue, recovery, wals
from coldstream.streams.wal import s3_store, seal, trimming
from coldstream.streams.wal import writer as wal_writer


class WatchedTable(MemoryTable):
    """A table that tells `on_opening` of each epoch that is taken: of which stream, and by which writer."""

    def __init__(self, on_opening: Callable[[str, int, str], None]) -> None:
        super().__init__()
        self._on_opening = on_opening
        self._epochs: dict[str, int] = {}

    def apply(self, change: Change) -> None:
        """Write a change."""
        super().apply(change)
        appender, name = change.head.appender, change.head.stream.name
        if appender is not None and appender.openings and appender.epoch > self._epochs.get(name, 0):
            self._epochs[name] = appender.epoch
            self._on_opening(name, appender.epoch, appender.openings[-1].wal.writer)


class _Counting:
    """Chunks, iterated as often as a flush does."""

    def __init__(self, chunks: Any, counts: Counter[str]) -> None:
        self._chunks = chunks
        self._counts = counts

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._chunks:
            self._counts["batch recovered from a log"] += 1
            yield chunk


@contextmanager
def watched(counts: Counter[str]) -> Iterator[None]:
    """Count what the shipped code does."""
    seal_of_another, own_seal, flush_chunks = wals.seal, wal_writer.seal, recovery.flush_chunks
    give_up, reopen = wal_writer.WalWriter._seal, append_queue.reopen

    def sealing(*args: Any, **options: Any) -> int:
        counts["seal of another's log"] += 1
        return seal_of_another(*args, **options)

    def sealing_own(*args: Any, **options: Any) -> int:
        counts["seal of the own log"] += 1
        return own_seal(*args, **options)

    async def giving_up(self: wal_writer.WalWriter) -> None:
        before = self.counters.chunks
        await give_up(self)
        counts["batch acknowledged by a seal"] += self.counters.chunks - before

    async def reopening(*args: Any) -> Any:
        done = await reopen(*args)
        counts["went on in another log"] += 1
        return done

    def deleting(self: s3_store.S3WalStore, place: WalPlace, sequences: Sequence[int]) -> None:
        delete(self, place, sequences)
        counts["objects of a log deleted"] += len(sequences)

    def recovered(archive: Any, stream: Any, found: Any, size_bytes: int) -> Any:
        return flush_chunks(archive, stream, _Counting(found, counts), size_bytes)

    delete = s3_store.S3WalStore.delete
    with ExitStack() as patches:
        for target, name, made in (
            (wals, "seal", sealing),
            (wal_writer, "seal", sealing_own),
            (wal_writer.WalWriter, "_seal", giving_up),
            (append_queue, "reopen", reopening),
            (recovery, "flush_chunks", recovered),
            (s3_store.S3WalStore, "delete", deleting),
        ):
            patches.enter_context(patch.object(target, name, made))
        yield


@contextmanager
def window_of(in_flight: int) -> Iterator[None]:
    """Have the window of write-ahead logs be as narrow as so many PUTs in flight allow: then logs are trimmed soon."""
    reach = 2 * in_flight
    with (
        patch.object(wal_window, "REACH", reach),
        patch.object(seal, "REACH", reach),
        patch.object(trimming, "KEPT", 2 * reach),
    ):
        yield
