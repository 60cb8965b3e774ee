"""A connection to a broker, by the stream protocol.

What a broker delivers is committed. A node delivers only the streams that have a member on it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from rstream import schema

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    LoginRefusedError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.format.chunk import Chunk
from coldstream.live import refusals
from coldstream.live.address import BrokerAddress, place_text
from coldstream.live.publisher import Publisher, query_sequence
from coldstream.live.subscription import Place, Subscription, Subscriptions
from coldstream.live.wire import HEARTBEAT_S, Wire, WireText
from coldstream.manifest.spec import LAST, OffsetSpec
from coldstream.units import MIB, Offset

CONNECT_TIMEOUT_S = 5.0
"""For one host to take the credentials and open the vhost."""

_MECHANISM = "PLAIN"


class LiveConnection:
    """One connection to one vhost: an asynchronous context manager, which any number of tasks may use at once.

    Entering it connects to the first host that answers. It does not come back by itself: once `is_lost`, open another.
    Every wait is bounded, except for the next chunk of a subscription. Entering raises UnavailableError if no host
    answers, LoginRefusedError or VhostRefusedError if user, password or vhost are refused, and InvalidSettingError if
    the file of authorities cannot be read.
    """

    def __init__(self, address: BrokerAddress, vhost: str, *, name: str = "coldstream") -> None:
        self._address = address
        self._vhost = vhost
        self._name = name
        self._subscriptions: Subscriptions | None = None
        self._storing = asyncio.Lock()
        self.advertised: Place | None = None
        """What the node calls itself to clients, None if it does not say so."""

    async def __aenter__(self) -> Self:
        # Without TLS no thread: all may be waiting for a resolver that hangs.
        context = await asyncio.to_thread(self._address.ssl_context) if self._address.tls else None
        problems: list[str] = []
        for host, port in self._address.hosts:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    wire = await Wire.open(host, port, context)
                    try:
                        await self._introduce(wire)
                    except BaseException:  # also cancellation, as by the timeout: the socket must not stay open
                        wire.fail("the connection is given up")
                        await wire.close()
                        raise
            except AccessDeniedError:
                raise  # the other hosts are of the same cluster, and would refuse it too
            # Before OSError, of which it is a subclass: the error of `asyncio.timeout` has no text to show.
            except TimeoutError:
                problems.append(f"{place_text(host, port)}: no answer within {CONNECT_TIMEOUT_S:g} s")
            except (OSError, UnicodeError) as err:
                problems.append(f"{place_text(host, port)}: {err}")
            except ColdstreamError as err:
                problems.append(str(err))
            else:
                self._subscriptions = Subscriptions(wire)
                wire.attach(self._subscriptions)
                return self
        raise UnavailableError(f"no broker to connect to: {'; '.join(problems)}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._subscriptions is not None:
            await self._subscriptions.wire.close()

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection is lost. An UnavailableError alone may be about one stream."""
        return self._subscriptions is None or self._subscriptions.wire.is_lost

    async def probe(
        self, stream: str, spec: OffsetSpec, *, timeout_s: float, every_chunk: bool = False
    ) -> Chunk | None:
        """Return the first chunk that is delivered for a spec; None if none comes within `timeout_s`.

        Costs one chunk: a user chunk, or with `every_chunk` one of any type. Raises what a subscription raises.
        """
        async with self.subscribe(stream, spec, credits=1, every_chunk=every_chunk) as chunks:
            try:
                # Bounds the wait for the chunk alone: subscribing has a bound of its own.
                async with asyncio.timeout(timeout_s):
                    return await anext(chunks)
            except TimeoutError:
                return None

    async def members(self, stream: str) -> int:
        """Return how many nodes have a replica of a stream, the leader's included. Raises as a subscription."""
        return max(1, len(await self._opened().members(stream)))

    async def member_places(self, stream: str) -> tuple[Place, ...]:
        """Return what the nodes that have a replica call themselves, the leader first. Raises as a subscription."""
        return tuple(place for place in await self._opened().members(stream) if place is not None)

    async def place(self, stream: str) -> int:
        """Return which of the nodes that have a replica this one is: 0 is the leader's, also if that does not show.

        Raises as a subscription.
        """
        members = await self._opened().members(stream)
        return members.index(self.advertised) if self.advertised is not None and self.advertised in members else 0

    async def leader(self, stream: str) -> tuple[str, int]:
        """Return the host and port that the node of a stream's leader advertises. Raises as a subscription."""
        return await self._opened().leader(stream)

    async def end(self, stream: str) -> Offset:
        """Return the offset after the last message that this node knows as committed, 0 if there is none.

        Tracking chunks after it do not count. Only the leader knows of every commit. Costs one chunk. Raises what a
        subscription raises.
        """
        async with self.subscribe(stream, LAST, credits=1) as chunks:
            # The broker sends what it has for a new subscription before it takes the next request: so after the answer
            # to one, nothing has come from an empty stream alone, and no clock is needed to tell.
            await self.members(stream)
            return (await anext(chunks)).header.next_offset if chunks.waiting else Offset(0)

    def subscribe(
        self,
        stream: str,
        spec: OffsetSpec,
        *,
        credits: int = 10,  # noqa: A002  the field's word
        every_chunk: bool = False,
    ) -> Subscription:
        """Return a subscription, to be entered and then iterated over. At most `credits` chunks wait in memory.

        With `every_chunk` it gets tracking chunks as well, and trailers, from brokers that know that property.
        """
        return Subscription(self._opened(), stream, spec, credits, every_chunk=every_chunk)

    def publish(self, stream: str, reference: str) -> Publisher:
        """Return a publisher, to be entered. The broker takes no publishing id of the same reference twice."""
        return Publisher(self._opened().wire, stream, reference)

    async def query_sequence(self, stream: str, reference: str) -> int:
        """Return the greatest publishing id under a publisher's reference, 0 for none.

        Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
        """
        return await query_sequence(self._opened().wire, stream, reference)

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name; None if there is none.

        Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
        """
        answer = await self._opened().wire.request(
            lambda number: schema.QueryOffset(number, reference=WireText(reference), stream=WireText(stream)),
            schema.QueryOffsetResponse,
        )
        if answer.response_code == refusals.NO_OFFSET:
            return None
        refusals.check(answer.response_code, f"stored offset of {reference!r} in {stream!r}")
        return Offset(answer.offset)

    async def store_offset(self, stream: str, reference: str, offset: Offset) -> None:
        """Store an offset under a consumer's name, and return after the stream's leader has stored it.

        Brokers do not answer a store, not even to refuse it, so the stored offset is read back. Raises
        StreamNotFoundError, AccessDeniedError; UnavailableError also if another offset is stored then.
        """
        # One store at a time, or one task would read back the offset of another.
        async with self._storing:
            await self._opened().wire.send(
                schema.StoreOffset(reference=WireText(reference), stream=WireText(stream), offset=offset)
            )
            stored = await self.query_offset(stream, reference)
        if stored != offset:
            raise UnavailableError(f"offset {offset} of {reference!r} in {stream!r} is not stored: {stored} is")

    async def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream in order, each once although several routing keys may lead to it.

        Raises StreamNotFoundError, AccessDeniedError, UnavailableError.
        """
        what = f"super stream {super_stream!r}"
        answer = await self._opened().wire.request(
            lambda number: schema.SuperStreamPartitions(number, super_stream=WireText(super_stream)),
            schema.SuperStreamPartitionsResponse,
        )
        refusals.check(answer.response_code, what)
        if not answer.streams:
            raise StreamNotFoundError(f"{what} does not exist, or has no partitions")
        return tuple(dict.fromkeys(answer.streams))

    def _opened(self) -> Subscriptions:
        if self._subscriptions is None:
            raise UnavailableError("the connection has not been opened")
        return self._subscriptions

    async def _introduce(self, wire: Wire) -> None:
        properties = {"connection_name": self._name, "product": "coldstream", "platform": "Python"}
        greeted = await wire.request(
            lambda number: schema.PeerProperties(
                number, properties=[schema.Property(WireText(key), WireText(text)) for key, text in properties.items()]
            ),
            schema.PeerPropertiesResponse,
        )
        refusals.check(greeted.response_code, wire.place)
        user = f"{wire.place}, user {self._address.username!r}"
        handshake = await wire.request(schema.SaslHandshake, schema.SaslHandshakeResponse)
        refusals.check(handshake.response_code, user)
        if _MECHANISM not in handshake.mechanisms:
            raise LoginRefusedError(f"{user}: the broker offers no login by user name and password")
        # SASL PLAIN (RFC 4616): an empty authorization id, then user and password, each after a NUL.
        secret = f"\0{self._address.username}\0{self._address.password}".encode()
        with wire.expect(schema.Tune) as arrival:  # before the request: Tune follows the answer at once
            authenticated = await wire.request(
                lambda number: schema.SaslAuthenticate(number, mechanism=_MECHANISM, data=secret),
                schema.SaslAuthenticateResponse,
            )
            refusals.check(authenticated.response_code, user)
            offer = await wire.arrived(arrival, schema.Tune)
        wire.frame_max_bytes = offer.frame_max or MIB  # 0 is no limit; larger frames gain nothing
        # 0 is no offer. Heartbeats are sent all the same: without them a cut line would not show.
        heartbeat_s = min(offer.heartbeat or HEARTBEAT_S, HEARTBEAT_S)
        await wire.send(schema.Tune(frame_max=wire.frame_max_bytes, heartbeat=heartbeat_s))
        wire.start_heartbeats(heartbeat_s)
        opened = await wire.request(
            lambda number: schema.Open(number, virtual_host=WireText(self._vhost)), schema.OpenResponse
        )
        refusals.check(opened.response_code, f"{user}, vhost {self._vhost!r}")
        told = {property_.key: property_.value for property_ in opened.properties}
        if told.get("advertised_host") and told.get("advertised_port", "").isdigit():
            self.advertised = (told["advertised_host"], int(told["advertised_port"]))
