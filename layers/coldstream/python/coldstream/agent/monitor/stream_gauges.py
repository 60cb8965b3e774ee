"""Gauges of streams, made of the status of each; only of those whose status changed since the last scrape, or that lag.

Incarnations of the same names have one series together. Nearly all streams of a node are quiet, and a quiet stream has
the same status in every snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.monitor.stream_series import Sample, Samples, StreamFamily, StreamLabels
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class _StreamRow:
    """What a stream's gauges are: a sample for each, None for one that is not known. A lag grows with the time."""

    incarnations: list[StreamStatus]
    lags: bool
    samples: tuple[Sample | None, ...]


class StreamGauges:
    """The gauges, whose names begin with a prefix. Not made for threads."""

    def __init__(self, prefix: str) -> None:
        self._families = [StreamFamily(prefix + name, text) for name, text in _GAUGES.items()]
        self._rows: dict[StreamLabels, _StreamRow] = {}

    def families(self, streams: Iterable[StreamStatus], now: TimestampMs) -> Iterator[tuple[StreamFamily, Samples]]:
        """Yield each gauge with its samples: one for all incarnations of the same names."""
        alike: dict[StreamLabels, list[StreamStatus]] = {}
        for stream in streams:
            alike.setdefault(stream.labels, []).append(stream)
        rows: dict[StreamLabels, _StreamRow] = {}
        for labels, incarnations in alike.items():
            row = self._rows.get(labels)
            # Equal at once if they are the same objects.
            if row is None or row.lags or row.incarnations != incarnations:
                row = _row(labels, incarnations, now)
            rows[labels] = row
        self._rows = rows
        for number, family in enumerate(self._families):
            yield family, [sample for row in rows.values() if (sample := row.samples[number]) is not None]


def _row(labels: StreamLabels, incarnations: list[StreamStatus], now: TimestampMs) -> _StreamRow:
    lag_offsets = sum(one.lag_offsets for one in incarnations)
    unarchived_at = [at for one in incarnations if (at := one.oldest_unarchived_at) is not None]
    values = (
        sum(one.pinned_bytes for one in incarnations),
        sum(one.pinned_segments for one in incarnations),
        sum(one.orphaned_bytes for one in incarnations),
        lag_offsets,
        max((lag for one in incarnations if (lag := one.lag_s(now)) is not None), default=None),
        min(unarchived_at) / 1000 if unarchived_at else None,
        min((left for one in incarnations if (left := one.retention_left_s) is not None), default=None),
    )
    samples = tuple(None if value is None else (labels, value) for value in values)
    return _StreamRow(incarnations, lags=lag_offsets > 0, samples=samples)


_GAUGES = {
    "pinned_bytes": "Bytes of segments held by hard links until the manifest covers them.",
    "pinned_segments": "Segments held by hard links, the one that is being written included.",
    "orphaned_bytes": "Bytes of segments that only the agent has, as the broker has deleted them.",
    "lag_offsets": "Offsets on this disk that are not archived.",
    "lag_seconds": "Age of the oldest chunk that is not archived, 0 if all are.",
    "oldest_unarchived_timestamp_seconds": "Timestamp of the oldest chunk that is not archived.",
    "retention_left_seconds": (
        "Time until the broker's retention deletes, or would have deleted, the oldest segment that is not archived."
    ),
}
"""In the order of a row's values."""
