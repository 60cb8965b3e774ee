"""Archive several queues, each in a thread of its own, for as long as it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    QueueTakenError,
    UnavailableError,
)
from coldstream.ingest.announcer import Announcer
from coldstream.manifest.shard_map import ShardKind
from coldstream.manifest.stream import Incarnation
from coldstream.queues.archiver import BatchLimits, BatchReport, QueueArchiver
from coldstream.queues.delivery import QueueConnection
from coldstream.queues.state import QueueFence
from coldstream.retry import Backoff
from coldstream.store.ports import ManifestReads
from coldstream.store.shard_maps import find_map
from coldstream.units import Offset

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0

TAKEN_FOR_S = 10.0
"""How long a queue that somebody else consumes is tried: a predecessor's connection may not have ended yet."""

LOST_FOR_S = 180.0
"""The same for a queue that was ours: the broker finds a lost connection by its heartbeats."""

MAP_AGAIN_S = 10.0
"""How often the map is asked for again: a stream grows, and a halving deletes queues."""

MOST_QUEUES = 4096
"""At once; threads are made as queues come."""

ONCE_FOR_S = 120.0
"""How long a run that is to end tries again without an archived batch."""


@dataclass(slots=True)
class QueueProgress:
    """What became of one queue. `error` is what ended it; the messages that are left are on the queue."""

    vhost: str
    queue: str
    messages: int = 0
    size_bytes: int = 0
    batches: int = 0
    recovered: int = 0
    next_offset: Offset | None = None
    error: ColdstreamError | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class QueuesToArchive:
    """The names of queues, and the incarnations that are complete because their queues were deleted by a halving."""

    names: tuple[str, ...]
    ended: frozenset[Incarnation] = frozenset()


def queues_of(table: ManifestReads, vhost: str, name: str) -> QueuesToArchive:
    """Return the queues of a sharded stream of the kind `queues`, those that are not deleted. Cost: one GetItem.

    Raises NotFoundError if there is no such sharded stream, InvalidInputError if its partitions are streams.
    """
    found = find_map(table, vhost, name)
    if found is None:
        raise NotFoundError(f"there is no sharded stream {name!r} in vhost {vhost!r}; --queue archives a queue")
    if found.kind is not ShardKind.QUEUES:
        raise InvalidInputError("name", f"{found} is of the kind {found.kind}: the agent archives its partitions")
    deleted = (one.incarnation for one in found.partitions if one.deleted_at is not None)
    return QueuesToArchive(
        tuple(dict.fromkeys(one.name for one in found.partitions if one.deleted_at is None)),
        frozenset(one for one in deleted if one is not None),
    )


def archive_queues(
    announcer: Announcer,
    connect: Callable[[str, str], QueueConnection],
    vhost: str,
    queues: Sequence[str] | Callable[[], QueuesToArchive],
    *,
    limits: BatchLimits = BatchLimits(),  # noqa: B008  a frozen value
    once: bool = False,
    stopped: threading.Event | None = None,
    on_batch: Callable[[BatchReport], None] = lambda _: None,
    on_error: Callable[[ColdstreamError], None] = lambda _: None,
) -> list[QueueProgress]:
    """Archive queues until `stopped`, or with `once` until they are empty; return what became of each.

    `connect` opens a connection to a vhost's queue. If `queues` is called for them, it is so again while this runs:
    queues that are new are archived, too. A queue whose archiving fails for good does not end the others.
    """
    stop = stopped or threading.Event()
    runs: dict[str, _QueueRun] = {}
    pending: set[Future[None]] = set()
    with ThreadPoolExecutor(MOST_QUEUES, thread_name_prefix="queue") as pool:

        def look() -> None:
            wanted = queues() if callable(queues) else QueuesToArchive(tuple(queues))
            for name, run in runs.items():
                run.is_deleted = name not in wanted.names
            for name in wanted.names:
                before = runs.get(name)
                if before is not None and not before.has_ended_deleted:
                    continue
                progress = QueueProgress(vhost, name) if before is None else before.progress
                runs[name] = _QueueRun(
                    announcer, connect, progress, limits, once, stop, on_batch, on_error, wanted.ended
                )
                pending.add(pool.submit(runs[name].run))

        try:
            look()
            while pending:
                is_following = callable(queues) and not once and not stop.is_set()
                done, _ = wait(pending, MAP_AGAIN_S if is_following else None, FIRST_COMPLETED)
                pending -= done
                for one in done:
                    one.result()
                if is_following and not stop.is_set():
                    try:
                        look()
                    except UnavailableError:
                        continue  # those that are known go on, and the next look may see the map
        finally:
            stop.set()
    return [run.progress for run in runs.values()]


@dataclass(slots=True)
class _QueueRun:
    """Archives one queue by one connection after another."""

    announcer: Announcer
    connect: Callable[[str, str], QueueConnection]
    progress: QueueProgress
    limits: BatchLimits
    once: bool
    stopped: threading.Event
    on_batch: Callable[[BatchReport], None]
    on_error: Callable[[ColdstreamError], None]
    ended: frozenset[Incarnation]
    is_deleted: bool = False
    has_ended_deleted: bool = False
    was_connected: bool = False

    def run(self) -> None:
        backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        progress = self.progress
        since, batches = time.monotonic(), 0
        fence = QueueFence(self.announcer.table, progress.vhost, progress.queue, self.ended)
        while True:
            try:
                self._session(fence)
            except ColdstreamError as err:
                if progress.batches != batches:
                    backoff.reset()
                    since, batches = time.monotonic(), progress.batches
                progress.problem = str(err)
                if self.is_deleted and isinstance(err, NotFoundError):
                    # A halving deleted it when it was empty and archived.
                    progress.problem, self.has_ended_deleted = None, True
                    return
                if self.stopped.is_set() or time.monotonic() - since > self._patience_s(err):
                    progress.error = err
                    self.on_error(err)
                    return
            else:
                progress.problem = None
                return
            self.stopped.wait(backoff.next_delay_s())

    def _session(self, fence: QueueFence) -> None:
        progress = self.progress
        fence.expect_delivery()
        with closing(self.connect(progress.vhost, progress.queue)) as source:
            self.was_connected = True
            archiver = QueueArchiver(source, fence, self.announcer, self.limits, on_batch=self._count)
            archiver.run(once=self.once, should_stop=self.stopped.is_set)

    def _patience_s(self, err: ColdstreamError) -> float:
        """Return for how long to go on trying after an error, in seconds."""
        if isinstance(err, QueueTakenError):
            return LOST_FOR_S if self.progress.batches else TAKEN_FOR_S
        if isinstance(err, NotFoundError):
            # Its node starts again, or somebody declares it anew; a name that was never there is a wrong one.
            return LOST_FOR_S if self.was_connected and not self.once else 0.0
        if isinstance(err, AccessDeniedError) or not (err.retryable or isinstance(err, OutcomeUnknownError)):
            return 0.0
        return ONCE_FOR_S if self.once else float("inf")

    def _count(self, report: BatchReport) -> None:
        progress = self.progress
        progress.messages += report.messages - report.recovered
        progress.recovered += report.recovered
        progress.size_bytes += report.size_bytes
        progress.batches += 1
        progress.next_offset = report.next_offset
        self.on_batch(report)
