"""Try a segment in quarantine again: stage its copy, and announce it as an agent does.

The upload function then judges it by the release and the archive of now. If it archives the segment, the record has
nothing left to say, and goes. If it refuses it again, the record names the copy of this attempt, and the earlier copy
of the same bytes goes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from zlib import crc32

from coldstream.archive.borders import QuietSpans
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from coldstream.ingest.announcer import Announcement, Announcer, SliceOutcome
from coldstream.operate.quarantined_segments import QuarantinedSegment
from coldstream.store.ports import ObjectInfo, ObjectStore, UploadedPart
from coldstream.store.quarantine_note import quarantine_note
from coldstream.units import MIB, ByteRange

PART_BYTES = 64 * MIB
"""Of a copy: S3 copies so much well within the time that a request may take."""


class RetryOutcome(StrEnum):
    """What became of a segment that was tried again."""

    ANNOUNCED = "announced"
    ARCHIVED = "archived"
    QUARANTINED = "quarantined again"


@dataclass(frozen=True, slots=True)
class RetriedSegment:
    """A segment that was announced again; `earlier` is what was in quarantine of it before."""

    segment: QuarantinedSegment
    earlier: ObjectInfo
    announcement: Announcement


def announce_again(announcer: Announcer, segment: QuarantinedSegment) -> RetriedSegment:
    """Stage the copy that the record names, by copies within the bucket, and put its event on the bus.

    Cost: a GetItem, two GETs, a HEAD or two, a COPY for every 64 MiB, three POSTs and a PUT. If the store keeps no
    CRC-32 of the copy, it is read once more.

    Raises ObjectNotFoundError if the copy is gone; ConflictError if another copy is staged at the moment, which has an
    event of its own.
    """
    objects, record, stream = announcer.objects, segment.record, segment.stream
    bound = announcer.table.bound_cluster(stream.vhost, stream.name)
    announcer = replace(announcer, keys=replace(announcer.keys, cluster=bound))
    source = objects.info(record.key)
    if source is None:
        raise ObjectNotFoundError(record.key)
    staged_key = announcer.keys.staged(stream.incarnation, record.first_offset, record.next_offset)
    etag = _stage(objects, record.key, source, staged_key)
    cut_every_ms, quiet = _spans(objects, record.key)
    rolled = SegmentRolled(
        stream,
        record.first_offset,
        record.next_offset,
        source.size_bytes,
        objects.bucket,
        staged_key,
        cut_every_ms=cut_every_ms,
        etag=etag,
        cluster=bound,
        quiet=quiet,
    )
    # Contested: the archive may have these offsets, and that says nothing about this copy.
    return RetriedSegment(segment, source, announcer.put(rolled, is_contested=True))


def outcome_of(announcer: Announcer, retried: RetriedSegment) -> RetryOutcome:
    """Look once what became of it; at the end, delete the earlier copy if another of the same bytes is kept now.

    Cost: a HEAD while it is pending.
    """
    match announcer.outcome(retried.announcement):
        case SliceOutcome.PENDING | SliceOutcome.UNKNOWN:
            return RetryOutcome.ANNOUNCED
        case SliceOutcome.ARCHIVED:
            return RetryOutcome.ARCHIVED
        case SliceOutcome.QUARANTINED:
            _drop_earlier(announcer, retried)
            return RetryOutcome.QUARANTINED


def wait_for(
    announcer: Announcer, retried: RetriedSegment, *, attempts: int, sleep: Callable[[], None]
) -> RetryOutcome:
    """Look until something became of it, so many times, and sleep between two looks."""
    outcome = outcome_of(announcer, retried)
    for _ in range(attempts - 1):
        if outcome is not RetryOutcome.ANNOUNCED:
            break
        sleep()
        outcome = outcome_of(announcer, retried)
    return outcome


def _stage(objects: ObjectStore, key: str, source: ObjectInfo, staged_key: str) -> str:
    """Copy a segment to the staging area, unless it is there already, and return the ETag of the staged copy.

    A plain COPY has no condition on its target, and the bucket's policy refuses it there: it could replace a copy that
    an agent has just staged. Only the completion of an upload has one.
    """
    checksum = source.crc32 if source.crc32 is not None else _crc32_of(objects, key, source)
    upload_id = objects.create_upload(staged_key)
    try:
        parts: list[UploadedPart] = [
            objects.copy_part(
                key,
                ByteRange(start, min(start + PART_BYTES, source.size_bytes)),
                staged_key,
                upload_id,
                number,
                if_match=source.etag,
            )
            for number, start in enumerate(range(0, source.size_bytes, PART_BYTES), 1)
        ]
        objects.complete_upload(staged_key, upload_id, parts, crc32=checksum)
    except ObjectExistsError as err:
        objects.abort_upload(staged_key, upload_id)
        there = objects.info(staged_key)
        if there is None or (there.size_bytes, there.crc32) != (source.size_bytes, checksum):
            raise ConflictError(f"another copy is staged at {staged_key}, and has an event of its own") from err
        return there.etag
    except BaseException:
        objects.abort_upload(staged_key, upload_id)
        raise
    staged = objects.info(staged_key)
    if staged is None:
        raise ConflictError(f"{staged_key} was taken as soon as it was staged")
    return staged.etag


def _crc32_of(objects: ObjectStore, key: str, source: ObjectInfo) -> int:
    checksum = 0
    with StagedSegment(objects, key, source.etag) as copy, closing(copy.blocks()) as blocks:
        for block in blocks:
            checksum = crc32(block, checksum)
    return checksum


def _spans(objects: ObjectStore, key: str) -> tuple[int | None, QuietSpans | None]:
    """Return how the segment is to be cut, as the note beside it has it; earlier releases wrote less, or nothing."""
    note = quarantine_note(objects, key)
    every_ms = note.get("cut_every_ms")
    if not isinstance(every_ms, int):
        return None, None
    match note.get("quiet"):
        case {"min_bytes": int(min_bytes), "every_ms": int(quiet_ms)}:
            return every_ms, QuietSpans(min_bytes, quiet_ms)
    return every_ms, None


def _drop_earlier(announcer: Announcer, retried: RetriedSegment) -> None:
    """Delete the copy that was tried, if the record names another of the same bytes by now."""
    record, stream, objects = retried.segment.record, retried.segment.stream, announcer.objects
    latest = announcer.table.quarantine(stream.incarnation, record.first_offset, record.next_offset)
    if latest is None or latest.key == record.key:
        return
    kept = objects.info(latest.key)
    if kept is not None and (kept.size_bytes, kept.crc32) == (retried.earlier.size_bytes, retried.earlier.crc32):
        # The note goes first: without it, the bucket alone says nothing of a copy that is about to go.
        objects.delete(f"{record.key}.json")
        objects.delete(record.key)
