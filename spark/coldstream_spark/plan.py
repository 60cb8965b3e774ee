"""The plan of a query: from options and the manifest to partitions, cut by bytes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from coldstream.errors import GapError, StreamNotFoundError
from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_starts import version_at
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, AtTimestamp
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import SLICE_BYTES, offset_of, plan_scan
from coldstream.resolve.attach import Attachment, attach
from coldstream.resolve.tail import Tail
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.store.streams import newest
from coldstream.units import MAX_OFFSET, MIN_TIMESTAMP_MS, Offset, TimestampMs
from coldstream_spark.filters import ScanFilter
from coldstream_spark.options import SourceOptions
from coldstream_spark.packing import RangeSlice, ScanPartition, pack
from coldstream_spark.plan_range import OffsetRange
from coldstream_spark.shards import ArchivedShard, at_once, find_shard_map, find_shards

_PAGE_STREAMS = 1000
_log = logging.getLogger(__name__)


def find_streams(table: ManifestReads, options: SourceOptions, *, may_miss: bool = False) -> list[StreamId]:
    """Return the newest incarnation of each stream that the options name, or the incarnation that they name.

    Deleted streams do not count. Cost: that of `newest` for each name; for a pattern, also a Query for each thousand
    streams of the table. Raises StreamNotFoundError if a named stream does not exist or no name matches, unless
    streams `may_miss`.
    """
    if options.incarnation is not None:
        return [StreamId(options.vhost, name, options.incarnation) for name in options.names]
    names: Iterable[str] = options.names
    if options.pattern is not None:
        matches = re.compile(options.pattern).fullmatch
        all_names = {stream.name for stream in _all_streams(table) if stream.vhost == options.vhost}
        names = filter(matches, all_names)
    named = ((name, newest(table, options.vhost, name)) for name in names)
    found = {name: stream for name, stream in named if stream is not None}
    missing = [name for name in options.names if name not in found]
    if options.pattern is not None and not found:
        missing = [options.pattern]
    if missing and not may_miss:
        raise StreamNotFoundError(f"no stream {missing[0]!r} in vhost {options.vhost!r} is archived")
    return [found[name] for name in sorted(found)]


def batch_ranges(
    table: ManifestReads, objects: ObjectReads, options: SourceOptions, conditions: ScanFilter
) -> list[OffsetRange]:
    """Return the ranges of a batch query. Cost: a few requests a stream. Raises GapError for those not archived."""
    if options.sharded is not None:
        return list(_shard_ranges(table, objects, options, conditions))
    ranges = []
    for stream in find_streams(table, options):
        if conditions.streams is not None and stream.name not in conditions.streams:
            continue
        first, last = options.start.of(stream.name), options.end.of(stream.name)
        head = table.head(stream.incarnation)
        if head is None or head.stream != stream or head.is_deleted:
            raise StreamNotFoundError(f"no {stream}, incarnation {stream.incarnation}")
        if head.next_offset is None or head.first_offset is None:
            continue
        start = head.first_offset if first == FIRST else offset_of(table, objects, stream, first)
        end = min(offset_of(table, objects, stream, last), Offset(MAX_OFFSET))
        for reached in (start, end):
            if reached > head.next_offset:
                report_loss(options, stream, Gap(head.next_offset, reached, "not archived yet"))
        first_wanted = max(conditions.start, _first_since(table, stream, conditions.earliest))
        start, end = Offset(max(start, first_wanted)), Offset(min(end, head.next_offset, conditions.end))
        if start < end:
            exactly = isinstance(first, AtOffset) and start == first.offset
            ranges.append(OffsetRange(stream, start, end, exactly))
    return ranges


def _shard_ranges(
    table: ManifestReads, objects: ObjectReads, options: SourceOptions, conditions: ScanFilter
) -> Iterator[OffsetRange]:
    """Yield the ranges of a sharded stream. Cost: some requests a partition, those of many at the same time."""
    assert options.sharded is not None
    found = find_shard_map(table, options.vhost, options.sharded)
    shards = find_shards(table, found, version_at(found))
    bounds = at_once(lambda index: shard_bounds(table, objects, options, shards[index]), range(len(shards)))
    for shard, (first, last) in zip(shards, bounds, strict=True):
        if conditions.streams is None or shard.partition.name in conditions.streams:
            since = _first_since(table, shard.stream, conditions.earliest)
            start, end = Offset(max(first, conditions.start, since)), Offset(min(last, conditions.end))
            yield from shard.cut(OffsetRange(shard.stream, start, end, exactly=False))


def shard_bounds(
    table: ManifestReads, objects: ObjectReads, options: SourceOptions, shard: ArchivedShard
) -> tuple[Offset, Offset]:
    """Return from where up to where a partition is read now."""
    head = shard.head
    assert head.first_offset is not None
    assert head.next_offset is not None
    first, last = options.start.default, options.end.default
    start = head.first_offset if first == FIRST else offset_of(table, objects, shard.stream, first)
    end = head.next_offset if last == NEXT else offset_of(table, objects, shard.stream, last)
    return max(start, shard.begins), min(end, head.next_offset)


def _first_since(table: ManifestReads, stream: StreamId, earliest: int) -> Offset:
    """Return an offset before which every chunk is older than `earliest`, so that no entry before it is listed.

    There is none such for a latest time: a leader's clock may run backwards, and the manifest has greatest times alone.
    Cost: that of `attach`.
    """
    if earliest == MIN_TIMESTAMP_MS:
        return Offset(0)
    match attach(table, stream, AtTimestamp(TimestampMs(earliest)), 1):
        case Tail(next_offset):
            return next_offset
        case Gap() as gap:
            return gap.first_offset
        case Attachment() as found:
            return Offset(found.start.chunk_id)


def plan_partitions(
    table: ManifestReads, options: SourceOptions, ranges: Sequence[OffsetRange], earliest: int
) -> list[ScanPartition]:
    """Cut ranges into partitions: at least `minPartitions`, or as many as the sparse index has points to cut at.

    No byte is in two partitions. Chunks before `earliest`, in ms, may be left out. Raises GapError, unless the options
    say to read on after gaps.
    """
    found = list(_steps(table, ranges, earliest, SLICE_BYTES, lambda stream, gap: report_loss(options, stream, gap)))
    share_bytes = sum(step.data_bytes for _, step in found) // options.min_partitions
    if share_bytes < SLICE_BYTES:
        # There is less than a slice for each partition: it is planned again in smaller steps.
        found = list(_steps(table, ranges, earliest, max(1, share_bytes), lambda *_: None))
    return pack(found, options.min_partitions)


def _steps(
    table: ManifestReads,
    ranges: Sequence[OffsetRange],
    earliest: int,
    slice_bytes: int,
    on_gap: Callable[[StreamId, Gap], None],
) -> Iterator[RangeSlice]:
    """Yield the slices of ranges, each with its range."""
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
                yield one, step


def report_loss(options: SourceOptions, stream: StreamId, gap: Gap) -> None:
    """Raise GapError for missing offsets, or log them if the query is told to go on."""
    error = GapError(str(stream), gap.first_offset, gap.next_offset, gap.reason)
    if options.fail_on_data_loss:
        raise error
    _log.warning("skipped: %s", error)


def _all_streams(table: ManifestReads) -> Iterator[StreamId]:
    page = table.streams(None, _PAGE_STREAMS)
    yield from page.streams
    while page.cursor is not None:
        page = table.streams(page.cursor, _PAGE_STREAMS)
        yield from page.streams
