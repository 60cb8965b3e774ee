"""`Resolver`: answers everything that the HTTP API can be asked, without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldstream.errors import InvalidQueryError, LogicalNameError, StreamNotFoundError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.missing import with_reason
from coldstream.manifest.sparse import STEP_BYTES
from coldstream.manifest.stream import Incarnation, StreamId, check_name
from coldstream.manifest.stream import incarnation as check_incarnation
from coldstream.resolve.answer import Answer, Bounds, Continue, Description, RangesQuery
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.permissions import Permissions
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import past_tail
from coldstream.store.manifest_values import StreamPage
from coldstream.store.sortkeys import registry_key
from coldstream.store.streams import newest
from coldstream.units import TimestampMs, now_ms

if TYPE_CHECKING:
    from coldstream.manifest.shard_map import ShardMap
    from coldstream.manifest.spec import OffsetSpec
    from coldstream.resolve.super_answer import SuperAnswer, SuperQuery
    from coldstream.store.ports import ManifestReads, ObjectReads

NAMES_KEPT_S = 10.0
"""How long it may go unnoticed that a stream was deleted, or undeleted, or that a name has a newer incarnation."""

MAX_NAMES_KEPT = 10_000

MAX_GAPS = 100
"""The most gaps in a description."""

MAX_STREAMS = 1000
"""The most streams in a page."""

HEADS_AT_ONCE = 16
"""Heads that are read at the same time, to leave deleted streams out of a list."""


@dataclass(slots=True)
class Resolver:
    """Answers from one table, with URLs into one bucket. Caches for ten seconds what a name means, and what exists.

    It remembers how large the entries of a stream are, and reads no more of them than an answer holds.

    A deleted stream is as one that never was, unless the caller asks for deleted ones. The resolver does not know who
    calls. Its users check callers against `permissions` before they ask it anything.
    """

    table: ManifestReads
    objects: ObjectReads
    url_expiry_s: int
    permissions: Permissions = field(default_factory=Permissions)
    now: Callable[[], TimestampMs] = now_ms
    clock: Callable[[], float] = time.monotonic
    _newest: dict[tuple[str, str], tuple[Incarnation, float]] = field(default_factory=dict, init=False, repr=False)
    _known_streams: dict[StreamId, float] = field(default_factory=dict, init=False, repr=False)
    _entry_bytes: dict[StreamId, int] = field(default_factory=dict, init=False, repr=False)

    def ranges(self, query: RangesQuery) -> Answer:
        """Resolve a query. Cost: that of `resolve`; for a stream that no query had lately, a GetItem.

        For a name that none had lately, also a Query.
        """
        if isinstance(query.start, Continue):
            cursor = Cursor.from_text(query.start.cursor)
            if query.incarnation not in (None, cursor.incarnation):
                raise InvalidQueryError("cursor", "belongs to another incarnation")
            stream = self._stream(query.vhost, query.name, cursor.incarnation)
            self._check_known(stream)
            start: OffsetSpec | Cursor = cursor
        else:
            stream = self._stream(query.vhost, query.name, query.incarnation)
            if query.incarnation is not None:
                self._check_known(stream)
            start = query.start
        request = ResolveRequest(stream, start, query.bounds, query.precise, self._most_entries(stream, query.bounds))
        answer = resolve(request, self.table, self.objects, now=self.now(), url_expiry_s=self.url_expiry_s)
        self._remember_size(answer)
        return answer

    def describe(self, vhost: str, name: str, incarnation: str | None = None, *, deleted: bool = False) -> Description:
        """Describe a stream, even an empty one; with `deleted` and its incarnation, also a deleted one.

        Cost: one GetItem, one Query if it has gaps, one if the archive begins later than the stream, and that of
        `past_tail` if anything was lost.
        """
        stream = self._stream(vhost, name, incarnation)
        head = self.table.head(stream.incarnation)
        if head is None or head.stream != stream or (head.is_deleted and not deleted):
            raise _not_found(stream)
        gaps = self.table.gaps(stream.incarnation, MAX_GAPS) if head.gaps else ()
        after = None if head.next_offset is None else past_tail(self.table, head, head.next_offset)
        return Description(head, gaps, self._before(head), after if isinstance(after, Gap) else None)

    def _before(self, head: Head) -> Gap | None:
        if head.first_offset is None or head.first_offset <= head.floor:
            return None
        missing = tuple(self.table.missing(head.stream.incarnation)) if head.losses or head.quarantined else ()
        return with_reason(Gap(head.floor, head.first_offset), missing)

    def shard_map(self, vhost: str, name: str) -> ShardMap:
        """Return the map of a logical name, as it is now. Cost: one GetItem. Raises LogicalNameError."""
        # Imported here because it takes milliseconds of a cold start, and no query for one stream needs it.
        from coldstream.store.shard_maps import find_map  # noqa: PLC0415

        check_name("vhost", vhost)
        check_name("name", name)
        found = find_map(self.table, vhost, name)
        if found is None:
            raise LogicalNameError(f"no sharded stream {name!r} in vhost {vhost!r}")
        return found

    def super_ranges(self, query: SuperQuery, may_read: Callable[[str, str], bool] | None = None) -> SuperAnswer:
        """Resolve a query for a sharded stream. Cost: a GetItem, and that of `ranges` for at most 32 partitions.

        Raises LogicalNameError, and NotPermittedError for a partition that `may_read` does not admit.
        """
        # Imported here for the same reason.
        from coldstream.resolve.super_ranges import super_ranges  # noqa: PLC0415

        return super_ranges(self.shard_map(query.vhost, query.name), query, self.ranges, may_read)

    def streams(
        self,
        cursor: str | None,
        limit: int,
        *,
        may_read: Callable[[str, str], bool] | None = None,
        deleted: bool = False,
    ) -> StreamPage:
        """List streams, every incarnation of each; with `deleted`, those that are deleted as well.

        With `may_read`, only those whose names it admits. Cost: one Query, and one for every thousand streams that are
        left out; without `deleted`, a GetItem for each stream. Raises InvalidQueryError, for `cursor` and `limit`.
        """
        if not 1 <= limit <= MAX_STREAMS:
            raise InvalidQueryError("limit", f"{limit} is not from 1 to {MAX_STREAMS}")
        if may_read is None and deleted:
            return self.table.streams(cursor, limit)
        # One stream more than the limit is looked for, and the cursor made from the last one returned. A cursor made
        # from a stream that was skipped would reveal that stream's name.
        found: list[StreamId] = []
        while len(found) <= limit:
            page = self.table.streams(cursor, limit + 1 if may_read is None else MAX_STREAMS)
            admitted = [stream for stream in page.streams if may_read is None or may_read(stream.vhost, stream.name)]
            found += admitted if deleted else self._not_deleted(admitted, limit + 1 - len(found))
            cursor = page.cursor
            if cursor is None:
                break
        if len(found) <= limit:
            return StreamPage(tuple(found), None)
        last = found[limit - 1]
        return StreamPage(tuple(found[:limit]), registry_key(last.vhost, last.name, last.incarnation))

    def _not_deleted(self, streams: Sequence[StreamId], limit: int) -> list[StreamId]:
        """Return the first streams that are not deleted. Cost: a GetItem for each that is looked at."""
        # Imported here because it takes milliseconds of a cold start, and only lists need it.
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        if not streams:
            return []
        found: list[StreamId] = []
        with ThreadPoolExecutor(min(HEADS_AT_ONCE, len(streams)), thread_name_prefix="heads") as pool:
            for start in range(0, len(streams), HEADS_AT_ONCE):
                some = streams[start : start + HEADS_AT_ONCE]
                heads = pool.map(lambda stream: self.table.head(stream.incarnation), some)
                found += [
                    stream for stream, head in zip(some, heads, strict=True) if head is None or not head.is_deleted
                ]
                if len(found) >= limit:
                    break
        return found[:limit]

    def _stream(self, vhost: str, name: str, incarnation: str | None) -> StreamId:
        """Return the incarnation that is asked for, by default the newest. Cost: that of `newest` if not cached."""
        check_name("vhost", vhost)
        check_name("name", name)
        if incarnation is not None:
            return StreamId(vhost, name, check_incarnation(incarnation))
        # Taken before the Query: a slow answer must not keep a name for longer than NAMES_KEPT_S.
        now = self.clock()
        cached = self._newest.get((vhost, name))
        if cached is not None and now < cached[1]:
            return StreamId(vhost, name, cached[0])
        stream = newest(self.table, vhost, name)
        if stream is None:
            raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r} is archived")
        if len(self._newest) >= MAX_NAMES_KEPT:
            self._newest.clear()
        self._newest[vhost, name] = (stream.incarnation, now + NAMES_KEPT_S)
        self._remember(stream, now)
        return stream

    def _check_known(self, stream: StreamId) -> None:
        """Raise StreamNotFoundError unless the incarnation is one of that stream's, and not deleted.

        Permissions are checked by names alone. Without this, a caller could read any stream by its incarnation, under
        the names of one that the caller may read. Cost: one GetItem, if that was not done lately.
        """
        now = self.clock()
        if now >= self._known_streams.get(stream, now):
            head = self.table.head(stream.incarnation)
            if head is None or head.stream != stream or head.is_deleted:
                raise _not_found(stream)
            self._remember(stream, now)

    def _most_entries(self, stream: StreamId, bounds: Bounds) -> int:
        """Return how many entries fill an answer, if they are as large as those of the last one: no more are read.

        If they turn out smaller, the answer ends early, with a cursor, and the next one knows.
        """
        entry_bytes = self._entry_bytes.get(stream)
        if entry_bytes is None:
            return bounds.max_ranges
        most_bytes = bounds.max_bytes
        if bounds.range_bytes is not None:
            # A range has the bytes between two points at least, however few were asked for.
            most_bytes = min(most_bytes, bounds.max_ranges * max(bounds.range_bytes, STEP_BYTES))
        return most_bytes // entry_bytes + 2  # the first and the last may be there in part

    def _remember_size(self, answer: Answer) -> None:
        entries = {part.key for part in answer.ranges}
        if not entries:
            return
        if len(self._entry_bytes) >= MAX_NAMES_KEPT:
            self._entry_bytes.clear()
        self._entry_bytes[answer.stream] = max(1, sum(part.data_bytes for part in answer.ranges) // len(entries))

    def _remember(self, stream: StreamId, now: float) -> None:
        if len(self._known_streams) >= MAX_NAMES_KEPT:
            self._known_streams.clear()
        self._known_streams[stream] = now + NAMES_KEPT_S


def _not_found(stream: StreamId) -> StreamNotFoundError:
    return StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
