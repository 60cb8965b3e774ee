"""What compaction would save, in objects, bytes and money, and what it would cost.

Prices are list prices in US dollars, of us-east-1, S3 Standard and DynamoDB on demand; others apply to other regions,
storage classes and contracts. The size after compression is estimated from a few samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coldstream.compact.blocks import plan_blocks
from coldstream.compact.frame_parts import PART_BYTES
from coldstream.compact.merge_plan import RequestCounts, count_requests
from coldstream.compact.options import CompactOptions
from coldstream.compact.plan import find_groups
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.seekable import compress_frame
from coldstream.lifecycle.sweep import due_tombstones
from coldstream.manifest.compaction import FIRST_REMOVALS, MAX_REMOVALS, MAX_SWEPT
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.store.prices import GB, STANDARD, WRITE_UNIT_USD
from coldstream.units import MIB, ByteRange, TimestampMs

STORAGE_USD = STANDARD.gb_month / GB
"""For a byte, each month."""

PUT_USD = STANDARD.writes_1000 / 1000
GET_USD = STANDARD.gets_1000 / 1000

SAMPLE_BYTES = 2 * MIB
ENTRY_BYTES = 400
"""Size of an entry's item without its key, sparse index and frames."""

EVENT_UNITS = 2
HEAD_UNITS = 3
"""The head is written in each transaction, at two units, and once more in the index by time."""


@dataclass(frozen=True, slots=True)
class Savings:
    """`fragments` of `object_bytes` would become `fragments_after` of `object_bytes_after`.

    If `is_estimate`, then `object_bytes_after` is estimated. `cost_usd` is for all requests, those of the later sweep
    of the old objects included.
    """

    fragments: int = 0
    fragments_after: int = 0
    object_bytes: int = 0
    object_bytes_after: int = 0
    identity_bytes: int = 0
    is_estimate: bool = False
    cost_usd: float = 0.0

    @property
    def saved_bytes(self) -> int:
        """Negative if the objects would grow."""
        return self.object_bytes - self.object_bytes_after

    @property
    def saved_usd_a_month(self) -> float:
        """Of storage, once the old objects are deleted."""
        return self.saved_bytes * STORAGE_USD

    def __add__(self, other: Savings) -> Savings:
        return Savings(
            self.fragments + other.fragments,
            self.fragments_after + other.fragments_after,
            self.object_bytes + other.object_bytes,
            self.object_bytes_after + other.object_bytes_after,
            self.identity_bytes + other.identity_bytes,
            self.is_estimate or other.is_estimate,
            self.cost_usd + other.cost_usd,
        )

    def to_json(self) -> dict[str, object]:
        """Return the savings for JSON."""
        return {
            "fragments": self.fragments,
            "fragments_after": self.fragments_after,
            "object_bytes": self.object_bytes,
            "object_bytes_after": self.object_bytes_after,
            "is_estimate": self.is_estimate,
            "saved_usd_a_month": round(self.saved_usd_a_month, 6),
            "cost_usd": round(self.cost_usd, 6),
        }


def savings_of(objects: ObjectReads, groups: Iterable[Group], options: CompactOptions) -> Savings:
    """Add up what compacting groups would save.

    Cost: nothing for identity. For compression, a GET of up to 2 MiB for the groups 1, 2, 4, 8 and so on.
    """
    total = Savings()
    sampled_bytes = compressed_bytes = 0
    for number, group in enumerate(groups, 1):
        if options.encoding is Encoding.ZSTD_SEEKABLE and number & (number - 1) == 0:
            sample = _sample(objects, group)
            sampled_bytes += len(sample)
            compressed_bytes += len(compress_frame(sample, options.level)) if sample else 0
        total += _of_group(group, options.encoding, compressed_bytes / sampled_bytes if sampled_bytes else 1.0)
    return total


