"""The manifest in DynamoDB, written by PynamoDB and read with its client."""

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
from coldstream.manifest.change import MAX_ITEMS, Change
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.policy import Policy
from coldstream.manifest.state_item import StateItem, check_states
from coldstream.store import conditions, items, sortkeys, transaction
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, from_aws, is_try_later
from coldstream.store.items import Item, attribute
from coldstream.store.models import share_models
from coldstream.store.reads import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, RETRIES, DynamoReads, Operation

_METHODS: Mapping[Operation, str] = {
    "BatchGetItem": "batch_get_item",
    "GetItem": "get_item",
    "Query": "query",
    "TransactGetItems": "transact_get_items",
}


class DynamoTable(DynamoReads):
    """Implement `ports.ManifestTable` on the table `name`.

    The SDK finds region, credentials and endpoint. Nothing is sent, and no client made, before the first call. Threads
    may share it.
    """

    def __init__(self, name: str, *, connections: int = 10) -> None:
        super().__init__(name)

        class BoundItem(Item):
            class Meta:
                table_name = name
                connect_timeout_seconds = CONNECT_TIMEOUT_S
                read_timeout_seconds = READ_TIMEOUT_S
                max_retry_attempts = RETRIES
                max_pool_connections = connections

        self._item: type[Item] = BoundItem
        self._client_lock = threading.Lock()

    def apply(self, change: Change) -> None:
        """Write a change; one TransactWriteItems. Its token lets the SDK repeat it safely."""
        assert change.items <= MAX_ITEMS, f"a change of {change.items} items"
        try:
            with TransactWrite(connection=self._connection(), client_request_token=uuid4().hex) as write:
                transaction.fill(write, self._item, change)
        except PynamoDBException as err:
            raise _from_transaction(err, f"revision {change.head.revision} of {change.head.stream}") from err
        except ResponseParserError as err:  # PynamoDB does not wrap it
            raise from_aws(err, f"revision {change.head.revision} of {change.head.stream}", writes=True) from err

    def bind_cluster(self, vhost: str, name: str, cluster: Cluster) -> Cluster:
        """Bind a stream to a cluster, unless it is bound; one PutItem. Raises InvalidNameError."""
        binding = items.binding_item(self._item, vhost, name, cluster)
        call = f"binding of stream {name!r} in vhost {vhost!r}"
        try:
            self._write(lambda: binding.save(condition=Item.item.does_not_exist()), call)
        except LostRaceError:
            # Another writer bound it first. The read is strongly consistent, so both writers return the same cluster.
            return self.bound_cluster(vhost, name)
        return cluster

    def put_grant(self, grant: Grant) -> None:
        """Write a grant; one PutItem."""
        self._write(items.grant_item(self._item, grant).save, f"grant to {grant.principal}")

    def delete_grant(self, grant: Grant) -> bool:
        """Delete a grant; one DeleteItem."""
        item = items.grant_item(self._item, grant)
        try:
            self._write(lambda: item.delete(condition=Item.item.exists()), f"grant to {grant.principal}")
        except LostRaceError:
            return False
        return True

    def put_policy(self, policy: Policy) -> None:
        """Write a policy; one PutItem."""
        self._write(items.policy_item(self._item, policy).save, f"policy {policy.name}")

    def delete_policy(self, name: str) -> bool:
        """Delete a policy; one DeleteItem."""
        item = self._item(sortkeys.POLICIES, name)
        try:
            self._write(lambda: item.delete(condition=Item.item.exists()), f"policy {name}")
        except LostRaceError:
            return False
        return True

    def put_cursor(self, name: str, data: bytes) -> None:
        """Write how far a run has got; one PutItem."""
        self._write(items.cursor_item(self._item, name, data).save, f"cursor {name}")

    def delete_cursor(self, name: str) -> None:
        """Forget how far a run has got; one DeleteItem."""
        self._write(self._item(sortkeys.CURSORS, name).delete, f"cursor {name}")

    def put_state(self, *changed: StateItem) -> None:
        """Write state items; one PutItem, or one TransactWriteItems for more."""
        check_states(changed)
        what = f"state item {changed[0].partition} {changed[0].key}"
        if len(changed) == 1:
            item = items.state_item(self._item, changed[0])
            self._write(lambda: item.save(condition=conditions.follows_state(changed[0])), what)
            return
        try:
            with TransactWrite(connection=self._connection(), client_request_token=uuid4().hex) as write:
                for one in changed:
                    write.save(items.state_item(self._item, one), condition=conditions.follows_state(one))
        except PynamoDBException as err:
            raise _from_transaction(err, what) from err
        except ResponseParserError as err:  # PynamoDB does not wrap it
            raise from_aws(err, what, writes=True) from err

    def add_state(self, item: StateItem) -> None:
        """Write a state item that is not there; one PutItem."""
        there = items.state_item(self._item, item)
        self._write(lambda: there.save(condition=conditions.IS_NEW), f"state item {item.partition} {item.key}")

    def delete_state(self, item: StateItem) -> None:
        """Delete a state item; one DeleteItem."""
        there = self._item(item.partition, item.key)
        what = f"state item {item.partition} {item.key}"
        self._write(lambda: there.delete(condition=attribute("revision") == item.revision), what)

    def _write(self, write: Callable[[], object], call: str) -> None:
        self._connection()  # for its hooks: a client that PynamoDB makes itself would accept broken answers
        try:
            write()
        except PynamoDBException as err:
            # PynamoDB fails to tell the code of an error that has no response, as of a connection that broke.
            code = err.cause_response_code if getattr(err.cause, "response", None) else None
            if code == "ConditionalCheckFailedException":
                raise LostRaceError(f"{call}: the condition does not hold") from err
            if code == "TransactionConflictException":  # the SDK does not try again, and nothing was written
                raise LostRaceError(f"{call}: another transaction is just writing it") from err
            raise _from_pynamodb(err, call) from err
        except ResponseParserError as err:  # PynamoDB does not wrap it
            raise from_aws(err, call, writes=True) from err

    def _call(self, operation: Operation, parameters: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        try:
            client: Any = self._connection().client
            answer: Mapping[str, Any] = getattr(client, _METHODS[operation])(**parameters)
        except SDK_ERRORS as err:
            raise from_aws(err, what) from err
        return answer

    def _connection(self) -> Connection:
        """Return the model's connection, with a client.

        PynamoDB makes the client on first access, again while it has no credentials, and each time in the session of
        the calling thread. So every call must come through here, for the hooks that refuse broken answers.
        """
        with self._client_lock:  # without the lock each of the first threads would make a client, of 10 MB
            connection = self._item._get_connection().connection  # noqa: SLF001  # one client for reads and writes
            share_models(connection.session)
            refuse_broken_answers(connection.session.get_component("event_emitter"))
            _ = connection.client
        return connection


def _from_transaction(err: PynamoDBException, call: str) -> ColdstreamError:
    reasons = err.cancellation_reasons if isinstance(err, TransactWriteError) else []
    codes = {reason.code for reason in reasons if reason is not None}
    if not codes:
        return _from_pynamodb(err, call)
    message = f"{call}: transaction cancelled: {', '.join(sorted(codes))}"
    # Checked first: after a failed condition the same change can never pass, even if another item was only throttled.
    if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
        return LostRaceError(message)
    if any(is_try_later(code) for code in codes):
        return UnavailableError(message)
    return ColdstreamError(message)


def _from_pynamodb(err: PynamoDBException, call: str) -> ColdstreamError:
    # PynamoDB wraps a ClientError in an error of its own, which lacks the HTTP status.
    cause = err.cause.__cause__ if isinstance(err.cause, VerboseClientError) else err.cause
    if isinstance(cause, BotoCoreError | ClientError):
        return from_aws(cause, call, writes=True)
    return ColdstreamError(f"{call}: {err}")
