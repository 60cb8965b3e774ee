"""The manifest in DynamoDB: written by PynamoDB, read with the client that it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from pynamodb.connection import Connection
from pynamodb.exceptions import PynamoDBException, TransactWriteError, VerboseClientError
from pynamodb.transactions import TransactWrite

from coldstream.errors import ColdstreamError, LostRaceError, UnavailableError
from coldstream.manifest.access import Grant
from coldstream.manifest.change import MAX_ITEMS, Change, GapChange
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store import conditions, items, sortkeys
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, from_aws, is_try_later
from coldstream.store.items import Item
from coldstream.store.reads import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, RETRIES, DynamoReads, Operation

_METHODS: Mapping[Operation, str] = {
    "GetItem": "get_item",
    "Query": "query",
    "TransactGetItems": "transact_get_items",
}


class DynamoTable(DynamoReads):
    """Implement `ports.ManifestTable` on the table `name`.

    Region, credentials and endpoint are the SDK's to find. Nothing is sent, and no client made, before the first call.
    Threads may share it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)

        class BoundItem(Item):
            class Meta:
                table_name = name
                connect_timeout_seconds = CONNECT_TIMEOUT_S
                read_timeout_seconds = READ_TIMEOUT_S
                max_retry_attempts = RETRIES

        self._item: type[Item] = BoundItem
        self._making = threading.Lock()

    def apply(self, change: Change) -> None:
        """Write a change; one TransactWriteItems, which the SDK may repeat safely: it carries a token."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        try:
            with TransactWrite(connection=self._connection(), client_request_token=uuid4().hex) as write:
                self._fill(write, change)
        except PynamoDBException as err:
            raise _from_transaction(err, f"revision {change.head.revision} of {change.head.stream}") from err
        except ResponseParserError as err:  # PynamoDB lets it through
            raise from_aws(err, f"revision {change.head.revision} of {change.head.stream}", writes=True) from err

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound; one PutItem. Raises InvalidNameError."""
        binding = items.binding_item(self._item, vhost, name, cluster)
        call = f"binding of stream {name!r} in vhost {vhost!r}"
        try:
            self._write(lambda: binding.save(condition=Item.item.does_not_exist()), call)
        except LostRaceError:
            return self.bound_cluster(vhost, name)
        return cluster

    def put_grant(self, grant: Grant) -> None:
        """Let somebody read something; one PutItem."""
        self._write(items.grant_item(self._item, grant).save, f"grant to {grant.principal}")

    def delete_grant(self, grant: Grant) -> bool:
        """Take that back; one DeleteItem."""
        item = items.grant_item(self._item, grant)
        try:
            self._write(lambda: item.delete(condition=Item.item.exists()), f"grant to {grant.principal}")
        except LostRaceError:
            return False
        return True

    def _write(self, write: Callable[[], object], call: str) -> None:
        self._connection()
        try:
            write()
        except PynamoDBException as err:
            if err.cause_response_code == "ConditionalCheckFailedException":
                raise LostRaceError(f"{call}: the condition does not hold") from err
            raise _from_pynamodb(err, call) from err
        except ResponseParserError as err:  # PynamoDB lets it through
            raise from_aws(err, call, writes=True) from err

    def _fill(self, write: TransactWrite, change: Change) -> None:
        life = change.head.stream.incarnation
        is_first = change.head.revision == 1
        write.save(items.head_item(self._item, change.head), condition=conditions.follows(change.head))
        if is_first:
            write.save(items.registry_item(self._item, change.head.stream))
        self._fill_log(write, change)
        if change.event is not None:
            write.save(items.event_item(self._item, life, change.event), condition=conditions.IS_NEW)
        if change.put_missing is not None:
            item = items.missing_item(self._item, life, change.put_missing)
            write.save(item, condition=conditions.takes_place(change.put_missing))
        for gap in change.gaps:
            self._fill_gap(write, life, gap)
        for tombstone in change.put_tombstones:
            write.save(items.tombstone_item(self._item, life, tombstone))
        for tombstone in change.delete_tombstones:
            gone = self._item(life, sortkeys.tombstone_key(tombstone))
            write.delete(gone, condition=conditions.IS_THERE)

    def _fill_log(self, write: TransactWrite, change: Change) -> None:
        life = change.head.stream.incarnation
        if change.put_entry is not None:
            write.save(items.entry_item(self._item, life, change.put_entry), condition=conditions.IS_NEW)
        if change.replace_entry is not None and change.replaces is not None:
            replaced = items.entry_item(self._item, life, change.replace_entry)
            write.save(replaced, condition=conditions.is_version(change.replaces))
        for version in change.delete_entries:
            entry = self._item(life, sortkeys.log_key(version.next_offset))
            write.delete(entry, condition=conditions.is_version(version))
        for version in change.same_entries:
            key = sortkeys.log_key(version.next_offset)
            write.condition_check(self._item, life, key, condition=conditions.is_version(version))
        for relink in change.relinks:
            entry = self._item(life, sortkeys.log_key(relink.next_offset))
            write.update(entry, items.relink_actions(relink), condition=conditions.is_version(relink.before))

    def _fill_gap(self, write: TransactWrite, life: Incarnation, change: GapChange) -> None:
        if change.before is not None and change.before == change.after:
            key = sortkeys.gap_key(change.first_offset)
            write.condition_check(self._item, life, key, condition=conditions.is_gap(change.before))
        elif change.after is None:
            gone = self._item(life, sortkeys.gap_key(change.first_offset))
            write.delete(gone, condition=conditions.ends_as(change.before))
        else:
            write.save(items.gap_item(self._item, life, change.after), condition=conditions.ends_as(change.before))

    def _call(self, operation: Operation, parameters: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        try:
            client: Any = self._connection().client
            answer: Mapping[str, Any] = getattr(client, _METHODS[operation])(**parameters)
        except SDK_ERRORS as err:
            raise from_aws(err, what) from err
        return answer

    def _connection(self) -> Connection:
        """Return the model's connection, which makes its client when first asked, and anew while without credentials.

        It makes each in the session of the thread that asks, and so every call goes by here.
        """
        with self._making:  # or each of the threads that come first makes one, of 10 MB
            connection = self._item._get_connection().connection  # noqa: SLF001  # one client reads and writes
            refuse_broken_answers(connection.session.get_component("event_emitter"))
            _ = connection.client
        return connection


def _from_transaction(err: PynamoDBException, call: str) -> ColdstreamError:
    reasons = err.cancellation_reasons if isinstance(err, TransactWriteError) else []
    codes = {reason.code for reason in reasons if reason is not None}
    if not codes:
        return _from_pynamodb(err, call)
    message = f"{call}: transaction cancelled: {', '.join(sorted(codes))}"
    if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
        return LostRaceError(message)
    if any(is_try_later(code) for code in codes):
        return UnavailableError(message)
    return ColdstreamError(message)


def _from_pynamodb(err: PynamoDBException, call: str) -> ColdstreamError:
    # PynamoDB wraps a ClientError in one of its own, which has lost the HTTP status.
    cause = err.cause.__cause__ if isinstance(err.cause, VerboseClientError) else err.cause
    if isinstance(cause, BotoCoreError | ClientError):
        return from_aws(cause, call, writes=True)
    return ColdstreamError(f"{call}: {err}")
