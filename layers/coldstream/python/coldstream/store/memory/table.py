"""The in-memory double of the manifest table.

It keeps the rules of the real one: conditions, and all or nothing. `requests` counts the requests that the real one
would have sent, by the name of the AWS call. To make a call fail, subclass it. What the real one does not promise, a
`visibility` takes away: with one, transactions may show by half, and the index lags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from threading import RLock
from typing import TypeVar

from coldstream.errors import LostRaceError
from coldstream.manifest.access import Grant
from coldstream.manifest.change import MAX_ITEMS, Change
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
from coldstream.manifest.policy import Policy
from coldstream.manifest.recorded import change_of, recorded
from coldstream.manifest.state import ManifestState
from coldstream.manifest.state_item import StateItem, check_states
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.rows import items_of
from coldstream.store.memory.visibility import Items, ShownPartition, Visibility, changed
from coldstream.store.ports import LogPage, StreamOverview, StreamPage
from coldstream.store.sortkeys import (
    ERASURES,
    GAPS,
    HOLDS,
    LAST_EVENT,
    LAST_GAP,
    LAST_HOLD,
    LAST_MISSING,
    LOG_HEAD,
    MISSING,
    TOMBSTONES,
    check_cursor,
    due_from,
    event_key,
    gap_key,
    grant_key,
    log_key,
    missing_from,
    names_key,
    quarantine_key,
    registry_key,
    time_from,
)
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

_Kind = TypeVar("_Kind")

_LAST = "\U0010ffff"


class MemoryTable:
    """Implement `ports.ManifestTable` in memory. Each read or write walks all entries of a stream.

    Changes show at once, or as `visibility` decides.
    """

    def __init__(self, visibility: Visibility | None = None) -> None:
        self.requests: Counter[str] = Counter()
        self._visibility = visibility
        self._partitions: dict[Incarnation, ManifestState] = {}
        self._recorded: dict[Incarnation, dict[int, bytes]] = {}
        self._visible: dict[Incarnation, ShownPartition] = {}
        self._registry: dict[str, StreamId] = {}
        self._newest: dict[str, str] = {}
        """The key in the registry of the newest incarnation, by names: with thousands of streams, a scan takes long."""
        self._clusters: dict[str, Cluster] = {}
        self._grants: dict[str, Grant] = {}
        self._policies: dict[str, Policy] = {}
        self._cursors: dict[str, bytes] = {}
        self._states: dict[tuple[str, str], StateItem] = {}
        self._lock = RLock()  # a `Visibility` may call `apply` from inside `apply`

    def settle(self) -> None:
        """Show everything that was written."""
        with self._lock:
            for shown in self._visible.values():
                shown.settle()

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head."""
        return self._get(incarnation, LOG_HEAD, Head)

    def heads(self, incarnations: Sequence[Incarnation]) -> Mapping[Incarnation, Head]:
        """Return the heads of streams."""
        wanted = dict.fromkeys(incarnations)
        assert len(wanted) <= MAX_ITEMS, f"{len(wanted)} heads at once"
        if wanted:
            self._count("BatchGetItem")
        found = ((incarnation, self._read(incarnation, LOG_HEAD, Head)) for incarnation in wanted)
        return {incarnation: head for incarnation, head in found if head is not None}

    def overview(self, incarnation: Incarnation, *, page_items: int | None = None) -> StreamOverview:
        """Return the head, and the items of what is missing or held."""
        rows = self._query(incarnation, GAPS, LAST_HOLD, page_items, backwards=True, every_kind=True)[::-1]
        gaps, is_cut = _all_of(Gap, rows), len(rows) == page_items
        first = gaps[0].first_offset if gaps else Offset(MAX_OFFSET)
        found = self._query(incarnation, LOG_HEAD, LAST_MISSING, page_items, every_kind=True)
        head = next(iter(_all_of(Head, found)), None)
        missing = tuple(one for one in found if isinstance(one, Missing))
        holds = _all_of(Hold, rows)
        return StreamOverview(head, gaps, holds, missing, first if is_cut else None, len(found) == page_items)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return the log from the entry that holds `offset`."""
        return _log_page(self._query(incarnation, log_key(Offset(offset + 1)), LOG_HEAD, limit + 1), limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return the log from the first entry that can hold a chunk at or after `timestamp`."""
        self._count("Query")
        shown = self._weak(incarnation)
        if shown is not None:
            return _log_page(list(islice(shown.query_index(time_from(timestamp)), limit + 1)), limit)
        partition = self._partitions.get(incarnation, ManifestState())
        late = (entry for entry in partition.entries.values() if entry.running_timestamp >= timestamp)
        found = sorted(late, key=lambda entry: (entry.running_timestamp, entry.next_offset))
        return _log_page([*found, partition.head][: limit + 1], limit)

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        """Return the last entries, and the head."""
        found = self._query(incarnation, log_key(Offset(0)), LOG_HEAD, limit + 1, backwards=True)
        return _log_page(found[::-1], limit)

    def log_at_once(self, incarnation: Incarnation, next_offsets: Sequence[Offset]) -> LogPage | None:
        """Return the entries that end at these offsets, and the head, all at one moment."""
        self._count("TransactGetItems")
        keys = [*map(log_key, next_offsets), LOG_HEAD]
        shown = self._weak(incarnation)
        if shown is not None and shown.conflict(keys) is not None:
            return None
        items = items_of(self._partitions.get(incarnation, ManifestState()), "log")
        return _log_page([items[key] for key in keys], len(next_offsets)) if items.keys() >= set(keys) else None

    def items_at_once(self, incarnation: Incarnation, keys: Sequence[str]) -> Mapping[str, Row] | None:
        """Return the items of these keys, all at one moment."""
        self._count("TransactGetItems")
        shown = self._weak(incarnation)
        if shown is not None and shown.conflict(keys) is not None:
            return None
        found: dict[str, Row] = {}
        items = items_of(self._partitions.get(incarnation, ManifestState()))
        for key in keys:
            item = items.get(key)
            if isinstance(item, Row):
                found[key] = item
        return found

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return the log backwards from the entry that ends at or before `offset`."""
        found = self._query(incarnation, log_key(Offset(0)), log_key(offset), limit, backwards=True)
        return _all_of(FragmentEntry, found)

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`."""
        return self._get(incarnation, gap_key(first_offset), Gap)

    def gaps(
        self,
        incarnation: Incarnation,
        limit: int,
        *,
        from_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
    ) -> tuple[Gap, ...]:
        """Return the first gaps from an offset on."""
        return _all_of(Gap, self._query(incarnation, gap_key(from_offset), LAST_GAP, limit))

    def gaps_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[Gap, ...]:
        """Return the gaps backwards from the one that begins before `offset`."""
        between = gap_key(Offset(0)), gap_key(offset)
        found = _all_of(Gap, self._query(incarnation, *between, limit + 1, backwards=True))
        return tuple(gap for gap in found if gap.first_offset < offset)[:limit]

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        """Yield all losses, then all quarantines."""
        for one in self._query(incarnation, MISSING, LAST_MISSING):
            assert isinstance(one, Missing)
            yield one

    def missing_before(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return losses or quarantines that begin at or before `offset`, nearest first."""
        between = missing_from(kind, Offset(0)), missing_from(kind, Offset(offset + 1))
        return _all_of(kind, self._query(incarnation, *between, limit, backwards=True))

    def missing_after(
        self, incarnation: Incarnation, kind: type[Missing], offset: Offset, limit: int
    ) -> tuple[Missing, ...]:
        """Return losses or quarantines that begin after `offset`, in order."""
        between = missing_from(kind, Offset(offset + 1)), missing_from(kind, Offset(MAX_OFFSET + 1))
        return _all_of(kind, self._query(incarnation, *between, limit))

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return the quarantine of a segment."""
        return self._get(incarnation, quarantine_key(first_offset, next_offset), Quarantine)

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return the first tombstones that are due."""
        found = self._query(incarnation, TOMBSTONES, due_from(TimestampMs(due_by + 1)), limit)
        return _all_of(Tombstone, found)

    def journal(
        self,
        incarnation: Incarnation,
        after_revision: int = 0,
        *,
        page_items: int | None = None,  # noqa: ARG002  here all is one page
    ) -> Iterator[JournalEvent]:
        """Yield the events after a revision."""
        yield from _all_of(JournalEvent, self._query(incarnation, event_key(after_revision + 1), LAST_EVENT))

    def recorded_changes(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[tuple[JournalEvent, Change]]:
        """Yield the events after a revision, each with its change."""
        head = self.head(incarnation)
        if head is None:
            return
        for event in self.journal(incarnation, after_revision, page_items=page_items):
            yield event, change_of(head.stream, event, self._recorded[incarnation][event.revision])

    def holds(self, incarnation: Incarnation) -> tuple[Hold, ...]:
        """Return all holds."""
        return _all_of(Hold, self._query(incarnation, HOLDS, f"{HOLDS}{_LAST}"))

    def erasures(self, incarnation: Incarnation) -> tuple[Erasure, ...]:
        """Return all erasures."""
        return _all_of(Erasure, self._query(incarnation, ERASURES, f"{ERASURES}{_LAST}"))

    def rows(
        self,
        incarnation: Incarnation,
        kind: str = "",
        *,
        after: str = "",
        page_items: int | None = None,  # noqa: ARG002  here all is one page
    ) -> Iterator[Row]:
        """Yield the items whose sort keys begin with `kind`, from after a sort key on."""
        first = max(kind, f"{after}\0" if after else "")
        for one in self._query(incarnation, first, f"{kind}{_LAST}", every_kind=True):
            assert isinstance(one, Row)
            yield one

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream. Raises InvalidNameError."""
        names = names_key(vhost, name)
        self._count("Query")
        newest = self._registry.get(self._newest.get(names, ""))
        return None if newest is None else newest.incarnation

    def bound_cluster(self, vhost: str, name: str) -> Cluster:
        """Return the cluster that a stream is bound to. Raises InvalidNameError."""
        key = names_key(vhost, name)
        self._count("GetItem")
        return self._clusters.get(key, NO_CLUSTER)

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound. Raises InvalidNameError."""
        key = names_key(vhost, name)
        self._count("PutItem")
        with self._lock:
            return self._clusters.setdefault(key, cluster)

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, in the order of their names' hashes."""
        after = "" if cursor is None else check_cursor(cursor)
        self._count("Query")
        keys = sorted(key for key in list(self._registry) if key > after)
        page = keys[:limit]
        return StreamPage(tuple(self._registry[key] for key in page), page[-1] if len(keys) > limit else None)

    def grants(self) -> tuple[Grant, ...]:
        """Return all grants."""
        self._count("Query")
        return tuple(grant for _, grant in sorted(self._grants.items()))

    def put_grant(self, grant: Grant) -> None:
        """Write a grant."""
        self._count("PutItem")
        self._grants[grant_key(grant)] = grant

    def delete_grant(self, grant: Grant) -> bool:
        """Delete a grant."""
        self._count("DeleteItem")
        return self._grants.pop(grant_key(grant), None) is not None

    def policies(self) -> tuple[Policy, ...]:
        """Return all policies."""
        self._count("Query")
        return tuple(policy for _, policy in sorted(self._policies.items()))

    def put_policy(self, policy: Policy) -> None:
        """Write a policy."""
        self._count("PutItem")
        self._policies[policy.name] = policy

    def delete_policy(self, name: str) -> bool:
        """Delete a policy."""
        self._count("DeleteItem")
        return self._policies.pop(name, None) is not None

    def cursor(self, name: str) -> bytes | None:
        """Return how far a run has got."""
        self._count("GetItem")
        return self._cursors.get(name)

    def put_cursor(self, name: str, data: bytes) -> None:
        """Write how far a run has got."""
        self._count("PutItem")
        self._cursors[name] = data

    def delete_cursor(self, name: str) -> None:
        """Forget how far a run has got."""
        self._count("DeleteItem")
        self._cursors.pop(name, None)

    def state_item(self, partition: str, key: str) -> StateItem | None:
        """Return a state item."""
        self._count("GetItem")
        return self._states.get((partition, key))

    def state_items(self, partition: str, *, after: str = "", page_items: int | None = None) -> Iterator[StateItem]:
        """Yield the state items of a partition."""
        found = sorted(key for of, key in self._states if of == partition and key > after)
        for number, key in enumerate(found):
            if number % (page_items or len(found)) == 0:
                self._count("Query")
            if (item := self._states.get((partition, key))) is not None:
                yield item
        if not found:
            self._count("Query")

    def put_state(self, *changed: StateItem) -> None:
        """Write state items."""
        check_states(changed)
        self._count("PutItem" if len(changed) == 1 else "TransactWriteItems")
        with self._lock:
            for item in changed:
                self._check_state(item, item.revision - 1)
            self._states |= {(item.partition, item.key): item for item in changed}

    def add_state(self, item: StateItem) -> None:
        """Write a state item that is not there."""
        self._count("PutItem")
        with self._lock:
            self._check_state(item, 0)
            self._states[item.partition, item.key] = item

    def delete_state(self, item: StateItem) -> None:
        """Delete a state item."""
        self._count("DeleteItem")
        with self._lock:
            self._check_state(item, item.revision)
            del self._states[item.partition, item.key]

    def _check_state(self, item: StateItem, revision: int) -> None:
        there = self._states.get((item.partition, item.key))
        found = 0 if there is None else there.revision
        if found != revision:
            raise LostRaceError(f"state item {item.partition} {item.key} is at revision {found}, not {revision}")

    def apply(self, change: Change) -> None:
        """Write a change."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        self._count("TransactWriteItems")
        stream = change.head.stream
        with self._lock:
            before = self._partitions.get(stream.incarnation, ManifestState())
            after = before.after(change)
            shown = self._weak(stream.incarnation)
            if shown is not None:
                conflict = shown.conflict(changed(items_of(before), items_of(after)))
                # The policy, which `conflict` asks, may have written to the table: then `after` is made from an old
                # state.
                if conflict is not None or before is not self._partitions.get(stream.incarnation, before):
                    raise LostRaceError(f"transaction conflict: {conflict} of {stream} is being written")
                shown.begin(items_of(before), items_of(after))
            self._partitions[stream.incarnation] = after
            self._recorded.setdefault(stream.incarnation, {})[change.event.revision] = recorded(change)
            if before.head is None:
                key = registry_key(stream.vhost, stream.name, stream.incarnation)
                self._registry[key] = stream
                names = names_key(stream.vhost, stream.name)
                self._newest[names] = max(key, self._newest.get(names, key))

    def _get(self, incarnation: Incarnation, key: str, kind: type[_Kind]) -> _Kind | None:
        self._count("GetItem")
        return self._read(incarnation, key, kind)

    def _read(self, incarnation: Incarnation, key: str, kind: type[_Kind]) -> _Kind | None:
        shown = self._weak(incarnation)
        if shown is None:
            found = items_of(self._partitions.get(incarnation, ManifestState()), _kind(key)).get(key)
        else:
            found = shown.get(key)
        return found if isinstance(found, kind) else None

    def _query(
        self,
        incarnation: Incarnation,
        first: str,
        last: str,
        limit: int | None = None,
        *,
        backwards: bool = False,
        every_kind: bool = False,
    ) -> list[object]:
        """Read a range of keys, both ends included."""
        self._count("Query")
        shown = self._weak(incarnation)
        if shown is not None:
            return list(islice(shown.query(first, last, backwards=backwards), limit))
        items = items_of(self._partitions.get(incarnation, ManifestState()), "" if every_kind else _kind(first))
        keys = sorted((key for key in items if first <= key <= last), reverse=backwards)
        return [items[key] for key in keys[:limit]]

    def _weak(self, incarnation: Incarnation) -> ShownPartition | None:
        if self._visibility is None:
            return None
        with self._lock:
            if incarnation not in self._visible:
                newest = partial(self._items, incarnation)
                self._visible[incarnation] = ShownPartition(self._visibility, newest)
            return self._visible[incarnation]

    def _items(self, incarnation: Incarnation) -> Items:
        return items_of(self._partitions.get(incarnation, ManifestState()))

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] += 1


def _kind(key: str) -> str:
    return key.partition("#")[0]


def _all_of(kind: type[_Kind], found: Iterable[object]) -> tuple[_Kind, ...]:
    return tuple(one for one in found if isinstance(one, kind))


def _log_page(found: Sequence[object], limit: int) -> LogPage:
    """Cut a page. One item more than the limit was read, so that the head shows after the last entry."""
    head = found[-1] if found and isinstance(found[-1], Head) else None
    return LogPage(_all_of(FragmentEntry, found)[:limit], head)
