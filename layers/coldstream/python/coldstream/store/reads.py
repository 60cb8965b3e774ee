"""The reads of the manifest in DynamoDB, however its API is called.

There are two ways to call it: with the client that PynamoDB writes with (`table`), and by plain signed HTTP
(`fast_reads`), for a function whose first answer must not wait until an SDK is loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from coldstream.errors import ConflictError, NotRecordedError, UnavailableError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    Missing,
    Quarantine,
    Row,
    Tombstone,
)
from coldstream.manifest.stream import Incarnation
from coldstream.retry import retrying
from coldstream.store import attributes, sortkeys
from coldstream.store.attributes import Attributes, attributes_of
from coldstream.store.manifest_values import LogPage, StreamOverview, StreamPage
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.manifest.change import Change
    from coldstream.manifest.policy import Policy
    from coldstream.manifest.state_item import StateItem

Operation = Literal["BatchGetItem", "GetItem", "Query", "TransactGetItems"]

BY_TIME = "by-time"
"""The index that orders the log of a stream by running timestamp."""

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 5
RETRIES = 3
"""Retries of one request, after exponential backoff with jitter."""

MAX_BATCH = 100
"""Items of one BatchGetItem."""

_BETWEEN = "#key BETWEEN :a AND :b"


class DynamoReads(ABC):
    """Implement `ports.ManifestReads` on the table `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    @abstractmethod
    def _call(self, operation: Operation, parameters: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Make a request of DynamoDB's API and return its answer, with binary content as bytes.

        Raises a ColdstreamError that names the call by `what`.
        """

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head; one GetItem."""
        item = self._get(incarnation, sortkeys.LOG_HEAD)
        return None if item is None else attributes.head_of(item)

    def heads(self, incarnations: Sequence[Incarnation]) -> Mapping[Incarnation, Head]:
        """Return the heads of streams; one BatchGetItem."""
        left = [_key(incarnation, sortkeys.LOG_HEAD) for incarnation in dict.fromkeys(incarnations)]
        assert len(left) <= MAX_BATCH, f"{len(left)} heads at once"
        found: dict[Incarnation, Head] = {}

        def read() -> None:
            wanted = {self._name: {"Keys": left, "ConsistentRead": True}}
            answer = self._call("BatchGetItem", {"RequestItems": wanted}, "read of heads")
            for item in answer["Responses"].get(self._name, ()):
                head = attributes.head_of(attributes_of(item))
                found[head.stream.incarnation] = head
            left[:] = answer.get("UnprocessedKeys", {}).get(self._name, {}).get("Keys", ())
            if left:
                raise _LeftOutError(f"read of heads: {len(left)} of them were left out")

        if left:
            retrying(_LeftOutError, attempts=1 + RETRIES, first_delay_s=1, max_delay_s=2**RETRIES)(read)
        return found

    def overview(self, incarnation: Incarnation, *, page_items: int | None = None) -> StreamOverview:
        """Return the head, and the items of what is missing or held; two Queries."""
        # Backwards: if a page does not hold all, the holds are there, and the gaps that people look at first.
        between = sortkeys.GAPS, sortkeys.LAST_HOLD
        page = self._page(incarnation, _BETWEEN, *between, limit=page_items, backwards=True)
        rows = [attributes.row_of(item) for item in reversed(_items(page))]
        gaps = tuple(row for row in rows if isinstance(row, Gap))
        holds = tuple(row for row in rows if isinstance(row, Hold))
        gaps_from = None
        if "LastEvaluatedKey" in page:
            gaps_from = gaps[0].first_offset if gaps else Offset(MAX_OFFSET)
        page = self._page(incarnation, _BETWEEN, sortkeys.LOG_HEAD, sortkeys.LAST_MISSING, limit=page_items)
        found = [attributes.row_of(item) for item in _items(page)]
        head = next((row for row in found if isinstance(row, Head)), None)
        missing = tuple(row for row in found if isinstance(row, Missing))
        return StreamOverview(head, gaps, holds, missing, gaps_from, "LastEvaluatedKey" in page)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return the log from the entry that holds `offset`; one Query."""
        # The key of an entry is its next offset: the first key above `offset` is that of the entry which holds it.
        between = sortkeys.log_key(Offset(offset + 1)), sortkeys.LOG_HEAD
        # One item more than the limit, so that the head shows after the last entry.
        return _log_page(self._query(incarnation, _BETWEEN, *between, limit=limit + 1), limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return the log from the first entry that can hold a chunk at or after `timestamp`; one Query."""
        start = sortkeys.time_from(timestamp)
        return _log_page(self._query(incarnation, "#key >= :a", start, limit=limit + 1, index=BY_TIME), limit)

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        """Return the last entries, and the head; one Query."""
        between = sortkeys.log_key(Offset(0)), sortkeys.LOG_HEAD
        return _log_page(self._query(incarnation, _BETWEEN, *between, limit=limit + 1, backwards=True)[::-1], limit)

    def log_at_once(self, incarnation: Incarnation, next_offsets: Sequence[Offset]) -> LogPage | None:
        """Return the entries that end at these offsets, and the head, of one moment; one TransactGetItems."""
        keys = [*map(sortkeys.log_key, next_offsets), sortkeys.LOG_HEAD]
        found = self._at_once(incarnation, keys)
        return _log_page(found, len(next_offsets)) if found is not None and len(found) == len(keys) else None

    def items_at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> Mapping[str, Row] | None:
        """Return the items of these keys, of one moment; one TransactGetItems."""
        found = self._at_once(incarnation, keys)
        return None if found is None else {str(item["item"]): attributes.row_of(item) for item in found}

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return the log backwards from the entry that ends at or before `offset`; one Query."""
        between = sortkeys.log_key(Offset(0)), sortkeys.log_key(offset)
        found = self._query(incarnation, _BETWEEN, *between, limit=limit, backwards=True)
        return tuple(map(attributes.entry_of, found))

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`; one GetItem."""
        item = self._get(incarnation, sortkeys.gap_key(first_offset))
        return None if item is None else attributes.gap_of(item)

    def gaps(
        self,
        incarnation: Incarnation,
        limit: int,
        *,
        from_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
    ) -> tuple[Gap, ...]:
        """Return the first gaps from an offset on; one Query."""
        between = sortkeys.gap_key(from_offset), sortkeys.LAST_GAP
        found = self._query(incarnation, _BETWEEN, *between, limit=limit)
        return tuple(map(attributes.gap_of, found))

    def gaps_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[Gap, ...]:
        """Return the gaps backwards from the one that begins before `offset`; one Query."""
        between = sortkeys.gap_key(Offset(0)), sortkeys.gap_key(offset)
        # One more than the limit: one gap may begin at `offset`, and is dropped.
        found = self._query(incarnation, _BETWEEN, *between, limit=limit + 1, backwards=True)
        return tuple(gap for gap in map(attributes.gap_of, found) if gap.first_offset < offset)[:limit]

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        """Yield all losses, then all quarantines; one Query a megabyte of them."""
        between = sortkeys.MISSING, sortkeys.LAST_MISSING
        yield from map(attributes.missing_of, self._all(incarnation, _BETWEEN, *between))

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return what begins at or before `offset`, nearest first; one Query."""
        # BETWEEN includes its upper bound, but no key equals this one: every key goes on after its first offset.
        between = sortkeys.missing_from(kind, Offset(0)), sortkeys.missing_from(kind, Offset(offset + 1))
        found = self._query(incarnation, _BETWEEN, *between, limit=limit, backwards=True)
        return tuple(map(attributes.missing_of, found))

    def missing_after(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return what begins after `offset`, in order; one Query."""
        between = sortkeys.missing_from(kind, Offset(offset + 1)), sortkeys.missing_from(kind, Offset(MAX_OFFSET + 1))
        found = self._query(incarnation, _BETWEEN, *between, limit=limit)
        return tuple(map(attributes.missing_of, found))

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return the quarantine of a segment; one GetItem."""
        item = self._get(incarnation, sortkeys.quarantine_key(first_offset, next_offset))
        return None if item is None else attributes.quarantine_of(item)

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return the first tombstones that are due; one Query."""
        between = sortkeys.TOMBSTONES, sortkeys.due_from(TimestampMs(due_by + 1))
        found = self._query(incarnation, _BETWEEN, *between, limit=limit)
        return tuple(map(attributes.tombstone_of, found))

    def journal(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[JournalEvent]:
        """Yield the events after a revision; one Query a page, which ends at a megabyte of them."""
        between = sortkeys.event_key(after_revision + 1), sortkeys.LAST_EVENT
        yield from map(attributes.event_of, self._all(incarnation, _BETWEEN, *between, limit=page_items))

    def recorded_changes(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[tuple[JournalEvent, Change]]:
        """Yield the events after a revision, each with its change; a GetItem, and a Query a page, as `journal`."""
        from coldstream.manifest.recorded import change_of  # noqa: PLC0415  a resolver's first answer does without

        head = self.head(incarnation)
        if head is None:
            return
        between = sortkeys.event_key(after_revision + 1), sortkeys.LAST_EVENT
        unrecorded: int | None = None
        for item in self._all(incarnation, _BETWEEN, *between, limit=page_items):
            event = attributes.event_of(item)
            if "change" not in item:
                unrecorded = unrecorded or event.revision
            elif unrecorded is not None:
                raise NotRecordedError(incarnation, unrecorded, event.revision)
            else:
                yield event, change_of(head.stream, event, item["change"])
        if unrecorded is not None:
            raise NotRecordedError(incarnation, unrecorded, None)

    def holds(self, incarnation: Incarnation) -> tuple[Hold, ...]:
        """Return all holds; one Query a megabyte of them."""
        return tuple(map(attributes.hold_of, self._all(incarnation, "begins_with(#key, :a)", sortkeys.HOLDS)))

    def erasures(self, incarnation: Incarnation) -> tuple[Erasure, ...]:
        """Return all erasures; one Query a megabyte of them."""
        return tuple(map(attributes.erasure_of, self._all(incarnation, "begins_with(#key, :a)", sortkeys.ERASURES)))

    def rows(
        self, incarnation: Incarnation, kind: str = "", *, after: str = "", page_items: int | None = None
    ) -> Iterator[Row]:
        """Yield the items whose sort keys begin with `kind`, from after a sort key on; a Query a page, as `journal`."""
        # A key prefix and a lower bound need one range: no character of a sort key sorts after the last one.
        first = max(kind, f"{after}\0" if after else " ")
        between = first, f"{kind}\U0010ffff"
        yield from map(attributes.row_of, self._all(incarnation, _BETWEEN, *between, limit=page_items))

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream; one Query. Raises InvalidNameError."""
        begin = sortkeys.names_key(vhost, name)
        newest = self._query(sortkeys.REGISTRY, "begins_with(#key, :a)", begin, limit=1, backwards=True)
        return attributes.stream_of(newest[0]).incarnation if newest else None

    def bound_cluster(self, vhost: str, name: str) -> Cluster:
        """Return the cluster that a stream is bound to; one GetItem. Raises InvalidNameError."""
        item = self._get(sortkeys.CLUSTERS, sortkeys.names_key(vhost, name))
        return NO_CLUSTER if item is None else attributes.cluster_of(item)

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, in the order of their names' hashes; one Query."""
        after = () if cursor is None else ("#key > :a", sortkeys.check_cursor(cursor))
        answer = self._page(sortkeys.REGISTRY, *after, limit=limit + 1)
        found = _items(answer)
        page = found[:limit]
        # A page may end at a megabyte, before it reaches the limit.
        more = len(found) > limit or "LastEvaluatedKey" in answer
        return StreamPage(tuple(map(attributes.stream_of, page)), page[-1]["item"] if more else None)

    def grants(self) -> tuple[Grant, ...]:
        """Return all grants; one Query a megabyte of them."""
        return tuple(map(attributes.grant_of, self._all(sortkeys.ACCESS, "")))

    def policies(self) -> tuple[Policy, ...]:
        """Return all policies, by name; one Query a megabyte of them."""
        return tuple(map(attributes.policy_of, self._all(sortkeys.POLICIES, "")))

    def cursor(self, name: str) -> bytes | None:
        """Return how far a run has got; one GetItem."""
        item = self._get(sortkeys.CURSORS, name)
        return None if item is None else item.get("data", b"")

    def state_item(self, partition: str, key: str) -> StateItem | None:
        """Return a state item; one GetItem."""
        item = self._get(partition, key)
        return None if item is None else attributes.state_of(item)

    def state_items(self, partition: str, *, after: str = "", page_items: int | None = None) -> Iterator[StateItem]:
        """Yield the state items of a partition; one Query a page."""
        condition = ("#key > :a", after) if after else ("",)
        yield from map(attributes.state_of, self._all(partition, *condition, limit=page_items))

    def _get(self, partition: str, key: str) -> Attributes | None:
        parameters = {"TableName": self._name, "Key": _key(partition, key), "ConsistentRead": True}
        found = self._call("GetItem", parameters, f"read of {partition}").get("Item")
        return None if found is None else attributes_of(found)

    def _at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> list[Attributes] | None:
        """Read items of one moment, in the order of the keys; None while a writer holds one of them."""
        gets = [{"Get": {"TableName": self._name, "Key": _key(incarnation, key)}} for key in keys]
        try:
            answer = self._call("TransactGetItems", {"TransactItems": gets}, f"read of {incarnation}")
        except ConflictError:
            return None
        return [attributes_of(one["Item"]) for one in answer["Responses"] if "Item" in one]

    def _all(self, partition: str, condition: str, *values: str, limit: int | None = None) -> Iterator[Attributes]:
        """Read page after page, each of `limit` items at most, or of a megabyte."""
        start: Mapping[str, Any] | None = None
        while True:
            page = self._page(partition, condition, *values, limit=limit, start=start)
            yield from _items(page)
            # An empty page need not be the last. Only a page without this key is.
            if (start := page.get("LastEvaluatedKey")) is None:
                return

    def _query(
        self,
        partition: str,
        condition: str,
        *values: str,
        limit: int,
        backwards: bool = False,
        index: str | None = None,
    ) -> list[Attributes]:
        """Read one page, which ends at `limit` items or at a megabyte."""
        return _items(self._page(partition, condition, *values, limit=limit, backwards=backwards, index=index))

    def _page(
        self,
        partition: str,
        condition: str = "",
        *values: str,
        limit: int | None = None,
        backwards: bool = False,
        index: str | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Read one page of a partition. `values` are those of :a and :b in the condition on the sort key."""
        # Attributes need placeholders: words like "item" are reserved by DynamoDB.
        named = {"#stream": "stream"} | ({"#key": "item" if index is None else "time"} if condition else {})
        parameters: dict[str, Any] = {
            "TableName": self._name,
            "KeyConditionExpression": " AND ".join(filter(None, ("#stream = :stream", condition))),
            "ExpressionAttributeNames": named,
            "ExpressionAttributeValues": {
                ":stream": {"S": partition},
                **{name: {"S": value} for name, value in zip((":a", ":b"), values, strict=False)},
            },
            "ScanIndexForward": not backwards,
            "ConsistentRead": index is None,  # DynamoDB refuses it for an index
        }
        given = {"Limit": limit, "IndexName": index, "ExclusiveStartKey": start}
        parameters |= {name: value for name, value in given.items() if value is not None}
        return self._call("Query", parameters, "query of the manifest")


class _LeftOutError(UnavailableError):
    """DynamoDB read a part of a batch, and asks to be asked again for the rest."""


def _key(partition: str, key: str) -> Mapping[str, Any]:
    return {"stream": {"S": partition}, "item": {"S": key}}


def _items(page: Mapping[str, Any]) -> list[Attributes]:
    return [attributes_of(item) for item in page["Items"]]


def _log_page(found: list[Attributes], limit: int) -> LogPage:
    head = attributes.head_of(found.pop()) if found and found[-1]["item"] == sortkeys.LOG_HEAD else None
    return LogPage(tuple(map(attributes.entry_of, found[:limit])), head)
