"""What the shipped code would be if one thing were missing from it: the checker has to notice each of them.

`MUTATIONS` has, for each, a context manager that makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from coldstream.errors import ColdstreamError
from coldstream.manifest.appender import Opening
from coldstream.manifest.appending import appender_in, plan_open, tail_of
from coldstream.manifest.entry import Head
from coldstream.streams import append_queue, client, opening, recovery, wals
from coldstream.streams.append_queue import AppendQueue
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.publishers import Publishers
from coldstream.streams.wal import seal as seal_module
from coldstream.streams.wal import writer as wal_writer
from coldstream.units import Epoch

Mutation = Callable[[], AbstractContextManager[Any]]


def _instead(target: Any, name: str, made: Any) -> Mutation:
    return lambda: patch.object(target, name, made)


def _end_unsealed(store: Any, place: Any) -> int:
    with seal_module.ThreadPoolExecutor(16) as executor:
        return seal_module.find_end(store, place, executor).sequence


def _sealed_without_a_look(store: Any, place: Any) -> int:
    with seal_module.ThreadPoolExecutor(16) as executor:
        end = seal_module.find_end(store, place, executor)
        if not end.is_sealed:
            body = seal_module.seal_object(bytes(seal_module.NONCE_BYTES))
            with suppress(ColdstreamError):
                store.create(place, end.sequence, body)
        return end.sequence


def _create_any(store: Any, place: Any, sequence: int, body: bytes, nonce: bytes) -> bool:
    with suppress(wal_writer.ObjectExistsError):
        store.create(place, sequence, body)
    return True


@contextmanager
def _unknown_is_done() -> Iterator[None]:
    put, fate = wal_writer.WalWriter._put, wal_writer._Fate

    async def done(self: Any, sequence: int, flight: Any) -> Any:
        found = await put(self, sequence, flight)
        return fate.OWN if found is fate.UNKNOWN else found

    with patch.object(wal_writer.WalWriter, "_put", done):
        yield


@contextmanager
def _early() -> Iterator[None]:
    whole = AppendQueue.append

    async def append(self: AppendQueue, batch: Any, record: Any, expect: Any) -> Any:
        base = self.tail
        task = asyncio.ensure_future(whole(self, batch, record, expect))
        await asyncio.sleep(0)
        if task.done():
            return task.result()
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
        return base

    with patch.object(AppendQueue, "append", append):
        yield


def _finds_nothing(found: Any, tail: Any, *, may_lack: bool) -> Iterator[Any]:
    return iter(())


def _same_epoch(head: Head, wal: Any, at: Any, by: Any = None) -> Any:
    change, before = plan_open(head, wal, at, by), appender_in(head)
    epoch = Epoch(max(1, before.epoch))
    same = replace(before, epoch=epoch, openings=(*before.openings, Opening(epoch, wal))[-1:])
    return replace(change, head=replace(change.head, appender=same))


@contextmanager
def _unexpected() -> Iterator[None]:
    append = AppendQueue.append

    async def whatever(self: AppendQueue, batch: Any, record: Any, expect: Any) -> Any:
        return await append(self, batch, record, None)

    with patch.object(AppendQueue, "append", whatever):
        yield


@contextmanager
def _trimmed_early() -> Iterator[None]:
    confirm = AppendQueue._confirm

    def trimming(self: Any, pending: Any) -> None:
        confirm(self, pending)
        for wal, sequence in self.take_durable():
            wal.flushed(sequence)

    with patch.object(AppendQueue, "_confirm", trimming):
        yield


def _recover_from_an_old_tail(
    archive: Any, logs: Any, head: Head, fragment_bytes: int, *, force: bool = False
) -> OpenStream:
    openings = appender_in(head).openings[:-1]
    if not openings:
        return recovery.recover(archive, logs, head, fragment_bytes, force=force)
    found = [(one.wal, logs.sealed_entries(one.wal, head.stream.incarnation, one.epoch)) for one in openings]
    going = list(recovery.continuing(found, tail_of(head), may_lack=True))
    left = recovery._Left(logs, head, going, recovery.archived_publishers(archive, head))
    with suppress(recovery.ObjectNotFoundError):
        flush_chunks(archive, head.stream, left, fragment_bytes)
    head = recovery.forget_earlier(archive, head.stream, appender_in(head).epoch)
    return recovery.state_of(head, timestamp=left.timestamp, publishers=left.publishers)


async def _reopen_anyway(engine: Any, stream: Any, epoch: Any) -> Any:
    wal = await engine.writer()
    head = await engine.call(opening.take_epoch, engine.archive, stream, wal.place)
    return appender_in(head).epoch, wal


@contextmanager
def _forgotten_early() -> Iterator[None]:
    resume = AppendQueue._resume

    def forgetting(self: Any, epoch: Any, wal: Any) -> None:
        resume(self, epoch, wal)
        self._engine.spawn(self._forget_earlier())

    with patch.object(AppendQueue, "_resume", forgetting):
        yield


def _learns_nothing(self: Publishers, chunk: bytes, *, source: str) -> None:
    """Learn nothing of what a recovered batch tells."""


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "whoever opens a stream does not seal the logs before": (_instead(wals, "seal", _end_unsealed), 0),
    "whoever seals does not look whether the writer was faster": (_instead(wals, "seal", _sealed_without_a_look), 3),
    "an object that is there is taken for one's own": (_instead(wal_writer, "_create_own", _create_any), 0),
    "a PUT of unknown outcome is acknowledged": (_unknown_is_done, 4),
    "an append is acknowledged before it is durable": (_early, 0),
    "recovery ignores the logs": (_instead(recovery, "continuing", _finds_nothing), 0),
    "recovery goes by the tail from before the logs": (_instead(client, "recover", _recover_from_an_old_tail), 211),
    "opening does not raise the epoch": (_instead(opening, "plan_open", _same_epoch), 0),
    "the expected offset is not checked": (_unexpected, 0),
    "logs are trimmed before what is in them is archived": (_trimmed_early, 42),
    "a handle goes on though another opened the stream": (_instead(append_queue, "reopen", _reopen_anyway), 1),
    "openings are forgotten before what they left is archived": (_forgotten_early, 3),
    "publishers are not learned from what is recovered": (_instead(Publishers, "learn", _learns_nothing), 344),
}
"""Each with a seed whose play goes wrong with it."""
