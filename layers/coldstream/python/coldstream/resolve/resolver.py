"""The resolver: all that the HTTP API can be asked, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.missing import with_reason
from coldstream.manifest.stream import Incarnation, StreamId, check_name, incarnation
from coldstream.resolve.answer import Answer, Continue, Description, RangesQuery
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import past_tail
from coldstream.store.ports import ManifestReads, ObjectReads, StreamPage
from coldstream.store.sortkeys import registry_key
from coldstream.units import Offset, TimestampMs, now_ms

NAMES_KEPT_S = 10.0
"""How long a stream that was declared again may go unnoticed by those who do not name the incarnation."""

MAX_NAMES_KEPT = 10_000

MAX_GAPS = 100
"""Of a description."""

MAX_STREAMS = 1000
"""Of a page of streams."""


@dataclass(slots=True)
class Resolver:
    """Answers from one table, with URLs into one bucket. Remembers for ten seconds which incarnation a name means.

    `permissions` are for those who ask it to hold callers against: it does not know who calls.
    """

    table: ManifestReads
    objects: ObjectReads
    url_expiry_s: int
    permissions: Permissions = field(default_factory=Permissions)
    now: Callable[[], TimestampMs] = now_ms
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[str, str], tuple[Incarnation, float]] = field(default_factory=dict, init=False, repr=False)
    _lives: set[StreamId] = field(default_factory=set, init=False, repr=False)

    def ranges(self, query: RangesQuery) -> Answer:
        """Resolve a query. Cost: that of `resolve`, and a Query for a name that has not been asked for lately."""
        if isinstance(query.start, Continue):
            cursor = Cursor.from_text(query.start.cursor)
            if query.incarnation not in (None, cursor.incarnation):
                raise InvalidQueryError("cursor", "is of another incarnation")
            stream = self._proven(self._stream(query.vhost, query.name, cursor.incarnation))
            request = ResolveRequest(stream, cursor, query.bounds, query.precise)
        else:
            stream = self._stream(query.vhost, query.name, query.incarnation)
            if query.incarnation is not None:
                self._proven(stream)
            request = ResolveRequest(stream, query.start, query.bounds, query.precise)
        return resolve(request, self.table, self.objects, now=self.now(), url_expiry_s=self.url_expiry_s)

    def describe(self, vhost: str, name: str, life: str | None = None) -> Description:
        """Describe a stream, also an empty one.

        Cost: one GetItem, one Query if it has gaps, one if the archive begins later than the stream, and that of
        `past_tail` if anything was lost.
        """
        stream = self._stream(vhost, name, life)
        head = self.table.head(stream.incarnation)
        if head is None or head.stream != stream:
            raise StreamNotFoundError(f"no {stream}, incarnation {stream.incarnation}")
        gaps = self.table.gaps(stream.incarnation, MAX_GAPS) if head.gaps else ()
        after = None if head.next_offset is None else past_tail(self.table, head, head.next_offset)
        return Description(head, gaps, self._before(head), after if isinstance(after, Gap) else None)

    def _before(self, head: Head) -> Gap | None:
        if not head.first_offset:
            return None
        missing = tuple(self.table.missing(head.stream.incarnation)) if head.losses or head.quarantined else ()
        return with_reason(Gap(Offset(0), head.first_offset), missing)

    def streams(
        self, cursor: str | None, limit: int, *, may_read: Callable[[str, str], bool] | None = None
    ) -> StreamPage:
        """List streams, every incarnation of each, with `may_read` only those that it says of their names.

        Cost: one Query; with `may_read` one for every thousand streams that are passed over, for a page that ended at
        one of these would tell by its cursor that it is there. Raises InvalidQueryError (cursor, limit).
        """
        if not 1 <= limit <= MAX_STREAMS:
            raise InvalidQueryError("limit", f"{limit} is not from 1 to {MAX_STREAMS}")
        if may_read is None:
            return self.table.streams(cursor, limit)
        found: list[StreamId] = []
        while len(found) <= limit:
            page = self.table.streams(cursor, MAX_STREAMS)
            found += [stream for stream in page.streams if may_read(stream.vhost, stream.name)]
            cursor = page.cursor
            if cursor is None:
                break
        if len(found) <= limit:
            return StreamPage(tuple(found), None)
        last = found[limit - 1]
        return StreamPage(tuple(found[:limit]), registry_key(last.vhost, last.name, last.incarnation))

    def _stream(self, vhost: str, name: str, life: str | None) -> StreamId:
        check_name("vhost", vhost)
        check_name("name", name)
        if life is not None:
            return StreamId(vhost, name, incarnation(life))
        now = self.clock()
        kept = self._kept.get((vhost, name))
        if kept is not None and now < kept[1]:
            return StreamId(vhost, name, kept[0])
        found = self.table.incarnation_of(vhost, name)
        if found is None:
            raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r} is archived")
        if len(self._kept) >= MAX_NAMES_KEPT:
            self._kept.clear()
        self._kept[vhost, name] = (found, now + NAMES_KEPT_S)
        stream = StreamId(vhost, name, found)
        self._remember(stream)
        return stream

    def _proven(self, stream: StreamId) -> StreamId:
        """Refuse an incarnation that is unknown or another stream's, whose names say who may read it.

        Cost: one GetItem, the first time.
        """
        if stream not in self._lives:
            head = self.table.head(stream.incarnation)
            if head is None or head.stream != stream:
                raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
            self._remember(stream)
        return stream

    def _remember(self, stream: StreamId) -> None:
        if len(self._lives) >= MAX_NAMES_KEPT:
            self._lives.clear()
        self._lives.add(stream)
