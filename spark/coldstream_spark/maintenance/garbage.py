"""Garbage by ranges of keys: a task lists a range of the bucket, judges what is in it, and deletes if it may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from coldstream.errors import ColdstreamError
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.garbage.tally import Tally
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.cluster import NO_CLUSTER
from coldstream.manifest.stream import StreamId
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.split import borders
from coldstream_spark.maintenance.tasks import TaskFailure

HEX = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys after one, up to and including another; None is no bound."""

    after: str | None
    until: str | None


def ranges_of_all(stores: LifecycleStores, streams: Iterable[StreamId], most_objects: int) -> tuple[KeyRange, ...]:
    """Return ranges that cover the whole archive; a stream with more fragments than `most_objects` has its own.

    Directories of streams begin with hexadecimal digits of a hash, so equal ranges hold about as many streams.
    Cost: a GetItem a stream. Memory: the borders within long streams.
    """
    prefix = stores.keys.prefix
    found = {f"{prefix}{one}{other}" for one in HEX for other in HEX} | {f"{prefix}quarantine/", f"{prefix}staging/"}
    for stream in streams:
        found.update(_within(stores, stream, most_objects))
    bounds: list[str | None] = [None, *sorted(found), None]
    return tuple(KeyRange(after, until) for after, until in pairwise(bounds))


def ranges_of(stores: LifecycleStores, stream: StreamId, most_objects: int) -> Iterator[KeyRange]:
    """Yield ranges that cover one stream: its fragments, what is staged of it, and what is in quarantine."""
    keys, incarnation = stores.keys, stream.incarnation
    fragments = keys.fragments(incarnation)
    bounds = [fragments, *sorted(_within(stores, stream, most_objects)), _end(fragments)]
    yield from (KeyRange(after, until) for after, until in pairwise(bounds))
    bound = stores.table.bound_cluster(stream.vhost, stream.name)
    staging = (replace(keys, cluster=cluster).staging(incarnation) for cluster in dict.fromkeys((bound, NO_CLUSTER)))
    for directory in (keys.quarantine(incarnation), *staging):
        yield KeyRange(directory, _end(directory))


def _within(stores: LifecycleStores, stream: StreamId, most_objects: int) -> Iterator[str]:
    head = stores.table.head(stream.incarnation)
    if head is not None:
        fragments = stores.keys.fragments(stream.incarnation)
        # No key is an offset's digits alone, so it does not matter which of two ranges has it.
        yield from (f"{fragments}{offset:020}" for offset in borders(head, most_objects))


def _end(directory: str) -> str:
    """Return what comes after all keys in a directory: "0" comes right after "/"."""
    return f"{directory[:-1]}0"


def collect(archive: RemoteArchive, options: GarbageOptions, keys: KeyRange) -> Tally | TaskFailure:
    """Deal with a range."""
    stores = archive.open()
    collector = GarbageCollector(stores.table, stores.objects, stores.keys, stores.now)
    try:
        return collector.collect(options, after=keys.after, until=keys.until)
    except ColdstreamError as err:
        return TaskFailure.of(err, f"keys after {keys.after}")