def _of_group(group: Group, encoding: Encoding, ratio: float) -> Savings:
    entries = len(group.entries)
    if encoding is Encoding.IDENTITY:
        after = group.identity_bytes
        requests = count_requests(group)
    else:
        after = sum(_compressed_bytes(entry, ratio) for entry in group.entries)
        blocks = sum(1 for entry in group.entries for _ in plan_blocks(entry))
        # `- -x // y` rounds up. The two other requests begin and complete the upload.
        requests = RequestCounts(puts=2 - -after // PART_BYTES, gets=1 + blocks)
    return Savings(
        fragments=entries,
        fragments_after=1,
        object_bytes=group.object_bytes,
        object_bytes_after=after,
        identity_bytes=group.identity_bytes,
        is_estimate=encoding is not Encoding.IDENTITY,
        cost_usd=requests.puts * PUT_USD + requests.gets * GET_USD + write_units(group) * WRITE_UNIT_USD,
    )


def write_units(group: Group) -> int:
    """Count about how many write units of DynamoDB compacting a group takes.

    In a transaction a kilobyte of an item takes two units, and one more in the index by time. Every entry is
    removed or, if it is the last one, replaced. Every object gets a tombstone, which the sweep removes. The event of
    each transaction holds its change, the first one the merged entry.
    """
    *others, last = (_kib(entry, entry.sparse) for entry in group.entries)
    merged = max(last, _kib(group.entries[-1], group.sparse()))
    removals = -(-max(0, len(others) - FIRST_REMOVALS) // MAX_REMOVALS)
    sweeps = -(-len(group.entries) // MAX_SWEPT)
    return (
        3 * (sum(others) + merged)
        + 2 * 2 * len(group.entries)
        + 2 * merged
        + HEAD_UNITS
        + (EVENT_UNITS + HEAD_UNITS) * (removals + sweeps)
    )


def _kib(entry: FragmentEntry, sparse: SparseIndex) -> int:
    frames = 0 if entry.frames is None else len(entry.frames.to_bytes())
    return -(-(ENTRY_BYTES + len(entry.key) + len(sparse.to_bytes()) + frames) // 1024)


def _compressed_bytes(entry: FragmentEntry, ratio: float) -> int:
    return round(entry.object_bytes * ratio) if entry.encoding is Encoding.IDENTITY else entry.object_bytes


def _sample(objects: ObjectReads, group: Group) -> bytes:
    """Read from the middle of the group's largest identity fragment; return nothing if it has none."""
    candidates = [entry for entry in group.entries if entry.encoding is Encoding.IDENTITY]
    if not candidates:
        return b""
    entry = max(candidates, key=lambda entry: entry.data_bytes)
    start = entry.sparse.points[len(entry.sparse.points) // 2].position
    end = min(start + SAMPLE_BYTES, FRAGMENT_HEADER_BYTES + entry.data_bytes)
    return objects.get_range(entry.key, ByteRange(start, end)).data


@dataclass(frozen=True, slots=True)
class CompactionForecast:
    """What a run would do to a stream. A `due_objects` of 1,000 means at least so many that it would delete."""

    stream: StreamId
    savings: Savings
    due_objects: int
    due_bytes: int


def forecast_of(
    table: ManifestReads, objects: ObjectReads, stream: StreamId, options: CompactOptions, now: TimestampMs
) -> CompactionForecast:
    """Foretell what a run would do to a stream. Cost: that of `find_groups` and of `savings_of`, and a Query."""
    groups = find_groups(table, stream.incarnation, options.policy(now))
    tombstones = due_tombstones(table, stream.incarnation, now)
    return CompactionForecast(
        stream, savings_of(objects, groups, options), len(tombstones), sum(one.object_bytes for one in tombstones)
    )


def total_of(forecasts: Iterable[CompactionForecast]) -> Savings:
    """Add up the savings of all streams."""
    return sum((forecast.savings for forecast in forecasts), Savings())


def dry_run_summary(forecasts: Sequence[CompactionForecast]) -> dict[str, object]:
    """Return what a run would do, for JSON: the totals, and each stream."""
    streams = [
        {
            "vhost": forecast.stream.vhost,
            "name": forecast.stream.name,
            "incarnation": forecast.stream.incarnation,
            **forecast.savings.to_json(),
            "due_objects": forecast.due_objects,
            "due_bytes": forecast.due_bytes,
        }
        for forecast in forecasts
    ]
    return {"dry_run": True, **total_of(forecasts).to_json(), "streams": streams}
