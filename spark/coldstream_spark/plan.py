"""From options and the manifest to partitions: which streams, which offsets, cut by bytes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import GapError, StreamNotFoundError
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import SLICE_BYTES, ScanSlice, offset_of, plan_scan
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import MAX_OFFSET, MIB, Offset, TimestampMs
from coldstream_spark.filters import Wanted
from coldstream_spark.options import Options

PARTITION_BYTES = 128 * MIB
"""Of one task at most, where the archive can be cut there."""

_PAGE_STREAMS = 1000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one stream that are to be read. What is missing before the first archived one counts if `exactly`."""

    stream: StreamId
    start: Offset
    end: Offset
    exactly: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads of one stream, in the order of the offsets."""

    name: str
    slices: tuple[ScanSlice, ...]


def find_streams(table: ManifestReads, options: Options, *, may_miss: bool = False) -> list[StreamId]:
    """Return the newest incarnation of each stream that is asked for, or the one asked for.

    Cost: one Query a name; for a pattern one for a thousand streams of the table, and one for each name that has
    several incarnations. Raises StreamNotFoundError where one that is named is not there, unless it `may_miss`, and
    where no name matches.
    """
    if options.pattern is None:
        named = ((name, options.incarnation or table.incarnation_of(options.vhost, name)) for name in options.names)
        found = {name: StreamId(options.vhost, name, life) for name, life in named if life is not None}
        missing = [name for name in options.names if name not in found]
    else:
        matches = re.compile(options.pattern).fullmatch
        found = {}
        for stream in _all_streams(table):
            if stream.vhost == options.vhost and matches(stream.name):
                life = table.incarnation_of(stream.vhost, stream.name) if stream.name in found else None
                found[stream.name] = stream if life is None else replace(stream, incarnation=life)
        missing = [] if found else [options.pattern]
    if missing and not may_miss:
        raise StreamNotFoundError(f"no stream {missing[0]!r} in vhost {options.vhost!r} is archived")
    return [found[name] for name in sorted(found)]


def batch_ranges(table: ManifestReads, objects: ObjectReads, options: Options, wanted: Wanted) -> list[Range]:
    """Return the ranges of a batch query. Cost: a few requests a stream. Raises GapError for what is not archived."""
    ranges = []
    for stream in find_streams(table, options):
        if wanted.streams is not None and stream.name not in wanted.streams:
            continue
        first, last = options.start.of(stream.name), options.end.of(stream.name)
        head = table.head(stream.incarnation)
        if head is None or head.stream != stream:
            raise StreamNotFoundError(f"no {stream}, incarnation {stream.incarnation}")
        if head.next_offset is None or head.first_offset is None:
            continue
        start = head.first_offset if first == FIRST else offset_of(table, objects, stream, first)
        end = min(offset_of(table, objects, stream, last), Offset(MAX_OFFSET))
        for reached in (start, end):
            if reached > head.next_offset:
                lose(options, stream, Gap(head.next_offset, reached, "not archived yet"))
        start, end = Offset(max(start, wanted.start)), Offset(min(end, head.next_offset, wanted.end))
        if start < end:
            exactly = isinstance(first, AtOffset) and start == first.offset
            ranges.append(Range(stream, start, end, exactly))
    return ranges


def plan_parts(table: ManifestReads, options: Options, ranges: Sequence[Range], earliest: int) -> list[Part]:
    """Cut ranges into parts: `minPartitions` of them, or as many as the sparse index has points to cut at.

    No byte is in two of them. Chunks before `earliest`, ms, may be left out. Raises GapError, unless told to read on
    behind gaps.
    """
    found = list(_steps(table, ranges, earliest, SLICE_BYTES, lambda stream, gap: lose(options, stream, gap)))
    total_bytes = sum(step.data_bytes for _, step in found)
    most_bytes = min(PARTITION_BYTES, max(1, total_bytes // options.min_partitions))
    if most_bytes < SLICE_BYTES:
        # So there is little, at most a slice for each part: it is planned again in finer steps.
        found = list(_steps(table, ranges, earliest, most_bytes, lambda *_: None))
    parts: list[Part] = []
    joined_bytes = 0
    for name, step in found:
        if parts and parts[-1].name == name and joined_bytes + step.data_bytes <= most_bytes:
            parts[-1] = replace(parts[-1], slices=(*parts[-1].slices, step))
            joined_bytes += step.data_bytes
        else:
            parts.append(Part(name, (step,)))
            joined_bytes = step.data_bytes
    return parts


def _steps(
    table: ManifestReads,
    ranges: Sequence[Range],
    earliest: int,
    slice_bytes: int,
    on_gap: Callable[[StreamId, Gap], None],
) -> Iterator[tuple[str, ScanSlice]]:
    """Yield the slices of ranges, each with the name of its stream."""
    for one in ranges:
        for step in plan_scan(
            table,
            one.stream,
            one.start,
            one.end,
            exactly=one.exactly,
            slice_bytes=slice_bytes,
            not_before=TimestampMs(earliest),
        ):
            if isinstance(step, Gap):
                on_gap(one.stream, step)
            else:
                yield one.stream.name, step


def lose(options: Options, stream: StreamId, gap: Gap) -> None:
    """Raise GapError, or say what is missing where the query was told to go on."""
    error = GapError(str(stream), gap.first_offset, gap.next_offset, gap.reason)
    if options.fail_on_data_loss:
        raise error
    _log.warning("passed over: %s", error)


def _all_streams(table: ManifestReads) -> Iterator[StreamId]:
    page = table.streams(None, _PAGE_STREAMS)
    yield from page.streams
    while page.cursor is not None:
        page = table.streams(page.cursor, _PAGE_STREAMS)
        yield from page.streams
