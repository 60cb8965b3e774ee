"""Which incarnation a stream's names mean, kept for some seconds: pages of one stream are asked for one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.stream import StreamId, check_name
from coldstream.manifest.stream import incarnation as check_incarnation
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import select_also_deleted

KEPT_S = 10.0
"""How long it may go unnoticed that a stream was deleted, or that a name has a newer incarnation."""

MAX_KEPT = 10_000

_Names = tuple[str, str, str | None]


class StreamNames:
    """Finds streams by their names. Threads may share it; each process needs one."""

    def __init__(self, table: ManifestReads, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._kept: dict[_Names, tuple[StreamId, bool, float]] = {}
        self._lock = threading.Lock()

    def find(self, vhost: str, name: str, incarnation: str | None = None, *, deleted: bool = False) -> StreamId:
        """Return an incarnation of a stream, by default the newest that is not deleted.

        With `deleted` also a deleted one, if no other is there. Cost: nothing if it was found in the last ten seconds;
        else a Query and two GetItems, one GetItem for a given incarnation, and a few more if the newest is deleted.
        Raises InvalidNameError, StreamNotFoundError.
        """
        check_name("vhost", vhost)
        check_name("stream name", name)
        # Taken before the reads: a slow answer must not keep a name for longer than KEPT_S.
        key, now = (vhost, name, incarnation), self._clock()
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or now >= kept[2]:
            kept = (*self._look_up(*key), now + KEPT_S)
            with self._lock:
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[key] = kept
        stream, is_deleted, _ = kept
        if is_deleted and not deleted:
            raise _not_found(vhost, name, incarnation)
        return stream

    def _look_up(self, vhost: str, name: str, incarnation: str | None) -> tuple[StreamId, bool]:
        if incarnation is None:
            stream = select_also_deleted(self._table, vhost, name, None)
        else:
            stream = StreamId(vhost, name, check_incarnation(incarnation))
        # Of a given incarnation only the head tells whose it is: without this, any stream could be read under the
        # names of one that the caller may read.
        head = self._table.head(stream.incarnation)
        if head is None or head.stream != stream:
            raise _not_found(vhost, name, incarnation)
        return stream, head.is_deleted


def _not_found(vhost: str, name: str, incarnation: str | None) -> StreamNotFoundError:
    of = "" if incarnation is None else f", incarnation {incarnation[:255]!r},"
    return StreamNotFoundError(f"no stream {name!r}{of} in vhost {vhost!r} is archived")
