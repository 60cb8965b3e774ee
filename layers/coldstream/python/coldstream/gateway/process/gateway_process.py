"""A child as its parent sees it."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from contextlib import suppress

from coldstream.gateway.process.channel import MAX_MESSAGE_BYTES, ChildMessage, ChildReport, channel_pair, send_options
from coldstream.gateway.process.options import GatewayOptions

REAP_WITHIN_S = 5.0
"""A child whose channel has ended has nothing left to do."""

_LOG = logging.getLogger(__name__)


class GatewayProcess:
    """A running child. It is in a group of its own, so that Ctrl-C reaches the parent alone, which passes it on."""

    def __init__(self, number: int, options: GatewayOptions, module: str = "coldstream.gateway.process.child") -> None:
        self.number = number
        self.is_listening = False
        self.failed: tuple[str, str] | None = None
        self.report = ChildReport()
        self.began_at = self.reported_at = time.monotonic()
        ours, theirs = channel_pair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  ourselves
                [sys.executable, "-m", module, str(theirs.fileno()), str(number)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
            # Before our copy of its end is closed: there is room for them, also if it has died already.
            send_options(ours, options)
        ours.setblocking(False)
        self._channel = ours
        self._is_reload_due = False
        self._is_understood = True

    def fileno(self) -> int:
        """Return the channel's descriptor, to wait for words of the child."""
        return self._channel.fileno()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def hear(self) -> bool:
        """Take over what the child has said; return False once it will say no more."""
        try:
            body = self._channel.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not body:
            return False
        self.reported_at = time.monotonic()  # whatever it says, it lives
        try:
            message = ChildMessage.from_bytes(body)
        except (ValueError, TypeError, LookupError, AttributeError) as err:
            self._wonder(err)
            return True
        self.is_listening |= message.is_listening
        self.failed = message.failed or self.failed
        if message.report is not None:
            self.report = message.report
        if self.is_listening and self._is_reload_due:
            self._is_reload_due = False
            self.signal(signal.SIGHUP)
        return True

    def reload(self) -> None:
        """Have it read its files again; if it does not listen yet, once it does: the signal would end it before."""
        if self.is_listening:
            self.signal(signal.SIGHUP)
        else:
            self._is_reload_due = True

    def _wonder(self, err: Exception) -> None:
        if self._is_understood:
            _LOG.error(
                "what a process says is not understood: if the program was replaced, start the gateway again",
                extra={"child": self.number, "reason": repr(err)},
            )
        self._is_understood = False

    def signal(self, number: int) -> None:
        """Send a signal; one that has ended already is left alone."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def reap(self) -> int:
        """Wait for the end of the process, and force it; return its exit status, negative for a signal."""
        self._channel.close()
        try:
            return self._process.wait(REAP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
