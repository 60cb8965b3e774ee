"""Plans of what happens to a direct stream as a whole: created, opened, recovered, closed, sealed, trimmed.

What is appended comes into the log as fragments, by the same commits as a broker's segments (`manifest.commit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coldstream.errors import (
    ExpiredEpochError,
    InvalidInputError,
    OffsetOutOfRangeError,
    StreamClosedError,
    StreamNotFoundError,
)
from coldstream.manifest.appender import Appender, Opening, WalPlace, properties_of
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head, JournalEvent, JournalKind
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.stream import StreamId
from coldstream.units import MAX_OFFSET, Epoch, Offset, TimestampMs


def plan_create(
    stream: StreamId, at: TimestampMs, *, first: Offset, properties: Mapping[str, str], by: str | None = None
) -> Change:
    """Plan the first change of a direct stream, whose first batch will have the offset `first`.

    Raises InvalidInputError (offset), InvalidNameError (properties).
    """
    if not 0 <= first <= MAX_OFFSET:
        raise InvalidInputError("first", f"{first} is no offset")
    appender = Appender(first=first, start=first, properties=properties_of(properties))
    return _changed(Head(stream), appender, JournalKind.STREAM_CREATED, at, by)


def plan_open(head: Head, wal: WalPlace, at: TimestampMs, by: str | None = None) -> Change:
    """Plan opening a stream to write: its next epoch, whose batches will be in `wal`.

    Raises StreamNotFoundError if it is not a direct stream, StreamDeletedError, StreamClosedError if it is sealed.
    """
    appender = appender_in(head)
    check_not_deleted(head)
    if appender.is_sealed:
        raise StreamClosedError(str(head.stream), "is sealed")
    epoch = Epoch(appender.epoch + 1)
    opened = replace(appender, epoch=epoch, openings=(*appender.openings, Opening(epoch, wal)))
    return _changed(head, opened, JournalKind.STREAM_OPENED, at, by, detail=f"epoch {epoch}, {wal}")


def plan_recovered(head: Head, epoch: Epoch, at: TimestampMs) -> Change:
    """Plan forgetting all openings before `epoch`, which must be the last: their batches are in the manifest.

    Raises StreamNotFoundError, ExpiredEpochError, StreamDeletedError.
    """
    appender = _current(head, epoch)
    recovered = replace(appender, openings=appender.openings[-1:])
    return _changed(head, recovered, JournalKind.STREAM_RECOVERED, at, None)


def plan_close(head: Head, epoch: Epoch, at: TimestampMs, *, is_sealed: bool = False, by: str | None = None) -> Change:
    """Plan the end of an opening, all of whose batches are in the manifest; `is_sealed`: for good.

    What is sealed stays sealed: a close that comes again must not undo that. Raises StreamNotFoundError,
    ExpiredEpochError, StreamDeletedError.
    """
    appender = _current(head, epoch)
    kind = JournalKind.STREAM_SEALED if is_sealed else JournalKind.STREAM_CLOSED
    closed = replace(appender, openings=(), is_sealed=is_sealed or appender.is_sealed)
    return _changed(head, closed, kind, at, by)


def plan_give_up(head: Head, at: TimestampMs) -> Change | None:
    """Plan the end of all openings of a deleted stream: what is in their WALs alone is gone, also if it is undeleted.

    None if there are none, or if the deletion is undone or can't be. Raises StreamNotFoundError.
    """
    appender = appender_in(head)
    if not head.can_be_undeleted or not appender.openings:
        return None
    detail = "what was not flushed is given up"
    return _changed(head, replace(appender, openings=()), JournalKind.STREAM_CLOSED, at, None, detail=detail)


def plan_trim(head: Head, epoch: Epoch, to: Offset, at: TimestampMs, by: str | None = None) -> Change | None:
    """Plan that the stream starts at `to`, None if it starts there or later already. Objects go after that.

    `to` may be past what the manifest has. Raises StreamNotFoundError, ExpiredEpochError, StreamDeletedError, and
    OffsetOutOfRangeError for what is no offset.
    """
    appender = _current(head, epoch)
    if not 0 <= to <= MAX_OFFSET + 1:
        raise OffsetOutOfRangeError(str(head.stream), to, appender.start, MAX_OFFSET + 1)
    if to <= appender.start:
        return None
    return _changed(head, replace(appender, start=to), JournalKind.STREAM_TRIMMED, at, by, detail=f"to {to}")


def appender_in(head: Head) -> Appender:
    """Return the appender of a direct stream. Raises StreamNotFoundError if a broker has the stream."""
    if head.appender is None:
        raise StreamNotFoundError(f"{head.stream} is a broker's, and takes no batches from others")
    return head.appender


def tail_of(head: Head) -> Offset:
    """Return the offset after the last batch of a direct stream that is in the manifest."""
    return appender_in(head).first if head.next_offset is None else head.next_offset


def _current(head: Head, epoch: Epoch) -> Appender:
    appender = appender_in(head)
    check_not_deleted(head)
    if appender.epoch != epoch:
        raise ExpiredEpochError(str(head.stream), epoch, appender.epoch)
    return appender


def _changed(  # noqa: PLR0917  what each plan says of its change
    head: Head,
    appender: Appender,
    kind: JournalKind,
    at: TimestampMs,
    by: str | None,
    detail: str | None = None,
) -> Change:
    head = replace(head, revision=head.revision + 1, appender=appender)
    return Change(
        head, JournalEvent(head.revision, kind, at, head.first_offset, head.next_offset, detail=detail, by=by)
    )
