"""Why an event is a dead letter, by what it says and what the archive holds now, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.archive.coverage import covered_to
from coldstream.archive.events import event_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import InvalidEventError
from coldstream.manifest.cluster import NO_CLUSTER
from coldstream.manifest.stream import StreamId
from coldstream.operate.message_queue import QueueMessage
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestReads, ObjectInfo, ObjectStore
from coldstream.units import Offset


class LetterAction(StrEnum):
    """What to do with a dead letter."""

    REDRIVE = "redrive"
    """The upload function can handle it now, or can at least say again what is wrong."""

    DISCARD = "discard"
    """It would fail again, or there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class LetterCause:
    """Why an event is a dead letter, in a sentence, and what to do with it.

    Stream and offsets are those that the event is about, None if it does not say.
    """

    why: str
    action: LetterAction
    stream: StreamId | None = None
    first_offset: Offset | None = None
    next_offset: Offset | None = None


def cause_of(message: QueueMessage, table: ManifestReads, objects: ObjectStore, keys: Keys) -> LetterCause:
    """Find out why an event failed. Cost: up to two GetItems, a Query and a HEAD.

    What was wrong then may be right by now: the answer is what the archive and the bucket say at this moment. What
    happened then, only the upload function's log tells.
    """
    try:
        event = event_of(message.body)
    except InvalidEventError as err:
        return LetterCause(f"the event breaks its schema: {err}", LetterAction.DISCARD)
    match event:
        case SegmentRolled():
            why, action = _rolled(event, message, table, objects, keys)
        case SegmentLost():
            why, action = _bound(table, event) or (_failed(message), LetterAction.REDRIVE)
    return LetterCause(why, action, event.stream, event.first_offset, event.next_offset)


def _rolled(  # noqa: PLR0911  one for each cause
    event: SegmentRolled, message: QueueMessage, table: ManifestReads, objects: ObjectStore, keys: Keys
) -> tuple[str, LetterAction]:
    expected = Keys(keys.prefix, event.cluster).staged(event.stream.incarnation, event.first_offset, event.next_offset)
    if (event.bucket, event.staged_key) != (objects.bucket, expected):
        where = f"{event.bucket}/{event.staged_key}"
        return f"the event is of another archive: its segment is at {where}", LetterAction.DISCARD
    if (bound := _bound(table, event)) is not None:
        return bound
    staged = objects.info(event.staged_key)
    is_archived = (
        covered_to(table, event.stream.incarnation, event.first_offset, event.next_offset) >= event.next_offset
    )
    match staged, is_archived:
        case None, True:
            return "its offsets were archived since, and the staged copy is gone", LetterAction.DISCARD
        case None, False:
            gone = "the staged copy is gone; an agent that still has the segment announces it again by itself"
            return gone, LetterAction.DISCARD
        case ObjectInfo(etag=etag), _ if event.etag not in {None, etag}:
            return "another copy is staged by now, and has an event of its own", LetterAction.DISCARD
        case _, True:
            return "its offsets were archived since; the staged copy is still to be compared", LetterAction.REDRIVE
    return _failed(message), LetterAction.REDRIVE


def _bound(table: ManifestReads, event: SegmentRolled | SegmentLost) -> tuple[str, LetterAction] | None:
    """Tell whether the stream is bound to another cluster than the one that announced the event."""
    head = table.head(event.stream.incarnation)
    names = event.stream if head is None else head.stream
    bound = table.bound_cluster(names.vhost, names.name)
    if bound in {NO_CLUSTER, event.cluster}:
        return None
    by = f"cluster {event.cluster!r}" if event.cluster else "an agent of no cluster"
    return f"the stream is bound to cluster {bound!r}, and {by} announced it", LetterAction.DISCARD


def _failed(message: QueueMessage) -> str:
    if message.refusal is not None:
        return f"EventBridge could not deliver it: {message.refusal}"
    return "the upload function failed each time; its log says why"
