"""The parent: it takes the port, starts a child a core, starts those again that end, and ends all of them orderly.

Every child listens by itself at the same address (SO_REUSEPORT), and the kernel spreads new connections over those that
listen. So a child that has died gets none until it is there again. The parent only holds the address: its own socket is
bound, and doesn't listen.

SIGTERM, SIGINT   no new connections; children have `drain_s` for those that are open, then the parent ends. A second
                  signal ends everything at once.
SIGHUP            children read their certificate again.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from coldstream.errors import InvalidSettingError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.gateway_process import GatewayProcess
from coldstream.gateway.process.listening import hold_address
from coldstream.gateway.process.options import GatewayOptions
from coldstream.gateway.process.service_notice import notify_supervisor
from coldstream.retry import Backoff

KILL_AFTER_S = 5.0
"""Beyond the time to drain: a child that has not ended then hangs."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Before a child that ended is started again: the pause doubles while children end soon after they began."""

STEADY_S = 60.0
"""After so long, a child's end has nothing to do with its beginning."""

SILENT_S = 60.0
"""A child that has not reported for so long hangs: it is killed, and started again."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """The place of a child, whichever process is in it."""

    number: int
    child: GatewayProcess | None = None
    start_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))


class Supervisor:
    """Runs the children until a signal ends them. Other threads may read what its properties and `children` return."""

    def __init__(
        self,
        options: GatewayOptions,
        *,
        start: Callable[[int, GatewayOptions], GatewayProcess] = GatewayProcess,
        on_ready: Callable[[HostPort], None] = lambda _: None,
    ) -> None:
        self._start = start
        self._on_ready = on_ready
        self._held = hold_address(options.listen)
        host, port = self._held.getsockname()[:2]
        self.listen = HostPort(host, port)
        self._options = replace(options, listen=self.listen)
        self._slots = [_Slot(number) for number in range(options.processes)]
        self._lock = threading.Lock()
        self._ended = GatewayFigures()
        self._was_ready = False
        self.restarts = 0
        self.is_draining = False
        self.began_at = self.turned_at = time.monotonic()
        self._drain_until: float | None = None
        self._selector = selectors.DefaultSelector()

    @property
    def options(self) -> GatewayOptions:
        """The options, with the port that was taken."""
        return self._options

    def children(self) -> list[GatewayProcess]:
        """Return the children that run."""
        with self._lock:
            return [slot.child for slot in self._slots if slot.child is not None]

    def ended_figures(self) -> GatewayFigures:
        """Return the totals of the children that have ended: totals never fall when one is started again."""
        with self._lock:
            found = GatewayFigures()
            found.add_totals(self._ended)
            return found

    def run(self) -> None:
        """Run until a signal has ended all children.

        Call it in the main thread. Raises InvalidSettingError if the first children find a setting wrong.
        """
        with self._held, self._signals() as woken:
            self._selector.register(woken, selectors.EVENT_READ)
            try:
                while not (self.is_draining and not self.children()):
                    self._turn(woken)
            finally:
                for child in self.children():
                    child.signal(signal.SIGKILL)
                    child.reap()
                self._selector.close()

    def _turn(self, woken: socket.socket) -> None:
        now = self.turned_at = time.monotonic()
        if not self.is_draining:
            for slot in self._slots:
                if slot.child is None and slot.start_at <= now:
                    self._start_child(slot)
        for key, _ in self._selector.select(timeout=self._wait_s(now)):
            if key.fileobj is woken:
                self._take_signals(woken.recv(64))
            else:
                self._hear(key.data)
        for child in self.children():
            if time.monotonic() - child.reported_at > SILENT_S:
                _LOG.error("a process hangs, and is killed", extra={"child": child.number, "pid": child.pid})
                child.signal(signal.SIGKILL)
        if self._drain_until is not None and time.monotonic() > self._drain_until:
            _LOG.warning("processes have not ended in time, and are killed")
            for child in self.children():
                child.signal(signal.SIGKILL)

    def _wait_s(self, now: float) -> float:
        """Wait for a second at most: whoever looks whether the parent still turns must not be deceived."""
        starts = [slot.start_at - now for slot in self._slots if slot.child is None]
        return max(0.0, min(1.0, *starts)) if starts and not self.is_draining else 1.0

    def _start_child(self, slot: _Slot) -> None:
        child = self._start(slot.number, self._options)
        with self._lock:
            slot.child = child
        self._selector.register(child, selectors.EVENT_READ, slot)
        _LOG.debug("a process starts", extra={"child": slot.number, "pid": child.pid})

    def _hear(self, slot: _Slot) -> None:
        child = slot.child
        assert child is not None
        if child.hear():
            self._say_ready()
            return
        self._selector.unregister(child)
        status = child.reap()
        ran_s = time.monotonic() - child.began_at
        with self._lock:
            self._ended.add_totals(child.report.figures)
            slot.child = None
        if self.is_draining:
            return
        if child.failed is not None and not self._was_ready:
            raise InvalidSettingError(*child.failed)
        if ran_s >= STEADY_S:
            slot.backoff.reset()
        pause_s = slot.backoff.next_delay_s()
        slot.start_at = time.monotonic() + pause_s
        self.restarts += 1
        _LOG.error(
            "a process has ended, and is started again",
            extra={"child": slot.number, "status": status, "reason": child.failed, "pause_s": round(pause_s, 3)},
        )

    def _say_ready(self) -> None:
        if not self._was_ready and all(slot.child is not None and slot.child.is_listening for slot in self._slots):
            self._was_ready = True
            _LOG.info("listening", extra={"address": str(self.listen), "processes": len(self._slots)})
            notify_supervisor("READY=1")
            self._on_ready(self.listen)

    @contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Have signals wake the loop, whatever it waits for, and restore what they did before."""
        reading, writing = socket.socketpair()
        with reading, writing:
            writing.setblocking(False)
            before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGHUP)}
            before_fd = signal.set_wakeup_fd(writing.fileno())
            for number, handler in before.items():
                if handler is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup ignores it, and means it
                    signal.signal(number, lambda *_: None)
            try:
                yield reading
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before_fd)

    def _take_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGHUP:
                for child in self.children():
                    child.signal(signal.SIGHUP)
            elif number in _ENDING:
                self._end(number)

    def _end(self, number: int) -> None:
        if self.is_draining:
            for child in self.children():
                child.signal(signal.SIGKILL)
                with suppress(OSError):
                    child.reap()
            os._exit(128 + number)
        self.is_draining = True
        self._drain_until = time.monotonic() + self._options.drain_s + KILL_AFTER_S
        _LOG.info("draining", extra={"seconds": self._options.drain_s})
        notify_supervisor("STOPPING=1")
        for child in self.children():
            child.signal(signal.SIGTERM)
