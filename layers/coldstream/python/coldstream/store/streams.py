"""The streams of an archive: all of them, page by page, or those that a command names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldstream.errors import InvalidSettingError, StreamNotFoundError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.ports import ManifestReads

PAGE_STREAMS = 500
"""Streams of one Query."""


def iter_streams(table: ManifestReads) -> Iterator[StreamId]:
    """Yield every incarnation of every stream, in the order of their names' hashes. Cost: one Query every 500."""
    cursor = None
    while True:
        page = table.streams(cursor, PAGE_STREAMS)
        yield from page.streams
        cursor = page.cursor
        if cursor is None:
            return


def select_streams(
    table: ManifestReads, vhost: str, names: Sequence[str], *, incarnation: str | None = None, every: bool = False
) -> tuple[StreamId, ...]:
    """Return the newest incarnation of each named stream, one given incarnation of one, or every one of every stream.

    A name given twice counts once. Cost: a Query or a GetItem for each stream; for `every`, one Query every 500
    streams. Raises StreamNotFoundError for a stream that is not archived, InvalidSettingError unless the caller either
    names streams or asks for every one.
    """
    if every == bool(names):
        raise InvalidSettingError("streams", "either name streams, or ask for all")
    if incarnation is not None and len(names) != 1:
        raise InvalidSettingError("--incarnation", "selects one incarnation of one stream: name that stream")
    if every:
        return tuple(iter_streams(table))
    if incarnation is not None:
        head = table.head(Incarnation(incarnation))
        if head is None or (head.stream.vhost, head.stream.name) != (vhost, names[0]):
            raise StreamNotFoundError(f"no incarnation {incarnation!r} of {names[0]!r} in vhost {vhost!r}")
        return (head.stream,)
    return tuple(_newest(table, vhost, name) for name in dict.fromkeys(names))


def _newest(table: ManifestReads, vhost: str, name: str) -> StreamId:
    incarnation = table.incarnation_of(vhost, name)
    if incarnation is None:
        raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r}")
    return StreamId(vhost, name, incarnation)
