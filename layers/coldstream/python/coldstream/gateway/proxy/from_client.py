"""What becomes of a client's frames."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from coldstream.errors import BadFrameError
from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Key
from coldstream.gateway.frames.requests import (
    Close,
    ExchangeCommandVersions,
    Open,
    PeerProperties,
    SaslAuthenticate,
)
from coldstream.gateway.ports import Interceptor, Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.gateway.proxy.session import Session
from coldstream.gateway.proxy.versions import known_to_both

INTERCEPTED: Final = frozenset(
    {
        Key.SUBSCRIBE,
        Key.CREDIT,
        Key.UNSUBSCRIBE,
        Key.QUERY_OFFSET,
        Key.STORE_OFFSET,
        Key.STREAM_STATS,
        Key.RESOLVE_OFFSET_SPEC,
        ANSWER | Key.CONSUMER_UPDATE,
    }
)
_GREATEST: Final = {int(key): VERSIONS[Key(key & ~ANSWER)][1] for key in INTERCEPTED}
_NOTED = frozenset({Key.PEER_PROPERTIES, Key.SASL_AUTHENTICATE, Key.OPEN, Key.CLOSE, ANSWER | Key.CLOSE})


class FromClient:
    """Notes who the client is, and asks the interceptor about what is its own.

    Of a broker that may know more than the gateway, the client is not to have more: the versions that it knows are
    narrowed, and others end the connection.
    """

    __slots__ = ("_closes", "_interceptor", "_outlet", "_session", "_told_goodbye", "keys")

    def __init__(
        self,
        session: Session,
        interceptor: Interceptor,
        outlet: Outlet,
        *,
        closes: Callable[[], None],
        told_goodbye: Callable[[], bool],
    ) -> None:
        self._session = session
        self._interceptor = interceptor
        self._outlet = outlet
        self._closes = closes
        self._told_goodbye = told_goodbye
        # A set of plain numbers: looking one up must not call Python code.
        self.keys: frozenset[int] = frozenset(map(int, INTERCEPTED | _NOTED | {Key.EXCHANGE_COMMAND_VERSIONS}))

    def take(self, key: int, frame: bytes) -> bool:
        """Take a frame. Raises BadFrameError for one that cannot be read."""
        if key in INTERCEPTED:
            return self._asked(key, frame)
        if key == Key.EXCHANGE_COMMAND_VERSIONS:
            if self._session.broker_abilities.is_known:
                # It ends connections that name a key that it does not know, and one with fewer would go on.
                return False
            exchange = ExchangeCommandVersions.from_body(memoryview(frame)[LENGTH_BYTES:])
            self._outlet.send(replace(exchange, commands=known_to_both(exchange.commands)).to_bytes())
            return True
        if key == ANSWER | Key.CLOSE:
            return self._told_goodbye()
        # What is noted for the log alone the broker judges.
        with suppress(BadFrameError):
            self._note(key, memoryview(frame)[LENGTH_BYTES:])
        return False

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:  # noqa: ARG002
        """Never called: clients deliver nothing."""
        return Verdict.PASS

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """Never called."""

    def _asked(self, key: int, frame: bytes) -> bool:
        session = self._session
        if not session.is_open or session.is_ending:
            return False
        version = int.from_bytes(frame[6:8])
        if not 0 < version <= _GREATEST[key]:
            if session.broker_abilities.is_known:
                return False
            raise BadFrameError(f"{Key(key & ~ANSWER).name} of version {version}, which nobody has offered")
        if key == Key.SUBSCRIBE:
            session.subscriptions += 1
        return self._interceptor.from_client(key, frame)

    def _note(self, key: int, body: memoryview) -> None:
        session = self._session
        match key:
            case Key.PEER_PROPERTIES:
                session.client_name = PeerProperties.from_body(body).properties.get("connection_name", "")
            case Key.SASL_AUTHENTICATE:
                login = SaslAuthenticate.from_body(body)
                if login.mechanism == "PLAIN" and login.data is not None:
                    # Who one acts for, who one is, and the password, which is looked at no further.
                    session.user = b"".join(login.data.split(b"\0")[1:2]).decode(errors="replace")
            case Key.OPEN:
                session.vhost = Open.from_body(body).vhost
            case Key.CLOSE:
                try:
                    session.end_for(f"the client closed it: {Close.from_body(body).reason}")
                finally:
                    session.end_for("the client closed it")
                    self._closes()
            case _:
                pass
