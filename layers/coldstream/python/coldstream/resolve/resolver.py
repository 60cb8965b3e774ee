"""`Resolver`: answers everything that the HTTP API can be asked, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.missing import with_reason
from coldstream.manifest.stream import Incarnation, StreamId, check_name
from coldstream.manifest.stream import incarnation as check_incarnation
from coldstream.resolve.answer import Answer, Continue, Description, RangesQuery
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import past_tail
from coldstream.store.ports import ManifestReads, ObjectReads, StreamPage
from coldstream.store.sortkeys import registry_key
from coldstream.units import Offset, TimestampMs, now_ms

NAMES_KEPT_S = 10.0
"""How long a newer incarnation of a stream may go unnoticed by queries that name no incarnation."""

MAX_NAMES_KEPT = 10_000

MAX_GAPS = 100
"""The most gaps in a description."""

MAX_STREAMS = 1000
"""The most streams in a page."""


@dataclass(slots=True)
class Resolver:
    """Answers from one table, with URLs into one bucket. Caches for ten seconds which incarnation a name means.

    The resolver does not know who calls. Its users check callers against `permissions` before they ask it anything.
    """

    table: ManifestReads
    objects: ObjectReads
    url_expiry_s: int
    permissions: Permissions = field(default_factory=Permissions)
    now: Callable[[], TimestampMs] = now_ms
    clock: Callable[[], float] = time.monotonic
    _newest: dict[tuple[str, str], tuple[Incarnation, float]] = field(default_factory=dict, init=False, repr=False)
    _known_streams: set[StreamId] = field(default_factory=set, init=False, repr=False)

    def ranges(self, query: RangesQuery) -> Answer:
        """Resolve a query. Cost: that of `resolve`, and a Query for a name that no query had lately."""
        if isinstance(query.start, Continue):
            cursor = Cursor.from_text(query.start.cursor)
            if query.incarnation not in (None, cursor.incarnation):
                raise InvalidQueryError("cursor", "belongs to another incarnation")
            stream = self._stream(query.vhost, query.name, cursor.incarnation)
            self._check_known(stream)
            request = ResolveRequest(stream, cursor, query.bounds, query.precise)
        else:
            stream = self._stream(query.vhost, query.name, query.incarnation)
            if query.incarnation is not None:
                self._check_known(stream)
            request = ResolveRequest(stream, query.start, query.bounds, query.precise)
        return resolve(request, self.table, self.objects, now=self.now(), url_expiry_s=self.url_expiry_s)

    def describe(self, vhost: str, name: str, incarnation: str | None = None) -> Description:
        """Describe a stream, even an empty one.

        Cost: one GetItem, one Query if it has gaps, one if the archive begins later than the stream, and that of
        `past_tail` if anything was lost.
        """
        stream = self._stream(vhost, name, incarnation)
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
        """List streams, every incarnation of each; with `may_read`, only those whose names it admits.

        Cost: one Query; with `may_read`, one for every thousand streams that it skips. Raises InvalidQueryError, for
        `cursor` and `limit`.
        """
        if not 1 <= limit <= MAX_STREAMS:
            raise InvalidQueryError("limit", f"{limit} is not from 1 to {MAX_STREAMS}")
        if may_read is None:
            return self.table.streams(cursor, limit)
        # One stream more than the limit is looked for, and the cursor made from the last one returned. A cursor made
        # from a stream that was skipped would reveal that stream's name.
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

    def _stream(self, vhost: str, name: str, incarnation: str | None) -> StreamId:
        """Return the incarnation that is asked for, by default the newest. Cost: a Query for a name not cached."""
        check_name("vhost", vhost)
        check_name("name", name)
        if incarnation is not None:
            return StreamId(vhost, name, check_incarnation(incarnation))
        # Taken before the Query: a slow answer must not keep a name for longer than NAMES_KEPT_S.
        now = self.clock()
        cached = self._newest.get((vhost, name))
        if cached is not None and now < cached[1]:
            return StreamId(vhost, name, cached[0])
        found = self.table.incarnation_of(vhost, name)
        if found is None:
            raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r} is archived")
        if len(self._newest) >= MAX_NAMES_KEPT:
            self._newest.clear()
        self._newest[vhost, name] = (found, now + NAMES_KEPT_S)
        stream = StreamId(vhost, name, found)
        self._remember(stream)
        return stream

    def _check_known(self, stream: StreamId) -> None:
        """Raise StreamNotFoundError unless the incarnation is one of that stream's. Cost: one GetItem, the first time.

        Permissions are checked by names alone. Without this, a caller could read any stream by its incarnation, under
        the names of one that the caller may read.
        """
        if stream not in self._known_streams:
            head = self.table.head(stream.incarnation)
            if head is None or head.stream != stream:
                raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
            self._remember(stream)

    def _remember(self, stream: StreamId) -> None:
        if len(self._known_streams) >= MAX_NAMES_KEPT:
            self._known_streams.clear()
        self._known_streams.add(stream)
