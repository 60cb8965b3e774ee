"""How a connection begins: who the server is, the login, the limits, the vhost. Then the client may ask.

    client                                  server
    PeerProperties                          its properties
    SaslHandshake                           PLAIN
    SaslAuthenticate                        OK, and Tune right after it
    Tune                                    nothing
    Open                                    OK, with the address that clients are to use

Upstream: rabbit_stream_reader.erl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any

from coldstream.errors import BadFrameError
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.logins import Logins
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.frames.answers import OpenAnswer, PeerPropertiesAnswer, SaslHandshakeAnswer, plain_answer
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Open, PeerProperties, SaslAuthenticate, SaslHandshake, Tune

_LOG = logging.getLogger(__name__)
PLAIN = "PLAIN"
_PLAIN_PARTS = 3

SERVER_PROPERTIES = {
    "product": "RabbitMQ-compatible: coldstream gateway",
    "version": "4.0.5",
    "platform": "coldstream",
    "copyright": "",
    "information": "archived streams, without a broker",
}
"""`version` is what clients decide by: from 3.11 on they exchange command versions, and 3.13 has filters. They parse it
as three numbers. 4.0 is what this server behaves like."""


class GreetingStep(Enum):
    """What is awaited."""

    LOGIN = auto()
    CHECKING = auto()
    TUNE = auto()
    OPEN = auto()
    DONE = auto()


class Greeting:
    """The beginning of one connection. At its end, `agreed` gets the largest frame and the heartbeat, in seconds."""

    def __init__(
        self,
        peer: AlonePeer,
        logins: Logins,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        agreed: Callable[[int, int], None],
        leave: Callable[[], None],
    ) -> None:
        """`spawn` runs what has to wait; `leave` ends the connection once what was sent is on its way."""
        self.step = GreetingStep.LOGIN
        self._peer = peer
        self._logins = logins
        self._spawn = spawn
        self._agreed = agreed
        self._leave = leave
        self._tuned = (0, 0)

    def frame(self, key: int, body: FrameBody) -> None:
        """Take a frame. Raises BadFrameError for one that has no place here."""
        peer, options = self._peer, self._peer.options
        match (self.step, key):
            case (GreetingStep.LOGIN, Key.PEER_PROPERTIES):
                asked = PeerProperties.from_body(body)
                answer = PeerPropertiesAnswer(asked.correlation_id, Code.OK, SERVER_PROPERTIES)
                peer.send(answer.to_bytes())
            case (GreetingStep.LOGIN, Key.SASL_HANDSHAKE):
                handshake = SaslHandshake.from_body(body)
                peer.send(SaslHandshakeAnswer(handshake.correlation_id, Code.OK, (PLAIN,)).to_bytes())
            case (GreetingStep.LOGIN, Key.SASL_AUTHENTICATE):
                self._log_in(SaslAuthenticate.from_body(body))
            case (GreetingStep.TUNE, _) if key & ~ANSWER == Key.TUNE:  # some clients mark it as an answer
                tune = Tune.from_body(body)
                frame_max = min(tune.frame_max_bytes or options.frame_max_bytes, options.frame_max_bytes)
                self.step = GreetingStep.OPEN
                self._tuned = frame_max, tune.heartbeat_s
            case (GreetingStep.OPEN, Key.OPEN):
                self._open(Open.from_body(body))
            case (_, Key.HEARTBEAT):
                pass
            case _:
                raise BadFrameError(f"key {key} while {self.step.name} is awaited")

    async def is_same_user(self, asked: SaslAuthenticate) -> bool:
        """Tell whether a login on an open connection is of the same user: so clients renew passwords that end."""
        login = _plain(asked.data)
        return (
            asked.mechanism == PLAIN
            and login is not None
            and login[0] == self._peer.user
            and await self._logins.is_right(self._peer.address, *login)
        )

    def _log_in(self, asked: SaslAuthenticate) -> None:
        if asked.mechanism != PLAIN:
            self._refuse(Key.SASL_AUTHENTICATE, asked.correlation_id, Code.MECHANISM_NOT_SUPPORTED)
            return
        login = _plain(asked.data)
        if login is None:
            self._refuse(Key.SASL_AUTHENTICATE, asked.correlation_id, Code.SASL_ERROR)
            return
        self.step = GreetingStep.CHECKING
        self._spawn(self._check(asked.correlation_id, *login))

    async def _check(self, correlation_id: int, user: str, password: str) -> None:
        peer = self._peer
        try:
            is_right = await self._logins.is_right(peer.address, user, password)
        except Exception as err:  # noqa: BLE001  whatever it is: the client must not take its password for wrong
            _LOG.warning("a login could not be checked", extra={"user": user[:100], "error": str(err)})
            self._refuse(Key.SASL_AUTHENTICATE, correlation_id, Code.INTERNAL_ERROR)
            return
        if not is_right:
            _LOG.warning("a login was refused", extra={"user": user[:100], "address": peer.address})
            self._refuse(Key.SASL_AUTHENTICATE, correlation_id, Code.AUTHENTICATION_FAILURE)
            return
        peer.user = user
        self.step = GreetingStep.TUNE
        peer.send(plain_answer(Key.SASL_AUTHENTICATE, correlation_id, Code.OK))
        peer.send(Tune(peer.options.frame_max_bytes, peer.options.heartbeat_s).to_bytes())

    def _open(self, asked: Open) -> None:
        peer = self._peer
        if not peer.permissions.current.may_open(peer.user, asked.vhost or ""):
            self._refuse(Key.OPEN, asked.correlation_id, Code.VHOST_ACCESS_FAILURE)
            return
        peer.vhost = asked.vhost or ""
        self.step = GreetingStep.DONE
        # Not before: what comes until then is small.
        self._agreed(*self._tuned)
        host, port = peer.advertised
        address = {"advertised_host": host, "advertised_port": str(port)}
        peer.send(OpenAnswer(asked.correlation_id, Code.OK, address).to_bytes())

    def _refuse(self, key: Key, correlation_id: int, code: Code) -> None:
        self._peer.send(plain_answer(key, correlation_id, code))
        self._leave()


def _plain(data: bytes | None) -> tuple[str, str] | None:
    """Return user and password of PLAIN's answer, whose first part is empty or the user; None if it is malformed."""
    parts = (data or b"").split(b"\0")
    if len(parts) != _PLAIN_PARTS or not parts[1] or parts[0] not in {b"", parts[1]}:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None
