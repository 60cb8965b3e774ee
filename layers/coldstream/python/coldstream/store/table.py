"""The manifest in DynamoDB, by PynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.exceptions import DoesNotExist, PynamoDBException, TransactWriteError, VerboseClientError
from pynamodb.expressions.condition import Condition
from pynamodb.pagination import PageIterator
from pynamodb.transactions import TransactWrite

from coldstream.errors import ColdstreamError, CorruptionError, LostRaceError, UnavailableError
from coldstream.manifest.commit import MAX_ITEMS, Change
from coldstream.manifest.entry import FragmentEntry, Gap, Head, JournalEvent, Missing, Quarantine, Tombstone
from coldstream.manifest.stream import Incarnation
from coldstream.store import items, sortkeys
from coldstream.store.awserrors import from_aws, is_try_later
from coldstream.store.items import Item
from coldstream.store.ports import LogPage, StreamPage
from coldstream.units import Offset, TimestampMs

CONNECT_TIMEOUT_S = 2
READ_TIMEOUT_S = 5
RETRIES = 3
"""Of one request, by the SDK (its retry mode `standard`: exponential backoff with jitter)."""


class DynamoTable:
    """Implement `ports.ManifestTable` on the table `name`.

    Region, credentials and endpoint are the SDK's to find. Nothing is sent, and no client made, before the first call.
    Threads may share it.
    """

    def __init__(self, name: str) -> None:
        class BoundItem(Item):
            class Meta:
                table_name = name
                connect_timeout_seconds = CONNECT_TIMEOUT_S
                read_timeout_seconds = READ_TIMEOUT_S
                max_retry_attempts = RETRIES

        self._item: type[Item] = BoundItem

    def head(self, incarnation: Incarnation) -> Head | None:
        """Return the head; one GetItem."""
        item = self._get(incarnation, sortkeys.LOG_HEAD)
        return None if item is None else items.head_of(item)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        """Return the log from the entry that holds `offset`; one Query."""
        condition = Item.item.between(sortkeys.log_key(Offset(offset + 1)), sortkeys.LOG_HEAD)
        # One more than asked for, so that the head is seen behind the last entry.
        return _log_page(self._query(incarnation, condition, limit + 1), limit)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        """Return the log from the first entry that can hold a chunk at or after `timestamp`; one Query."""
        condition = Item.time >= sortkeys.time_from(timestamp)
        index = Item.by_time.Meta.index_name
        return _log_page(self._query(incarnation, condition, limit + 1, consistent_read=False, index_name=index), limit)

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        """Return the log backwards from the entry that ends at or before `offset`; one Query."""
        condition = Item.item.between(sortkeys.log_key(Offset(0)), sortkeys.log_key(offset))
        return tuple(map(items.entry_of, self._query(incarnation, condition, limit, scan_index_forward=False)))

    def gap(self, incarnation: Incarnation, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at `first_offset`; one GetItem."""
        item = self._get(incarnation, sortkeys.gap_key(first_offset))
        return None if item is None else items.gap_of(item)

    def gaps(
        self,
        incarnation: Incarnation,
        limit: int,
        *,
        from_offset: Offset = Offset(0),  # noqa: B008  a NewType is its value
    ) -> tuple[Gap, ...]:
        """Return the first gaps from an offset on; one Query."""
        condition = Item.item.between(sortkeys.gap_key(from_offset), sortkeys.LAST_GAP)
        return tuple(map(items.gap_of, self._query(incarnation, condition, limit)))

    def gaps_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[Gap, ...]:
        """Return the gaps backwards from the one that begins before `offset`; one Query."""
        condition = Item.item.between(sortkeys.gap_key(Offset(0)), sortkeys.gap_key(offset))
        # One more than asked for, for one may begin at `offset`.
        found = map(items.gap_of, self._query(incarnation, condition, limit + 1, scan_index_forward=False))
        return tuple(gap for gap in found if gap.first_offset < offset)[:limit]

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        """Yield what is known to be missing; one Query a megabyte of it."""
        condition = Item.item.between(sortkeys.MISSING, sortkeys.LAST_MISSING)
        yield from map(items.missing_of, self._all(incarnation, condition))

    def quarantine(self, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Quarantine | None:
        """Return what is said of a segment in quarantine; one GetItem."""
        item = self._get(incarnation, sortkeys.quarantine_key(first_offset, next_offset))
        return None if item is None else items.quarantine_of(item)

    def tombstones(self, incarnation: Incarnation, due_by: TimestampMs, limit: int) -> tuple[Tombstone, ...]:
        """Return the first tombstones that are due; one Query."""
        condition = Item.item.between(sortkeys.TOMBSTONES, sortkeys.due_from(TimestampMs(due_by + 1)))
        return tuple(map(items.tombstone_of, self._query(incarnation, condition, limit)))

    def journal(self, incarnation: Incarnation, after_revision: int = 0) -> Iterator[JournalEvent]:
        """Yield the events after a revision; one Query a megabyte of them."""
        condition = Item.item.between(sortkeys.event_key(after_revision + 1), sortkeys.LAST_EVENT)
        yield from map(items.event_of, self._all(incarnation, condition))

    def incarnation_of(self, vhost: str, name: str) -> Incarnation | None:
        """Return the newest incarnation of a stream; one Query. Raises InvalidNameError."""
        condition = Item.item.startswith(sortkeys.names_key(vhost, name))
        newest = self._query(sortkeys.REGISTRY, condition, 1, scan_index_forward=False)
        return items.stream_of(newest[0]).incarnation if newest else None

    def streams(self, cursor: str | None, limit: int) -> StreamPage:
        """Return some of the streams, in the order of their names' hashes; one Query."""
        condition = None if cursor is None else Item.item > sortkeys.check_cursor(cursor)
        pages = self._pages(sortkeys.REGISTRY, condition, limit + 1)
        found = self._next_page(pages)
        page = found[:limit]
        more = len(found) > limit or pages.last_evaluated_key is not None
        return StreamPage(tuple(map(items.stream_of, page)), page[-1].item if more else None)

    def apply(self, change: Change) -> None:
        """Write a change; one TransactWriteItems, which the SDK may repeat safely: it carries a token."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        connection = self._item._get_connection().connection  # noqa: SLF001  # the model's client, not a second one
        try:
            with TransactWrite(connection=connection, client_request_token=uuid4().hex) as write:
                self._fill(write, change)
        except PynamoDBException as err:
            raise _from_transaction(err, f"revision {change.head.revision} of {change.head.stream}") from err

    def _fill(self, write: TransactWrite, change: Change) -> None:
        life = change.head.stream.incarnation
        is_new = Item.item.does_not_exist()
        is_first = change.head.revision == 1
        follows = is_new if is_first else Item.revision == change.head.revision - 1
        write.save(items.head_item(self._item, change.head), condition=follows)
        if is_first:
            write.save(items.registry_item(self._item, change.head.stream))
        self._fill_log(write, change)
        if change.event is not None:
            write.save(items.event_item(self._item, life, change.event), condition=is_new)
        if change.put_missing is not None:
            write.save(items.missing_item(self._item, life, change.put_missing))
        for gap in change.put_gaps:
            write.save(items.gap_item(self._item, life, gap))
        for first_offset in change.delete_gaps:
            write.delete(self._item(life, sortkeys.gap_key(first_offset)))
        for tombstone in change.put_tombstones:
            write.save(items.tombstone_item(self._item, life, tombstone))
        for tombstone in change.delete_tombstones:
            write.delete(self._item(life, sortkeys.tombstone_key(tombstone)))

    def _fill_log(self, write: TransactWrite, change: Change) -> None:
        life = change.head.stream.incarnation
        is_there = Item.item.exists()
        if change.put_entry is not None:
            write.save(items.entry_item(self._item, life, change.put_entry), condition=Item.item.does_not_exist())
        if change.replace_entry is not None:
            write.save(items.entry_item(self._item, life, change.replace_entry), condition=is_there)
        for next_offset in change.delete_entries:
            write.delete(self._item(life, sortkeys.log_key(next_offset)), condition=is_there)
        for relink in change.relinks:
            entry = self._item(life, sortkeys.log_key(relink.next_offset))
            write.update(entry, items.relink_actions(relink), condition=is_there)

    def _get(self, incarnation: Incarnation, key: str) -> Item | None:
        try:
            return self._item.get(incarnation, key, consistent_read=True)
        except DoesNotExist:
            return None
        except PynamoDBException as err:
            raise _from_pynamodb(err, f"read of {incarnation}") from err

    def _all(self, partition: str, condition: Condition) -> Iterator[Item]:
        """Read page after page."""
        pages = self._pages(partition, condition)
        while True:
            yield from self._next_page(pages)
            if pages.last_evaluated_key is None:
                return

    def _query(self, partition: str, condition: Condition, limit: int, **settings: Any) -> list[Item]:
        """Read one page, which ends at `limit` items or at a megabyte."""
        return self._next_page(self._pages(partition, condition, limit, **settings))

    def _pages(
        self,
        partition: str,
        condition: Condition | None,
        limit: int | None = None,
        *,
        consistent_read: bool = True,
        **settings: Any,
    ) -> PageIterator[Any]:
        query = self._item.query(partition, condition, page_size=limit, consistent_read=consistent_read, **settings)
        return query.page_iter

    def _next_page(self, pages: PageIterator[Any]) -> list[Item]:
        try:
            found = next(pages)["Items"]
        except PynamoDBException as err:
            raise _from_pynamodb(err, "query of the manifest") from err
        return [self._load(item) for item in found]

    def _load(self, item: dict[str, Any]) -> Item:
        try:
            return self._item.from_raw_data(item)
        except (TypeError, ValueError) as err:
            source = f"manifest item {item['stream']['S']} {item['item']['S']}"
            raise CorruptionError(source, 0, f"an attribute of another type: {err}") from err


def _log_page(found: list[Item], limit: int) -> LogPage:
    head = items.head_of(found.pop()) if found and found[-1].item == sortkeys.LOG_HEAD else None
    return LogPage(tuple(map(items.entry_of, found[:limit])), head)


def _from_transaction(err: PynamoDBException, call: str) -> ColdstreamError:
    reasons = err.cancellation_reasons if isinstance(err, TransactWriteError) else []
    codes = {reason.code for reason in reasons if reason is not None}
    if not codes:
        return _from_pynamodb(err, call, writes=True)
    message = f"{call}: transaction cancelled: {', '.join(sorted(codes))}"
    if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
        return LostRaceError(message)
    if any(is_try_later(code) for code in codes):
        return UnavailableError(message)
    return ColdstreamError(message)


def _from_pynamodb(err: PynamoDBException, call: str, *, writes: bool = False) -> ColdstreamError:
    # PynamoDB wraps a ClientError in one of its own, which has lost the HTTP status.
    cause = err.cause.__cause__ if isinstance(err.cause, VerboseClientError) else err.cause
    if isinstance(cause, BotoCoreError | ClientError):
        return from_aws(cause, call, writes=writes)
    return ColdstreamError(f"{call}: {err}")
