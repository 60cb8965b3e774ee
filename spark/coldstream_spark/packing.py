"""Slices packed into partitions: what each task of Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from coldstream.manifest.shard_rank import RankedStretch
from coldstream.read.scan import ScanSlice
from coldstream.units import KIB, MIB
from coldstream_spark.plan_range import OffsetRange

PARTITION_BYTES = 128 * MIB
"""Most bytes of one task, as far as the archive can be cut there."""

SHARED_BYTES = 16 * MIB
"""Most bytes of one task that reads several streams. Where streams are larger, each has a task of its own, so that they
are read at the same time."""

REQUEST_BYTES = 128 * KIB
"""What a request counts beside its bytes: about what a task decodes while a GET takes its 20 ms, of 16 at a time."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """What one task reads of one stream, in the order of offsets; of a sharded stream, of one stretch."""

    name: str
    slices: tuple[ScanSlice, ...]
    stretch: RankedStretch | None = None


@dataclass(frozen=True, slots=True)
class ScanPartition:
    """What one task reads."""

    parts: tuple[StreamPart, ...]


RangeSlice = tuple[OffsetRange, ScanSlice]


def pack(found: Sequence[RangeSlice], min_partitions: int) -> list[ScanPartition]:
    """Pack slices into partitions, in their order: `min_partitions` of them, unless there are fewer slices.

    Small ones share a task: ten thousand of 20 KB take twelve tasks. Small streams share one as well.
    """
    weight = sum(map(_weight, found))
    most = min(PARTITION_BYTES, max(1, weight // min_partitions))
    return [ScanPartition(tuple(_parts(one))) for one in _packs(found, most)]


def _packs(found: Sequence[RangeSlice], most: int) -> Iterator[list[RangeSlice]]:
    packed: list[RangeSlice] = []
    packed_bytes, limit = 0, most
    for one in found:
        if packed and _stream_of(one) != _stream_of(packed[-1]):
            limit = min(limit, SHARED_BYTES)
        if packed and packed_bytes + _weight(one) > limit:
            yield packed
            packed, packed_bytes, limit = [], 0, most
        packed.append(one)
        packed_bytes += _weight(one)
    if packed:
        yield packed


def _parts(packed: Sequence[RangeSlice]) -> Iterator[StreamPart]:
    for (name, stretch), group in groupby(packed, _stream_of):
        yield StreamPart(name, tuple(part for _, part in group), stretch)


def _stream_of(one: RangeSlice) -> tuple[str, RankedStretch | None]:
    return one[0].stream.name, one[0].stretch


def _weight(one: RangeSlice) -> int:
    return one[1].data_bytes + REQUEST_BYTES
