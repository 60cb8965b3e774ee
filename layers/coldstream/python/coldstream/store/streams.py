"""Choose the streams of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldstream.errors import InvalidSettingError, StreamNotFoundError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestReads

PAGE_STREAMS = 500


def choose(
    table: ManifestReads, vhost: str, names: Sequence[str], *, incarnation: str | None = None, every: bool = False
) -> tuple[StreamId, ...]:
    """Return the newest life of each named stream, or the one that is asked for, or every life of every stream.

    Cost: a Query, or a GetItem, a stream; for every stream one Query for 500. Raises StreamNotFoundError for a stream
    that is not archived, InvalidSettingError where it is not said which streams, or twice.
    """
    if every == bool(names):
        raise InvalidSettingError("streams", "either name streams, or ask for all")
    if incarnation is not None and len(names) != 1:
        raise InvalidSettingError("--incarnation", "is one life of one stream: name that")
    if every:
        return tuple(_every(table))
    if incarnation is not None:
        head = table.head(Incarnation(incarnation))
        if head is None or (head.stream.vhost, head.stream.name) != (vhost, names[0]):
            raise StreamNotFoundError(f"no incarnation {incarnation!r} of {names[0]!r} in vhost {vhost!r}")
        return (head.stream,)
    return tuple(_newest(table, vhost, name) for name in dict.fromkeys(names))


def _newest(table: ManifestReads, vhost: str, name: str) -> StreamId:
    found = table.incarnation_of(vhost, name)
    if found is None:
        raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r}")
    return StreamId(vhost, name, found)


def _every(table: ManifestReads) -> Iterator[StreamId]:
    cursor = None
    while True:
        page = table.streams(cursor, PAGE_STREAMS)
        yield from page.streams
        cursor = page.cursor
        if cursor is None:
            return
