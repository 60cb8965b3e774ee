"""`AloneConnection`: one client, from its socket's first byte to its last.

`greeting.py` logs it in, `open_frames.py` takes what it asks then, and `farewell.py` is how it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from coldstream.errors import BadFrameError
from coldstream.gateway.alone.client_side import AloneLink, ClientSide, EveryFrame, FrameBody
from coldstream.gateway.alone.farewell import Farewell
from coldstream.gateway.alone.greeting import Greeting, GreetingStep
from coldstream.gateway.alone.liveness import Liveness, LivenessVerdict
from coldstream.gateway.alone.open_frames import OpenFrames
from coldstream.gateway.alone.options import LEAST_FRAME_BYTES
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Close, CloseAnswer, Heartbeat, SaslAuthenticate
from coldstream.gateway.proxy.scanner import FrameScanner
from coldstream.gateway.proxy.side import ConnectionSide
from coldstream.live.address import place_text

_LOG = logging.getLogger("coldstream.gateway.connection")
_HEARTBEAT = Heartbeat().to_bytes()


class AloneConnection:
    """One client's connection. `over` is called once, when its socket is closed. `scratch` is what all read into."""

    def __init__(
        self, number: int, parts: AloneParts, scratch: memoryview, over: Callable[[AloneConnection], None]
    ) -> None:
        self._number = number
        self._parts = parts
        self._scratch = scratch
        self._over = over
        self._loop = asyncio.get_running_loop()
        self.client: ConnectionSide = ClientSide(self)
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun_at = self._loop.time()

    # SideOwner

    def made(self, side: ConnectionSide) -> None:
        """Begin, once the socket is connected."""
        assert isinstance(side, ClientSide)
        parts, options = self._parts, self._parts.options
        self._side = side
        client, here = (side.transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        advertised = (options.advertised_host, options.advertised_port)
        self._link = AloneLink(side, place_text(str(client[0]), int(client[1])), self.close)
        self._peer = AlonePeer(
            self._number,
            self._link,
            str(client[0]),
            advertised if options.advertised_host else (str(here[0]), int(here[1])),
            options,
            parts.permissions,
            parts.figures,
            parts.sending,
        )
        self._permitted = parts.permissions.current
        self._liveness = Liveness(options.idle_s, options.stuck_s, self._loop.time())
        self._frames = OpenFrames(parts, self._peer, self)
        self._farewell = Farewell(side, self._peer, self._frames)
        self._greeting = Greeting(self._peer, parts.logins, self._spawn, self._agreed, self.leave)
        # What it sends too much of, it does not get answered: the side is its own other side.
        self._scanner = FrameScanner(
            self._scratch,
            EveryFrame(self),
            side.outlet,
            with_chunks=False,
            max_frame_bytes=LEAST_FRAME_BYTES,
            max_taken_bytes=options.frame_max_bytes,
        )
        side.join(self._scanner, side)

    def broken(self, side: ConnectionSide, code: Code, reason: str) -> None:  # noqa: ARG002  there is one
        """End after what cannot be a frame: nothing that comes after it means anything."""
        self._scanner.is_over = True
        self.refuse_frame(code, reason)

    def lost(self, side: ConnectionSide, error: Exception | None) -> None:  # noqa: ARG002
        """End everything: the socket is closed."""
        if self._is_over:
            return
        self._is_over = True
        self._farewell.over()
        self._frames.forget()
        self._frames.publishers.close()
        for task in tuple(self._tasks):
            task.cancel()
        _LOG.log(
            logging.INFO if side.read_bytes else logging.DEBUG,
            "connection ended",
            extra={
                **self._peer.log_fields,
                "bytes_from_client": side.read_bytes,
                "bytes_to_client": side.sent_bytes,
                "frames_from_client": self._scanner.frames,
            },
        )
        self._over(self)

    # By the server.

    @property
    def is_closing(self) -> bool:
        """Tell whether it is ending already."""
        return self._is_over or self._farewell.is_begun

    def close(self, code: Code, reason: str) -> None:
        """Have what was published confirmed; then say goodbye, and end within a bound."""
        if self.is_closing:
            return
        if self._is_open:
            self._farewell.say(code, reason)
        else:
            self._farewell.leave()

    def abort(self) -> None:
        """Close the socket at once."""
        self.client.transport.abort()

    def tick(self, now: float) -> None:
        """Send a heartbeat if one is due; let go of a client that has to go. Called every second."""
        if self.is_closing:
            return
        if not self._is_open:
            if now - self._begun_at > self._parts.options.login_within_s:
                _LOG.info("a client did not log in in time", extra=self._peer.log_fields)
                self.abort()
            return
        if not self._may_stay():
            _LOG.warning("a user may not be here any more", extra=self._peer.log_fields)
            self.close(Code.ACCESS_REFUSED, "the user may not be here any more")
            return
        verdict = self._liveness.look(
            now,
            read_bytes=self._side.read_bytes,
            sent_bytes=self._side.sent_bytes,
            unsent_bytes=self._side.transport.get_write_buffer_size(),
            is_full=self._link.is_full,
            is_held=self._side.is_held,
            is_used=self._frames.is_used,
        )
        match verdict:
            case LivenessVerdict.BEAT:
                self._link.send(_HEARTBEAT)
            case LivenessVerdict.SILENT | LivenessVerdict.STUCK:
                _LOG.warning("a client is %s", verdict.name.lower(), extra=self._peer.log_fields)
                self.abort()
            case LivenessVerdict.IDLE:
                self.close(Code.OK, "idle")

    def _may_stay(self) -> bool:
        """Tell whether the user is still there, and may have the vhost open; end what may not be read any more."""
        peer = self._peer
        if not self._parts.logins.passwords.knows(peer.user):
            return False
        current = peer.permissions.current
        if current is not self._permitted:
            self._permitted = current
            if not current.may_open(peer.user, peer.vhost):
                return False
            self._frames.check_rights()
        return True

    # FrameReceiver

    def frame(self, body: FrameBody) -> None:
        """See FrameReceiver."""
        try:
            key, version = key_of(body)
            if self.is_closing:
                if key in {Key.CLOSE, Key.CLOSE | ANSWER}:
                    self.leave()
            elif self._is_open:
                self._frames.take(key, version, body)
            elif key == Key.CLOSE:
                self.closed_by_client(body)
            else:
                self._greeting.frame(key, body)
        except BadFrameError as err:
            self.refuse_frame(Code.UNKNOWN_FRAME, str(err))

    # OpenConnection

    async def is_same_user(self, asked: SaslAuthenticate) -> bool:
        """See OpenConnection."""
        return await self._greeting.is_same_user(asked)

    def refuse_frame(self, code: Code, reason: str) -> None:
        """See OpenConnection."""
        _LOG.warning("a client sent what it may not", extra={**self._peer.log_fields, "error": reason})
        if self.is_closing or not self._is_open:
            self.abort()
        else:
            self.close(code, reason)

    def closed_by_client(self, body: FrameBody) -> None:
        """See OpenConnection."""
        asked = Close.from_body(body)
        self._peer.send(CloseAnswer(asked.correlation_id, Code.OK).to_bytes())
        self.leave()

    def leave(self) -> None:
        """See OpenConnection."""
        self._farewell.leave()

    # Greeting.

    @property
    def _is_open(self) -> bool:
        return self._greeting.step is GreetingStep.DONE

    def _agreed(self, frame_max_bytes: int, heartbeat_s: int) -> None:
        self._scanner.max_frame_bytes = frame_max_bytes
        self._liveness.heartbeat_s = heartbeat_s

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
