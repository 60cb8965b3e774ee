"""A vhost of a real broker: the management API, AMQP 0.9.1 for bursts of bindings, the stream protocol for ends.

    GET     nodes, exchanges/V/X, exchanges/V/X/bindings/source, queues/V/Q, stream/publishers/V, stream/connections/V
    PUT     exchanges/V/X, queues/V/Q with `node`
    DELETE  exchanges/V/X, queues/V/Q

A queue or stream gets its leader on the node that the API is asked to declare it on: it opens a connection there, and
brokers place by the client's node unless told otherwise. Publishers and connections need the plugin
rabbitmq_stream_management. A broker lists a publisher at once, and what connection it is on some seconds later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

from coldstream.errors import BrokerRefusedError, UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.management.api import ManagementApi, quoted
from coldstream.shards.binding_burst import BindingBurst
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerNode, BrokerQueue, StreamPublisher
from coldstream.units import Offset, TimestampMs

_Parsed = TypeVar("_Parsed")

TIMEOUT_S = 60.0
"""For one method, however many requests it is."""

STATISTICS_TIMEOUT_S = 30.0
"""How long a publisher may be listed without its connection: brokers collect statistics every 5 s unless told."""

_LOOK_AGAIN_S = 0.5
_TYPE = "x-queue-type"
_ABSENT = (HTTPStatus.NOT_FOUND,)


class ManagementShardBroker:
    """Implement `broker_port.ShardBroker`. Raises InvalidSettingError for an address that is none."""

    def __init__(self, management: str, amqp: str, streams: str, vhost: str) -> None:
        self._api = ManagementApi(
            management, f"it needs the tag monitoring, and to configure, write and read in vhost {vhost!r}"
        )
        self._burst = BindingBurst(amqp, vhost)
        self._address = BrokerAddress.from_uri(streams)
        self._vhost = vhost

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return the nodes of the cluster, by name. One request."""
        found = self._get("nodes?columns=name,running", lambda items: [(one["name"], one["running"]) for one in items])
        return tuple(BrokerNode(name, is_running is True) for name, is_running in sorted(found))

    def exchange(self, name: str) -> BrokerExchange | None:
        """Return an exchange, None if there is none. One request."""
        return self._get(f"exchanges/{quoted(self._vhost, name)}", _exchange)

    def bindings(self, exchange: str) -> tuple[BrokerBinding, ...]:
        """Return the bindings of which an exchange is the source. One request."""
        return self._get(
            f"exchanges/{quoted(self._vhost, exchange)}/bindings/source",
            lambda items: tuple(_binding(one) for one in items or ()),
        )

    def queues(self, names: Iterable[str]) -> Mapping[str, BrokerQueue]:
        """Return those of these queues and streams that exist. A request for each."""
        with self._api.session(TIMEOUT_S, "told its queues") as session:
            found = (session.get(f"queues/{quoted(self._vhost, name)}", _queue, absent=_ABSENT) for name in names)
            return {one.name: one for one in found if one is not None}

    def declare_exchange(self, exchange: BrokerExchange) -> None:
        """Declare an exchange. Raises BrokerRefusedError if it differs, or if no plugin has its type."""
        document = {
            "type": exchange.type,
            "durable": exchange.is_durable,
            "auto_delete": False,
            "arguments": dict(exchange.arguments),
        }
        with self._api.session(TIMEOUT_S, "declared an exchange") as session:
            session.put(f"exchanges/{quoted(self._vhost, exchange.name)}", document)

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange, if it is there."""
        with self._api.session(TIMEOUT_S, "deleted an exchange") as session:
            session.delete(f"exchanges/{quoted(self._vhost, name)}")

    def declare_queue(self, queue: BrokerQueue) -> None:
        """Declare a queue or stream, on its node. Raises BrokerRefusedError if it differs, or the node is not there."""
        document: dict[str, Any] = {
            "durable": True,
            "auto_delete": False,
            "arguments": {**queue.arguments, _TYPE: queue.type},
        }
        if queue.node is not None:
            document["node"] = queue.node
        with self._api.session(TIMEOUT_S, "declared a queue") as session:
            session.put(f"queues/{quoted(self._vhost, queue.name)}", document)

    def delete_queue(self, name: str, *, only_empty: bool = False) -> None:
        """Delete a queue or stream, if it is there."""
        condition = "?if-empty=true" if only_empty else ""
        with self._api.session(TIMEOUT_S, "deleted a queue") as session:
            session.delete(f"queues/{quoted(self._vhost, name)}{condition}")

    def bind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Make bindings, in order and in one burst."""
        if bindings:
            self._burst.bind(exchange, bindings)

    def unbind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Remove bindings, in order, a round trip each."""
        if bindings:
            self._burst.unbind(exchange, bindings)

    def publishers(self) -> tuple[StreamPublisher, ...]:
        """Return the publishers, once the broker knows the connection of each of them."""
        deadline = time.monotonic() + STATISTICS_TIMEOUT_S
        while True:
            publishers = self._get(f"stream/publishers/{quoted(self._vhost)}", _items)
            connections = {one["name"]: one for one in self._connections()}
            if all(_place(one) in connections for one in publishers):
                return tuple(_publisher(one, connections[_place(one)]) for one in publishers)
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{self._api.url} lists publishers without their connections for {STATISTICS_TIMEOUT_S:g} s"
                )
            time.sleep(_LOOK_AGAIN_S)

    def connections(self) -> frozenset[str]:
        """Return the connections of the stream protocol, as far as the broker lists them yet."""
        return frozenset(_connection_id(one) for one in self._connections())

    def end(self, stream: str) -> Offset:
        """Return the offset after the last message that is committed in a stream, as its leader knows it."""
        return asyncio.run(self._end(stream))

    async def _end(self, stream: str) -> Offset:
        async with LiveConnection(self._address, self._vhost, name="coldstream-shards") as found:
            place = await found.leader(stream)
        # A replica may not know yet what the leader has committed, and a node without one delivers nothing.
        async with LiveConnection(
            replace(self._address, hosts=(place,)), self._vhost, name="coldstream-shards"
        ) as leader:
            return await leader.end(stream)

    def _connections(self) -> list[dict[str, Any]]:
        return self._get(f"stream/connections/{quoted(self._vhost)}", _items)

    def _get(self, path: str, parse: Callable[[Any], _Parsed]) -> _Parsed:
        with self._api.session(TIMEOUT_S, "answered") as session:
            return session.get(path, parse, absent=_ABSENT)


def _items(document: Any) -> list[dict[str, Any]]:
    if document is None:
        raise BrokerRefusedError(
            "the management API lists no publishers: enable the plugin rabbitmq_stream_management, and check the vhost"
        )
    return list(document)


def _exchange(found: Any) -> BrokerExchange | None:
    return None if found is None else BrokerExchange(found["name"], found["type"], found["durable"], _arguments(found))


def _binding(found: Any) -> BrokerBinding:
    return BrokerBinding(
        found["destination"], found["routing_key"], _arguments(found), destination_type=found["destination_type"]
    )


def _queue(found: Any) -> BrokerQueue | None:
    if found is None:
        return None
    arguments = _arguments(found)
    kind = found.get("type", arguments.pop(_TYPE, "classic"))
    arguments.pop(_TYPE, None)
    return BrokerQueue(
        found["name"],
        kind,
        found.get("leader") or found.get("node") or None,
        arguments,
        tuple(found.get("members") or ()),
        found.get("messages"),
        found.get("consumers") or 0,
    )


def _arguments(found: Mapping[str, Any]) -> dict[str, Any]:
    # Some releases send an empty one as [] or "".
    arguments = found.get("arguments")
    return dict(arguments) if isinstance(arguments, dict) else {}


def _place(publisher: Mapping[str, Any]) -> str | None:
    details = publisher.get("connection_details")
    return details.get("name") if isinstance(details, dict) else None


def _connection_id(connection: Mapping[str, Any]) -> str:
    # With the time: a host and port may come again, and its connection would be another.
    return f"{connection['name']} at {connection.get('connected_at', 0)}"


def _publisher(found: Mapping[str, Any], connection: Mapping[str, Any]) -> StreamPublisher:
    properties = connection.get("client_properties")
    given_name = properties.get("connection_name", "") if isinstance(properties, dict) else ""
    return StreamPublisher(
        stream=found["queue"]["name"],
        connection=_connection_id(connection),
        client=f"{connection.get('user', '')} from {connection.get('peer_host', '')} as {given_name!r}",
        connected_at=TimestampMs(connection.get("connected_at", 0)),
        reference=found.get("reference") or "",
    )
