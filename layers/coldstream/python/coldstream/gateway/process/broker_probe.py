"""Whether the broker answers: it is asked for its properties, as any client does first."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress

from coldstream.errors import BadFrameError, InvalidSettingError
from coldstream.gateway.frames.answers import PeerPropertiesAnswer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import PeerProperties
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.options import BrokerSide
from coldstream.gateway.process.tls import broker_context

EVERY_S = 5.0
WITHIN_S = 5.0
STOP_WITHIN_S = 0.5
_MAX_ANSWER_BYTES = 64 << 10
_LOG = logging.getLogger(__name__)


class BrokerProbe:
    """Asks again and again, in a thread of its own, and remembers the last answer."""

    def __init__(self, broker: BrokerSide, *, every_s: float = EVERY_S, within_s: float = WITHIN_S) -> None:
        self._broker = broker
        self._every_s = every_s
        self._within_s = within_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-probe", daemon=True)
        self.problem: str | None = "the broker has not been asked yet"
        """Why no broker answers, None if one does."""

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. A question that hangs is not waited for: its thread ends with the process."""
        self._is_over.set()
        self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self.problem = self.ask()
            except Exception as err:  # noqa: BLE001  see below
                # Whatever it is: without this thread, what it found last would be shown for ever.
                self.problem = f"the question failed: {err!r}"
                _LOG.exception("the broker cannot be asked")
            self._is_over.wait(self._every_s)

    def ask(self) -> str | None:
        """Ask the addresses in turn until one answers; return why none does."""
        problems = []
        for address in self._broker.addresses:
            problem = self._ask_one(address)
            if problem is None:
                return None
            problems.append(f"{address}: {problem}")
        return "; ".join(problems)

    def _ask_one(self, address: HostPort) -> str | None:
        deadline = time.monotonic() + self._within_s
        try:
            with socket.create_connection((address.host, address.port), self._within_s) as plain:
                link = plain
                if self._broker.is_tls:
                    name = self._broker.server_name or address.host
                    link = broker_context(self._broker).wrap_socket(plain, server_hostname=name)
                with link:
                    link.sendall(_question())
                    size = int.from_bytes(_receive(link, 4, deadline))
                    if size > _MAX_ANSWER_BYTES:
                        return f"answered with a frame of {size} bytes: this is not the stream protocol"
                    _check(_receive(link, size, deadline))
                    with suppress(OSError):
                        link.shutdown(socket.SHUT_RDWR)
        except (OSError, EOFError, UnicodeError, BadFrameError, InvalidSettingError) as err:
            return str(err) or type(err).__name__
        return None


def _question() -> bytes:
    properties = {"product": "coldstream gateway", "connection_name": "coldstream gateway: probe"}
    return PeerProperties(1, properties).to_bytes()


def _check(body: bytes) -> None:
    """Raise BadFrameError unless this answers the question."""
    key, _ = key_of(body)
    if key != PeerPropertiesAnswer.KEY:
        raise BadFrameError(f"answered with a frame of key {key:#x}: this is not the stream protocol")
    code = PeerPropertiesAnswer.from_body(body).code
    if code != Code.OK:
        raise BadFrameError(f"answered with code {code}")


def _receive(link: socket.socket, size_bytes: int, deadline: float) -> bytes:
    found = b""
    while len(found) < size_bytes:
        link.settimeout(max(0.01, deadline - time.monotonic()))
        part = link.recv(size_bytes - len(found))
        if not part:
            raise EOFError("closed the connection")
        found += part
    return found
