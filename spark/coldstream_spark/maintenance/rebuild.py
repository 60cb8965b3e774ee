"""The rebuild: a task is a whole stream, or if it is long, a slice of its listing, whose entries the driver commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from coldstream.errors import ColdstreamError
from coldstream.manifest.stream import Incarnation
from coldstream.rebuild.entries import Unreadable, list_fragments, rebuild_entries
from coldstream.rebuild.facts import StreamReport
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.run import Rebuilder
from coldstream.store.ports import ListedObject
from coldstream.units import Offset, TimestampMs
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.tasks import TaskFailedError, TaskFailure, TaskRunner, in_groups

Found = FoundFragment | Unreadable


@dataclass(frozen=True, slots=True)
class RebuildTarget:
    """What is rebuilt: the bucket of an archive, into the table that it names, as of a time, None for now."""

    archive: RemoteArchive
    at: TimestampMs | None
    is_dry: bool

    def rebuilder(self) -> Rebuilder:
        """Return what rebuilds in this process."""
        stores = self.archive.open()
        return Rebuilder(
            stores.table,
            stores.objects,
            stores.keys,
            stores.now,
            stores.grace_ms,
            at=self.at,
            is_dry=self.is_dry,
        )


@dataclass(frozen=True, slots=True)
class LongListing:
    """A stream whose objects are read by several tasks."""

    incarnation: Incarnation


def rebuild_streams(
    target: RebuildTarget, most_fragments: int, runner: TaskRunner, incarnations: Iterable[Incarnation]
) -> Iterator[StreamReport | TaskFailure]:
    """Rebuild streams; those that are long come last, one after the other. Memory: the names of these."""
    long: list[Incarnation] = []
    for result in runner.map(partial(rebuild_stream, target, most_fragments), incarnations):
        if isinstance(result, LongListing):
            long.append(result.incarnation)
        else:
            yield result
    for incarnation in long:
        yield rebuild_long(target, most_fragments, runner, incarnation)


def rebuild_stream(
    target: RebuildTarget, most_fragments: int, incarnation: Incarnation
) -> StreamReport | LongListing | TaskFailure:
    """Rebuild a stream, unless it has more objects than `most_fragments`. Asking costs a LIST a thousand."""
    rebuilder = target.rebuilder()
    try:
        listed = list_fragments(rebuilder.objects, rebuilder.keys, incarnation, Offset(0))
        if next(islice(listed, most_fragments, None), None) is not None:
            return LongListing(incarnation)
        return rebuilder.stream(incarnation)
    except ColdstreamError as err:
        return TaskFailure.of(err, incarnation)


def rebuild_long(
    target: RebuildTarget, most_fragments: int, runner: TaskRunner, incarnation: Incarnation
) -> StreamReport | TaskFailure:
    """Rebuild a long stream: executors read slices of the listing, and the entries are committed here, in order."""

    def read(listed: Iterator[ListedObject]) -> Iterator[Found]:
        for result in runner.map(partial(read_slice, target.archive), in_groups(listed, most_fragments)):
            if isinstance(result, TaskFailure):
                raise TaskFailedError(result)
            yield from result

    try:
        return replace(target.rebuilder(), read=read).stream(incarnation)
    except TaskFailedError as err:
        return err.failure
    except ColdstreamError as err:
        return TaskFailure.of(err, incarnation)


def read_slice(archive: RemoteArchive, listed: tuple[ListedObject, ...]) -> tuple[Found, ...] | TaskFailure:
    """Make the entries of a slice of the listing."""
    stores = archive.open()
    try:
        return tuple(rebuild_entries(stores.objects, stores.keys, listed))
    except ColdstreamError as err:
        return TaskFailure.of(err, listed[0].key)
