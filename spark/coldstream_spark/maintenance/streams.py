"""Retention and sweep: a task is some streams, one after the other, as the commands do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.lifecycle import retention, tend
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.stream import StreamId
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.tasks import TaskFailure


@dataclass(frozen=True, slots=True)
class StreamsResult:
    """What was done to some streams: a summary, as the command has it, and what failed."""

    streams: int
    summary: dict[str, Any] = field(default_factory=dict)
    failures: tuple[TaskFailure, ...] = ()


def retain(archive: RemoteArchive, streams: Sequence[StreamId], *, dry_run: bool) -> StreamsResult:
    """Apply the policies to streams."""
    return _guarded(archive, streams, partial(_retain, dry_run=dry_run))


def sweep(archive: RemoteArchive, streams: Sequence[StreamId], *, dry_run: bool) -> StreamsResult:
    """Do all that the sweep function does for streams."""
    return _guarded(archive, streams, partial(_sweep, dry_run=dry_run))


def _retain(stores: LifecycleStores, streams: Sequence[StreamId], *, dry_run: bool) -> StreamsResult:
    reports = list(retention.run_retention(stores, streams, dry_run=dry_run))
    return StreamsResult(len(streams), retention.summary_of(reports), tuple(_failures(reports)))


def _sweep(stores: LifecycleStores, streams: Sequence[StreamId], *, dry_run: bool) -> StreamsResult:
    reports = list(tend.foretell_tending(stores, streams) if dry_run else tend.tend(stores, streams))
    return StreamsResult(len(streams), {"dry_run": dry_run, **tend.summary_of(reports)}, tuple(_failures(reports)))


def _failures(reports: Sequence[retention.RetentionReport] | Sequence[tend.TendReport]) -> Iterator[TaskFailure]:
    for report in reports:
        if report.error is not None:
            yield TaskFailure.of(report.error, report.stream)


def _guarded(
    archive: RemoteArchive,
    streams: Sequence[StreamId],
    work: Callable[[LifecycleStores, Sequence[StreamId]], StreamsResult],
) -> StreamsResult:
    try:
        return work(archive.open(), streams)
    except ColdstreamError as err:
        return StreamsResult(len(streams), failures=(TaskFailure.of(err, f"{streams[0]} and others"),))
