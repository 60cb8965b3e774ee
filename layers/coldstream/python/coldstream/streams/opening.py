"""Opening a stream to write: one conditional write raises its epoch, and an object says that the epoch is taken."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import ExpiredEpochError, NotClosedError, StreamNotFoundError
from coldstream.manifest.appender import Opening, WalPlace
from coldstream.manifest.appending import appender_in, plan_close, plan_give_up, plan_open, plan_recovered
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.store.races import retry_lost_races
from coldstream.streams.archive import DirectArchive
from coldstream.units import Epoch


def take_epoch(
    archive: DirectArchive,
    stream: StreamId,
    wal: WalPlace,
    *,
    after: Epoch | None = None,
    can_read: Callable[[WalPlace], bool] = lambda _: True,
) -> Head:
    """Open a stream to write, in a WAL of this process, and return its head. From then on no other opening is valid.

    With `after`, only if that is still the last epoch: an opening goes on in another WAL. Nobody else opens streams in
    `wal`, and no two calls at a time are for one stream.

    Cost: a GetItem, a transaction and a PUT. Raises StreamNotFoundError, StreamClosedError if the stream is sealed,
    ExpiredEpochError, and NotClosedError if an earlier opening is in a WAL that this process cannot read.
    """
    sent: Opening | None = None

    def attempt() -> Head:
        nonlocal sent
        head = head_of(archive, stream)
        appender = appender_in(head)
        if sent is not None and appender.epoch == sent.epoch and appender.openings[-1:] == (sent,):
            return head  # the answer to the transaction never came
        if after is not None and appender.epoch != after:
            raise ExpiredEpochError(str(stream), after, appender.epoch)
        for opening in appender.openings:
            if not can_read(opening.wal):
                raise NotClosedError(str(stream), str(opening.wal))
        change = plan_open(head, wal, archive.now())
        sent = Opening(appender_in(change.head).epoch, wal)
        archive.table.apply(change)
        return change.head

    head = retry_lost_races(attempt)
    # Before the first batch: if the table is lost, no epoch is given twice.
    archive.control.write_opening(stream, appender_in(head).openings[-1])
    return head


def forget_earlier(archive: DirectArchive, stream: StreamId, epoch: Epoch) -> Head:
    """Forget the openings before `epoch`, all of whose batches are in the manifest; return the head.

    Cost: a GetItem, and, if there are any, a transaction and a PUT. Raises ExpiredEpochError, StreamNotFoundError.
    """

    def attempt() -> Head:
        head = head_of(archive, stream)
        change = plan_recovered(head, epoch, archive.now())
        if len(appender_in(head).openings) <= 1:
            return head
        archive.table.apply(change)
        return change.head

    head = retry_lost_races(attempt)
    archive.control.write_direct(head)
    return head


def end_opening(archive: DirectArchive, stream: StreamId, epoch: Epoch, *, is_sealed: bool) -> Head:
    """End an opening, all of whose batches are in the manifest, and with `is_sealed` the stream; return the head.

    Cost: a GetItem, a transaction and a PUT. Raises ExpiredEpochError, StreamNotFoundError.
    """
    sent: Change | None = None

    def attempt() -> Head:
        nonlocal sent
        head = head_of(archive, stream)
        appender = appender_in(head)
        if sent is not None and appender.epoch == epoch and not appender.openings:
            return head  # the answer to the transaction never came
        sent = plan_close(head, epoch, archive.now(), is_sealed=is_sealed)
        archive.table.apply(sent)
        return sent.head

    head = retry_lost_races(attempt)
    archive.control.write_direct(head)
    return head


def give_up_deleted(archive: DirectArchive, stream: StreamId) -> Head | None:
    """End the openings of a stream, if it is deleted, before WALs forget their batches; return its head.

    If it was undeleted after that, whoever opens it would find some of them, and a hole where others were trimmed.
    None if the archive does not know the stream. Cost: a GetItem; a transaction and a PUT if there are openings.
    """

    def attempt() -> tuple[Head | None, bool]:
        head = archive.table.head(stream.incarnation)
        change = None if head is None or head.appender is None else plan_give_up(head, archive.now())
        if change is None:
            return head, False
        archive.table.apply(change)
        return change.head, True

    head, is_changed = retry_lost_races(attempt)
    if head is not None and is_changed:
        archive.control.write_direct(head)
    return head


def head_of(archive: DirectArchive, stream: StreamId) -> Head:
    """Read the head of a stream. Cost: one GetItem. Raises StreamNotFoundError, also for a deleted one."""
    head = archive.table.head(stream.incarnation)
    if head is None:
        raise StreamNotFoundError(f"{stream} is not in the archive")
    check_there(head)
    return head


def check_there(head: Head) -> None:
    """Raise StreamNotFoundError for a deleted stream: to who writes it, it is gone, and its name may be another's."""
    if head.is_deleted:
        raise StreamNotFoundError(f"{head.stream} is not in the archive")
