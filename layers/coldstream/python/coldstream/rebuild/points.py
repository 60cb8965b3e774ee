"""The sparse index of a fragment, made anew from its index: one walk, and which chunks get a point."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coldstream.errors import BadSequenceError
from coldstream.format.fragment import FragmentIndexRecord, iter_fragment_index
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint
from coldstream.rebuild.footer import ObjectFooter
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class IndexWalk:
    """What an index says of the fragment as a whole."""

    sparse: SparseIndex
    last_timestamp: TimestampMs
    greatest_timestamp: TimestampMs


def walk_index(footer: ObjectFooter, *, source: str, ordinals: Collection[int] | None = None) -> IndexWalk:
    """Walk the index of a fragment, and choose the points of its sparse index.

    A compressed fragment has a point at each frame. Otherwise the chunks of `ordinals` get one; if that is None, those
    that the upload chooses. Raises CorruptionError if the index contradicts itself, the frames or the ordinals.
    """
    positions = None if footer.content_positions is None else frozenset(footer.content_positions)
    chosen = None if ordinals is None else frozenset(ordinals)
    points: list[SparsePoint] = []
    timestamp = greatest = footer.trailer.first_timestamp
    for ordinal, record in enumerate(iter_fragment_index(footer.index, footer.trailer, source=source)):
        timestamp = record.timestamp
        if _has_point(record, ordinal, points, positions, chosen):
            points.append(SparsePoint(record.chunk_id, ordinal, record.position, timestamp, greatest))
        # After the point was made: a point has the greatest timestamp of the chunks before it.
        greatest = max(greatest, timestamp)
    expected = len(positions) if positions is not None else len(points) if chosen is None else len(chosen)
    if len(points) != expected or not points or points[0].ordinal:
        at = footer.trailer.index_position
        raise BadSequenceError(source, at, "points of the sparse index in the index", expected=expected, found=points)
    return IndexWalk(SparseIndex(tuple(points)), timestamp, greatest)


def _has_point(
    record: FragmentIndexRecord,
    ordinal: int,
    points: list[SparsePoint],
    positions: frozenset[int] | None,
    chosen: frozenset[int] | None,
) -> bool:
    if positions is not None:
        return record.position in positions
    if chosen is not None:
        return ordinal in chosen
    return not points or record.position - points[-1].position >= STEP_BYTES
