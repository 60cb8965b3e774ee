"""Segments in quarantine: which there are, why, which copies are kept, and how one differs from the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from coldstream.archive.contradiction import check_history
from coldstream.archive.coverage import Coverage, covered_to, read_coverage
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import ContradictionError, CorruptionError, NotFoundError
from coldstream.format.scanner import SegmentScanner
from coldstream.manifest.entry import Head, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.quarantine_note import quarantine_note
from coldstream.units import Offset, TimestampMs

MAX_HOLDERS = 100
"""Fragments that the details of a segment name."""


@dataclass(frozen=True, slots=True)
class QuarantinedSegment:
    """A segment in quarantine. `is_archived` tells whether the archive has all of its offsets, from some other copy."""

    stream: StreamId
    record: Quarantine
    is_archived: bool


@dataclass(frozen=True, slots=True)
class QuarantinedCopy:
    """One copy that is kept, with the reason in the note beside it, None if there is no note."""

    key: str
    size_bytes: int
    last_modified: TimestampMs
    reason: str | None


@dataclass(frozen=True, slots=True)
class QuarantineDetails:
    """All about one segment in quarantine.

    `archived` are the first and next offsets, and the keys, of the fragments that hold any of its offsets. `damage`
    says where the copy breaks the format, and `contradiction` where it first differs from the archive; None if it does
    not.
    """

    segment: QuarantinedSegment
    copies: tuple[QuarantinedCopy, ...]
    archived: tuple[tuple[Offset, Offset, str], ...]
    damage: str | None
    contradiction: str | None


def quarantined_segments(table: ManifestTable, streams: Iterable[StreamId]) -> Iterator[QuarantinedSegment]:
    """Yield the segments in quarantine, stream by stream, by first offset.

    Cost: a GetItem a stream; for one that has any, also a Query, and one for each segment.
    """
    for stream in streams:
        head = table.head(stream.incarnation)
        if head is None or not head.quarantined:
            continue
        for record in table.missing(stream.incarnation):
            if isinstance(record, Quarantine):
                yield QuarantinedSegment(stream, record, is_archived(table, stream, record))


def find_quarantined(table: ManifestTable, stream: StreamId, first_offset: Offset) -> QuarantinedSegment:
    """Return the segment in quarantine that begins at an offset: the longest, if there are several.

    Cost: a Query, and one more. Raises NotFoundError.
    """
    for record in reversed(table.missing_before(stream.incarnation, Quarantine, first_offset, 100)):
        if record.first_offset == first_offset and isinstance(record, Quarantine):
            return QuarantinedSegment(stream, record, is_archived(table, stream, record))
    raise NotFoundError(f"no segment of {stream} in quarantine begins at offset {first_offset}")


def is_archived(table: ManifestTable, stream: StreamId, record: Quarantine) -> bool:
    """Tell whether the archive has all offsets of a segment, or had them removed. Cost: a GetItem and a Query."""
    return lacks_nothing(table, table.head(stream.incarnation) or Head(stream), record)


def lacks_nothing(table: ManifestTable, head: Head, record: Quarantine) -> bool:
    """Tell the same by a head that was read: a change that is planned on it then agrees. Cost: a Query at most."""
    first_offset = max(record.first_offset, head.floor)
    if first_offset >= record.next_offset:
        return True
    return covered_to(table, head.stream.incarnation, first_offset, record.next_offset) >= record.next_offset


def details_of(
    table: ManifestTable, objects: ObjectStore, keys: Keys, segment: QuarantinedSegment
) -> QuarantineDetails:
    """Compare a segment with the format and with the archive, to the first difference from each.

    Cost: a listing, and a GET for each copy; the copy that the record names is read twice, and what is archived of its
    offsets once. Raises ObjectNotFoundError if that copy is gone, CorruptionError if the archive is corrupt.
    """
    record, stream = segment.record, segment.stream
    coverage = read_coverage(table, stream.incarnation, record.first_offset, record.next_offset)
    return QuarantineDetails(
        segment,
        copies_of(objects, keys, segment),
        tuple((one.first_offset, one.next_offset, one.key) for one in coverage.entries[:MAX_HOLDERS]),
        _damage(objects, record),
        _contradiction(objects, segment, coverage),
    )


def copies_of(objects: ObjectStore, keys: Keys, segment: QuarantinedSegment) -> tuple[QuarantinedCopy, ...]:
    """Return the copies that begin at a segment's first offset. Cost: a listing, and a GET for each."""
    prefix = f"{keys.quarantine(segment.stream.incarnation)}{segment.record.first_offset:020}-"
    return tuple(
        QuarantinedCopy(one.key, one.size_bytes, one.last_modified, _reason(objects, one.key))
        for one in objects.listed(prefix)
        if not one.key.endswith(".json")
    )


def _reason(objects: ObjectStore, key: str) -> str | None:
    reason = quarantine_note(objects, key).get("reason")
    return reason if isinstance(reason, str) else None


def _damage(objects: ObjectStore, record: Quarantine) -> str | None:
    scanner = SegmentScanner(record.key, first_offset=record.first_offset)
    try:
        with StagedSegment(objects, record.key, None) as copy, closing(copy.blocks()) as blocks:
            for block in blocks:
                for _ in scanner.feed(block):
                    pass
        scanner.close()
    except CorruptionError as err:
        return str(err)
    return None


def _contradiction(objects: ObjectStore, segment: QuarantinedSegment, coverage: Coverage) -> str | None:
    record = segment.record
    with StagedSegment(objects, record.key, None) as staged:
        rolled = SegmentRolled(
            segment.stream, record.first_offset, record.next_offset, staged.size_bytes, objects.bucket, record.key
        )
        try:
            check_history(objects, rolled, staged, coverage)
        except ContradictionError as err:
            return str(err)
    return None
