"""One client's connection: its two sides, from the first byte to the line of the log that says why it ended."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coldstream.errors import UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import Close
from coldstream.gateway.ports import Interceptor, MakeInterceptor
from coldstream.gateway.proxy.from_broker import FromBroker, broker_keys
from coldstream.gateway.proxy.from_client import FromClient
from coldstream.gateway.proxy.links import BrokerSocketLink, ClientSocketLink
from coldstream.gateway.proxy.options import ProxyOptions
from coldstream.gateway.proxy.own_requests import OwnRequests
from coldstream.gateway.proxy.scanner import FrameScanner
from coldstream.gateway.proxy.session import Session
from coldstream.gateway.proxy.side import ConnectionSide
from coldstream.gateway.proxy.upstream_connector import UpstreamConnector
from coldstream.live.address import place_text
from coldstream.units import KIB, MIB

MAX_BEFORE_OPEN_BYTES: Final = 8 * KIB
MAX_FROM_CLIENT_BYTES: Final = 64 * MIB
"""What was agreed on the broker enforces, or does not; this is for lengths that are no lengths."""

MAX_FROM_BROKER_BYTES: Final = 512 * MIB
MAX_ASKED_BYTES: Final = 64 * KIB
"""A frame that is collected for the interceptor."""

MAX_ANSWER_BYTES: Final = 16 * MIB
"""Metadata of very many streams."""

_LOG = logging.getLogger("coldstream.gateway.connection")


@dataclass(frozen=True, slots=True)
class ConnectionParts:
    """What all connections of a server share."""

    options: ProxyOptions
    make: MakeInterceptor
    figures: GatewayFigures
    connector: UpstreamConnector
    scratch: memoryview
    over: Callable[[ProxiedConnection], None]
    """Called once both sockets are closed."""


class ProxiedConnection:
    """Connects to the broker, joins the sides, and ends both when one ends."""

    __slots__ = (
        "_broker",
        "_connecting",
        "_interceptor",
        "_is_closing",
        "_is_over",
        "_own",
        "_parts",
        "_scanners",
        "_session",
        "_timer",
        "client",
    )

    def __init__(self, number: int, parts: ConnectionParts) -> None:
        self._parts = parts
        self._session = Session(number, "")
        self.client = ConnectionSide(self)
        """The protocol of the client's socket."""
        self._broker: ConnectionSide | None = None
        self._scanners: tuple[FrameScanner, FrameScanner] | None = None
        self._interceptor: Interceptor | None = None
        self._own: OwnRequests | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._is_over = False

    @property
    def is_closing(self) -> bool:
        """Tell whether it is ending already."""
        return self._is_closing or self._is_over

    def made(self, side: ConnectionSide) -> None:
        """Connect to the broker, for a client that has connected."""
        if side is not self.client:
            return
        peer = side.transport.get_extra_info("peername") or ("", 0)
        self._session.peer = place_text(str(peer[0]), int(peer[1]))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._parts.options.handshake_timeout_s, self._too_slow)
        self._connecting = loop.create_task(self._connect())

    def close(self, code: Code, reason: str) -> None:
        """Say goodbye to both sides as they would to each other; then end, within a bound."""
        if self.is_closing:
            return
        session = self._session
        session.end_for(reason)
        if self._broker is None or self._scanners is None:
            self.end()
            return
        self._is_closing = session.is_ending = True
        for scanner in self._scanners[1:]:
            scanner.is_over = True
        self._forget()
        number = secrets.randbits(31)
        self._broker.outlet.finish(Close(number, Code.OK, "OK").to_bytes())
        self.client.outlet.finish(Close(number, code, reason).to_bytes())
        self._wait(self.end)

    def broken(self, side: ConnectionSide, code: Code, reason: str) -> None:
        """End after a frame that cannot be."""
        who = "the client" if side is self.client else "the broker"
        self._session.end_for(f"{who} broke the protocol: {reason}" if code != Code.INTERNAL_ERROR else reason)
        if side is not self.client:
            self._parts.figures.broker_failures_total += 1
        if self._is_closing:
            self.end()
        self.close(code, reason)
        if self._scanners is not None:
            self._scanners[0 if side is self.client else 1].is_over = True
        if side is self.client and not self._is_over:
            # What it sends no longer means anything, so its answer would not be found: it gets a moment to read ours.
            self.end()

    def lost(self, side: ConnectionSide, error: Exception | None) -> None:
        """End the other side, too."""
        if side is not self.client and side is not self._broker:
            return  # the client was gone before it was connected
        session = self._session
        who = "the client" if side is self.client else "the broker"
        how = "" if error is None else f" ({type(error).__name__}: {error})"
        if side is not self.client and not session.is_ending and not self._is_over:
            self._parts.figures.broker_failures_total += 1
        session.end_for(f"{who} went away{how}")
        if not (self._is_closing and side is not self.client):
            self.end()
        if self.client.is_lost and (self._broker is None or self._broker.is_lost):
            self._cancel_timer()
            self._scanners = self._own = None
            self._parts.over(self)

    def end(self) -> None:
        """Close both sockets, once what is to be written is written, within a bound."""
        if self._is_over:
            return
        self._is_over = True
        self._log_end()
        if self._connecting is not None:
            self._connecting.cancel()
        for scanner in self._scanners or ():
            scanner.is_over = True
        self._forget()
        for side in self._sides():
            side.outlet.end()
            side.transport.close()
        self._wait(self.abort)

    def abort(self) -> None:
        """Close both sockets at once."""
        self.end()
        for side in self._sides():
            side.transport.abort()

    async def _connect(self) -> None:
        broker: ConnectionSide | None = None

        def make() -> ConnectionSide:
            nonlocal broker
            broker = ConnectionSide(self)
            return broker

        try:
            place = await self._parts.connector.connect(make)
        except UnavailableError as err:
            self._parts.figures.broker_failures_total += 1
            self._session.end_for(str(err))
            _LOG.warning("no broker", extra=self._session.log_fields | {"reason": str(err)})
            self._connecting = None
            self.end()
            return
        self._connecting = None
        assert broker is not None
        if self._is_over:
            broker.transport.abort()
            return
        self._session.broker = place_text(*place)
        self._broker = broker
        try:
            self._join(broker)
        except Exception:  # noqa: BLE001  whatever it is, nobody else hears of it
            _LOG.exception("a connection could not be joined")
            self._session.end_for("internal error")
            self.end()

    def _join(self, broker: ConnectionSide) -> None:
        parts, session, client = self._parts, self._session, self.client
        keys = broker_keys()
        self._own = OwnRequests(broker.outlet, keys, lambda: client.outlet.is_paused)
        self._interceptor = parts.make(
            ClientSocketLink(session, client.outlet, self.close), BrokerSocketLink(session, broker.outlet, self._own)
        )
        here = client.transport.get_extra_info("sockname") or ("", 0)
        addresses = parts.options.addresses.seen_from((str(here[0]), int(here[1])))
        from_client = FromClient(
            session, self._interceptor, broker.outlet, closes=self._goodbye, told_goodbye=self._told_goodbye
        )
        from_broker = FromBroker(
            session,
            self._interceptor,
            client.outlet,
            self._own,
            keys=keys,
            addresses=addresses,
            opened=self._opened,
            closes=self._goodbye,
        )
        self._scanners = (
            FrameScanner(
                parts.scratch,
                from_client,
                broker.outlet,
                with_chunks=False,
                max_frame_bytes=MAX_BEFORE_OPEN_BYTES,
                max_taken_bytes=MAX_ASKED_BYTES,
            ),
            FrameScanner(
                parts.scratch,
                from_broker,
                client.outlet,
                with_chunks=True,
                max_frame_bytes=MAX_FROM_BROKER_BYTES,
                max_taken_bytes=MAX_ANSWER_BYTES,
            ),
        )
        client.join(self._scanners[0], broker)
        broker.join(self._scanners[1], client)

    def _opened(self) -> None:
        if self._session.is_open or self._scanners is None:
            return
        self._cancel_timer()
        self._session.is_open = True
        self._scanners[0].max_frame_bytes = MAX_FROM_CLIENT_BYTES
        _LOG.info("connection opened", extra=self._session.log_fields)

    def _goodbye(self) -> None:
        """One side has sent Close: nothing is taken over any more."""
        self._session.is_ending = True
        self._forget()

    def _told_goodbye(self) -> bool:
        """Tell whether the client has answered a Close of ours."""
        if self._is_closing:
            self.end()
        return self._is_closing

    def _too_slow(self) -> None:
        self._session.end_for(f"nothing was opened within {self._parts.options.handshake_timeout_s:g} s")
        self.end()

    def _forget(self) -> None:
        """Let whoever takes over know that it is over, once."""
        interceptor, self._interceptor = self._interceptor, None
        if interceptor is not None:
            try:
                interceptor.closed()
            except Exception:  # noqa: BLE001  the sockets must be closed whatever it is
                _LOG.exception("what was taken over could not be ended", extra=self._session.log_fields)
        if self._own is not None:
            self._own.end()

    def _sides(self) -> list[ConnectionSide]:
        return [side for side in (self.client, self._broker) if side is not None and not side.is_lost]

    def _wait(self, then: Callable[[], None]) -> None:
        self._cancel_timer()
        if self._sides():
            self._timer = asyncio.get_running_loop().call_later(self._parts.options.goodbye_timeout_s, then)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _log_end(self) -> None:
        session = self._session
        from_client = self.client.read_bytes
        from_broker = 0 if self._broker is None else self._broker.read_bytes
        frames = (0, 0) if self._scanners is None else (self._scanners[0].frames, self._scanners[1].frames)
        # A health check connects and says nothing: no news.
        _LOG.log(
            logging.INFO if from_client else logging.DEBUG,
            "connection ended",
            extra=session.log_fields
            | {
                "reason": session.reason,
                "bytes_from_client": from_client,
                "bytes_to_client": self.client.outlet.sent_bytes,
                "bytes_from_broker": from_broker,
                "frames_from_client": frames[0],
                "frames_from_broker": frames[1],
                "subscriptions": session.subscriptions,
            },
        )
