"""The streams of an archive: all of them, page by page, or those that a command names."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from coldstream.errors import InvalidSettingError, PurgedError, RemovedError, StreamDeletedError, StreamNotFoundError
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.sortkeys import names_key, registry_key

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads, ManifestTable

PAGE_STREAMS = 500
"""Streams of one Query."""

NAMES_TOLD = 8
"""Partitions that an error names."""

FIRST_INCARNATION = "-"
"""Sorts before every incarnation that a broker names: "-" is the least character of their alphabet."""


def iter_streams(table: ManifestReads, after: str | None = None) -> Iterator[StreamId]:
    """Yield every incarnation of every stream, in the order of their names' hashes. Cost: one Query every 500.

    They begin after a key of the registry, if it is given.
    """
    cursor = after
    while True:
        page = table.streams(cursor, PAGE_STREAMS)
        yield from page.streams
        cursor = page.cursor
        if cursor is None:
            return


def streams_in_turn(table: ManifestTable, run: str) -> Generator[StreamId, None, None]:
    """Yield every incarnation once, first those that the last `run` of this name had no time for.

    Close it at the end: unless it came to its own, the stream that was yielded last counts as not begun. Without it, in
    a large archive the last streams would wait for ever for runs whose time the first ones take.

    Cost: a GetItem, and one Query every 500; if there was no time for all of them now, or then, a PUT or a DELETE.
    """
    cursor = table.cursor(run)
    began = done = None if cursor is None else cursor.decode()
    try:
        for stream in iter_streams(table, began):
            yield stream
            done = registry_key(stream.vhost, stream.name, stream.incarnation)
        for stream in iter_streams(table) if began is not None else ():
            key = registry_key(stream.vhost, stream.name, stream.incarnation)
            if began is not None and key > began:
                break
            yield stream
            done = key
        done = None
    finally:
        if done is not None:
            table.put_cursor(run, done.encode())
        elif began is not None:
            table.delete_cursor(run)


def newest(table: ManifestReads, vhost: str, name: str) -> StreamId | None:
    """Return the newest incarnation of a stream that is not deleted, None if there is none.

    Cost: a Query and a GetItem; if the newest is deleted, another Query and a GetItem for each other incarnation.
    """
    incarnation = table.incarnation_of(vhost, name)
    if incarnation is None:
        return None
    candidates: Iterable[StreamId] = (StreamId(vhost, name, incarnation),)
    if _is_deleted(table, incarnation):
        earlier = [stream for stream in incarnations(table, vhost, name) if stream.incarnation != incarnation]
        candidates = (stream for stream in reversed(earlier) if not _is_deleted(table, stream.incarnation))
    return next(iter(candidates), None)


def incarnations(table: ManifestReads, vhost: str, name: str) -> tuple[StreamId, ...]:
    """Return all incarnations of a stream, oldest first, deleted ones as well. Cost: one Query for every 500."""
    names = names_key(vhost, name)
    found: list[StreamId] = []
    cursor: str | None = names + FIRST_INCARNATION
    while cursor is not None and cursor.startswith(names):
        page = table.streams(cursor, PAGE_STREAMS)
        found += [stream for stream in page.streams if (stream.vhost, stream.name) == (vhost, name)]
        cursor = page.cursor
    return tuple(found)


def select_streams(
    table: ManifestReads, vhost: str, names: Sequence[str], *, incarnation: str | None = None, every: bool = False
) -> tuple[StreamId, ...]:
    """Return the newest incarnation of each named stream, one given incarnation of one, or every one of every stream.

    Deleted ones are not archived; only `every` includes them. A name given twice counts once. Cost: that of `newest`,
    or a GetItem, for each stream; for `every`, one Query every 500 streams. Raises StreamDeletedError
    or PurgedError for a stream that is deleted, with all of its incarnations if none is given, StreamNotFoundError for
    one that is not archived, InvalidSettingError unless the caller either names streams or asks for every one.
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
        if head.is_deleted:
            raise deleted_error(head)
        return (head.stream,)
    return tuple(_newest(table, vhost, name) for name in dict.fromkeys(names))


def select_also_deleted(table: ManifestReads, vhost: str, name: str, incarnation: str | None) -> StreamId:
    """Return an incarnation of a stream, even if it is deleted; by default the newest, of those that are not if any is.

    Cost: a Query and a GetItem, and a few more if the newest is deleted. Raises StreamNotFoundError.
    """
    if incarnation is None:
        live = newest(table, vhost, name)
        if live is not None:
            return live
    found = [stream for stream in incarnations(table, vhost, name) if incarnation in {None, stream.incarnation}]
    if not found:
        what = "stream" if incarnation is None else f"incarnation {incarnation!r} of stream"
        raise StreamNotFoundError(f"no {what} {name!r} in vhost {vhost!r}, deleted or not")
    return found[-1]


def _newest(table: ManifestReads, vhost: str, name: str) -> StreamId:
    found = newest(table, vhost, name)
    if found is None:
        heads = [head for one in incarnations(table, vhost, name) if (head := table.head(one.incarnation)) is not None]
        if not heads:
            raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r}{_partitions_told(table, vhost, name)}")
        # Of several lives the one that an undeletion would bring back.
        raise deleted_error(next((head for head in reversed(heads) if head.can_be_undeleted), heads[-1]))
    return found


def _partitions_told(table: ManifestReads, vhost: str, name: str) -> str:
    """Return what to say of a sharded stream, whose streams have other names. Cost: one GetItem."""
    # Imported here because it takes milliseconds of a resolver's cold start, which needs `newest` alone.
    from coldstream.store.shard_maps import find_map  # noqa: PLC0415

    found = find_map(table, vhost, name)
    if found is None:
        return ""
    names = [one.name for one in found.current]
    more = ", …" if len(names) > NAMES_TOLD else ""
    return f": it is a sharded stream; name its partitions, {', '.join(map(repr, names[:NAMES_TOLD]))}{more}"


def deleted_error(head: Head) -> RemovedError:
    """Return what tells that a stream is deleted, and whether that can be undone."""
    if head.can_be_undeleted:
        return StreamDeletedError(str(head.stream), head.deleted_at or 0)
    return PurgedError(str(head.stream))


def _is_deleted(table: ManifestReads, incarnation: Incarnation) -> bool:
    head = table.head(incarnation)
    return head is not None and head.is_deleted
