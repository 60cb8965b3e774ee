"""The connections of a consumer to its broker, each shared by many streams."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace

from coldstream.errors import AccessDeniedError, ColdstreamError, UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.member import connect_to_member
from coldstream.live.subscription import Place

MAX_STREAMS = 100
"""Of one connection. Each has a subscription, and now and then a second one for a question, of 256."""

CLOSE_TIMEOUT_S = 0.3
"""Bound on the protocol's goodbyes. After that the connection is cut."""


@dataclass(eq=False, slots=True)
class SharedConnection:
    """A connection, how many streams are on it, and whether it was of no use to one: then no other joins."""

    live: LiveConnection
    host: Place
    streams: int = 0
    is_suspect: bool = False

    def serves(self, places: frozenset[Place]) -> bool:
        """Tell whether one stream more may join, of which these nodes have a replica; empty if nobody knows."""
        if self.is_suspect or self.live.is_lost or self.streams >= MAX_STREAMS:
            return False
        return not places or self.live.advertised is None or self.live.advertised in places


@dataclass(slots=True)
class _Opening:
    """Whose turn it is to open a connection, and how many attempts have failed, and how the last one did."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    failure: UnavailableError | None = None


class ConnectionPool:
    """Opens connections on demand. Any call after `close` opens one again."""

    def __init__(self, address: BrokerAddress, vhost: str, *, name: str) -> None:
        self._address = address
        self._vhost = vhost
        self._name = name
        self._connections: list[SharedConnection] = []
        self._openings: defaultdict[frozenset[Place], _Opening] = defaultdict(_Opening)

    async def join(self, stream: str | None, *, seeks_member: bool) -> SharedConnection:
        """Return a connection for one stream more, with `seeks_member` to a node that has a replica of it.

        Raises UnavailableError, AccessDeniedError, InvalidSettingError.
        """
        sought = stream if seeks_member else None
        while True:
            places = await self._places(sought)
            shared = self._find(places) or await self._take_turn(sought, places)
            if shared is not None:
                shared.streams += 1
                return shared

    async def leave(self, shared: SharedConnection, *, is_suspect: bool) -> None:
        """Count a stream less on a connection that was of no use to it. The next one opened is to the next host.

        It is no suspect if its node may just not have the stream.
        """
        shared.streams -= 1
        shared.is_suspect |= is_suspect
        first, *others = self._address.hosts
        # Once for each connection, however many streams leave it.
        if shared.host == first:
            self._address = replace(self._address, hosts=(*others, first))
        if not shared.streams or shared.live.is_lost:
            await self._close(shared)

    async def close(self) -> None:
        """Close every connection. Takes less than a second, even if the broker hangs."""
        # Without the locks: whoever holds one may be opening a connection to a broker that hangs.
        await asyncio.gather(*(self._close(shared) for shared in list(self._connections)))

    async def _close(self, shared: SharedConnection) -> None:
        if shared in self._connections:
            # Before the first await: whoever joins meanwhile must not get a connection that is closing.
            self._connections.remove(shared)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await shared.live.__aexit__(None, None, None)

    async def _places(self, stream: str | None) -> frozenset[Place]:
        """Return which nodes have a replica of a stream, as far as a connection that is open can tell."""
        asked = next((one for one in self._connections if not one.is_suspect and not one.live.is_lost), None)
        if stream is None or asked is None:
            return frozenset()
        try:
            return frozenset(await asked.live.member_places(stream))
        except AccessDeniedError:
            raise
        except ColdstreamError:
            return frozenset()  # what is asked next says what is wrong

    def _find(self, places: frozenset[Place]) -> SharedConnection | None:
        return next((one for one in self._connections if one.serves(places)), None)

    async def _take_turn(self, stream: str | None, places: frozenset[Place]) -> SharedConnection | None:
        """Return a connection that was opened meanwhile, or open one; None if it is known only now where to."""
        opening = self._openings[places]
        failures = opening.failures
        # One at a time, or a hundred streams would open a connection each.
        async with opening.turn:
            if opening.failure is not None and opening.failures != failures:
                # The attempt of another stream was ours, too: else each would wait for all before it to time out.
                raise opening.failure
            if await self._places(stream) != places:
                return None
            if (shared := self._find(places)) is not None:
                return shared
            try:
                return await self._open(stream)
            except UnavailableError as err:
                opening.failures += 1
                opening.failure = err
                raise

    async def _open(self, stream: str | None) -> SharedConnection:
        address = self._address
        # In the list only when it is open: one that failed to open, or whose opening was cancelled, is not kept.
        if stream is not None:
            live = await connect_to_member(address, self._vhost, stream, name=self._name)
        else:
            live = await LiveConnection(address, self._vhost, name=self._name).__aenter__()
        shared = SharedConnection(live, address.hosts[0])
        self._connections.append(shared)
        return shared
