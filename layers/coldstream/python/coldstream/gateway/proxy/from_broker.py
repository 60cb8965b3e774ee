"""What becomes of a broker's frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from coldstream.gateway.frames.answers import (
    CodeAnswer,
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    OpenAnswer,
    PeerPropertiesAnswer,
)
from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Close
from coldstream.gateway.ports import Interceptor
from coldstream.gateway.proxy.addresses import GatewayAddresses
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.own_requests import OwnRequests
from coldstream.gateway.proxy.session import Session
from coldstream.gateway.proxy.versions import known_to_both

INTERCEPTED_ANSWERS: Final = frozenset(
    {
        Key.CONSUMER_UPDATE,
        Key.METADATA_UPDATE,
        ANSWER | Key.CREDIT,
        ANSWER | Key.SUBSCRIBE,
        ANSWER | Key.UNSUBSCRIBE,
        ANSWER | Key.QUERY_OFFSET,
        ANSWER | Key.STREAM_STATS,
        ANSWER | Key.RESOLVE_OFFSET_SPEC,
    }
)
_READ = frozenset(
    {
        ANSWER | Key.PEER_PROPERTIES,
        ANSWER | Key.OPEN,
        ANSWER | Key.METADATA,
        ANSWER | Key.EXCHANGE_COMMAND_VERSIONS,
        Key.CLOSE,
        ANSWER | Key.CLOSE,
    }
)


def broker_keys() -> set[int]:
    """Return the keys that are taken whole, as a set to which own requests add theirs."""
    return set(map(int, INTERCEPTED_ANSWERS | _READ))


class FromBroker:
    """Rewrites addresses and versions, finds answers to own requests, and asks the interceptor about the rest."""

    __slots__ = (
        "_addresses",
        "_closes",
        "_interceptor",
        "_opened",
        "_outlet",
        "_own",
        "_session",
        "deliver",
        "kept",
        "keys",
    )

    def __init__(
        self,
        session: Session,
        interceptor: Interceptor,
        outlet: Outlet,
        own: OwnRequests,
        *,
        keys: set[int],
        addresses: GatewayAddresses,
        opened: Callable[[], None],
        closes: Callable[[], None],
    ) -> None:
        self._session = session
        self._interceptor = interceptor
        self._outlet = outlet
        self._own = own
        self._addresses = addresses
        self._opened = opened
        self._closes = closes
        self.keys = keys
        # The interceptor's own methods: each call counts, one is made for every chunk.
        self.deliver = interceptor.deliver
        self.kept = interceptor.kept

    def take(self, key: int, frame: bytes) -> bool:
        """Take a frame. Raises BadFrameError for one that cannot be read."""
        if key & ANSWER and self._own.take(key, frame):
            return True
        if key in INTERCEPTED_ANSWERS:
            return not self._session.is_ending and self._interceptor.from_broker(key, frame)
        if key in _READ:
            ours = self._ours(key, memoryview(frame)[LENGTH_BYTES:])
            if ours is not None:
                self._outlet.send(ours)
                return True
        return False

    def _ours(self, key: int, body: memoryview) -> bytes | None:
        """Note what a frame says; return what the client gets in its place, None if it gets the frame itself."""
        session = self._session
        match key:
            case Key.CLOSE:
                session.end_for(f"the broker closed it: {Close.from_body(body).reason}")
                self._closes()
            case _ if key == ANSWER | Key.CLOSE:
                session.end_for("the client closed it")
            case _ if key == ANSWER | Key.METADATA:
                return self._addresses.in_metadata(MetadataAnswer.from_body(body)).to_bytes()
            case _ if CodeAnswer.from_body(body).code != Code.OK:
                return None
            case _ if key == ANSWER | Key.PEER_PROPERTIES:
                properties = PeerPropertiesAnswer.from_body(body).properties
                session.broker_abilities.take_version(properties.get("version", ""))
            case _ if key == ANSWER | Key.OPEN:
                answer = self._addresses.in_open(OpenAnswer.from_body(body))
                self._opened()
                return answer.to_bytes()
            case _ if key == ANSWER | Key.EXCHANGE_COMMAND_VERSIONS:
                told = ExchangeCommandVersionsAnswer.from_body(body)
                session.broker_abilities.take_commands(told.commands)
                return replace(told, commands=known_to_both(told.commands)).to_bytes()
            case _:
                pass
        return None
